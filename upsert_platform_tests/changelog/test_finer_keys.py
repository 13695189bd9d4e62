"""Changelogs of earlier versions, with keys of more digits than are declared: the later row counts everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from upsert_platform.changelog import compaction, rows
from upsert_platform.changelog.change_rows import change_rows
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.declared_values import cut_keys
from upsert_platform.changelog.erasure import EVERY_BATCH, KeyRows, held_rows
from upsert_platform.changelog.last_rows import last_rows
from upsert_platform.changelog.latest import latest_per_key
from upsert_platform.changelog.latest_in_tasks import latest_of_span
from upsert_platform.changelog.store import ChangelogStore, Positions
from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.plan import Field, Scan
from upsert_platform.core.types import parse_type
from upsert_platform.engine.reading import ChangelogShare, Piece, read_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = {
    "TIMESTAMP(3)": (1_700_000_000_123_456, 1_700_000_000_123_999, 1_700_000_000_123_000, 1_700_000_000_124_000),
    "TIMESTAMP_LTZ(0)": (-1, -999_999, -1_000_000, 0),
    "TIME(3)": (5_001_999, 5_001_001, 5_001_000, 5_002_000),
}
"""Three spellings of a key, in microseconds, the last one as it is declared; and another key."""


def table_of(kind: str) -> Table:
    columns = (("at", kind), ("id", "INT"), ("v", "STRING"))
    declared = tuple(Column(name, parse_type(text)) for name, text in columns)
    return Table("moments", declared, ("at", "id"), Options({}), SourceLocation("moments.sql", 1))


def append(store: ChangelogStore, given: Iterable[tuple[int, int, str | None]]) -> None:
    """Commits a batch of keys, offsets and values as earlier versions wrote them; without a value a delete."""
    head, schema = store.create(), rows.arrow_schema(store.table)
    kind = schema.field("at").type
    found = [
        {
            rows.KIND: rows.KIND_DELETE if value is None else rows.KIND_UPDATE_AFTER,
            rows.TOPIC: "t", rows.PARTITION: 0, rows.OFFSET: offset, rows.ROW: 0,
            "at": pa.scalar(at, pa.int64()).cast(kind).as_py(), "id": 7, "v": value,
        }
        for at, offset, value in given
    ]  # fmt: skip
    batch = pa.RecordBatch.from_pylist(found, schema=schema)
    files = write_rows([batch], location=store.location, schema=schema, batch=head.batch + 1)
    assert store.append(files, head=head, positions=Positions(), run="r") is not None


@pytest.fixture(params=KEYS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ChangelogStore:
    finest, finer, plain, other = KEYS[request.param]
    found = ChangelogStore(str(tmp_path / "moments"), table_of(request.param))
    append(found, [(finest, 1, "oldest"), (other, 2, "other")])
    append(found, [(plain, 3, "older"), (finer, 4, "newest"), (plain, 0, "first")])
    return found


def told(found: Iterable[Any]) -> dict[int, Any]:
    """Microseconds of each key to its value; each key comes once."""
    pairs = [(int(at), value) for at, value in found]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def numbers(table: pa.Table) -> Iterable[tuple[int, Any]]:
    return zip(table.column("at").cast(pa.int64()).to_pylist(), table.column("v").to_pylist(), strict=True)


def wanted(store: ChangelogStore) -> dict[int, str]:
    _, _, plain, other = KEYS[str(store.table.columns[0].type)]
    return {plain: "newest", other: "other"}


def test_arrow_reduces_them_to_one(store: ChangelogStore) -> None:
    found = change_rows(store, store.files(), columns=["at", "id", "v"], after=0, upto=2)
    assert told(numbers(last_rows(found, key=("at", "id")))) == wanted(store)


def test_spark_and_its_tasks_reduce_them_to_one(spark: SparkSession, store: ChangelogStore) -> None:
    changes = store.read(spark, after=0, upto=2)
    whole = latest_per_key(changes, key=("at", "id"), columns=["v"])
    in_tasks = latest_of_span(spark, store, after=0, upto=2, key=("at", "id"), columns=("v",))
    assert "MapInArrow" in in_tasks._jdf.queryExecution().toString()
    for found in (whole, in_tasks):
        assert told(numbers(found.select("at", "v").toArrow())) == wanted(store)


def test_compaction_leaves_one_of_them(spark: SparkSession, store: ChangelogStore) -> None:
    assert compaction.compact(spark, store, applied_everywhere=2).rows_after == 2
    assert told(numbers(store.dataset().to_table(columns=["at", "v"]))) == wanted(store)


def test_a_query_reads_them_as_one(store: ChangelogStore) -> None:
    fields = tuple(Field(column.name, column.type) for column in store.table.columns if column.type is not None)
    scan = Scan("moments", fields, ("at", "id"), appended=False)
    share = ChangelogShare(store.location, tuple(Piece(item.path) for item in store.files()), 0, 2)
    read = pa.concat_tables(read_changes(share, scan, upserts=True))
    assert told(numbers(last_rows(read, key=scan.key))) == wanted(store)


def test_an_erasure_finds_every_one_of_them(store: ChangelogStore) -> None:
    schema = rows.arrow_schema(store.table)
    plain = KEYS[str(store.table.columns[0].type)][2]
    kind = schema.field("at").type
    key = pa.record_batch({"at": pa.array([plain], pa.int64()).cast(kind), "id": pa.array([7], pa.int32())})
    wanted_rows = KeyRows(key, lambda keys: pa.nulls(len(keys), pa.bool_()), cut_keys(store.table))
    held = [held_rows(store.location, item.path, wanted_rows, upto=EVERY_BATCH).rows for item in store.files()]
    assert sorted(held) == [1, 3]
