"""A table of a MariaDB server to its changelog: a snapshot that meets its log, at every key, and what stops it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from upsert_platform.changelog.latest import latest_per_key
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.errors import SourceLocation
from upsert_platform.hops.changelog_hop import ChangelogHop, ChangelogRun
from upsert_platform.hops.connectors import CONNECTORS
from upsert_platform.local.mariadb import USER, MariaDb
from upsert_platform.model import Options, Table
from upsert_platform.mysql.catalog import read_table
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform.mysql.declared import declared_columns
from upsert_platform.mysql.table_source import MySqlTableSource
from upsert_platform.types import quote_name
from upsert_platform_tests.systems.test_mysql_log import TYPES

pytestmark = pytest.mark.systems


@pytest.fixture
def server(mariadb: MariaDb) -> Server:
    return Server("127.0.0.1", mariadb.port, USER, mariadb.password)


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    with Connection(server) as opened:
        yield opened


@pytest.fixture
def schema(connection: Connection) -> str:
    """A schema of one's own."""
    name = f"s_{secrets.token_hex(4)}"
    connection.query(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    return name


@dataclass
class Followed:
    """A table that is read into a changelog."""

    spark: SparkSession
    server: Server
    schema: str
    name: str
    lake: Path
    more: dict[str, str]

    def source(self) -> MySqlTableSource:
        with Connection(self.server) as connection:
            found = read_table(connection, self.schema, self.name)
        assert found is not None
        options = {
            "connector": "mysql-cdc",
            "hostname": self.server.host,
            "port": str(self.server.port),
            "username": self.server.user,
            "password": self.server.password,
            "database-name": self.schema,
            "table-name": self.name,
            **self.more,
        }
        place = SourceLocation("t.sql", 1)
        table = Table("t", (), found.primary_key, Options(options), place)
        checked, problems = CONNECTORS["mysql-cdc"].read(table)  # type: ignore[attr-defined]
        assert checked is not None, problems
        columns, unread = declared_columns(found, checked.settings.type_rules)
        assert not unread
        return MySqlTableSource(Table("t", columns, found.primary_key, Options(options), place), checked.settings)

    def hop(self) -> ChangelogHop:
        source = self.source()
        return ChangelogHop(source, ChangelogStore(str(self.lake / self.name), source.table), run="test")

    def sync(self, hop: ChangelogHop | None = None) -> ChangelogRun:
        hop = hop or self.hop()
        return hop.execute(self.spark, hop.plan())

    def rows(self) -> list[tuple[Any, ...]]:
        """What the changelog says that the table holds."""
        hop = self.hop()
        head = hop.store.head()
        assert head is not None
        names = [column.name for column in hop.source.table.columns]
        key = hop.source.table.primary_key
        last = latest_per_key(hop.store.read(self.spark, after=0, upto=head.batch), key=key, columns=names)
        found = last.where("_kind <> '-D'").select(*map(quote_name, names)).collect()
        return sorted((tuple(row) for row in found), key=repr)

    def wanted(self) -> list[tuple[Any, ...]]:
        with Connection(self.server) as connection:
            return sorted(connection.query(f"SELECT * FROM {self.schema}.{self.name}"), key=repr)

    def sums(self) -> None:
        hop = self.hop()
        head = hop.store.head()
        assert head is not None
        accounts = hop.store.accounts(after=0, upto=head.batch)
        assert sorted(accounts) == list(range(1, head.batch + 1))
        ends: dict[int, int] = {}
        for batch in sorted(accounts):
            for account in accounts[batch]:
                assert account.imbalance() is None
                assert account.gaps >= 0
                assert ends.get(account.partition, account.start) == account.start
                ends[account.partition] = account.end


@pytest.fixture
def follow(spark: SparkSession, server: Server, schema: str, tmp_path: Path) -> Callable[..., Followed]:
    def made(name: str = "t", **more: str) -> Followed:
        given = {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}
        return Followed(spark, server, schema, name, tmp_path, given)

    return made


CHUNK = {"scan__incremental__snapshot__chunk__size": "7"}
KEYS = [
    ("a INT", "a", "i - 50"),
    ("a BIGINT UNSIGNED", "a", "18446744073709551615 - i * 36893488147419103"),
    ("a VARCHAR(20) COLLATE utf8mb4_general_ci", "a", "CONCAT(CHAR(65 + i % 26 + 32 * (i % 2)), '''\\\\', i)"),
    ("a VARCHAR(20) CHARACTER SET latin1", "a", "CONCAT('é', i % 9, 'ü', i)"),
    ("a VARBINARY(9)", "a", "UNHEX(CONCAT('00FF', LPAD(HEX(i * 7919), 8, '0')))"),
    ("a DECIMAL(30,10)", "a", "(i - 40) * 12345678901234567.0123456789"),
    ("a DOUBLE", "a", "(i - 40) / 7"),
    ("a FLOAT", "a", "(i - 40) / 7"),
    ("a DATETIME(6)", "a", "'2024-01-01' + INTERVAL i * 123457 MICROSECOND"),
    ("a TIMESTAMP(3) DEFAULT '2024-01-01'", "a", "'2024-01-01' + INTERVAL i * 1234 SECOND"),
    ("a TIME(2)", "a", "SEC_TO_TIME((i - 50) * 100.25)"),
    ("a ENUM('z','b','a'), b SMALLINT", "a, b", "1 + i % 3, i"),
    ("a BIT(9), b YEAR", "a, b", "i * 5, 1960 + i % 7"),
    ("a VARCHAR(5) COLLATE utf8mb4_bin, b DATE, c TINYINT", "b, a, c",
     "'2024-01-01' + INTERVAL i % 4 DAY, CHAR(65 + i % 3), i"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "key", "values"), KEYS, ids=[item[0] for item in KEYS])
def test_chunks_of_every_key(
    columns: str, key: str, values: str, connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    connection.query(f"CREATE TABLE {schema}.t ({columns}, v INT, PRIMARY KEY ({key}))")
    connection.query(
        f"INSERT INTO {schema}.t ({key}, v) WITH RECURSIVE n AS"
        f" (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT {values}, i FROM n"
    )
    followed = follow(**CHUNK)
    run = followed.sync()
    assert run.account.rows == 100
    read = followed.rows()
    assert sorted(row[-1] for row in read) == list(range(1, 101))
    connection.query(f"UPDATE {schema}.t SET v = v + 1000 WHERE v % 3 = 0")
    connection.query(f"DELETE FROM {schema}.t WHERE v % 5 = 0")
    followed.sync()
    wanted = [v for (v,) in connection.query(f"SELECT v FROM {schema}.t ORDER BY v")]
    assert sorted(row[-1] for row in followed.rows()) == wanted
    assert {row[:-1] for row in followed.rows()} <= {row[:-1] for row in read}
    followed.sums()


def test_values_of_a_snapshot_are_those_of_the_log(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    """Every type, in one table: rows of a snapshot and the same rows told by the log are the same."""
    columns = ", ".join(f"c{number} {kind} NULL" for number, (kind, *_) in enumerate(TYPES))
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, {columns})")
    most = max(len(values) for _, values, *_ in TYPES)
    for row in range(most + 1):
        found = [values[row] if row < len(values) else "NULL" for _, values, *_ in TYPES]
        connection.query(f"INSERT INTO {schema}.t VALUES ({row}, {', '.join(found)})")
    followed = follow()
    followed.sync()
    before = followed.rows()
    assert len(before) == most + 1
    connection.query(f"UPDATE {schema}.t SET id = id + 100")
    followed.sync()
    after = [(row[0] - 100, *row[1:]) for row in followed.rows()]
    assert sorted(after, key=repr) == before
