"""Rows into PostgreSQL: a whole write beside a bare COPY of the same rows into the same table with its index.

The server is one of Debian's package in a folder of its own, as tests start it (without fsync, for both alike).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa

from upsert_platform.core.types import parse_type
from upsert_platform.postgres.copy import HEADER, TRAILER, copy_rows
from upsert_platform.postgres.table import PostgresTable
from upsert_platform_tests.bench.measure import row
from upsert_platform_tests.postgres.declared import changes, table_on, write
from upsert_platform_tests.systems.postgres import postgres

ROWS = 1_000_000
REPEATS = 3
COLUMNS = {
    "id": "BIGINT",
    "name": "STRING",
    "city": "STRING",
    "visits": "INT",
    "score": "DOUBLE",
    "seen": "TIMESTAMP(3)",
}
_CREATE = (
    "DROP TABLE IF EXISTS bare; CREATE TABLE bare (id bigint PRIMARY KEY, name text, city text, visits integer,"
    " score double precision, seen timestamp)"
)
_BLOCK = 100_000


def bench_rows(rows: int, *, in_order: bool = False) -> pa.Table:
    """A change frame of six columns; keys come in any order, as those of a topic's partition do, unless `in_order`."""
    began = datetime(2026, 1, 1)  # noqa: DTZ001 (TIMESTAMP has no zone)
    numbers = list(range(rows))
    if not in_order:
        random.Random(1).shuffle(numbers)
    return changes(
        COLUMNS,
        *[
            (key, f"user {key}", f"city {key % 997}", key % 100, key / 7, began + timedelta(seconds=key), "U")
            for key in numbers
        ],
    )


def run(*, rows: int = ROWS) -> Iterator[dict[str, Any]]:
    """Measures writes of new rows and of the same again, with keys in any order and in that of the index."""
    with postgres() as server:
        for order in ("", "_in_order"):
            frame = bench_rows(rows, in_order=bool(order))
            bare, first, again = [], [], []
            for turn in range(REPEATS):
                table = table_on(server, COLUMNS, name=f"turn_{turn}{order}")
                bare.append(_bare(server, frame))
                first.append(_written(server, table, frame, 1))
                again.append(_written(server, table, frame, 2))
                with psycopg.connect(server) as connection:
                    found = connection.execute(f"SELECT count(*) FROM {table.place.sql}".encode()).fetchone()
                assert found == (rows,)
            best = min(bare)
            told: dict[str, Any] = {
                "ratio_to": "a bare binary COPY into the same table with its index",
                "copy_seconds": round(best, 3),
            }
            goal = "" if order else ">= 0.6"
            yield row(
                f"postgres_writer{order}", rows=rows, seconds=min(first), ratio=best / min(first), goal=goal, **told
            )
            yield row(f"postgres_writer_again{order}", rows=rows, seconds=min(again), ratio=best / min(again), **told)


def _bare(server: str, frame: pa.Table) -> float:
    """Seconds of a COPY of rows that are encoded beforehand."""
    types = [parse_type(kind) for kind in COLUMNS.values()]
    blocks = [
        copy_rows([part.column(name).combine_chunks() for name in COLUMNS], types)
        for part in (frame.slice(start, _BLOCK) for start in range(0, frame.num_rows, _BLOCK))
    ]
    with psycopg.connect(server, autocommit=True) as connection:
        for statement in _CREATE.split("; "):
            connection.execute(statement.encode())
        connection.execute(b"CHECKPOINT")
        began = time.perf_counter()
        with connection.cursor().copy(b"COPY bare FROM STDIN (FORMAT binary)") as copy:
            copy.write(HEADER)
            for block in blocks:
                copy.write(memoryview(block))
            copy.write(TRAILER)
        return time.perf_counter() - began


def _written(server: str, table: PostgresTable, frame: pa.Table, batch: int) -> float:
    """Seconds of a whole write: prepare, lease, staging, merge, position."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(b"CHECKPOINT")
    began = time.perf_counter()
    write(table, frame, batch)
    return time.perf_counter() - began
