"""Inserts from a source without a key, by Arrow: the change frame that Spark computes, in any number of shares."""

from __future__ import annotations

import datetime as dt
import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from upsert_platform.changelog import exchanges, latest, rows
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.summed_in_tasks import ExpectedRows
from upsert_platform.changelog.upkeep import remove_unused
from upsert_platform.core.destination import BatchSpan
from upsert_platform.core.errors import ChangelogError, DestinationError
from upsert_platform.core.task_runner import RowsOfTasks
from upsert_platform.core.types import arrow_type
from upsert_platform.engine import dealt_rows as dealing
from upsert_platform.engine.dealt_rows import dealt_rows
from upsert_platform.sync import equal_in_tasks
from upsert_platform.sync.binding import Target
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.writing.outcomes import TaskStats, run_tasks
from upsert_platform_tests.sql.reading import errors
from upsert_platform_tests.sql.reading import read as read_sql
from upsert_platform_tests.sync.test_one_task import TaskMemory
from upsert_platform_tests.writing.in_memory import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

ITEM = "ROW<id BIGINT, name STRING, at TIMESTAMP(3), `in` ROW<x INT, tags ARRAY<STRING>>>"
SOURCE = f"""CREATE TABLE src (kind INT, item {ITEM}, other {ITEM}, plain STRING,
    at AS CASE WHEN kind = 0 THEN item.at ELSE other.at END)
    WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'format' = 'debezium-json');
  CREATE TABLE dst (id BIGINT, x INT, name STRING, at TIMESTAMP(3), tags ARRAY<STRING>, fixed STRING,
    PRIMARY KEY (id, x) NOT ENFORCED) WITH ('connector' = 'tablestore');"""
CHOSEN = "item.id, item.`in`.x, item.name, at, item.`in`.tags, 'f'"
INSERTS = {
    "fields": f"SELECT {CHOSEN} FROM src",
    "a condition": f"SELECT {CHOSEN} FROM src WHERE kind = 1 OR item.name = 'b'",
    "a case": "SELECT CASE WHEN kind = 0 THEN item.id ELSE other.id END, kind, plain, at, other.`in`.tags, plain"
    " FROM src WHERE kind < 3",
}
NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 123_456)  # noqa: DTZ001 - TIMESTAMP has no zone
KINDS = [rows.KIND_INSERT] * 6 + [rows.KIND_UPDATE_AFTER, rows.KIND_UPDATE_BEFORE, rows.KIND_DELETE]


class _Several(TaskMemory):
    def writes_in_tasks(self) -> bool:
        return True


def hop_of(name: str, path: Path, store: ChangelogStore | None = None) -> DestinationHop:
    scripts, problems = read_sql(f"{SOURCE} INSERT INTO dst {INSERTS[name]};")
    assert errors(problems) == []
    source, target, insert = scripts.tables["src"], scripts.tables["dst"], scripts.inserts[0]
    destination = _Several(Place(), {column.name: str(column.type) for column in target.physical_columns})
    destination.primary_key = target.primary_key
    bound = Target(target, insert, type("Source", (), {"table": source})(), None, None)  # type: ignore[arg-type]
    found = store or ChangelogStore(str(path / "src"), source)
    return DestinationHop(bound, found, destination, refused=RefusedStore(f"{found.uri}-refused"), run="run")


def _item(rng: random.Random) -> dict[str, Any] | None:
    if rng.random() < 0.1:
        return None
    inner = {"x": rng.choice([None, 1, 2]), "tags": rng.choice([None, [], ["a", None]])}
    return {
        "id": rng.choice([None, *range(8)]), "name": rng.choice([None, "a", "b"]),
        "at": rng.choice([None, NOON, NOON + dt.timedelta(days=1)]), "in": rng.choice([None, inner, inner]),
    }  # fmt: skip


def fill(store: ChangelogStore, *, batches: int = 3) -> None:
    schema, rng = rows.arrow_schema(store.table), random.Random(5)
    for batch in range(1, batches + 1):
        head = store.create()
        files = []
        for partition in range(2):
            given = [
                {
                    "kind": rng.randrange(4), "item": _item(rng), "other": _item(rng), "plain": rng.choice("pq"),
                    rows.KIND: rng.choice(KINDS), rows.TOPIC: "t", rows.PARTITION: partition,
                    rows.OFFSET: 1000 * batch + offset, rows.ROW: 0,
                    rows.TIMESTAMP: rng.choice([None, NOON.replace(tzinfo=dt.UTC), NOON.replace(2025, tzinfo=dt.UTC)]),
                }
                for offset in range(90)
            ]  # fmt: skip
            given.append({rows.KIND: rows.KIND_QUARANTINED, rows.TOPIC: "t", rows.OFFSET: 1, "plain": "z"})
            batch_of = pa.RecordBatch.from_pylist(given, schema=schema)
            files += write_rows([batch_of], location=store.location, schema=schema, batch=batch)
        assert store.append(files, head=head, positions=head.positions, run="run") is not None


def texts(table: pa.Table) -> list[str]:
    names = sorted(table.column_names)
    return sorted(repr([row[name] for name in names]) for row in table.to_pylist())


