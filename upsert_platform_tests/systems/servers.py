"""The two kinds of servers that every behaviour is tested on, and what is written otherwise for each of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from upsert_platform.local.database import USER, Database, start_database
from upsert_platform.local.mariadb import mariadb_server
from upsert_platform.local.mysql import mysql_server
from upsert_platform.mysql.binlog.stream import executed_gtids
from upsert_platform.mysql.connection import Connection, Server


@dataclass(frozen=True)
class Kind:
    """A kind of server.

    Attributes:
        start: starts one on a data directory, as `start_database` does.
        client_grant: the privilege to ask where the log ends.
        compression: the variable that has the log compressed.
        replica_log: the variable by which a replica logs what it is sent.
    """

    name: str
    start: Callable[..., Database]
    client_grant: str
    compression: str
    replica_log: str

    def __str__(self) -> str:
        return self.name

    def replicate(self, target: Connection, source: Server) -> None:
        """Makes a server the replica of another, by global ids."""
        if self.name == "mariadb":
            target.query("SET GLOBAL gtid_slave_pos = ''")
            target.query(
                f"CHANGE MASTER TO master_host='127.0.0.1', master_port={source.port}, master_user='{source.user}',"
                f" master_password='{source.password}', master_use_gtid=slave_pos"
            )
        else:
            target.query(
                f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={source.port},"
                f" SOURCE_USER='{source.user}', SOURCE_PASSWORD='{source.password}', SOURCE_AUTO_POSITION=1,"
                " GET_SOURCE_PUBLIC_KEY=1"
            )
        target.query("START SLAVE")

    def await_replica(self, target: Connection, source: Connection) -> None:
        """Returns when a replica has all that its source has logged."""
        wait = "MASTER_GTID_WAIT" if self.name == "mariadb" else "WAIT_FOR_EXECUTED_GTID_SET"
        assert target.query(f"SELECT {wait}(%s, 60)", (executed_gtids(source),)) == [(0,)]


KINDS = {
    "mariadb": Kind(
        "mariadb", partial(start_database, mariadb_server), "BINLOG MONITOR", "log_bin_compress", "log-slave-updates"
    ),
    "mysql": Kind(
        "mysql",
        partial(start_database, mysql_server),
        "REPLICATION CLIENT",
        "binlog_transaction_compression",
        "log-replica-updates",
    ),
}
ONLY_MARIADB = pytest.mark.parametrize("kind", [KINDS["mariadb"]], indirect=True, ids=str)
ONLY_MYSQL = pytest.mark.parametrize("kind", [KINDS["mysql"]], indirect=True, ids=str)
"""Marks of tests of what one of them alone has."""


def server_of(database: Database) -> Server:
    """Where a server is, and its user of all rights."""
    return Server("127.0.0.1", database.port, USER, database.password)


def create_user(connection: Connection, name: str) -> None:
    """A new user without grants, whose password is its name."""
    connection.query(f"DROP USER IF EXISTS '{name}'@'127.0.0.1'")
    connection.query(f"CREATE USER '{name}'@'127.0.0.1' IDENTIFIED BY '{name}'")


def numbers(upto: int, *, first: int = 1) -> str:
    """A table of whole numbers, in SQL: its column is ``seq``. Recursive queries end after 1,000 rows."""
    digits = len(str(upto - first))
    ten = " UNION ALL SELECT ".join(["SELECT 0 d", *map(str, range(1, 10))])
    joined = " JOIN ".join(f"({ten}) d{at}" for at in range(digits))
    value = " + ".join(f"d{at}.d * {10**at}" for at in range(digits))
    return f"(SELECT {first} + {value} seq FROM {joined} WHERE {value} <= {upto - first}) numbers"


def await_table(connection: Connection, name: str) -> None:
    """Returns when a table is there."""
    for _ in range(300):
        if connection.query("SELECT 1 FROM information_schema.tables WHERE table_name = %s", (name,)):
            return
        time.sleep(0.1)
    raise AssertionError(f"there is no table {name}")
