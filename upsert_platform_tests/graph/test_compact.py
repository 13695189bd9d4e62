"""Job `compact`: the lake gets smaller, tables stay equal, and what it dropped is never missed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from upsert_platform.changelog import compaction
from upsert_platform.changelog.compaction import CompactionReport
from upsert_platform.changelog.store import Head, Positions
from upsert_platform.changelog.upkeep import history_from
from upsert_platform.core.destination import DestinationState
from upsert_platform.core.errors import DestinationError
from upsert_platform.graph.compact import Applied, applied_of
from upsert_platform.sync.destination_hop import DestinationPlan
from upsert_platform.sync.leased import LEASE
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform_tests.graph.stack import Stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs


def _observed(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """Metadata of the observation of the changelog in a run."""
    (event,) = [item for item in result.all_events if item.event_type_value == "ASSET_OBSERVATION"]
    observation = event.asset_observation_data.asset_observation
    assert observation.asset_key == dg.AssetKey(["changelogs", "users"])
    return {name: value.value for name, value in observation.metadata.items()}


def test_compact_drops_what_every_table_has_and_sync_goes_on(
    spark: SparkSession, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.declare(warehouse=None, source=", 'batch.max-records' = '60'")
    stack.produce(stack.users.first_wave(50))
    stack.produce(stack.users.second_wave(60))
    assert stack.run().success
    left = stack.lake / "proofs" / "users_serving" / "proof-1"
    left.mkdir(parents=True)
    for path in (left, left / "part.parquet"):
        path.touch()
        os.utime(path, (0, 0))
    os.utime(left, (0, 0))
    with monkeypatch.context() as patched:
        patched.setenv("UPSERT_TABLESTORE_ACCESS_KEY_SECRET", "wrong")
        patched.setattr(compaction, "compact", lambda *_, **more: CompactionReport(0, 0, 0, more["applied_everywhere"]))
        assert _observed(stack.run("compact"))["rows_after"] == 0, "a table that cannot be asked may need tombstones"
    assert not left.exists()
    shown = _observed(stack.run("compact"))
    head = stack.platform().changelog_hop("users", run="test").store.head()
    assert head is not None
    assert shown["applied_everywhere"] == head.batch == head.floor > 1
    assert shown["rows_after"] == len(stack.users.rows) < shown["rows_before"]
    assert shown["files_after"] == 1 < shown["files_before"]
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "compact", lambda *_, **__: pytest.fail("nothing to do"))
        assert "rows_after" not in _observed(stack.run("compact"))
    stack.produce(stack.users.second_wave(40))
    assert stack.run().success
    assert stack.serving_differences() == []


def test_batches_that_are_retained_are_not_reduced(spark: SparkSession, stack: Stack) -> None:
    records = ", 'batch.max-records' = '60'"
    stack.declare(warehouse=None, source=f"{records}, 'history.retain' = '1 h'")
    stack.produce(stack.users.first_wave(50))
    stack.produce(stack.users.second_wave(60))
    assert stack.run().success
    store = stack.platform().changelog_hop("users", run="test").store
    head = store.head()
    assert head is not None
    assert head.batch > 1
    first = store.read(spark, after=0, upto=1).count()
    stack.run("compact")
    assert history_from(store) == 1
    assert store.read(spark, after=0, upto=1).count() == first
    stack.declare(warehouse=None, source=records)
    stack.run("compact")
    assert history_from(store) == head.batch
    assert store.read(spark, after=0, upto=1).count() < first


def test_while_a_table_is_written_history_is_reduced_up_to_what_it_holds(stack: Stack) -> None:
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(30))
    assert stack.run().success
    platform = stack.platform()
    changelog = platform.changelog_hop("users", run="test")
    held = changelog.store.head()
    stack.produce(stack.users.second_wave(10))
    head = changelog.execute(OnDemand(lambda: pytest.fail("few records")), changelog.plan()).head
    assert held is not None
    assert held.batch < head.batch

    def found() -> Applied:
        return applied_of(platform, "users", changelog.store, run="test", warn=pytest.fail)

    assert found() == Applied(held.batch, frozenset({held.batch}), head.batch)
    hop = stack.hop("users_serving")
    try:
        with hop.destination.lease(owner="another run", duration=LEASE):
            assert found() == Applied(held.batch, frozenset({held.batch}), held.batch)
    finally:
        hop.destination.close()


def test_what_a_query_has_not_read_is_not_reduced(stack: Stack) -> None:
    stack.declare(warehouse=None)
    counted = stack.project / "counted.sql"
    connector = "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json', 'auto.create' = 'true'"
    counted.write_text(
        f"CREATE TABLE counted (region STRING, n BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH ({connector},"
        f" 'topic' = '{stack.topic}-counted', 'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}');"
        " INSERT INTO counted SELECT region, COUNT(*) FROM users GROUP BY region;",
        "utf-8",
    )
    changelog = stack.platform().changelog_hop("users", run="test")

    def found() -> Applied:
        return applied_of(stack.platform(), "users", changelog.store, run="test", warn=pytest.fail)

    def read() -> int:
        stack.produce(stack.users.second_wave(10))
        head = changelog.execute(OnDemand(lambda: pytest.fail("few records")), changelog.plan()).head
        return head.batch

    stack.produce(stack.users.first_wave(30))
    batch = read()
    assert found().upto == batch, "a query that never ran begins with what is there"
    assert stack.run().success
    held = found()
    assert held.upto == held.everywhere > 0
    assert read() > held.upto
    assert found() == held, "the query goes on from there"


def test_table_that_was_away_while_deletes_were_dropped_is_refused(stack: Stack) -> None:
    hop = stack.hop("users_serving")
    head = Head("id", 9, Positions(), floor=7)
    for applied in (0, 7, 9):
        hop.check(DestinationPlan(DestinationState(applied, "id"), head))
    with pytest.raises(DestinationError, match="has applied batch 6, but deletes up to batch 7 were removed"):
        hop.check(DestinationPlan(DestinationState(6, "id"), head))
    hop.destination.close()


@pytest.mark.parametrize("broken", ["variable", "insert", "file"])
def test_a_table_whose_declaration_has_errors_keeps_its_tombstones(broken: str, stack: Stack) -> None:
    """It goes on from what it holds, once it is mended."""
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(30))
    assert stack.run().success
    stack.produce(stack.users.second_wave(10))
    changelog = stack.platform().changelog_hop("users", run="test")
    before = changelog.store.head()
    assert before is not None
    head = changelog.execute(OnDemand(lambda: pytest.fail("few records")), changelog.plan()).head
    assert before.batch < head.batch
    file = stack.project / "users.sql"
    if broken == "variable":
        stack.declare(warehouse=None, serving=", 'max.columns.count' = '${NOBODY_SETS_THIS}'")
    elif broken == "insert":
        file.write_text(file.read_text("utf-8").replace("SELECT * FROM users", "SELECT nothing FROM users"), "utf-8")
    else:
        source, serving = file.read_text("utf-8").split("CREATE TABLE users_serving")
        file.write_text(source, "utf-8")
        (stack.project / "serving.sql").write_text(f"CREATE TABEL users_serving{serving}", "utf-8")
    told: list[str] = []
    found = applied_of(stack.platform(), "users", changelog.store, run="test", warn=told.append)
    assert found == Applied(0, frozenset({before.batch}), before.batch)
    assert ["'users_serving' has errors" in line for line in told] == [True]
