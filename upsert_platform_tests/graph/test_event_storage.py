"""Events that are stored through kept connections are those that Dagster stores, and are seen by others at once."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
from dagster import AssetExecutionContext
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.partition_status_cache import AssetStatusCacheValue

from upsert_platform.demo.instance import SHIPPED_SETTINGS
from upsert_platform.graph.event_storage import KeptEventStorage

pytestmark = pytest.mark.whole_runs

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


def test_a_temporary_instance_keeps_its_events_in_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As commands of Dagster in the checkout have it where DAGSTER_HOME is not set."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    (tmp_path / "checkout").mkdir()
    (tmp_path / "temporary").mkdir()
    (tmp_path / "checkout" / "dagster.yaml").write_text(SHIPPED_SETTINGS.read_text("utf-8"), "utf-8")
    reference = InstanceRef.from_dir(str(tmp_path / "temporary"), config_dir=str(tmp_path / "checkout"))
    with dg.DagsterInstance.from_ref(reference) as instance:
        done = dg.materialize([counted], instance=instance)
        with dg.DagsterInstance.from_ref(instance.get_ref()) as other:  # as a process beside it opens it
            assert len(other.all_logs(done.run_id)) == len(instance.all_logs(done.run_id)) > 0
    assert (tmp_path / "temporary" / "history" / "runs" / f"{done.run_id}.db").is_file()
    assert [path.name for path in (tmp_path / "checkout").iterdir()] == ["dagster.yaml"]


def test_a_table_that_was_seen_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    own = SqliteEventLogStorage.has_table

    def noted(storage: SqliteEventLogStorage, name: str) -> bool:
        asked.append(name)
        return own(storage, name)

    monkeypatch.setattr(SqliteEventLogStorage, "has_table", noted)
    with shipped(tmp_path / "home", monkeypatch) as instance:
        storage = instance.event_log_storage
        assert [storage.has_table("asset_keys") for _ in range(3)] == [True] * 3  # type: ignore[attr-defined]
        assert [storage.has_table("no_table") for _ in range(2)] == [False] * 2  # type: ignore[attr-defined]
    assert asked == ["asset_keys", "no_table", "no_table"]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_known_of_assets_is_what_dagsters_own_storage_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Whoever wrote last: this process, another one on the same files, by an event or otherwise."""
    chance = random.Random(seed)
    keys = [dg.AssetKey(["tables", name]) for name in "abcdefghijkl"]  # more than are read one by one
    with (
        shipped(tmp_path / "home", monkeypatch) as ours,
        dg.DagsterInstance.from_ref(ours.get_ref()) as others,
    ):
        plain = SqliteEventLogStorage(str(tmp_path / "home" / "history" / "runs"))
        assert isinstance(others.event_log_storage, KeptEventStorage)
        for turn in range(60):
            writer, key = chance.choice((ours, others)), chance.choice(keys)
            match chance.choice(("materialise", "materialise", "observe", "check", "wipe", "status", "run")):
                case "materialise":
                    writer.report_runless_asset_event(dg.AssetMaterialization(key, metadata={"turn": turn}))
                case "observe":
                    writer.report_runless_asset_event(dg.AssetObservation(key, metadata={"turn": turn}))
                case "check":
                    told = dg.AssetCheckEvaluation(asset_key=key, check_name="holds", passed=True, metadata={})
                    writer.report_runless_asset_event(told)
                case "wipe":
                    writer.wipe_assets([key])
                case "status":
                    cached = AssetStatusCacheValue(latest_storage_id=turn)
                    writer.event_log_storage.update_asset_cached_status_data(key, cached)
                case "run":
                    dg.materialize([counted], instance=writer)
            for asked in (*keys, counted.key):
                for reader in (ours, others):
                    assert reader.get_asset_records([asked]) == plain.get_asset_records([asked])
                    last = plain.get_latest_materialization_events([asked]).get(asked)
                    assert reader.get_latest_materialization_event(asked) == last


def noted_reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A list that grows by the asset keys of each statement that reads records of assets."""
    reads: list[object] = []
    own = SqliteEventLogStorage._fetch_asset_rows

    def noted(storage: SqliteEventLogStorage, asset_keys: object = None, **more: object) -> object:
        reads.append(asset_keys)
        return own(storage, asset_keys, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(SqliteEventLogStorage, "_fetch_asset_rows", noted)
    return reads


def test_what_is_known_of_an_asset_is_read_once_while_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shipped(tmp_path / "home", monkeypatch) as instance:
        dg.materialize([counted], instance=instance)
        reads = noted_reads(monkeypatch)
        for _ in range(3):
            assert instance.get_latest_materialization_event(counted.key) is not None
            assert len(instance.get_asset_records([counted.key])) == 1
            instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(asset_key=counted.key, check_name="holds", passed=True, metadata={})
            )
        assert len(reads) <= 1
        reads.clear()
        instance.report_runless_asset_event(dg.AssetMaterialization(counted.key))
        for _ in range(2):
            assert instance.get_latest_materialization_event(counted.key) is not None
        assert len(reads) == 1


def test_many_assets_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [dg.AssetKey(["tables", f"t{number}"]) for number in range(40)]
    with shipped(tmp_path / "home", monkeypatch) as instance:
        for number, key in enumerate(keys):
            instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata={"n": number}))
        reads = noted_reads(monkeypatch)
        for number, key in enumerate([*keys, dg.AssetKey("unknown")]):
            last = instance.get_latest_materialization_event(key)
            told = None if last is None or last.asset_materialization is None else last.asset_materialization.metadata
            assert (None if told is None else told["n"].value) == (number if key in keys else None)
    assert len(reads) <= 10
