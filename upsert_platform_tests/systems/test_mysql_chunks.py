"""Ends of chunks, found by the server and counted: every row is in one chunk, and no chunk has more than it may."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from upsert_platform.mysql.catalog import read_table
from upsert_platform.mysql.chunks import Chunk, condition, find_chunks
from upsert_platform.mysql.connection import Connection
from upsert_platform_tests.systems.servers import numbers

pytestmark = pytest.mark.systems

ROWS = 10
MOST = 5
"""Chunks that are asked for at once; fewer than are counted behind one that was looked for."""
TABLES = [
    ("BIGINT", "dense", range(1, 601), True),
    ("BIGINT", "every other", range(-500, 700, 2), True),
    ("INT", "sparse", range(-300_000, 300_000, 1000), False),
    ("INT", "two groups", [*range(1, 300), *range(2_147_483_300, 2_147_483_600)], True),
    ("TINYINT UNSIGNED", "all", range(256), True),
    ("BIGINT", "to the greatest", range((1 << 63) - 300, 1 << 63), False),
    ("BIGINT", "from the least", range(-(1 << 63), 300 - (1 << 63)), False),
    ("BIGINT UNSIGNED", "to the greatest", range((1 << 64) - 300, 1 << 64), False),
    ("MEDIUMINT ZEROFILL", "dense", range(6, 306), True),
]
"""Type of the key, its values, and whether ends are counted."""


@pytest.mark.parametrize(
    ("declared", "values", "counted"),
    [(item[0], *item[2:]) for item in TABLES],
    ids=[" ".join(item[:2]) for item in TABLES],
)
def test_chunks_hold_every_row_once(
    declared: str, values: Sequence[int], counted: bool, connection: Connection, schema: str
) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id {declared} PRIMARY KEY)")
    connection.query(f"INSERT INTO {schema}.t VALUES {', '.join(f'({value})' for value in values)}")
    table = read_table(connection, schema, "t")
    assert table is not None
    before = _asked(connection)
    chunks: list[Chunk] = []
    last = False
    while not last:
        after = chunks[-1].upto if chunks else None
        found, last = find_chunks(connection, table, after=after, rows=ROWS, most=MOST)
        assert len(found) <= MOST
        assert found[0].after == after
        chunks += found
    looked = _asked(connection) - before
    assert chunks[-1].upto is None
    read: list[int] = []
    for chunk in chunks:
        held = connection.query(f"SELECT id FROM {schema}.t{condition(table, chunk)} ORDER BY id")
        assert len(held) <= ROWS
        read += [int(row[0]) for row in held]
    assert read == sorted(values)
    assert (looked < len(chunks)) is counted
    assert len(chunks) <= 2 * len(values) // ROWS + 8


def test_chunks_of_a_key_of_two_columns_are_looked_for(connection: Connection, schema: str) -> None:
    connection.query(f"CREATE TABLE {schema}.t (a INT, b INT, PRIMARY KEY (a, b))")
    connection.query(f"INSERT INTO {schema}.t SELECT seq DIV 20, seq FROM {numbers(200)}")
    table = read_table(connection, schema, "t")
    assert table is not None
    chunks, last = find_chunks(connection, table, after=None, rows=ROWS, most=100)
    assert last
    counts = [len(connection.query(f"SELECT a FROM {schema}.t{condition(table, chunk)}")) for chunk in chunks]
    assert counts == [ROWS] * 20 + [0]


def _asked(connection: Connection) -> int:
    return int(connection.query("SHOW SESSION STATUS LIKE 'Com_select'")[0][1])
