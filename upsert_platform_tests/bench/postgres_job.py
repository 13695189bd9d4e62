"""A topic of upserts into PostgreSQL, the whole job: a run of the platform beside Flink's JDBC sink, in turn.

`FLINK_SQL` names a program that carries out a file of Flink SQL: CREATEs, then one INSERT. It finds the connectors by
itself (Kafka, JDBC for PostgreSQL, and the driver). Without it the platform is measured alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from upsert_platform.local.kafka import start_broker
from upsert_platform_tests.bench.command import timed_flink
from upsert_platform_tests.bench.jobs import _USERS, _declare, _job
from upsert_platform_tests.bench.kafka import create_topic, produce_json_users
from upsert_platform_tests.bench.measure import row
from upsert_platform_tests.systems.postgres import postgres

UPSERTS = 300_000
REPEATS = 2
FLUSHED_ROWS = 5_000
"""Rows of a batch of Flink's sink; its default is 100."""
_OURS = """
CREATE TABLE users ({columns}) WITH ('connector' = 'upsert-kafka', 'topic' = '{topic}',
  'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE {table} ({columns}) WITH ('connector' = 'postgres', 'url' = 'jdbc:{url}', 'table-name' = '{table}',
  'username' = '{user}', 'password' = '{password}');
INSERT INTO {table} SELECT * FROM users;
"""
_FLINK = """
CREATE TABLE users ({records}) WITH ('connector' = 'kafka', 'topic' = '{topic}',
  'properties.bootstrap.servers' = '{servers}', 'properties.group.id' = '{table}', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset');
CREATE TABLE target ({columns}) WITH ('connector' = 'jdbc', 'url' = 'jdbc:{url}?reWriteBatchedInserts=true',
  'table-name' = '{table}', 'username' = '{user}', 'password' = '{password}',
  'sink.buffer-flush.max-rows' = '{flushed}');
INSERT INTO target SELECT * FROM users;
"""
_CREATE = (
    """CREATE TABLE {table} (id bigint PRIMARY KEY, name text, email text, score double precision, updated bigint)"""
)


def run(*, upserts: int = UPSERTS) -> Iterator[dict[str, Any]]:
    """Measures `postgres_job`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker(Path(folder) / "kafka", die_with_parent=True) as broker,
        postgres() as server,
        psycopg.connect(server, autocommit=True) as connection,
    ):
        parts = urlsplit(server)
        reach: dict[str, Any] = {
            "url": f"postgresql://{parts.hostname}:{parts.port}{parts.path}",
            "user": parts.username, "password": parts.password,
            "servers": broker.bootstrap_servers, "flushed": FLUSHED_ROWS,
        }  # fmt: skip
        for number in range(REPEATS):
            reach["topic"] = f"users-{number}"
            create_topic(broker.bootstrap_servers, reach["topic"], partitions=2)
            produce_json_users(broker.bootstrap_servers, reach["topic"], records=upserts, keys=upserts)
        ours, theirs = [], []
        for number in range(REPEATS):
            reach["topic"] = f"users-{number}"
            for table in (f"ours_{number}", f"flink_{number}"):
                connection.execute(_CREATE.format(table=table).encode())
            ours.append(_platform(Path(folder) / f"project-{number}", f"ours_{number}", reach))
            if "FLINK_SQL" in os.environ:
                theirs.append(_flink(Path(folder) / f"flink-{number}.sql", f"flink_{number}", reach))
                _judge(connection, f"ours_{number}", f"flink_{number}")
        ratio = min(theirs) / min(ours) if theirs else None
        yield row(
            "postgres_job",
            rows=upserts,
            seconds=min(ours),
            ratio=ratio,
            ratio_to="Flink's JDBC sink (seconds of its job's process / ours); equal rows",
            goal=">= 2",
            each_seconds=[round(seconds, 1) for seconds in ours],
            flink_seconds=[round(seconds, 1) for seconds in theirs],
            load=round(os.getloadavg()[0], 1),
        )


def _platform(folder: Path, table: str, reach: dict[str, Any]) -> float:
    _declare(folder, _OURS.format(columns=_USERS, table=table, **reach))
    return _job(folder)[0]


def _flink(script: Path, table: str, reach: dict[str, Any]) -> float:
    text = _FLINK.format(columns=_USERS, records=_USERS.rpartition(", PRIMARY")[0], table=table, **reach)
    return timed_flink(script, text)


def _judge(connection: psycopg.Connection[Any], ours: str, theirs: str) -> None:
    """Both tables have the same rows, and some."""
    sql = f"SELECT (SELECT count(*) FROM (TABLE {ours} EXCEPT TABLE {theirs}) a), (SELECT count(*) FROM"
    sql += f" (TABLE {theirs} EXCEPT TABLE {ours}) b), (SELECT count(*) > 0 FROM {ours})"
    assert connection.execute(sql.encode()).fetchone() == (0, 0, True)
