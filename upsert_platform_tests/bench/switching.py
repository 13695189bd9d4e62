"""A topic and a Tablestore table of other writers are switched to the platform while their source is written.

`FLINK_SQL` names a program that carries out a file of Flink SQL (CREATEs, then one INSERT), and that finds the Kafka
connector by itself. It writes the topic of a copy and that of an aggregate. Without it a plain client writes the copy.
The Tablestore table is written by the vendor's client in both cases. Each measure is the pause: from the end of the
other writer to the end of `adopt`, when the table holds what the topic held by then and syncs go on.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upsert_platform.local.kafka import start_broker
from upsert_platform_tests.bench.command import timed_command, timed_flink
from upsert_platform_tests.bench.jobs import _USERS
from upsert_platform_tests.bench.kafka import create_topic, produce_json_users
from upsert_platform_tests.bench.measure import row
from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server

ROWS = 100_000
RATE = 500
"""Records a second that the source is sent all the time."""
SETTLED = 3.0
"""Seconds that the source is written before a writer is stopped, and after a table is switched."""
_TOPIC = """
CREATE TABLE {name} ({columns}) WITH ('connector' = 'upsert-kafka', 'topic' = '{topic}',
  'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json'{more});
"""
_SERVING = """
CREATE TABLE users_serving ({columns}) WITH ('connector' = 'tablestore', 'auto.create' = 'true',
  'tablestore.endpoint' = '{endpoint}', 'tablestore.instance.name' = '{instance}',
  'tablestore.access.key.id' = '{access}', 'tablestore.access.key.secret' = '{secret}');
"""
_SUMS = "bucket INT, n BIGINT, newest BIGINT, PRIMARY KEY (bucket) NOT ENFORCED"
_COPY = "INSERT INTO users_copy SELECT * FROM users"
_AGGREGATE = """INSERT INTO users_sums SELECT CAST(MOD(id, 100) AS INT), COUNT(*), MAX(updated) FROM users
  GROUP BY CAST(MOD(id, 100) AS INT)"""
_BOUNDED = ", 'scan.bounded.mode' = 'latest-offset', 'properties.group.id' = '{group}'"
_PER_REQUEST = 200


def run(*, rows: int = ROWS, rate: int = RATE) -> Iterator[dict[str, Any]]:
    """Measures `switch_topic`, `switch_tablestore` and, with `FLINK_SQL`, `prove_aggregate_of_flink`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker(Path(folder) / "kafka", die_with_parent=True) as broker,
        tablestore_server(Path(folder) / "tablestore") as tablestore,
    ):
        world = _World(Path(folder), broker.bootstrap_servers, tablestore)
        world.prepare(rows)
        if "FLINK_SQL" in os.environ:
            yield world.aggregate(rows)
        with world.written(rows, rate):
            for switch in (world.switch_topic, world.switch_tablestore):
                yield switch(rows)


