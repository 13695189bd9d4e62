"""The log of a server: the same bytes decoded by us and by mysql-replication, where that one is right.

It is not for TIME below zero with a fraction, YEAR 0 (told as 1900), a SET without an element (as NULL) and bytes of
length zero (as a text), and tells BIT, JSON and shapes in forms of its own: for those the server's own text is the
measure (`test_mysql_log`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from upsert_platform.mysql.binlog.changes import TableRows
from upsert_platform.mysql.binlog.reader import LogReader
from upsert_platform.mysql.binlog.stream import LogStream, log_end
from upsert_platform.mysql.catalog import read_table
from upsert_platform.mysql.columns import TypeRules
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform_tests.systems.library_decoder import library_rows
from upsert_platform_tests.systems.servers import Kind, numbers

pytestmark = pytest.mark.systems

ROWS = 500
COLUMNS = {
    "TINYINT": "n % 256 - 128",
    "TINYINT UNSIGNED": "n % 256",
    "TINYINT(1)": "n % 2",
    "SMALLINT": "n * 131 % 65536 - 32768",
    "SMALLINT UNSIGNED": "n * 131 % 65536",
    "MEDIUMINT": "n * 33553 % 16777216 - 8388608",
    "MEDIUMINT UNSIGNED": "n * 33553 % 16777216",
    "INT": "n * 8589931 % 4294967296 - 2147483648",
    "INT UNSIGNED": "n * 8589931 % 4294967296",
    "BIGINT": "n * 36893488147 * IF(n % 2, 249999, -249999)",
    "BIGINT UNSIGNED": "18446744073709551615 - n * 36893488147",
    "FLOAT": "n / 7 - 30",
    "DOUBLE": "n / 3 - 80",
    "DECIMAL(12, 2)": "n * 1234567 / 100 * IF(n % 2, 1, -1)",
    "DECIMAL(38, 10)": "n * 12345678901234567 / 7 - 1000000000000000000",
    "DECIMAL(65, 30)": "CAST(n AS DECIMAL(65, 30)) / 7 - 30",
    "YEAR": "1901 + n % 255",
    "DATE": "'1000-01-01' + INTERVAL n * 6000 DAY",
    **{
        f"DATETIME({digits})": "CAST('1970-01-01' AS DATETIME(6)) + INTERVAL n * 7654321123456 MICROSECOND"
        for digits in range(7)
    },
    **{
        f"TIMESTAMP({digits})": "CAST('1970-01-02' AS DATETIME(6)) + INTERVAL n * 4000123123456 MICROSECOND"
        for digits in range(7)
    },
    "TIME": "SEC_TO_TIME(n * 11999 - 3000000)",
    **{f"TIME({digits})": "SEC_TO_TIME(n * 5999.123457)" for digits in range(1, 7)},
    "CHAR(10)": "CONCAT('é€', n)",
    "VARCHAR(40)": "CONCAT('name ', n)",
    "VARCHAR(400)": "REPEAT('é😀', n % 190)",
    "TEXT": "REPEAT('ab', n * 10)",
    "VARCHAR(20) CHARACTER SET latin1": "CONCAT('ÿé', n)",
    "VARBINARY(30)": "UNHEX(SHA1(n))",
    "BLOB": "REPEAT(UNHEX(SHA1(n)), n % 40 + 1)",
    "ENUM('a', 'b', 'ö')": "n % 3 + 1",
    "SET('p', 'q', 'ö')": "n % 7 + 1",
}


@pytest.fixture
def full_metadata(connection: Connection) -> Iterator[None]:
    connection.query("SET GLOBAL binlog_row_metadata = 'FULL'")
    yield
    connection.query("SET GLOBAL binlog_row_metadata = DEFAULT")


@pytest.mark.usefixtures("full_metadata")
def test_rows_are_those_of_the_library(connection: Connection, server: Server, schema: str, kind: Kind) -> None:
    names = [f"c{number}" for number in range(len(COLUMNS))]
    definition = ", ".join(f"{name} {kind} NULL" for name, kind in zip(names, COLUMNS, strict=True))
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, {definition})")
    start = log_end(connection)
    counted = f"SELECT CAST(seq AS SIGNED) n FROM {numbers(ROWS)}"
    values = ", ".join(
        # Every column is null in other rows.
        f"IF(n % 11 = {at % 11}, NULL, {value})"
        for at, value in enumerate(COLUMNS.values())
    )
    connection.query(f"INSERT INTO {schema}.t SELECT n, {values} FROM ({counted}) s")
    connection.query(f"UPDATE {schema}.t SET c1 = 7, c9 = NULL WHERE id % 3 = 0")
    connection.query(f"DELETE FROM {schema}.t WHERE id % 4 = 0")
    table = read_table(connection, schema, "t")
    assert table is not None
    with LogStream(server, start, server_id=secrets.randbelow(10**9) + 10, to_end=True) as stream:
        events, checksum = list(stream), stream.checksum
    reader = LogReader(start, lambda *_: table, rules=TypeRules(), checksum=checksum)
    told = [item for event in events for item in reader.read(event)] + list(reader.drain())
    ours = [
        (kind, row)
        for item in told
        if isinstance(item, TableRows)
        for kind, row in zip(item.kinds, item.rows.to_pylist(), strict=True)
    ]
    theirs = list(library_rows(connection, events, kind=kind.name, checksum=checksum))
    assert len(ours) == ROWS + ROWS // 3 * 2 + ROWS // 4
    assert [kind for kind, _ in ours] == [kind for kind, _ in theirs]
    assert [row["id"] for _, row in ours] == [row["id"] for _, row in theirs]
    for name, declared in zip(names, COLUMNS, strict=True):
        found = [_comparable(row[name]) for _, row in theirs]
        assert len(set(found)) > 1
        assert [_as_theirs(declared, row[name]) for _, row in ours] == found, declared


def _comparable(value: Any) -> Any:
    return frozenset(value) if isinstance(value, set) else value


def _as_theirs(kind: str, value: Any) -> Any:
    """A value of ours in the type that the library gives it."""
    if value is None:
        return None
    if kind.startswith("TIMESTAMP"):
        assert isinstance(value, datetime)
        return value.astimezone(UTC).replace(tzinfo=None)
    if kind.startswith("TIME"):
        return timedelta(microseconds=value)
    if kind == "DECIMAL(65, 30)":
        return Decimal(value)
    return frozenset(value.split(",")) if kind.startswith("SET") else value
