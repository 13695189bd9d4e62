"""Keys of chunks as numbers, and rows that a task gives as it reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from upsert_platform.mysql import chunk_sums
from upsert_platform.mysql.chunk_sums import ChunkTask, Load
from upsert_platform.mysql.chunks import Chunk
from upsert_platform.mysql.columns import MySqlColumn, MySqlTable
from upsert_platform.mysql.position import LogPosition
from upsert_platform.mysql.snapshot import SnapshotPart

KINDS = {
    "signed, declared wider": (MySqlColumn("id", "bigint"), pa.decimal128(20, 0), [-(1 << 63), -5, 0, (1 << 63) - 1]),
    "signed": (MySqlColumn("id", "bigint"), pa.int64(), [-(1 << 63), -5, 0, (1 << 63) - 1]),
    "small": (MySqlColumn("id", "tinyint"), pa.int8(), [-128, 0, 127]),
    "unsigned": (
        MySqlColumn("id", "bigint", unsigned=True), pa.decimal128(20, 0), [0, 5, 1 << 63, (1 << 64) - 1],
    ),
    "unsigned, as text": (MySqlColumn("id", "bigint", unsigned=True), pa.string(), [0, 5, 1 << 63, (1 << 64) - 1]),
    "unsigned, declared narrower": (MySqlColumn("id", "bigint", unsigned=True), pa.int64(), [0, 5, (1 << 63) - 1]),
    "unsigned and short": (MySqlColumn("id", "int", unsigned=True), pa.int64(), [0, 5, (1 << 32) - 1]),
}  # fmt: skip


def task_of(column: MySqlColumn) -> ChunkTask:
    table = MySqlTable("db", "t", (column,), (column.name,))
    return ChunkTask(SnapshotPart(None, None, table, 0, 0, None), (column.name,), Load())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_are_numbers_in_their_order_whatever_they_are_declared_as(kind: str) -> None:
    column, declared, keys = KINDS[kind]
    values = [str(key) if pa.types.is_string(declared) else key for key in keys]
    if pa.types.is_decimal(declared):
        values = [Decimal(key) for key in keys]
    task = task_of(column)
    assert task.by_value
    found = task.numbers(pa.record_batch({"id": pa.array(values, declared)}))
    assert found.dtype == np.int64
    assert [number + task.bias for number in found.tolist()] == keys


def test_rows_of_buckets_are_given_as_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table may be longer than memory; the positions follow behind the rows."""
    read: list[int] = []

    class Bare(ChunkTask):
        __slots__ = ()

        def _rows(self, connection: Any, chunk: Chunk) -> Iterator[pa.RecordBatch]:
            for first in range(0, 50, 10):
                read.append(first)
                yield pa.record_batch({"id": pa.array([str(first + at) for at in range(10)])})

        def ids(self, batch: pa.RecordBatch) -> np.ndarray:
            return np.array([int(text) for text in batch.column("id").to_pylist()], np.uint64)

        def hashes(self, batch: pa.RecordBatch) -> np.ndarray:
            return self.ids(batch)

    class Marks:
        def __init__(self, connection: Any) -> None:
            self.asked = 0

        def now(self) -> LogPosition:
            self.asked += 1
            return LogPosition("log.1", self.asked)

        def visible(self) -> LogPosition:
            return LogPosition("log.1", 0)

    @contextmanager
    def connected(server: Any) -> Iterator[None]:
        yield None

    monkeypatch.setattr(chunk_sums, "Connection", connected)
    monkeypatch.setattr(chunk_sums, "Marks", Marks)
    part = SnapshotPart(
        type("Settings", (), {"server": None})(), None, MySqlTable("db", "t", (), ("id",)), 0, 0, None,  # type: ignore[arg-type]
    )  # fmt: skip
    given = Bare(part, ("id",), Load()).rows([(0, Chunk(None, None))], buckets=frozenset(range(25)))
    first = next(given)
    assert (first.column("id").to_pylist(), read) == (list(range(10)), [0])
    *others, last = given
    ids = [item for batch in others for item in batch.column("id").to_pylist()]
    assert ids == list(range(10, 25))
    assert last.column("number").to_pylist() == list(range(25))
    assert set(last.column("id").to_pylist()) == {None}
    assert {LogPosition.from_json(text).order() for text in last.column("high").to_pylist()} == {
        LogPosition("log.1", 2).order()
    }
