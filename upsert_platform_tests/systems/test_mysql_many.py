"""Three hundred tables of one server: found by a pattern, read, and followed by one reading of its log."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from upsert_platform.local.database import Database
from upsert_platform.mysql.connection import Connection
from upsert_platform.sync.binding import load
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform_tests.systems.followed import Followed
from upsert_platform_tests.systems.servers import ONLY_MYSQL, Kind, server_of
from upsert_platform_tests.systems.test_mysql_silences import NOBODY
from upsert_platform_tests.systems.test_mysql_spool import _bytes_sent

pytestmark = [pytest.mark.soak, pytest.mark.systems, pytest.mark.timeout(300)]

TABLES = 300
READ = 30
"""Tables whose rows are read; the others are found, and stand in the log between them."""
PIPELINE = """source: {{type: mysql, hostname: 127.0.0.1, port: {port}, username: {user}, password: {password},
         tables: 'shop.t_\\.*'}}
sink: {{type: upsert-kafka, properties.bootstrap.servers: '127.0.0.1:9092'}}
"""
LOAD_SECONDS = 20.0
CATALOGUE_BYTES = 10_000
"""What a server answers about one table, at most; beside that it sends its log once, and not once for each table."""
UNSAFE = {"sync-binlog": "0", "innodb-flush-log-at-trx-commit": "0"}
"""Hundreds of statements need not reach the disk each by itself."""


def unneeded() -> NoReturn:
    raise AssertionError("Spark is not needed")


@ONLY_MYSQL
def test_three_hundred_tables(tmp_path: Path, kind: Kind, start: Callable[..., Database]) -> None:
    names = [f"t_{number:03}" for number in range(TABLES)]
    with start(tmp_path / "server", variables=UNSAFE) as database:
        server = server_of(database)
        with Connection(server) as connection:
            connection.query("CREATE DATABASE shop")
            for name in names:
                connection.query(f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, v VARCHAR(20))")
                connection.query(f"INSERT INTO shop.{name} VALUES (1, 'a'), (2, '{name}'), (3, 'c')")
            (tmp_path / "project").mkdir()
            text = PIPELINE.format(port=server.port, user=server.user, password=server.password)
            (tmp_path / "project" / "pipeline.yaml").write_text(text)
            began = time.monotonic()
            project, problems = load(tmp_path / "project", root=str(tmp_path / "lake"))
            seconds = time.monotonic() - began
            assert not problems
            assert [insert.target for insert in project.inserts] == [f"shop.{name}" for name in names]
            assert seconds < LOAD_SECONDS
            print(f"{TABLES} tables are found in {seconds:.1f} s")  # noqa: T201

            local = OnDemand(unneeded, rows=10_000)
            read = names[:: TABLES // READ]
            followed = [Followed(NOBODY, server, "shop", name, tmp_path, {}, local) for name in read]
            hops = [item.hop() for item in followed]
            for item, hop in zip(followed, hops, strict=True):
                assert item.sync(hop).account.rows == 3
            written = connection.query("SHOW MASTER STATUS")[0][1]
            for name in names:
                connection.query(f"UPDATE shop.{name} SET v = 'b' WHERE id = 2")
                connection.query(f"DELETE FROM shop.{name} WHERE id = 3")
            written = int(connection.query("SHOW MASTER STATUS")[0][1]) - int(written)
            before = _bytes_sent(connection)
            began = time.monotonic()
            for item, hop in zip(followed, hops, strict=True):
                assert item.sync(hop).account.rows == 2, item.name
            sent = _bytes_sent(connection) - before
            print(f"{READ} tables are followed in {time.monotonic() - began:.1f} s, {sent} bytes sent")  # noqa: T201
            assert sent < written + READ * CATALOGUE_BYTES, (sent, written)
            for hop in hops:
                head = hop.store.head()
                assert head is not None
                kept = list(hop.store.accounts(after=0, upto=head.batch).values())
                assert sum(account.records for batch in kept for account in batch) == 5
                assert not hop.plan().backlog
