"""Errors made for users end a step with their text first; everything else keeps its trace."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from upsert_platform.core.destination import DestinationState
from upsert_platform.core.errors import ChangelogError, DeclarationError, DestinationError, EndpointError, Problem
from upsert_platform.core.task_runner import SparkTaskRunner
from upsert_platform.graph import keys
from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.failures import told_plainly
from upsert_platform.graph.io_managers import ChangelogIOManager, DestinationIOManager
from upsert_platform.graph.resources import (
    KafkaResource,
    MaxComputeResource,
    PlatformResource,
    SparkResource,
    TablestoreResource,
)
from upsert_platform.spark.spark_work import SparkWork
from upsert_platform.sync.binding import load
from upsert_platform.sync.changelog_hop import ChangelogPlan
from upsert_platform.sync.destination_hop import DestinationPlan
from upsert_platform_tests.local.tablestore.server import free_port

USERS = """
CREATE TABLE users (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users', 'properties.bootstrap.servers' = '127.0.0.1:9',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE copies (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'copies', 'properties.bootstrap.servers' = '127.0.0.1:9',
  'key.format' = 'json', 'value.format' = 'json');
INSERT INTO copies SELECT id FROM users;
"""


def test_a_jvm_that_is_gone_is_told_with_the_remedy() -> None:
    """Py4J's own texts name a port or an object of the JVM."""
    from py4j.java_gateway import GatewayParameters, JavaGateway

    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=free_port()))
    with pytest.raises(dg.Failure, match=r"Spark's JVM is gone: .* 'spark.driver.memory'"), told_plainly():
        gateway.jvm.System.currentTimeMillis()
    runner = SparkTaskRunner(lambda: gateway.jvm.System.currentTimeMillis())
    with pytest.raises(EndpointError, match="Spark's JVM is gone"):  # also where the step has a word for its own errors
        runner.call(int, what="count")
    with pytest.raises(ConnectionRefusedError), told_plainly():
        raise ConnectionRefusedError("of somebody else")


def test_error_for_users_becomes_the_description() -> None:
    with pytest.raises(dg.Failure) as raised, told_plainly():
        raise DestinationError("table 'a' is gone; create it")
    assert raised.value.description == "table 'a' is gone; create it [UP-2200]"
    assert raised.value.allow_retries is True, "a retry policy is the user's"
    assert isinstance(raised.value.__cause__, DestinationError)
    with pytest.raises(dg.Failure) as wrong, told_plainly():
        raise DeclarationError([Problem("table 'a' has no column", None)])
    assert wrong.value.allow_retries is False, "a wrong declaration stays wrong"


def test_defect_passes_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), told_plainly():
        _ = 1 / 0


def test_step_of_a_sync_fails_with_the_text_of_the_error(tmp_path: Path) -> None:
    """The folder of the changelog holds another Delta table."""
    import pyarrow as pa
    from deltalake import write_deltalake

    (tmp_path / "users.sql").write_text(USERS)
    write_deltalake(str(tmp_path / "lake" / "changelogs" / "users"), pa.table({"id": [1]}))
    project, _ = load(tmp_path, root=str(tmp_path / "lake"))
    platform = PlatformResource(
        project=str(tmp_path),
        home=str(tmp_path / "lake"),
        kafka=KafkaResource(),
        tablestore=TablestoreResource(),
        maxcompute=MaxComputeResource(),
    )
    job = build_definitions(project, platform=platform).resolve_job_def("sync")
    result = job.execute_in_process(raise_on_error=False)
    failed = {event.step_key: event.step_failure_data for event in result.get_step_failure_events()}
    data = failed["changelogs__users"]
    assert data.user_failure_data is not None
    assert "is a Delta table, but not a changelog" in (data.user_failure_data.description or "")
    assert data.error is not None
    assert data.error.message.startswith("dagster._core.definitions.events.Failure: ")
    assert data.error.cause is not None
    assert ChangelogError.__name__ in data.error.cause.message


def test_table_that_another_run_brought_up_to_date_is_not_behind() -> None:
    """Of two runs at once the second plans before, and writes after, the first has written."""
    hop = SimpleNamespace(
        rows_behind=lambda plan: 5,
        execute=lambda spark, plan, **_: None,
        target=SimpleNamespace(table=SimpleNamespace(name="users")),
        destination=SimpleNamespace(close=lambda: None),
    )
    platform = SimpleNamespace(root="s3://lake", destination_hop=lambda name, run: hop)
    spark = SimpleNamespace(
        serve=lambda platform: None,
        on_demand=lambda: None,
        expect=lambda rows: None,
        refuse_wrong=lambda platform, writes: None,
        times_asked=0,
        page=lambda since: None,
        take_work=SparkWork,
    )
    context = dg.build_output_context(
        asset_key=dg.AssetKey(["tables", "users"]), definition_metadata={keys.TABLE_METADATA: "users"}, run_id="run"
    )
    plan = DestinationPlan(DestinationState(), None)
    DestinationIOManager(platform, spark).handle_output(context, plan)  # type: ignore[arg-type]
    assert context.consume_logged_metadata()["batches_behind"] == dg.MetadataValue.int(0)


def test_a_lake_that_cannot_be_written_is_told_in_one_line_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(resource: SparkResource) -> object:
        raise AssertionError("a session was asked for")

    monkeypatch.setattr(SparkResource, "spark_session", property(asked))
    nowhere = "/proc/nowhere"
    platform = SimpleNamespace(root=nowhere, changelog_hop=lambda name, run: None, destination_hop=None)
    context = dg.build_output_context(step_key="users", definition_metadata={keys.TABLE_METADATA: "users"}, run_id="r")
    for manager, plan in (
        (partial(ChangelogIOManager, names=keys.AS_DECLARED), ChangelogPlan(None, (), ())),
        (DestinationIOManager, DestinationPlan(DestinationState(), None)),
    ):
        with pytest.raises(dg.Failure) as raised:
            manager(platform, SparkResource()).handle_output(context, plan)  # type: ignore[arg-type]
        told = raised.value.description or ""
        assert "/proc/nowhere: " in told
        assert "UPSERT_PLATFORM_HOME" in told
        assert "\n" not in told
