"""Within a partition the offset alone decides, whatever the times of records say: in snapshots, targets, compaction."""

from __future__ import annotations

import random
import shutil
import tracemalloc
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from upsert_platform.changelog import compaction, last_rows, latest, latest_in_tasks, rows
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.latest import every_row, last_written, latest_per_key
from upsert_platform.changelog.rows import PARTITIONS_MET
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform_tests.changelog.places import Placed, batches_of, last_values, random_records
from upsert_platform_tests.changelog.test_store import TOPIC, declared, snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = random_records(random.Random(20), keys=120, batches=3, partitions=3, each=400)


def row_of(record: Placed) -> dict[str, object]:
    return {
        rows.BATCH: record.batch,
        rows.KIND: rows.KIND_DELETE if record.value is None else rows.KIND_UPDATE_AFTER,
        rows.TOPIC: TOPIC,
        rows.PARTITION: record.partition,
        rows.OFFSET: record.offset,
        rows.TIMESTAMP: record.at,
        rows.ROW: 0,
        "id": record.key,
        "value": record.value,
    }


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ChangelogStore:
    """A changelog of RECORDS, in the mode that keeps every one of them."""
    store = ChangelogStore(str(tmp_path_factory.mktemp("latest") / "orders"), declared())
    head = store.create()
    for batch, records in batches_of(RECORDS):
        table = pa.Table.from_pylist([row_of(item) for item in records], schema=rows.arrow_schema(store.table))
        frame = spark.createDataFrame(table, schema=rows.spark_schema(store.table))
        after = store.append(store.write(frame, batch=batch), head=head, positions=head.positions, run="run")
        assert after is not None
        head = after
    return store


def test_a_snapshot_is_that_of_the_offsets(spark: SparkSession, filled: ChangelogStore) -> None:
    expected = last_values(RECORDS)
    met: dict[int, set[int]] = defaultdict(set)
    for record in RECORDS:
        met[record.key].add(record.partition)
    assert Counter(len(places) > 1 for places in met.values())[True] > 100
    assert snapshot(spark, filled) == expected
    assert snapshot(spark, filled, after=1) == last_values(item for item in RECORDS if item.batch > 1)
    reduced = latest_per_key(filled.read(spark, after=0, upto=3), key=["id"], columns=["value"]).collect()
    assert {row["id"]: row[PARTITIONS_MET] for row in reduced} == {key: min(len(met[key]), 2) for key in met}
    assert all(row["_seq"] == max(item.batch for item in RECORDS if item.key == row["id"]) for row in reduced)


@pytest.mark.parametrize("rows_of_task", [100, 1 << 20])
def test_arrow_in_tasks_finds_the_same(
    spark: SparkSession, filled: ChangelogStore, monkeypatch: pytest.MonkeyPatch, rows_of_task: int
) -> None:
    monkeypatch.setattr(latest_in_tasks, "_TASK_ROWS", rows_of_task)
    for after, upto in ((0, 3), (1, 3), (2, 3), (0, 1)):
        records = [item for item in RECORDS if after < item.batch <= upto]
        places = {(item.key, item.partition) for item in records}
        met = Counter(key for key, _ in places)
        wanted = {
            (key, value, max(item.batch for item in records if item.key == key), min(met[key], 2))
            for key, value in last_values(records).items()
        }
        frame = latest_in_tasks.latest_of_span(
            spark, filled, after=after, upto=upto, key=["id"], columns=["id", "value"]
        )
        assert "MapInArrow" in frame._jdf.queryExecution().toString()
        assert (frame.rdd.getNumPartitions() > 1) == (rows_of_task == 100)
        found = [(row["id"], row["value"], row["_seq"], row[PARTITIONS_MET]) for row in frame.collect()]
        assert len(found) == len(wanted)
        assert set(found) == wanted


def reduced_locally(
    monkeypatch: pytest.MonkeyPatch, store: ChangelogStore, *, tasks: int
) -> tuple[list[list[int]], list[tuple[int, str]], int]:
    """Keys per task, keys with their values, and how many tasks had to reduce."""
    reduce = Mock(wraps=last_rows.last_rows)
    monkeypatch.setattr(last_rows, "last_rows", reduce)
    monkeypatch.setattr(latest_in_tasks, "_WORTHWHILE_ROWS", 1)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=tasks))
    span = latest_in_tasks.reduction_in_tasks(spark, store, after=0, upto=9, key=["id"], columns=["value"])
    assert span is not None
    assert span.tasks == tasks
    found = [
        [row for part in span(iter([pa.record_batch({"id": pa.array([number])})])) for row in part.to_pylist()]
        for number in range(tasks)
    ]
    assert {row[PARTITIONS_MET] for rows_of_task in found for row in rows_of_task} == {1}
    keys = [[row["id"] for row in rows_of_task] for rows_of_task in found]
    return keys, sorted((row["id"], row["value"]) for rows_of_task in found for row in rows_of_task), reduce.call_count