@pytest.mark.parametrize("name", INSERTS)
@pytest.mark.parametrize(("after", "upto"), [(0, 3), (1, 2)])
def test_the_changes_are_those_of_spark(
    name: str, after: int, upto: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dealing, "_HELD_ROWS", 50)
    monkeypatch.setattr(latest, "TASK_ROWS", 10)  # rows that cannot count are let go on the way
    hop = hop_of(name, tmp_path)
    fill(hop.store)
    expected = texts(hop.changes(spark, after=after, upto=upto).toArrow())
    assert len(expected) > 10
    insert = hop.arrow_insert(after=after, upto=upto)
    assert insert is not None
    paths = [item.path for item in hop.store.files()]
    alone, _ = insert.of_span(hop.store, paths, after=after, upto=upto)()
    assert texts(alone) == expected
    with dealt_rows(spark, insert.native, hop.store, after=after, upto=upto) as (share, deleted):
        for shares in (1, 2, 5):
            found = [table for number in range(shares) for table, _ in share(number, shares)]
            assert texts(pa.concat_tables(found)) == expected, shares
    assert 0 < deleted < 120
    assert list(Path(hop.store.uri, exchanges.FOLDER).iterdir()) == []


def test_a_check_expects_what_spark_computes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hop = hop_of("a condition", tmp_path)
    fill(hop.store)
    kinds = [(column.name, arrow_type(column.type)) for column in hop.destination.columns if column.type is not None]
    fields = pa.schema([(name, kind) for name, kind in kinds if not pa.types.is_nested(kind)])
    task = ExpectedRows(fields, pa.schema([fields.field("id"), fields.field("x")]), tells_keys=True)
    expected = partial(equal_in_tasks._expected, spark, hop, task, None, since=0, upto=3)
    dealt, keys = expected()
    monkeypatch.setattr(DestinationHop, "arrow_insert", lambda *_, **__: None)
    by_spark, other_keys = expected()
    assert dealt == by_spark
    assert (dealt.expected.rows, dealt.deleted.rows) > (3, 3)
    assert sum(map(len, keys)) == sum(map(len, other_keys)) == 8 * dealt.rows


def test_what_a_task_holds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealing, "_HELD_ROWS", 10)
    monkeypatch.setattr(dealing, "_HELD_BYTES", 1000)
    sizes = [(4, 1), (0, 1), (4, 1), (4, 1), (1, 900), (1, 200), (25, 1), (1, 5000), (1, 1)]
    batches = [pa.record_batch({"t": ["x" * width] * count}) for count, width in sizes]
    found = [table.num_rows for table in dealing._together(iter(batches))]
    assert found == [8, 5, 1, 25, 1, 1]
    assert sum(found) == sum(count for count, _ in sizes)


def test_a_changelog_whose_folder_takes_no_files_is_left_to_spark(tmp_path: Path, spark: SparkSession) -> None:
    hop = hop_of("fields", tmp_path)
    fill(hop.store, batches=1)
    insert = hop.arrow_insert(after=0, upto=1)
    assert insert is not None
    Path(hop.store.uri, exchanges.FOLDER).write_text("a file in the place of the folder")
    with insert.shares_of(spark, hop.store, after=0, upto=1) as found:
        assert found is None


def test_a_damaged_file_is_told_by_name(tmp_path: Path, spark: SparkSession) -> None:
    hop = hop_of("fields", tmp_path)
    fill(hop.store, batches=1)
    for item in hop.store.files():
        Path(hop.store.uri, item.path).write_bytes(b"no file of Parquet at all")
    with pytest.raises(ChangelogError, match="part-"):
        hop._applied_by_tasks(OnDemand(lambda: spark, rows=0), BatchSpan(0, 1, "c", "run"), None, None)  # type: ignore[arg-type]


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = [(place, len(batch)) for batch in batches for place in set(batch.column("share").to_pylist())]
    (number,) = {place for place, _ in found}
    told = TaskStats(refused=sum(count for _, count in found)).to_json()
    row = {"stats": told, "file": None, "key": str(number), "row": None, "reason": None}
    yield pa.RecordBatch.from_pylist([row])


def _fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.column("share")[0].as_py() == 1:
            raise DestinationError("table 'dst': the second share is not taken")
        yield from ()


def _share(number: int, shares: int) -> Iterator[tuple[pa.Table, dict[str, int]]]:
    for part in range(3):
        yield pa.table({"id": list(range(10 * (number + 1)))}), {"met": part, "deletes": shares}


def test_tasks_write_their_shares_and_count(spark: SparkSession) -> None:
    changes = RowsOfTasks(_share, spark, 1).in_shares(3, column="share")
    kept: list[Any] = []
    written = run_tasks(changes, _counted, TaskStats, what="table 'dst'", keep=kept.append)
    assert [part.refused for part in written.parts] == [30, 60, 90]
    assert changes.counted == {"met": 9, "deletes": 27}


def test_what_a_task_raises_ends_the_write(spark: SparkSession) -> None:
    changes = RowsOfTasks(_share, spark, 2, "share")
    with pytest.raises(DestinationError, match=r"^table 'dst': the second share is not taken$"):
        run_tasks(changes, _fails, TaskStats, what="table 'dst'", keep=lambda rows: None)


def test_what_killed_runs_left_is_removed_once_it_is_old(tmp_path: Path) -> None:
    hop = hop_of("fields", tmp_path)
    fill(hop.store, batches=1)
    left = Path(hop.store.uri, exchanges.FOLDER, "attempt", "0-a.arrow")
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x")
    remove_unused(hop.store, hours=1)
    assert left.exists()
    remove_unused(hop.store, hours=0)
    assert not left.parent.exists()
    assert len(hop.store.files()) == 2


def test_rows_of_a_lake_elsewhere_are_divided_by_spark(tmp_path: Path, spark: SparkSession) -> None:
    hop = hop_of("fields", tmp_path)
    fill(hop.store, batches=1)
    insert = hop.arrow_insert(after=0, upto=1)
    assert insert is not None
    hop.store.location = type(hop.store.location)("s3://bucket/src")
    with insert.shares_of(spark, hop.store, after=0, upto=1) as found:
        assert found is None
