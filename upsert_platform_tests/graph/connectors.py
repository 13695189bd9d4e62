"""Kafka Connect configurations on real servers: cases of one record or a few, many connectors, one sync for all."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform_tests.graph.stack import Stack

PARTITION = 0
LARGEST_MESSAGE = 8 * 1024 * 1024
Cells = dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """A record as it is produced. Anything but bytes, texts and None is sent as JSON."""

    key: Any
    value: Any
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int = PARTITION


@dataclass(frozen=True)
class Case:
    """Records, and the row that is in the table after them.

    Attributes:
        rule: of the catalogue.
        sink: name of the connector.
        key: primary key of the row; None for the place of the last record (key mode kafka).
        row: its cells after the sync; None when there is no row.
        before: its cells before; None when there is none.
        dirty: how many of the records are kept aside.
    """

    rule: str
    sink: str
    sent: tuple[Sent, ...]
    key: tuple[Any, ...] | None
    row: Cells | None
    before: Cells | None = None
    dirty: int = 0

    def __str__(self) -> str:
        return f"{self.rule.replace(' ', '-')}-{self.sink}"


@dataclass
class Connector:
    """A connector with one topic and one table.

    Attributes:
        options: in addition to names, addresses and ``auto.create``; ``{table}`` and ``{topic}`` are put in.
        keys: ``name:type,...``; empty where the mode has its own.
    """

    name: str
    options: Mapping[str, str]
    keys: str = ""
    whitelist: str = ""
    partitions: int = 1
    suffix: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    sent: list[Sent] = field(default_factory=list)

    @property
    def topic(self) -> str:
        return f"{self.name}-{self.suffix}"

    @property
    def table(self) -> str:
        return f"{self.name}_{self.suffix}"

    @property
    def asset(self) -> str:
        """Name of the declared table."""
        return f"{self.name}.{self.table}"

    def key_columns(self) -> list[tuple[str, str]]:
        """Names and types of the primary key."""
        default = {
            "kafka": "topic_partition:string,offset:integer",
            "search": "md5:string,topic:string,partition:integer,offset:integer",
        }
        text = self.keys or default[self.options.get("primarykey.mode", "kafka")]
        return [(name, kind) for name, kind in (part.split(":") for part in text.split(","))]

    def properties(self) -> str:
        """The configuration file."""
        lines = {
            "name": self.name,
            "connector.class": "com.aliyun.tablestore.kafka.connect.TableStoreSinkConnector",
            "topics": self.topic,
            "topics.assign.tables": f"{self.topic}:{self.table}",
            "auto.create": "true",
            "tablestore.endpoint": "${UPSERT_TABLESTORE_ENDPOINT}",
            "tablestore.instance.name": "${UPSERT_TABLESTORE_INSTANCE}",
            "tablestore.auth.mode": "aksk",
            "tablestore.access.key.id": "${UPSERT_TABLESTORE_ACCESS_KEY_ID}",
            "tablestore.access.key.secret": "${UPSERT_TABLESTORE_ACCESS_KEY_SECRET}",
        }
        for kind, pairs in (("primarykey", self.keys), ("columns.whitelist", self.whitelist)):
            if pairs:
                names, types = zip(*(part.split(":") for part in pairs.split(",")), strict=True)
                lines[f"tablestore.{self.table}.{kind}.name"] = ",".join(names)
                lines[f"tablestore.{self.table}.{kind}.type"] = ",".join(types)
        for name, value in self.options.items():
            lines[_put_in(name, self)] = _put_in(value, self)
        return "\n".join(f"{name}={value}" for name, value in lines.items())


def _put_in(text: str, connector: Connector) -> str:
    return text.replace("{table}", connector.table).replace("{topic}", connector.topic)


@dataclass
class Connectors:
    """Connectors of one project."""

    stack: Stack
    make_topic: Callable[..., str]
    of: dict[str, Connector] = field(default_factory=dict)
    offsets: dict[str, list[int]] = field(default_factory=dict)

    def declare(self, connectors: Iterable[Connector]) -> None:
        """Writes the configurations and makes the topics."""
        for file in self.stack.project.iterdir():
            file.unlink()
        for connector in connectors:
            self.of[connector.name] = connector
            # Records have the times that a case gives them, and may be larger than Tablestore takes.
            config = {"retention.ms": "-1", "max.message.bytes": str(LARGEST_MESSAGE)}
            self.make_topic(name=connector.topic, partitions=connector.partitions, config=config)
            path = Path(self.stack.project, f"{connector.name}.properties")
            path.write_text(connector.properties(), "utf-8")

    def prepare(self, cases: Sequence[Case]) -> None:
        """Makes the rows that are there before, and produces the records of all cases."""
        for case in cases:
            connector = self.of[case.sink]
            if case.before is not None:
                assert case.key is not None
                self.put(connector, case.key, case.before)
            start = len(connector.sent)
            connector.sent += case.sent
            self.offsets[str(case)] = list(range(start, len(connector.sent)))
        self.produce()

    def produce(self) -> None:
        """Sends what was not sent yet."""
        from confluent_kafka import Producer

        servers = self.stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "message.max.bytes": LARGEST_MESSAGE,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        for connector in self.of.values():
            for item in connector.sent:
                more = {} if item.timestamp is None else {"timestamp": item.timestamp}
                producer.poll(0)
                producer.produce(
                    connector.topic,
                    key=message(item.key),
                    value=message(item.value),
                    partition=item.partition,
                    headers=list(item.headers),
                    **more,
                )
        assert producer.flush(60) == 0

    def sync(self, job: str = "sync") -> dg.ExecuteInProcessResult:
        """Runs a job."""
        return self.stack.run(job)

    @property
    def client(self) -> Any:
        """The vendor's client."""
        from tablestore import OTSClient

        variables = self.stack.variables
        return OTSClient(
            variables["UPSERT_TABLESTORE_ENDPOINT"],
            variables["UPSERT_TABLESTORE_ACCESS_KEY_ID"],
            variables["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"],
            variables["UPSERT_TABLESTORE_INSTANCE"],
            logger_name=None,
        )

    def put(self, connector: Connector, key: tuple[Any, ...], cells: Cells) -> None:
        """Puts a row into the connector's table, which is created before the first."""
        from tablestore import Row
        from tablestore.error import OTSServiceError

        row = Row(
            [(name, _sdk(value)) for (name, _), value in zip(connector.key_columns(), key, strict=True)],
            [(name, _sdk(value)) for name, value in cells.items()],
        )
        try:
            self.client.put_row(connector.table, row)
        except OTSServiceError as error:
            assert error.code == "OTSObjectNotExist", error
            self.create(connector)
            self.client.put_row(connector.table, row)

    def create(self, connector: Connector) -> None:
        """Creates the connector's table."""
        from tablestore import CapacityUnit, ReservedThroughput, TableMeta, TableOptions

        keys = [(name, kind.upper()) for name, kind in connector.key_columns()]
        throughput = ReservedThroughput(CapacityUnit(0, 0))
        self.client.create_table(TableMeta(connector.table, keys), TableOptions(), throughput)

    def rows(self, name: str) -> dict[tuple[Any, ...], Cells]:
        """All rows of a connector's table."""
        connector = self.of[name]
        return self.table(connector.table, [column for column, _ in connector.key_columns()])

    def table(self, table: str, key: Sequence[str]) -> dict[tuple[Any, ...], Cells]:
        """All rows of a table."""
        from tablestore import INF_MAX, INF_MIN, Direction

        found: dict[tuple[Any, ...], Cells] = {}
        position: Any = [(name, INF_MIN) for name in key]
        end = [(name, INF_MAX) for name in key]
        while position:
            _, position, rows, _ = self.client.get_range(table, Direction.FORWARD, position, end, limit=5000)
            for row in rows:
                cells = {name: _plain(value) for name, value, _ in row.attribute_columns}
                found[tuple(_plain(value) for _, value in row.primary_key)] = cells
        return found

    def points(self, name: str) -> dict[tuple[str, str, tuple[tuple[str, str], ...], int], Cells]:
        """All rows of a time-series table: measurement, source, tags and time to fields."""
        from tablestore import GetTimeseriesDataRequest, QueryTimeseriesMetaRequest, TimeseriesKey

        table = self.of[name].table
        found = {}
        for meta in self.client.query_timeseries_meta(QueryTimeseriesMetaRequest(table)).timeseriesMetas:
            found_key = meta.timeseries_key
            key = TimeseriesKey(found_key.measurement_name, found_key.data_source, found_key.tags or {})
            answer = self.client.get_timeseries_data(GetTimeseriesDataRequest(table, key, 0, 2**63 - 1, 5000))
            for row in answer.rows or ():
                tags = tuple(sorted(key.tags.items()))
                fields = {field: _plain(value) for field, value in row.fields.items()}
                found[(key.measurement_name, key.data_source, tags, row.time_in_us)] = fields
        return found

    def refused(self, name: str) -> dict[int, dict[str, Any]]:
        """Records kept aside in the lake, by offset: the stored record and the reason."""
        found = RefusedStore(Lake(str(self.stack.lake)).refused(self.of[name].asset)).read().to_pylist()
        return {json.loads(row["row"])["offset"]: {**json.loads(row["row"]), "reason": row["reason"]} for row in found}

    def kept_aside(self, name: str) -> list[tuple[int, int]]:
        """Partitions and offsets of the records kept aside in the lake, sorted; one for each time that one is kept."""
        found = RefusedStore(Lake(str(self.stack.lake)).refused(self.of[name].asset)).read().column("row")
        records = [json.loads(text) for text in found.to_pylist()]
        return sorted((record["partition"], record["offset"]) for record in records)


def message(content: Any) -> bytes | None:
    """None stays null, bytes and text are sent as they are, the rest as JSON."""
    if content is None or isinstance(content, bytes):
        return content
    return content.encode() if isinstance(content, str) else json.dumps(content).encode()


def _sdk(value: Any) -> Any:
    return bytearray(value) if isinstance(value, bytes) else value


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value
