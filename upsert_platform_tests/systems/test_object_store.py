"""A lake on object storage: every commit by delta-rs, files read by Spark's Python tasks, nothing of Hadoop's."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from upsert_platform.changelog import compaction
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.progress import WriteProgress, rows_counted
from upsert_platform.changelog.quarantine import quarantined_records
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.tables import TableLocation, file_system
from upsert_platform.changelog.upkeep import remove_unused
from upsert_platform.core.destination import BatchSpan, RefusedRow
from upsert_platform.sync.checkups.lake import lake_check
from upsert_platform_tests.changelog.test_store import commit, declared, snapshot
from upsert_platform_tests.graph.stack import Stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.systems


def test_a_changelog_is_written_read_reduced_and_cleaned(spark: SparkSession, s3: str) -> None:
    store = ChangelogStore(Lake.at(s3).changelog("orders"), declared())
    assert store.head() is None
    commit(spark, store, [(1, "a"), (2, "b")], quarantined=1)
    commit(spark, store, [(1, "c"), (2, None)])
    assert snapshot(spark, store) == {1: "c", 2: None}
    assert quarantined_records(store).num_rows == 1
    assert set(store.accounts(after=0, upto=2)) == {1, 2}
    compaction.reduce_history(spark, store, applied_everywhere=0)
    commit(spark, store, [(3, "d")])
    compaction.merge_files(spark, store)
    assert len(store.files()) == 1
    assert remove_unused(store, hours=0) > 0
    assert snapshot(spark, store) == {1: "c", 2: None, 3: "d"}


def test_of_many_that_create_a_changelog_at_once_one_does(s3: str) -> None:
    for number in range(10):

        def create(_: int, name: str = f"raced-{number}") -> str:
            return ChangelogStore(Lake.at(s3).changelog(name), declared()).create().changelog_id

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(create, range(8)))) == 1


def test_a_bucket_is_looked_at_and_left_as_it_was(s3: str) -> None:
    """`doctor` writes a table of its own, in which several commit one version at once."""
    from pyarrow import fs

    lake = Lake.at(s3)
    (found,) = lake_check(lake).found()
    assert (found.state, found.told) == (
        "ok",
        "can be written; of commits of one version at once just one is made",
    )
    system, _ = file_system(TableLocation(s3, lake.options))
    left = system.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
    assert [item.path for item in left if item.type is fs.FileType.File] == []


def test_refused_rows_are_kept_there(s3: str) -> None:
    store = RefusedStore(Lake.at(s3).refused("orders"))
    assert store.read().num_rows == 0
    store.append([RefusedRow('{"id":1}', "{}", "too long")], BatchSpan(0, 1, "id", "run"))
    store.append([], BatchSpan(1, 2, "id", "run"))
    assert store.read()["key"].to_pylist() == ['{"id":1}']
    store.settle(['{"id":1}'])
    assert store.count() == 0


@pytest.mark.timeout(600)
def test_counts_of_tasks_are_told_there_and_what_died_is_removed(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RefusedStore(Lake.at(s3).refused("users"))
    lines: list[str] = []
    watch = WriteProgress(store.location, what="table 'users'", tell=lines.append, most=100, every=0.1)
    with watch.watched():
        count = pickle.loads(pickle.dumps(watch.counter))(3)
        deadline = time.monotonic() + 20
        while not any("60 of at most 100 rows" in line for line in lines) and time.monotonic() < deadline:
            time.sleep(0.11)
            count(60)
    assert any("60 of at most 100 rows" in line for line in lines), lines
    assert rows_counted(store.location) == 0
    store.write_file([RefusedRow("1", "{}", "a reason")], 1)
    died = watch.counter(0)
    time.sleep(0.11)  # shorter writes leave no counts
    died(5, ended=True)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 7_200)
    assert store.remove_unused(hours=1) == 2
    assert store.remove_unused(hours=1) == 0


def test_files_of_queries_are_written_and_read_there(s3: str) -> None:
    """Arrow's own format: its writer hands on buffers, where that of Parquet hands on bytes."""
    import pyarrow as pa

    system, folder = file_system(TableLocation(s3, Lake.at(s3).options))
    written = pa.table({"k": pa.array(range(100_000)), "v": pa.array([f"text {k}" for k in range(100_000)])})
    with system.open_output_stream(f"{folder}parts/one.arrow") as sink, pa.ipc.new_file(sink, written.schema) as writer:
        writer.write_table(written, max_chunksize=30_000)
    with pa.ipc.open_file(system.open_input_file(f"{folder}parts/one.arrow")) as opened:
        assert opened.num_record_batches == 4
        assert opened.read_all().equals(written)


def test_whole_runs_with_everything_in_the_bucket(stack: Stack, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Stack.environment
    monkeypatch.setattr(Stack, "environment", lambda self: {**environment(self), "UPSERT_PLATFORM_HOME": s3})
    stack.produce(stack.users.first_wave(500))
    for job in ("sync", "compact", "verify"):
        done = stack.execute(job, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
    stack.produce(stack.users.second_wave(200))
    done = stack.execute(timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert stack.serving_differences() == []
    assert stack.warehouse_differences() == []
    assert not list(stack.lake.rglob("*.parquet"))
