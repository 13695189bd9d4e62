"""Events that are stored through kept connections are those that Dagster stores, and are seen by others at once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
from dagster import AssetExecutionContext
from dagster._core.storage.event_log import SqliteEventLogStorage

from upsert_platform.demo.instance import SHIPPED_SETTINGS
from upsert_platform.graph.event_storage import KeptEventStorage

SECONDS = 60


@dg.asset(check_specs=[dg.AssetCheckSpec("holds", asset="counted")])
def counted(context: AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
    context.log.info("a line")
    yield dg.MaterializeResult(metadata={"rows": 3}, check_results=[dg.AssetCheckResult(passed=True)])


@contextmanager
def shipped(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """An instance with the settings that `setup` copies."""
    home.mkdir()
    (home / "dagster.yaml").write_text(SHIPPED_SETTINGS.read_text("utf-8"), "utf-8")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with dg.DagsterInstance.get() as instance:
        yield instance


def test_what_is_stored_is_what_dagster_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shipped(tmp_path / "home", monkeypatch) as instance:
        assert isinstance(instance.event_log_storage, KeptEventStorage)
        done = dg.materialize([counted], instance=instance)
        told = [entry.dagster_event_type for entry in instance.all_logs(done.run_id)]
    (tmp_path / "own").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "own")) as plain:
        same = dg.materialize([counted], instance=plain)
        assert told == [entry.dagster_event_type for entry in plain.all_logs(same.run_id)]
    read = SqliteEventLogStorage(str(tmp_path / "home" / "history" / "runs"))
    assert [entry.dagster_event_type for entry in read.get_logs_for_run(done.run_id)] == told
    latest = read.get_latest_materialization_events([counted.key])[counted.key]
    assert latest is not None
    assert latest.asset_materialization is not None
    assert latest.asset_materialization.metadata["rows"].value == 3
    checks = read.get_latest_asset_check_execution_by_key([dg.AssetCheckKey(counted.key, "holds")])
    assert [record.run_id for record in checks.values()] == [done.run_id]


def test_who_watches_a_run_is_told_while_its_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shipped(tmp_path / "home", monkeypatch) as instance:
        done = dg.materialize([counted], instance=instance)
        entry = instance.all_logs(done.run_id)[-1]
        seen = threading.Event()
        watching = SqliteEventLogStorage(str(tmp_path / "home" / "history" / "runs"))
        cursor = watching.get_records_for_run(done.run_id).cursor
        watching.watch(done.run_id, cursor, lambda *_: seen.set())
        try:
            for _ in range(SECONDS):  # the watcher of files starts in a thread of its own
                instance.event_log_storage.store_event(entry)
                if seen.wait(1):
                    break
            assert seen.is_set()
        finally:
            watching.dispose()


def test_events_can_be_wiped_and_stored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shipped(tmp_path / "home", monkeypatch) as instance:
        first = dg.materialize([counted], instance=instance)
        instance.wipe()
        assert instance.all_logs(first.run_id) == []
        assert instance.get_latest_materialization_event(counted.key) is None
        for _ in range(12):  # more runs than databases are kept open
            last = dg.materialize([counted], instance=instance)
        assert instance.all_logs(last.run_id)
        latest = instance.get_latest_materialization_event(counted.key)
        assert latest is not None
        assert latest.run_id == last.run_id


def test_events_are_not_stored_wherever_a_process_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with pytest.raises(dg.DagsterInvariantViolationError, match="set DAGSTER_HOME"):
        KeptEventStorage.from_config_value(None, {})
