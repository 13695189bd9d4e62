"""Resources of a run: what it is launched with is used wherever the run works; assets of one's own; vanished tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg
import pytest

from upsert_platform.graph import keys
from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.resources import SparkResource
from upsert_platform.sync.binding import load
from upsert_platform_tests.graph.stack import Stack, checks_of, metadata_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs


class NotingSpark(SparkResource):
    """Notes with which settings a session was asked for."""

    asked: ClassVar[list[dict[str, str]]] = []

    def _init_session(self) -> None:
        self.asked.append(dict(self.settings))
        super()._init_session()


def send(stack: Stack, *users: tuple[int, str]) -> None:
    stack.produce(
        (f'{{"user_id":{key}}}'.encode(), f'{{"user_id":{key},"name":"{name}"}}'.encode()) for key, name in users
    )


def test_what_a_run_is_launched_with_is_used_by_assets_io_managers_and_checks(stack: Stack, tmp_path: Path) -> None:
    stack.declare(warehouse=None)
    send(stack, (1, "one"), (2, "two"))
    project, _ = load(stack.project, root=str(stack.lake))
    definitions = build_definitions(project, platform=stack.platform(), spark=NotingSpark(settings={"spark.a": "b"}))
    other, launched = tmp_path / "other", {"spark.upsert.test": "launched"}
    resources = {
        "platform": {"config": {"home": str(other)}},
        "spark": {"config": {"settings": launched, "local_rows": 0}},
    }
    NotingSpark.asked.clear()
    result = definitions.resolve_job_def("sync").execute_in_process(
        run_config={"resources": resources}, raise_on_error=False
    )
    assert result.success
    assert all(checks_of(result).values())
    assert len(checks_of(result)) == 3
    assert NotingSpark.asked
    assert "spark_ui" not in metadata_of(result, "tables", "users_serving"), "this session has no page"
    assert all(settings == launched for settings in NotingSpark.asked)
    assert (other / "changelogs" / "users" / "_delta_log").is_dir()
    assert not stack.lake.exists()
    assert {row[0]: row[1] for row in stack.serving_rows()} == {1: "one", 2: "two"}


def own_table(stack: Stack) -> None:
    """Adds a table to the project that no insert writes."""
    text = (stack.project / "users.sql").read_text("utf-8")
    (stack.project / "users.sql").write_text(text.replace("INSERT INTO users_serving SELECT * FROM users;", ""))


def run_own(stack: Stack, spark: SparkSession, rows: list[tuple[Any, ...]], ddl: str) -> dg.ExecuteInProcessResult:
    @dg.asset(name="mine", io_manager_key=keys.DESTINATION_IO, metadata={keys.TABLE_METADATA: "users_serving"})
    def mine() -> Any:
        return spark.createDataFrame(rows, ddl)

    definitions = dg.Definitions.merge(stack.definitions(), dg.Definitions(assets=[mine]))
    job = definitions.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(asset_selection=[mine.key], raise_on_error=False)


def test_a_frame_of_ones_own_asset_is_written_to_a_declared_table(stack: Stack, spark: SparkSession) -> None:
    stack.declare(warehouse=None)
    own_table(stack)
    ddl = "name STRING, user_id BIGINT, region STRING, balance DECIMAL(12, 2), updated_at TIMESTAMP"
    assert run_own(stack, spark, [("a", 1, "r", None, None), ("b", 2, "r", None, None)], ddl).success
    again = run_own(
        stack, spark, [("c", 2, "s", None, None, "U"), (None, 1, None, None, None, "D")], f"{ddl}, _op STRING"
    )
    assert again.success
    (done,) = again.get_asset_materialization_events()
    shown = {name: value.value for name, value in done.materialization.metadata.items()}
    assert (shown["applied_batch"], shown["upserts"], shown["deletes"], shown["refused"]) == (2, 1, 1, 0)
    assert {row[0]: row[1:3] for row in stack.serving_rows()} == {2: ["c", "s"]}
    for rows, columns, message in (
        ([("c", 2)], "name STRING, user_id BIGINT", "the frame lacks region, balance, updated_at"),
        ([("c", 2, "s", None, None, 5)], f"{ddl}, more INT", "the frame also has more"),
        ([("c", 2, "s", None, None), ("d", 2, "s", None, None)], ddl, "several rows of a key"),
        ([("c", 2, "s", None, None, "X")], f"{ddl}, _op STRING", "and nothing else"),
    ):
        failed = run_own(stack, spark, rows, columns)
        assert not failed.success
        (error,) = [event for event in failed.all_events if event.is_step_failure]
        assert message in str(error.event_specific_data.user_failure_data.description)  # type: ignore[union-attr]
    assert {row[0]: row[1:3] for row in stack.serving_rows()} == {2: ["c", "s"]}


def test_a_vanished_table_is_a_failed_check_and_a_loud_rebuild(stack: Stack, capfd: pytest.CaptureFixture[str]) -> None:
    from odps import ODPS

    stack.declare(serving=None)
    send(stack, (1, "one"), (2, "two"))
    assert stack.run().success
    names = ("ACCESS_ID", "ACCESS_KEY", "PROJECT", "ENDPOINT")
    client = ODPS(*[stack.variables[f"UPSERT_MAXCOMPUTE_{name}"] for name in names])
    client.delete_table(stack.table)
    verified = stack.run("verify")
    (check,) = verified.get_asset_check_evaluations()
    assert not check.passed
    assert "the batches up to 1 were applied to" in str(check.description)
    capfd.readouterr()
    assert stack.run().success
    assert "warning: table 'users_warehouse': the batches up to 1 were applied to" in capfd.readouterr().err
    assert all(checks_of(stack.run("verify")).values())
    assert client.exist_table(stack.table)


def test_what_is_local_needs_no_cluster_and_a_wrong_one_is_refused_before_anything_runs(stack: Stack) -> None:
    stack.declare(warehouse=None)
    send(stack, (1, "one"), (2, "two"))
    job = stack.definitions().resolve_job_def("sync")

    def launched(master: str) -> dg.ExecuteInProcessResult:
        spark = {"config": {"profile": "standalone", "settings": {"spark.master": master}}}
        return job.execute_in_process(run_config={"resources": {"spark": spark}}, raise_on_error=False)

    refused = launched("spark://10.0.0.7:7077")  # where nobody sees the folder of this lake
    assert not refused.success
    (error,) = [event for event in refused.all_events if event.is_step_failure]
    told = str(error.event_specific_data.user_failure_data.description)  # type: ignore[union-attr]
    assert "keep the lake in object storage" in told
    assert not (stack.lake / "changelogs").exists()
    done = launched("spark://127.0.0.1:1")  # where nobody listens
    assert done.success
    assert {row[0]: row[1] for row in stack.serving_rows()} == {1: "one", 2: "two"}


def test_the_local_bound_of_a_launch_and_its_old_name(
    stack: Stack, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSERT_SPARK_LOCAL_ROWS", "0")
    stack.declare(warehouse=None)
    project, _ = load(stack.project, root=str(stack.lake))
    job = build_definitions(project, platform=stack.platform(), spark=NotingSpark()).resolve_job_def("sync")

    def opened(number: int, **launched: int) -> bool:
        send(stack, (number, "name"))
        NotingSpark.asked.clear()
        resources = {"spark": {"config": launched}}
        assert job.execute_in_process(run_config={"resources": resources}, raise_on_error=False).success
        return bool(NotingSpark.asked)

    capfd.readouterr()
    assert not opened(1, local_rows=100)
    assert "little_rows" not in capfd.readouterr().err
    assert not opened(2, little_rows=100)
    assert capfd.readouterr().err.count("'little_rows' of the Spark resource is called 'local_rows' now") == 1
    assert opened(3), "that of the environment"
    assert {row[0] for row in stack.serving_rows()} == {1, 2, 3}