@dataclass
class _World:
    """Servers and a project."""

    folder: Path
    servers: str
    tablestore: ServerHandle

    def prepare(self, rows: int) -> None:
        """Makes the topics, and fills the source."""
        for topic in ("users", "users-copy", "users-sums"):
            compacted = {} if topic == "users" else {"cleanup.policy": "compact"}
            create_topic(self.servers, topic, partitions=2, config=compacted)
        produce_json_users(self.servers, "users", records=rows, keys=rows)
        (self.folder / "project").mkdir()

    def project(self, *tables: str) -> None:
        """Declares the source and what is written from it, and nothing that another writer still writes."""
        text = "".join([self.topic("users"), *tables])
        (self.folder / "project" / "tables.sql").write_text(text, "utf-8")

    def topic(self, name: str, columns: str = _USERS, more: str = "") -> str:
        """The declaration of a topic's table."""
        topic = name.replace("_", "-")
        return _TOPIC.format(name=name, columns=columns, topic=topic, servers=self.servers, more=more)

    def access(self) -> dict[str, str]:
        """What reaches the Tablestore server."""
        server = self.tablestore
        names = {"endpoint": server.endpoint, "instance": server.instance}
        return {**names, "access": server.access_key_id, "secret": server.access_key_secret}

    @contextmanager
    def written(self, keys: int, rate: int) -> Iterator[None]:
        """Writes the source as long as the block runs; no two records of a key are equal."""
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self.servers, "partitioner": "murmur2_random"}  # as the producer of the fill
        producer, done = Producer(settings), threading.Event()

        def write() -> None:
            number, started = 0, time.monotonic()
            while not done.wait(max(0.0, started + number / rate - time.monotonic())):
                for _ in range(max(1, rate // 20)):
                    key, number = number * 7919 % keys, number + 1
                    value = {"id": key, "name": f"changed {key}", "email": "", "score": 0.5, "updated": number}
                    producer.produce("users", json.dumps(value), f'{{"id":{key}}}')
                producer.poll(0)
            assert producer.flush(60) == 0

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def flink(self, statement: str, sink: str, columns: str, *, group: str) -> float:
        """Carries out a statement by Flink up to the ends that the source has now; returns its seconds."""
        script = self.folder / f"{group}.sql"
        source = self.topic("users", more=_BOUNDED.format(group=group))
        return timed_flink(script, f"{source}{self.topic(sink, columns)}{statement};\n")

    def command(self, *words: str) -> tuple[float, int, dict[str, Any]]:
        """Seconds, exit code and JSON of a command of the platform, in a process of its own."""
        (self.folder / "dagster").mkdir(exist_ok=True)
        seconds, done = timed_command(self.folder, *words, "--json", codes=[0, 3])
        return seconds, done.returncode, json.loads(done.stdout.splitlines()[-1])

    def aggregate(self, rows: int) -> dict[str, Any]:
        """Flink's aggregate, judged at the offsets that its job has committed."""
        self.project(self.topic("users_sums", _SUMS), _AGGREGATE + ";")
        job = self.flink(_AGGREGATE, "users_sums", _SUMS, group="sums-job")
        seconds, code, told = self.command("prove", "users_sums", "--at", "group:sums-job", "--settle", "0s")
        assert (code, told["equal"], told["compared"]) == (0, True, min(100, rows)), told
        return row(
            "prove_aggregate_of_flink",
            rows=rows,
            seconds=seconds,
            goal="equal",
            compared=told["compared"],
            flink_seconds=round(job, 1),
        )

    def switch_topic(self, rows: int) -> dict[str, Any]:
        """The copy of a topic."""
        self.project(self.topic("users_copy"), _COPY + ";")
        if "FLINK_SQL" in os.environ:
            self.flink(_COPY, "users_copy", _USERS, group="copy-job")
        else:
            self.copy(group="copy-job")
        stopped = time.monotonic()
        ends = _ends(self.servers, "users-copy")
        held = _last_values(self.servers, "users-copy", {})
        time.sleep(SETTLED)  # the source goes on, as it does while somebody stops a job
        code, told = self.command("adopt", "users_copy", "--from-group", "copy-job", "--repair")[1:]
        pause = time.monotonic() - stopped
        assert (code, told["equal_after"], told["duplicates_after"]) == (0, True, []), told
        again = _equal_again(self.servers, "users-copy", ends, held)
        return self._switched("switch_topic", "users_copy", rows, pause, again, told)

    def switch_tablestore(self, rows: int) -> dict[str, Any]:
        """A table of Tablestore that the vendor's client has written."""
        table = _SERVING.format(columns=_USERS, **self.access())
        self.project(table, "INSERT INTO users_serving SELECT * FROM users;")
        ends = _ends(self.servers, "users")
        self.put(_last_values(self.servers, "users", {}, upto=ends))
        stopped = time.monotonic()
        before = self.stored()
        time.sleep(SETTLED)
        stated = ",".join(f"{partition}:{end}" for partition, end in ends.items())
        code, told = self.command("adopt", "users_serving", "--from-offsets", stated, "--repair")[1:]
        pause = time.monotonic() - stopped
        assert (code, told["equal_after"]) == (0, True), told
        after = self.stored()
        kept = before.keys() & after.keys()  # the source goes on, with keys that are new and with deletes
        again = sum(after[key][0] == before[key][0] and after[key][1] != before[key][1] for key in kept)
        return self._switched("switch_tablestore", "users_serving", rows, pause, again, told)

    def _switched(
        self, name: str, table: str, rows: int, pause: float, again: int, told: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Syncs what came meanwhile and proves the table; returns the measure."""
        sync = self.command("sync")[0]
        _, code, proof = self.command("prove", table)
        assert (code, proof["equal"], again) == (0, True, 0), (proof, again)
        return row(
            name,
            rows=rows,
            seconds=pause,
            goal="<= 60 s; 0 equal rows written again; equal",
            equal_rows_written_again=again,
            differed_when_stopped=told["missing"] + told["extra"] + told["stale"],
            example=next(iter(told["examples"]), None),
            put=told["put"],
            deleted=told["deleted"],
            sync_seconds=round(sync, 1),
            proven=proof["compared"],
            writer="Flink" if "FLINK_SQL" in os.environ and name == "switch_topic" else "a plain client",
        )

    def copy(self, *, group: str) -> None:
        """Writes the copy as a job does, and commits its offsets."""
        from confluent_kafka import Consumer, Producer, TopicPartition

        ends = _ends(self.servers, "users")
        producer = Producer({"bootstrap.servers": self.servers, "partitioner": "murmur2_random"})
        for key, value in _last_values(self.servers, "users", {}, upto=ends).items():
            producer.produce("users-copy", value, key)
            producer.poll(0)
        assert producer.flush(60) == 0
        client = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        client.commit(
            offsets=[TopicPartition("users", number, end) for number, end in ends.items()], asynchronous=False
        )
        client.close()

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Writes rows into the table as a foreign program does."""
        from tablestore import CapacityUnit, Condition, ReservedThroughput, Row, RowExistenceExpectation, TableMeta
        from tablestore import TableOptions as Options
        from tablestore.metadata import BatchWriteRowRequest, PutRowItem
        from tablestore.metadata import TableInBatchWriteRowItem as Rows

        client, ignored = self._client(), Condition(RowExistenceExpectation.IGNORE)
        meta = TableMeta("users_serving", [("id", "INTEGER")])
        client.create_table(meta, Options(), ReservedThroughput(CapacityUnit(0, 0)))
        items = []
        for key, value in values.items():
            cells = {name: cell for name, cell in json.loads(value).items() if name != "id"}
            items.append(PutRowItem(Row([("id", json.loads(key)["id"])], list(cells.items())), ignored))
        for start in range(0, len(items), _PER_REQUEST):
            request = BatchWriteRowRequest()
            request.add(Rows("users_serving", items[start : start + _PER_REQUEST]))
            assert client.batch_write_row(request).is_all_succeed()

    def stored(self) -> dict[int, tuple[dict[str, Any], set[int]]]:
        """The cells of each row of the table, and the times at which the server has written them."""
        from tablestore import INF_MAX, INF_MIN, Direction

        client, start = self._client(), [("id", INF_MIN)]
        found: dict[int, tuple[dict[str, Any], set[int]]] = {}
        while start is not None:
            _, start, rows, _ = client.get_range(
                "users_serving", Direction.FORWARD, start, [("id", INF_MAX)], max_version=1
            )
            for item in rows:
                cells = {name: value for name, value, _ in item.attribute_columns}
                found[item.primary_key[0][1]] = cells, {at for _, _, at in item.attribute_columns}
        return found

    def _client(self) -> Any:
        from tablestore import OTSClient

        server = self.tablestore
        access = server.endpoint, server.access_key_id, server.access_key_secret, server.instance
        return OTSClient(*access, logger_name=None)


def _ends(servers: str, topic: str) -> dict[int, int]:
    """The ends of a topic's partitions."""
    from confluent_kafka import Consumer, TopicPartition

    client = Consumer({"bootstrap.servers": servers, "group.id": "looks"})
    try:
        numbers = sorted(client.list_topics(topic, timeout=30).topics[topic].partitions)
        return {number: client.get_watermark_offsets(TopicPartition(topic, number))[1] for number in numbers}
    finally:
        client.close()


def _records(
    servers: str, topic: str, start: Mapping[int, int], upto: Mapping[int, int]
) -> Iterator[tuple[bytes, bytes | None]]:
    """Key and value of the records between offsets, by a plain consumer of committed ones."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": "looks", "isolation.level": "read_committed"}
    client = Consumer({**settings, "auto.offset.reset": "error", "enable.partition.eof": "true"})
    left = {number for number, end in upto.items() if start.get(number, 0) < end}
    client.assign([TopicPartition(topic, number, start.get(number, 0)) for number in left])
    while left:
        for message in client.consume(2_000, timeout=1):
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                left.discard(message.partition())
            elif message.offset() < upto[message.partition()]:
                yield message.key(), message.value()
            else:
                left.discard(message.partition())
    client.close()


def _last_values(
    servers: str, topic: str, start: Mapping[int, int], *, upto: Mapping[int, int] | None = None
) -> dict[bytes, bytes]:
    """The value of the last record of each key before offsets, or the topic's ends."""
    found: dict[bytes, bytes] = {}
    for key, value in _records(servers, topic, start, _ends(servers, topic) if upto is None else upto):
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def _equal_again(servers: str, topic: str, start: Mapping[int, int], held: Mapping[bytes, bytes]) -> int:
    """Count the records behind offsets that repeat the value that their key had, as the broker has them."""
    values, found = {key: json.loads(value) for key, value in held.items()}, 0
    for key, text in _records(servers, topic, start, _ends(servers, topic)):
        value = None if text is None else json.loads(text)
        found += values.get(key) == value
        values[key] = value
    return found
