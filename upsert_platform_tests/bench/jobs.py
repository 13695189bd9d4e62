"""Whole jobs of their own: many small tables, and a topic copied to another."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from upsert_platform.demo.instance import SHIPPED_SETTINGS
from upsert_platform.local.kafka import start_broker
from upsert_platform_tests.bench.command import environment_of
from upsert_platform_tests.bench.kafka import create_topic, produce_json_users
from upsert_platform_tests.bench.measure import row, watch_memory
from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server
from upsert_platform_tests.referee.judging import latest, records_of

TABLES = 60
RECORDS = 100
COPIED = 4_000_000
COPIED_KEYS = 100_000
PARTITIONS = 4
_SMALL = """
CREATE TABLE source_{n} (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE target_{n} (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore',
  'tablestore.endpoint' = '{endpoint}', 'tablestore.instance.name' = '{instance}',
  'tablestore.access.key.id' = '{access}', 'tablestore.access.key.secret' = '{secret}', 'auto.create' = 'true');
INSERT INTO target_{n} SELECT id, v FROM source_{n};
"""
_USERS = "id BIGINT, name STRING, email STRING, score DOUBLE, updated BIGINT, PRIMARY KEY (id) NOT ENFORCED"
_COPY = """
CREATE TABLE users ({columns}) WITH ('connector' = 'upsert-kafka', 'topic' = 'users',
  'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE users_copy ({columns}) WITH ('connector' = 'upsert-kafka', 'topic' = 'users-copy',
  'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json',
  'auto.create' = 'true', 'auto.create.partitions' = '{partitions}');
INSERT INTO users_copy SELECT * FROM users;
"""


def run(
    *, tables: int = TABLES, records: int = RECORDS, copied: int = COPIED, keys: int = COPIED_KEYS
) -> Iterator[dict[str, Any]]:
    """Measures `many_tables`, `many_tables_idle`, `many_tables_asked` and `whole_copy`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker(Path(folder) / "kafka", die_with_parent=True) as broker,
        tablestore_server(Path(folder) / "tablestore") as tablestore,
    ):
        yield from _many(Path(folder) / "many", broker.bootstrap_servers, tablestore, tables, records)
        yield _copied(Path(folder) / "copy", broker.bootstrap_servers, copied, keys)


_RUN = ("dagster", "job", "execute", "-m", "upsert_platform.definitions", "-j", "sync")
_COMMAND = ("upsert-platform", "sync", "-m", "upsert_platform.definitions", "--json")
"""Asks first, and starts no run where nothing is new."""


def _job(folder: Path, command: Sequence[str] = _RUN) -> tuple[float, float]:
    """Seconds of a sync in a process of its own, and seconds of the processor that it and its workers took."""
    (folder / "dagster").mkdir(exist_ok=True)
    shutil.copyfile(SHIPPED_SETTINGS, folder / "dagster" / "dagster.yaml")  # as `upsert-platform setup` does
    program = str(Path(sys.executable).parent / command[0])
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([program, *command[1:]], env=environment_of(folder), capture_output=True, text=True)
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr[-3000:]
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _declare(folder: Path, text: str) -> None:
    (folder / "project").mkdir(parents=True)
    (folder / "project" / "tables.sql").write_text(text, "utf-8")


def _many(folder: Path, servers: str, tablestore: ServerHandle, tables: int, records: int) -> Iterator[dict[str, Any]]:
    from confluent_kafka import Producer

    topics = [f"many-{number}" for number in range(tables)]
    reach = {
        "servers": servers, "endpoint": tablestore.endpoint, "instance": tablestore.instance,
        "access": tablestore.access_key_id, "secret": tablestore.access_key_secret,
    }  # fmt: skip
    producer = Producer({"bootstrap.servers": servers})
    for topic in topics:
        create_topic(servers, topic, partitions=2)

    def send(turn: int) -> None:
        for topic in topics:
            for number in range(records):
                producer.produce(topic, json.dumps({"id": number, "v": f"{topic} {turn}"}), json.dumps({"id": number}))
        assert producer.flush(60) == 0

    _declare(folder, "".join(_SMALL.format(n=number, topic=topic, **reach) for number, topic in enumerate(topics)))
    send(0)
    first, _ = _job(folder)  # makes tables and changelogs
    send(1)
    with watch_memory() as peak:
        seconds, cpu = _job(folder)
    _judge_many(tablestore, topics, records)
    yield row(
        "many_tables",
        rows=tables * records,
        seconds=seconds,
        memory=peak,
        goal="<= 60 s",
        tables=tables,
        cpu_seconds=round(cpu, 1),
        first_seconds=round(first, 1),
    )
    idle, cpu = _job(folder)
    yield row("many_tables_idle", rows=0, seconds=idle, goal="<= 8 s", tables=tables, cpu_seconds=round(cpu, 1))
    runs = sorted((folder / "dagster" / "history" / "runs").glob("*.db"))
    asked, cpu = _job(folder, _COMMAND)
    assert sorted((folder / "dagster" / "history" / "runs").glob("*.db")) == runs, "a run was started"
    yield row("many_tables_asked", rows=0, seconds=asked, goal="<= 6 s", tables=tables, cpu_seconds=round(cpu, 1))


def _judge_many(tablestore: ServerHandle, topics: list[str], records: int) -> None:
    """Every row is there, with the value that was sent last."""
    from tablestore import INF_MAX, INF_MIN, Direction, OTSClient

    client = OTSClient(tablestore.endpoint, tablestore.access_key_id, tablestore.access_key_secret, tablestore.instance)
    for number, topic in enumerate(topics):
        low, high = [("id", INF_MIN)], [("id", INF_MAX)]
        _, _, found, _ = client.get_range(f"target_{number}", Direction.FORWARD, low, high, max_version=1)
        values = {item.primary_key[0][1]: item.attribute_columns[0][1] for item in found}
        assert values == dict.fromkeys(range(records), f"{topic} 1")


def _copied(folder: Path, servers: str, records: int, keys: int) -> dict[str, Any]:
    create_topic(servers, "users", partitions=PARTITIONS)
    produce_json_users(servers, "users", records=records, keys=keys)
    _declare(folder, _COPY.format(columns=_USERS, servers=servers, partitions=PARTITIONS))
    with watch_memory() as peak:
        seconds, cpu = _job(folder)
    wanted, found = latest(records_of(servers, "users")), latest(records_of(servers, "users-copy"))
    assert wanted.keys() == found.keys()
    assert all(json.loads(wanted[key]) == json.loads(found[key]) for key in wanted)
    return row(
        "whole_copy",
        rows=records,
        seconds=seconds,
        memory=peak,
        goal="<= 14.6 s",
        keys=len(found),
        cpu_seconds=round(cpu, 1),
    )