def test_files_are_dealt_to_tasks_only_where_few_keys_come_more_than_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ChangelogStore(str(tmp_path / "orders"), declared())

    def commit(batch: int, *files: list[Placed]) -> None:
        head, schema, written = store.create(), rows.arrow_schema(store.table), []
        for records in files:
            found = [pa.RecordBatch.from_pylist([row_of(item) for item in records], schema=schema)]
            written += write_rows(found, location=store.location, schema=schema, batch=batch)
        assert store.append(written, head=head, positions=head.positions, run="run") is not None

    def of(batch: int, keys: range, name: str) -> list[Placed]:
        return [Placed(batch, 0, 1000 * batch + key, None, key, f"{name} {key}") for key in keys]

    commit(
        1, of(1, range(100), "a"), of(1, range(100, 200), "a"), of(1, range(200, 300), "a"), of(1, range(300, 400), "a")
    )
    keys, values, reduced = reduced_locally(monkeypatch, store, tasks=2)
    assert values == sorted((key, f"a {key}") for key in range(400))
    assert [len(of_task) for of_task in keys] == [200, 200]
    assert all(len({key // 100 for key in of_task}) == 2 for of_task in keys)  # two whole files each
    assert reduced == 0
    commit(2, of(2, range(50, 52), "b"))  # two keys again, in another file
    keys, values, reduced = reduced_locally(monkeypatch, store, tasks=2)
    assert values == sorted((key, f"{'b' if key in (50, 51) else 'a'} {key}") for key in range(400))
    assert sorted(len(of_task) for of_task in keys) == [198, 202]  # files of their own
    assert reduced == 0
    commit(3, of(3, range(100), "c"))  # a quarter of them
    _, values, reduced = reduced_locally(monkeypatch, store, tasks=2)
    assert values == sorted((key, f"{'c' if key < 100 else 'a'} {key}") for key in range(400))
    assert reduced == 2


def test_a_file_with_most_of_the_rows_is_divided_by_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ChangelogStore(str(tmp_path / "orders"), declared())
    head, schema = store.create(), rows.arrow_schema(store.table)
    found = [
        pa.RecordBatch.from_pylist([row_of(Placed(1, 0, key, None, key, "x")) for key in range(500)], schema=schema)
    ]
    files = write_rows(found, location=store.location, schema=schema, batch=1)
    assert store.append(files, head=head, positions=head.positions, run="run") is not None
    keys, values, _ = reduced_locally(monkeypatch, store, tasks=2)
    assert values == sorted((key, "x") for key in range(500))
    assert min(map(len, keys)) > 200


def test_more_than_tasks_may_read_is_divided_by_spark(
    spark: SparkSession, filled: ChangelogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest_in_tasks, "MOST_ROWS", len(RECORDS) - 1)
    frame = latest_in_tasks.latest_of_span(spark, filled, after=0, upto=3, key=["id"], columns=["value"])
    assert "RepartitionByExpression" in frame._jdf.queryExecution().toString()
    assert {row["id"]: row["value"] for row in frame.collect()} == last_values(RECORDS)


def test_rows_of_a_table_without_a_key_reach_a_keyed_target_in_that_order(
    spark: SparkSession, filled: ChangelogStore
) -> None:
    every = every_row(filled.read(spark, after=0, upto=3), columns=["id", "value"])
    assert every.count() == len(RECORDS)
    last = last_written(every, key=["id"]).collect()
    assert {row["id"]: row["value"] for row in last} == last_values(RECORDS)
    assert {row[PARTITIONS_MET] for row in last} == {1, 2}
    assert last_written(every, key=[]).where("_seq = 2").count() == sum(item.batch == 2 for item in RECORDS)


def test_a_table_of_places_keeps_what_no_later_delete_overtakes(spark: SparkSession, filled: ChangelogStore) -> None:
    """A key's puts, one per place, behind its last delete: in a partition by offset, between partitions by time."""

    def between(record: Placed) -> tuple[int, datetime, int]:
        return record.batch, record.at or datetime.min.replace(tzinfo=UTC), record.partition

    def last(records: list[Placed]) -> Placed:
        ends = {}
        for record in sorted(records, key=lambda item: (item.batch, item.offset)):
            ends[record.partition] = record
        return max(ends.values(), key=between)

    def is_overtaken(record: Placed, delete: Placed) -> bool:
        if record.partition == delete.partition:
            return (record.batch, record.offset) < (delete.batch, delete.offset)
        return between(record) < between(delete)

    of_key: dict[int, list[Placed]] = defaultdict(list)
    for record in RECORDS:
        of_key[record.key].append(record)
    wanted: set[tuple[int, str | None]] = set()
    for key, records in of_key.items():
        deletes = [record for record in records if record.value is None]
        delete = last(deletes) if deletes else None
        wanted |= {(key, None)} if deletes else set()
        of_place: dict[str, list[Placed]] = defaultdict(list)
        for record in records:
            if record.value is not None and not (delete and is_overtaken(record, delete)):
                of_place[record.value[-1]].append(record)
        wanted |= {(key, last(left).value) for left in of_place.values()}
    every = every_row(filled.read(spark, after=0, upto=3), columns=["id", "value"])
    frame = every.selectExpr(
        "id", "value", "_kind", "_seq", "right(value, 1) AS place", "if(value IS NULL, 'D', 'U') AS _op"
    )
    found = last_written(frame, key=["id"], places=["place"]).collect()
    assert len(wanted) > len(of_key)
    assert len(found) == len(wanted)
    assert {(row["id"], row["value"]) for row in found} == wanted


@pytest.mark.parametrize("task_rows", [1, 50, 10_000])
def test_a_task_lets_go_of_rows_that_cannot_count(monkeypatch: pytest.MonkeyPatch, task_rows: int) -> None:
    monkeypatch.setattr(latest, "TASK_ROWS", task_rows)
    schema = pa.schema([*rows.system_schema(), ("id", pa.int64()), ("value", pa.string())])
    batches = pa.Table.from_pylist([row_of(item) for item in RECORDS], schema=schema).to_batches(max_chunksize=100)
    task = latest.LastRows(("id",), ("id", "value"))
    found = [row for batch in task(iter(batches)) for row in batch.to_pylist()]
    assert {row["id"]: row["value"] for row in found} == last_values(RECORDS)
    assert len(found) == len(last_values(RECORDS))


def test_memory_follows_the_rows_however_many_partitions_there_are() -> None:
    records = random_records(random.Random(21), keys=9_000, batches=3, partitions=700, each=5_000)
    changes = pa.Table.from_pylist([row_of(item) for item in records], schema=rows.arrow_schema(declared()))
    tracemalloc.start()
    found = last_rows.last_rows(changes, key=["id"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert dict(zip(found.column("id").to_pylist(), found.column("value").to_pylist(), strict=True)) == last_values(
        records
    )
    assert peak < 300 * len(records)


@pytest.mark.parametrize("quarantines", [False, True])
def test_compaction_keeps_what_counts(
    spark: SparkSession, filled: ChangelogStore, tmp_path: Path, quarantines: bool
) -> None:
    store = ChangelogStore(str(tmp_path / "orders"), filled.table)
    shutil.copytree(filled.uri, store.uri)
    expected = last_values(RECORDS)
    if quarantines:
        head = store.create()
        unread = {rows.KIND: rows.KIND_QUARANTINED, rows.TOPIC: TOPIC, rows.PARTITION: 0, rows.OFFSET: 9_000}
        table = pa.Table.from_pylist([unread], schema=rows.arrow_schema(store.table))
        frame = spark.createDataFrame(table, schema=rows.spark_schema(store.table))
        assert store.append(store.write(frame, batch=4), head=head, positions=head.positions, run="run") is not None
    report = compaction.reduce_history(spark, store, applied_everywhere=2)
    found = snapshot(spark, store)
    if quarantines:
        places = {(item.key, item.partition) for item in RECORDS}
        assert report.rows_after == len(places)  # whatever is replayed later finds what overtook it
        assert found == expected
    else:
        newest = {key: max(item.batch for item in RECORDS if item.key == key) for key in expected}
        dropped = {key for key, value in expected.items() if value is None and newest[key] <= 2}
        assert dropped
        assert found == {key: value for key, value in expected.items() if key not in dropped}
        assert report.rows_after == len(found)
