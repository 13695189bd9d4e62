"""A table of a server that is read into a changelog: what tests of snapshots, logs and changes of tables share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.latest import latest_per_key
from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Options, Table
from upsert_platform.core.types import quote_name
from upsert_platform.mysql.binlog.stream import log_end
from upsert_platform.mysql.catalog import read_table
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform.mysql.declared import declared_columns
from upsert_platform.mysql.table_source import MySqlTableSource
from upsert_platform.sync.binding import changelog_of
from upsert_platform.sync.changelog_hop import ChangelogHop, ChangelogRun
from upsert_platform.sync.connectors import CONNECTORS
from upsert_platform.sync.on_demand import OnDemand


@dataclass
class Followed:
    """A table that is read into a changelog: by tasks of a session, unless it is given where work is done."""

    spark: SparkSession
    server: Server
    schema: str
    name: str
    lake: Path
    more: dict[str, str]
    work: OnDemand | None = None

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
        return ChangelogHop(source, changelog_of(source, self.place()), run="test")

    def place(self) -> Lake:
        return Lake(str(self.lake / self.name))

    def sync(self, hop: ChangelogHop | None = None) -> ChangelogRun:
        hop = hop or self.hop()
        return hop.execute(self.work or OnDemand.dividing(self.spark), hop.plan())

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


def fill(connection: Connection, schema: str, rows: int = 60) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT, name VARCHAR(20))")
    connection.query(
        f"INSERT INTO {schema}.t WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"
        " SELECT i, 0, CONCAT('n', i) FROM n"
    )


def purge(connection: Connection) -> None:
    """Leaves one file of the log; a server keeps one as long as a reader that has just ended may need it."""
    for _ in range(300):
        connection.query("FLUSH BINARY LOGS")
        connection.query(f"PURGE BINARY LOGS TO '{log_end(connection).file}'")
        if len(connection.query("SHOW BINARY LOGS")) == 1:
            return
        time.sleep(0.1)
    raise AssertionError("the log stays")


CHUNK = {"scan__incremental__snapshot__chunk__size": "7"}


@contextmanager
def disturbed_landings(disturb: Callable[[int], None]) -> Iterator[Callable[[], int]]:
    """Snapshots read one chunk a batch, and something happens before each is landed.

    Args:
        disturb: is given how many were landed before.

    Yields:
        What tells how many were landed.
    """
    land, landed = MySqlTableSource.land, 0

    def disturbed(self: MySqlTableSource, *given: Any, **more: Any) -> Any:
        nonlocal landed
        disturb(landed)
        landed += 1
        return land(self, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("upsert_platform.mysql.landed_batch.batch_chunks", lambda *_, **__: 1)
        patch.setattr(MySqlTableSource, "land", disturbed)
        yield lambda: landed
