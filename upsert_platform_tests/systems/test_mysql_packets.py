"""Rows of a SELECT, of any length, and what the server itself says of them."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack

import pyarrow as pa
import pytest

from upsert_platform.core.errors import EndpointError
from upsert_platform.mysql.catalog import read_table
from upsert_platform.mysql.columns import TypeRules
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform.mysql.row_packets import read_rows
from upsert_platform.mysql.text_values import text_reader
from upsert_platform_tests.systems.servers import numbers

pytestmark = pytest.mark.systems

LENGTHS = (0, 1, 250, 251, 252, 65_535, 65_536, 1_100_000, 4_194_304, 16_777_190, 16_777_200, 16_777_215, 17_000_000)
"""Around every length at which the protocol writes one in more bytes, and rows of one packet, and of more."""


def _selected(server: Server, schema: str, sql: str = "") -> pa.Table:
    with Connection(server) as connection:
        table = read_table(connection, schema, "t")
        assert table is not None
        readers = [text_reader(column, TypeRules(), table="t") for column in table.columns]
        selected = ", ".join(reader.select for reader in readers)
        found = list(read_rows([connection], [f"SELECT {selected} FROM {schema}.t {sql}"], readers))
        assert connection.query("SELECT 1") == [(1,)], "the connection can be used again"
    return pa.Table.from_batches(found, pa.schema([pa.field(reader.name, reader.type) for reader in readers]))


def test_rows_of_every_length(connection: Connection, server: Server, schema: str) -> None:
    before = connection.query("SELECT @@GLOBAL.max_allowed_packet")[0][0]
    connection.query("SET GLOBAL max_allowed_packet = 67108864")
    try:
        with Connection(server) as roomy:
            roomy.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a LONGBLOB, b VARCHAR(10), c LONGTEXT)")
            for number, length in enumerate(LENGTHS):
                roomy.query(
                    f"INSERT INTO {schema}.t VALUES ({number}, REPEAT(CHAR({number} USING binary), {length}),"
                    f" IF({number} % 2, NULL, 'ü{number}'), IF({number} % 3, REPEAT('é', {length % 70_000}), NULL))"
                )
            wanted = roomy.query(f"SELECT id, MD5(a), b, MD5(c) FROM {schema}.t ORDER BY id")
        for order in ("", "DESC"):
            found = _selected(server, schema, f"ORDER BY id {order}").to_pylist()
            told = [(row["id"], hashlib.md5(row["a"]).hexdigest(), row["b"], _md5(row["c"])) for row in found]
            assert sorted(told) == wanted
    finally:
        connection.query(f"SET GLOBAL max_allowed_packet = {before}")


def _md5(text: str | None) -> str | None:
    return None if text is None else hashlib.md5(text.encode()).hexdigest()


def test_many_rows_with_nulls_and_none_at_all(connection: Connection, server: Server, schema: str) -> None:
    connection.query(
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a INT, b VARCHAR(9), c DATETIME(2), d VARBINARY(9))"
    )
    assert _selected(server, schema).num_rows == 0
    connection.query(
        f"INSERT INTO {schema}.t SELECT seq, NULLIF(seq % 7, 0), IF(seq % 5, CONCAT('x', seq), NULL),"
        " IF(seq % 3, '2024-01-01' + INTERVAL seq SECOND, NULL), IF(seq % 2, UNHEX(HEX(seq)), NULL)"
        f" FROM {numbers(120_000)}"
    )
    found = _selected(server, schema, "ORDER BY id")
    assert found.num_rows == 120_000
    for at in range(0, 120_000, 1_009):
        row = tuple(found.slice(at, 1).to_pylist()[0].values())
        assert row == connection.query(f"SELECT * FROM {schema}.t WHERE id = {at + 1}")[0]


def test_an_answer_that_ends_with_an_error_is_told(connection: Connection, server: Server, schema: str) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    connection.query(f"INSERT INTO {schema}.t SELECT seq FROM {numbers(50_000)}")
    with pytest.raises(EndpointError, match="Subquery returns more than 1 row"):
        _selected(server, schema, f"WHERE id < 40000 OR id = (SELECT id FROM {schema}.t x WHERE x.id > t.id)")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_statements_are_answered_in_their_order(
    count: int, connection: Connection, server: Server, schema: str
) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a VARCHAR(200))")
    connection.query(f"INSERT INTO {schema}.t SELECT seq, REPEAT(CHAR(97 + seq % 26), 200) FROM {numbers(60_000)}")
    table = read_table(connection, schema, "t")
    assert table is not None
    readers = [text_reader(column, TypeRules(), table="t") for column in table.columns]
    selected = f"SELECT {', '.join(reader.select for reader in readers)} FROM {schema}.t WHERE id"
    bounds = [(0, 3), (3, 3), (3, 40_000), (40_000, 40_001), (40_001, 60_000)]  # of more than sockets hold, and empty
    statements = [f"{selected} > {after} AND id <= {upto} ORDER BY id" for after, upto in bounds]
    with ExitStack() as opened:
        connections = [opened.enter_context(Connection(server)) for _ in range(count)]
        found = list(read_rows(connections, iter(statements), readers))
        assert [number for block in found for number in block.column(0).to_pylist()] == list(range(1, 60_001))
        with pytest.raises(EndpointError, match="nowhere"):
            list(read_rows(connections, [statements[0], f"{selected} = nowhere"], readers))
