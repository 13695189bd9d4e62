"""A database whose users go into a topic and on: the project, writers, kills, and what every side holds."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import threading
import time
from typing import Any

from confluent_kafka import Consumer

from upsert_platform.core.errors import EndpointError
from upsert_platform.mysql.connection import Connection, Server
from upsert_platform_tests.graph.stack import KEY, SERVING, SOURCE, WAREHOUSE, Stack

PIPELINE = """source:
  type: mysql
  name: MySQL Source
  hostname: ${{mysql.hostname}}
  port: ${{mysql.port}}
  username: ${{mysql.username}}
  password: ${{mysql.password}}
  tables: ${{mysql.source.table}}
  server-id: 8601-8604
  scan.incremental.snapshot.chunk.size: {chunk}

sink:
  type: upsert-kafka
  name: Upsert Kafka Sink
  properties.bootstrap.servers: ${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}
  {more}

route:
  - source-table: ${{mysql.source.table}}
    sink-table: ${{upsert.kafka.topic}}
"""
COLUMNS = "user_id BIGINT, name STRING, region STRING, balance DECIMAL(12, 2), updated_at TIMESTAMP(3)"


TABLE = (
    "user_id BIGINT PRIMARY KEY, name VARCHAR(40), region VARCHAR(10), balance DECIMAL(12, 2), updated_at DATETIME(3)"
)
FILL = (
    "INSERT INTO {table} SELECT seq, CONCAT('user ', seq), IF(seq % 10, 'eu', 'test'), seq / 8,"
    " '2024-01-01' + INTERVAL seq SECOND FROM {numbers}"
)


def declare(
    stack: Stack,
    database: Connection,
    table: str,
    *,
    more: str = "sink.delivery-guarantee: exactly-once",
    chunk: int = 8096,
) -> None:
    server = database.server
    stack.project.mkdir(parents=True, exist_ok=True)
    for file in stack.project.iterdir():
        file.unlink()
    (stack.project / "variables.yaml").write_text(
        json.dumps(
            {
                "mysql": {
                    "hostname": server.host,
                    "port": str(server.port),
                    "username": server.user,
                    "password": server.password,
                    "source": {"table": table},
                },
                "upsert.kafka.topic": stack.topic,
            }
        )
    )
    (stack.project / "pipeline.yaml").write_text(PIPELINE.format(more=more, chunk=chunk))
    given = {"columns": COLUMNS, "key": KEY, "more": ""}
    (stack.project / "users.sql").write_text(
        SOURCE.format(topic=stack.topic, **given)
        + SERVING.format(table=stack.table, **given)
        + WAREHOUSE.format(table=stack.table, **given)
    )


def records(stack: Stack) -> list[tuple[bytes | None, bytes | None, Any]]:
    """Every committed record of the topic, partition after partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": secrets.token_hex(4),
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([stack.topic])
    found: list[tuple[bytes | None, bytes | None, Any]] = []
    ended: set[int | None] = set()
    while len(ended) < 4:
        message = consumer.poll(20)
        assert message is not None
        if message.error():
            ended.add(message.partition())
            continue
        found.append((message.key(), message.value(), message.headers()))
    consumer.close()
    return found


def held(stack: Stack) -> dict[int, Any]:
    """The last value per key of the topic."""
    state: dict[int, Any] = {}
    for key, value, _ in records(stack):
        state.pop(json.loads(key or b"")["user_id"], None)
        if value is not None:
            state[json.loads(key or b"")["user_id"]] = json.loads(value)
    return state


def wanted(database: Connection, table: str) -> dict[int, Any]:
    return {
        number: {
            "user_id": number,
            "name": name,
            "region": region,
            "balance": float(balance),
            "updated_at": f"{moment:%Y-%m-%d %H:%M:%S}".rstrip("."),
        }
        for number, name, region, balance, moment in database.query(f"SELECT * FROM {table}")
    }


def serving(stack: Stack) -> dict[int, str]:
    return {row[0]: row[1] for row in stack.serving_rows()}


class Writer(threading.Thread):
    """Inserts, updates, deletes and changes of keys, until it is stopped; the server may be away meanwhile."""

    def __init__(self, server: Server, table: str, *, pause: float, keys: int = 12_000) -> None:
        super().__init__(daemon=True)
        self.server, self.table, self.pause, self.keys = server, table, pause, keys
        self.ended = threading.Event()
        self.written = 0

    def run(self) -> None:
        chosen = random.Random(5)
        while not self.ended.is_set():
            try:
                with Connection(self.server) as connection:
                    while not self.ended.is_set():
                        self._write(connection, chosen)
                        time.sleep(self.pause)
            except EndpointError:
                time.sleep(0.2)

    def _write(self, connection: Connection, chosen: random.Random) -> None:
        key, self.written = chosen.randrange(self.keys), self.written + 1
        kind = chosen.random()
        if kind < 0.5:
            connection.query(f"UPDATE {self.table} SET name = 'w{self.written}' WHERE user_id = {key}")
        elif kind < 0.7:
            connection.query(f"DELETE FROM {self.table} WHERE user_id = {key}")
        elif kind < 0.8:
            to = chosen.randrange(self.keys)
            connection.query(
                f"UPDATE IGNORE {self.table} SET user_id = {to}, name = 'w{self.written}' WHERE user_id = {key}"
            )
        else:
            connection.query(f"REPLACE INTO {self.table} VALUES ({key}, 'w{self.written}', 'eu', 1, '2024-06-01')")


def killed(stack: Stack, seconds: float) -> bool:
    """Runs sync and kills it and all of its processes; False when it had ended before."""
    process = subprocess.Popen(
        stack.command(),
        env=stack.environment(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False
