"""Runs that find nothing new: steps and checks as ever, and no materialisation that takes the place of the last one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from upsert_platform import testing
from upsert_platform.core.destination import Verdict
from upsert_platform.graph import checks

pytestmark = pytest.mark.whole_runs

SQL = """
CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users', 'properties.bootstrap.servers' = '${BROKERS}',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE copies (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '${STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${ID}', 'tablestore.access.key.secret' = '${SECRET}', 'check.plan' = 'error'${AGE});
CREATE TABLE totals (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'tablestore.endpoint' = '${STORE}', 'tablestore.instance.name' = 'shop',
  'tablestore.access.key.id' = '${ID}', 'tablestore.access.key.secret' = '${SECRET}');
INSERT INTO copies SELECT * FROM users;
INSERT INTO totals SELECT name, COUNT(*) FROM users GROUP BY name;
"""
WHOLE = {"changelogs/users", "queries/totals", "tables/copies", "tables/totals"}
CHECKS = {
    "changelogs/users:offsets_accounted", "changelogs/users:quarantine_below",
    "tables/copies:last_value_per_key", "tables/totals:last_value_per_key",
}  # fmt: skip


def opened(folder: Path, *, age: str = "") -> Iterator[testing.ProjectUnderTest]:
    (folder / "shop.sql").write_text(SQL.replace("${AGE}", age), "utf-8")
    with testing.project(folder) as shop:
        shop.send("users", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
        assert set(shop.sync().materialized) == WHOLE
        yield shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[testing.ProjectUnderTest]:
    yield from opened(tmp_path)


@pytest.fixture
def aged(tmp_path: Path) -> Iterator[testing.ProjectUnderTest]:
    yield from opened(tmp_path, age=", 'freshness.max-age' = '1 d'")


def last(shop: testing.ProjectUnderTest, key: str) -> int:
    found = shop.instance.get_latest_materialization_event(dg.AssetKey.from_user_string(key))
    assert found is not None
    return int(found.timestamp * 1000)


def everything(shop: testing.ProjectUnderTest) -> dg.ExecuteInProcessResult:
    """The run of *Materialize all*."""
    return shop.definitions.resolve_implicit_global_asset_job_def().execute_in_process(instance=shop.instance)


def test_a_sync_without_news_evaluates_its_checks_and_materialises_nothing(shop: testing.ProjectUnderTest) -> None:
    before = {key: last(shop, key) for key in WHOLE}
    again = shop.sync()
    assert again.success
    assert again.materialized == ()
    assert set(again.checks) == CHECKS
    assert set(again.checks.values()) == {True}
    assert {key: last(shop, key) for key in WHOLE} == before
    shop.send("users", [{"id": 3, "name": "a"}])
    assert set(shop.sync().materialized) == WHOLE
    assert [row["id"] for row in shop.rows("copies")] == [1, 2, 3]


def test_checks_that_a_sync_does_not_plan_keep_their_result(shop: testing.ProjectUnderTest) -> None:
    everything(shop)
    keys = shop.definitions.resolve_asset_graph().asset_check_keys
    shop.sync()
    storage = shop.instance.event_log_storage
    found = storage.get_latest_asset_check_execution_by_key(list(keys))
    assert set(found) == set(keys)
    for key, record in found.items():
        shown = record.evaluation.target_materialization_data if record.evaluation else None
        newest = shop.instance.get_latest_materialization_event(key.asset_key)
        assert shown is not None and newest is not None
        assert shown.timestamp == pytest.approx(newest.timestamp), key


def test_nothing_is_left_out_that_an_instance_does_not_know(shop: testing.ProjectUnderTest) -> None:
    shop.instance = dg.DagsterInstance.ephemeral()
    assert set(shop.sync().materialized) == WHOLE
    old = dg.AssetMaterialization(
        ["tables", "totals"], tags={"dagster/data_version": "another", "dagster/code_version": "another"}
    )
    shop.instance.report_runless_asset_event(old)
    assert shop.sync().materialized == ("tables/totals",)


def test_an_asset_whose_age_dagster_counts_is_materialised_in_each_run(aged: testing.ProjectUnderTest) -> None:
    assert aged.sync().materialized == ("tables/copies",)


@pytest.mark.parametrize(
    ("check", "mark", "words"),
    [
        ("equals_source", {"proven_through": "users-0:2"}, "not proven: execute this check alone, or job 'prove'"),
        ("equals_topic", {"equal_rows": 2}, "not judged: execute this check alone, or job 'audit'"),
        ("unchanged", {"plan": "{}"}, "not planned: execute this check alone, or job 'plan'"),
    ],
)
def test_a_check_that_compared_nothing_is_not_green(
    shop: testing.ProjectUnderTest, check: str, mark: dict[str, object], words: str
) -> None:
    def evaluated() -> dg.AssetCheckEvaluation:
        [found] = [
            item
            for item in everything(shop).get_asset_check_evaluations()
            if (item.asset_key.path[-1], item.check_name) == ("copies", check)
        ]
        return found

    found = evaluated()
    assert (found.passed, found.severity.value, found.description) == (False, "WARN", words)
    # A failed proof stands, however often a run leaves it out; so does one that passed.
    for passed in (False, True):
        shop.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey(["tables", "copies"]),
                check_name=check,
                passed=passed,
                metadata={key: dg.MetadataValue.text(str(value)) for key, value in mark.items()}
                | {"new": dg.MetadataValue.bool(True)},
                description=None if passed else "id=1 is stale",
            )
        )
        for _ in range(2):
            found = evaluated()
            assert (found.passed, found.severity.value, found.metadata["new"].value) == (passed, "ERROR", False)
            told = "the last result stands, this run compared nothing"
            assert found.description == (told if passed else f"{told}: id=1 is stale")
            assert set(mark) <= set(found.metadata)


@pytest.mark.parametrize("differs_beside", [True, False])
def test_equal_rows_of_a_batch_take_no_difference_back_that_was_found_meanwhile(
    shop: testing.ProjectUnderTest, monkeypatch: pytest.MonkeyPatch, *, differs_beside: bool
) -> None:
    """A look at all rows ends while the check of a sync looks at those of its batch."""
    compare = checks.check_batch

    def meanwhile(spark: Any, hop: Any, *, after: int, upto: int) -> Any:
        found = compare(spark, hop, after=after, upto=upto)
        state = hop.destination.state()
        if differs_beside and hop.destination.name == "copies":
            told = Verdict(1, passed=False, complete=True, at=datetime.now(UTC), detail="missing 1, extra 0, stale 0")
            ids = {"changelog_id": state.changelog_id, "table_id": state.table_id}
            hop.destination.record_verdict(replace(told, **ids))
        return found

    monkeypatch.setattr(checks, "check_batch", meanwhile)
    shop.send("users", [{"id": 3, "name": "c"}])
    done = shop.sync(raise_on_error=not differs_beside)
    assert done.checks["tables/copies:last_value_per_key"] is not differs_beside
    assert done.checks["tables/totals:last_value_per_key"]
    hop = shop.platform.destination_hop("copies", run="test")
    verdict = hop.plan().state.verdict
    hop.destination.close()
    assert verdict is not None
    assert (verdict.passed, verdict.batch) == ((False, 1) if differs_beside else (True, 2))
