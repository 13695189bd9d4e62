"""Bounded scans and metadata: behaviours 34 to 48."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.kafka.source.fetch import close_consumers
from upsert_platform.kafka.source.offsets import discover, plan_backlog
from upsert_platform.kafka.source.read_range import RangeReader
from upsert_platform.kafka.source.source import share_ranges
from upsert_platform.kafka.table import KafkaTable
from upsert_platform_tests.kafka.catalogue.cases import behaviour, case
from upsert_platform_tests.kafka.source.test_offsets import Positions, commit
from upsert_platform_tests.kafka.tables import declare, problems_of, read
from upsert_platform_tests.kafka.writing import frame, messages, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS: Final = {"user_id": "BIGINT", "event_id": "BIGINT", "payload": "STRING"}
LIST: Final = "ARRAY<ROW<k STRING, v BYTES>>"
MAP: Final = "MAP<STRING, BYTES>"
SPECIFIC: Final = {"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": "partition:0,offset:2"}


def millis(*moment: int) -> int:
    return round(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type,misc]


@pytest.fixture
def kept_topic(make_topic: Callable[..., str]) -> str:
    """A topic that keeps records of any age."""
    return make_topic(config={"retention.ms": "-1"})


@pytest.fixture
def table_of(kafka_bootstrap: str) -> Iterator[Callable[..., KafkaTable]]:
    def table(topic: str, columns: dict[str, str] = EVENTS, key: Sequence[str] = ("event_id", "user_id"), **more: Any):
        options = {name: value for name, value in more.items() if name != "metadata"}
        options["properties.bootstrap.servers"] = kafka_bootstrap
        return read(declare(columns, key=key, metadata=more.get("metadata"), topic=topic, **options))

    yield table
    close_consumers()


def event(user: int, number: int, payload: str) -> tuple[str, str]:
    key = f'{{"event_id":{number},"user_id":{user}}}'
    return key, f'{{"user_id":{user},"event_id":{number},"payload":"{payload}"}}'


def plan(table: KafkaTable, positions: Positions | None = None) -> tuple[OffsetRange, ...]:
    return plan_backlog(table, discover(table), positions or Positions())


def changes(table: KafkaTable, *, reduces: bool = False) -> list[dict[str, Any]]:
    """Rows of everything that a first plan reads."""
    reader = RangeReader(table, reduces=reduces)
    found = [row for wanted in plan(table) for part in reader.read(wanted) for row in part.to_pylist()]
    return [row for row in found if row["_kind"] != "#"]


@behaviour(34, "specific-offsets-are-exclusive")
def test_a_bound_by_offset(kept_topic, table_of, produce) -> None:
    produce(kept_topic, [event(1, 100, "p1"), event(1, 100, "p1'"), event(2, 101, "p2"), event(3, 102, "p3")])
    table = table_of(kept_topic, **SPECIFIC)
    assert [(row["_kind"], row["event_id"], row["payload"]) for row in changes(table)] == [
        ("+U", 100, "p1"),
        ("+U", 100, "p1'"),
    ]
    assert [row["payload"] for row in changes(table, reduces=True)] == ["p1'"]
    assert plan(table, Positions({kept_topic: {0: 2}})) == ()  # and stops for good


@behaviour(35, "timestamp-is-a-position")
def test_a_bound_by_time(kept_topic, table_of, produce) -> None:
    for at, (user, payload) in {
        millis(2020, 3, 8): (1, "a"),
        millis(2020, 3, 9): (2, "b"),
        millis(2020, 3, 10, 12, 9): (1, "c"),
        millis(2020, 3, 11): (3, "d"),
    }.items():
        produce(kept_topic, [event(user, 100, payload)], timestamp=at)
    produce(kept_topic, [event(4, 100, "older, but behind the bound")], timestamp=millis(2020, 3, 8))
    options = {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": str(millis(2020, 3, 10, 14))}
    table = table_of(kept_topic, **options)
    assert [(row["user_id"], row["payload"]) for row in changes(table)] == [(1, "a"), (2, "b"), (1, "c")]
    last = {row["user_id"]: row["payload"] for row in changes(table, reduces=True)}
    assert last == {1: "c", 2: "b"}


@behaviour(36, "nothing-before-the-bound")
def test_a_bound_before_everything(kept_topic, table_of, produce) -> None:
    produce(kept_topic, [event(1, 100, "a")], timestamp=millis(2020, 3, 8))
    options = {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": str(millis(2020, 3, 7))}
    assert changes(table_of(kept_topic, **options)) == []


@behaviour(37, "latest-offset")
def test_a_bound_at_the_end(kept_topic, table_of, produce) -> None:
    produce(kept_topic, [event(1, number, "a") for number in range(123)])
    (wanted,) = plan(table_of(kept_topic, **{"scan.bounded.mode": "latest-offset"}))
    produce(kept_topic, [event(1, 7, "after the plan")])
    assert (wanted.start, wanted.end) == (0, 123)


@behaviour(38, "group-offsets")
def test_a_bound_by_a_group(kept_topic, table_of, produce) -> None:
    produce(kept_topic, [event(1, number, "a") for number in range(3)])
    options = {"scan.bounded.mode": "group-offsets", "properties.group.id": f"g-{kept_topic}"}
    table = table_of(kept_topic, **options)
    commit(table, kept_topic, {0: 2})
    assert [(wanted.start, wanted.end) for wanted in plan(table)] == [(0, 2)]


@behaviour(39, "the-brokers-answer-counts")
def test_a_bound_by_time_within_a_partition(kept_topic, table_of, produce) -> None:
    bound = millis(2020, 3, 10)
    produce(kept_topic, [event(1, number, "a") for number in range(123)], timestamp=bound - 1)
    produce(kept_topic, [event(1, number, "b") for number in range(1000)], timestamp=bound)
    options = {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": str(bound)}
    assert [(wanted.start, wanted.end) for wanted in plan(table_of(kept_topic, **options))] == [(0, 123)]
    assert [wanted.end for wanted in plan(table_of(kept_topic))] == [1123]


@pytest.mark.parametrize(
    ("options", "texts", "severity"),
    [
        case(
            40, "offsets-missing", {"scan.bounded.mode": "specific-offsets"}, ["scan.bounded.specific-offsets"], "error"
        ),
        case(
            41,
            "discovery-at-every-plan",
            {"scan.topic-partition-discovery.interval": "100 ms"},
            ["scan.topic-partition-discovery.interval", "every batch looks for new partitions"],
            "warning",
        ),
        case(
            41,
            "discovery-switched-off",
            {"scan.topic-partition-discovery.interval": "0"},
            ["scan.topic-partition-discovery.interval", "every batch looks for new partitions"],
            "warning",
        ),
    ],
)
def test_scan_options(options: dict[str, str], texts: list[str], severity: str) -> None:
    (message,) = problems_of(declare(**options), severity=severity)
    assert all(text in message for text in texts)


@behaviour(46, "two-ways-to-write-headers")
def test_headers_are_written_in_one_way() -> None:
    both = {"h": (MAP, "headers"), "l": (LIST, "header-list")}
    (message,) = problems_of(declare(metadata=both), writes=True)
    assert "'headers'" in message
    assert "'header-list'" in message
    assert problems_of(declare(metadata=both, virtual=True), writes=True) == []
    assert problems_of(declare(metadata=both)) == []


@behaviour(47, "a-topic-named-twice")
def test_a_topic_list(kept_topic, table_of, produce) -> None:
    produce(kept_topic, [event(1, 100, "a")])
    table = table_of(f"{kept_topic};{kept_topic}")
    assert table.settings.topic == (kept_topic, kept_topic)
    assert len(changes(table)) == 1  # it is one topic all the same


@behaviour(48, "scan-parallelism")
def test_reading_tasks() -> None:
    assert read(declare(**{"scan.parallelism": "100"})).settings.scan_parallelism == 100
    dealt = share_ranges([OffsetRange("t", 0, 0, 10_000)], 100)
    assert len(dealt) == 100
    assert sorted((item.start, item.end) for hand in dealt for item in hand)[0][0] == 0
    assert sum(item.offsets for hand in dealt for item in hand) == 10_000


@pytest.fixture
def written(spark: SparkSession, destination_of, name, table_of) -> Callable[..., list[dict[str, Any]]]:
    """Writes a metadata column and reads all of them back, in the order of the keys."""

    def write_and_read(column: tuple[str, str, str], values: Sequence[Any]) -> list[dict[str, Any]]:
        declared, ddl, key = column
        destination = destination_of(name, metadata={"m": (declared, key)})
        rows = [(number, "n", value, "U", 1) for number, value in enumerate(values)]
        write(destination, frame(spark, rows, f"id INT, name STRING, m {ddl}, _op STRING, _seq BIGINT"), 1)
        metadata = {
            "topic": ("STRING", "topic"),
            "partition": ("INT", "partition"),
            "epoch": ("INT", "leader-epoch"),
            "at": ("TIMESTAMP_LTZ(3)", "timestamp"),
            "type": ("STRING", "timestamp-type"),
            "h": (MAP, "headers"),
            "l": (LIST, "header-list"),
        }
        table = table_of(name, {"id": "INT", "name": "STRING"}, ("id",), metadata=metadata)
        return sorted(changes(table), key=lambda row: row["id"])

    return write_and_read


def pairs(rows: list[dict[str, Any]]) -> list[tuple[str, bytes | None]]:
    return [(row["k"], row["v"]) for row in rows]


@behaviour(42, "time-and-headers")
def test_metadata_round_trip(written, name) -> None:
    at = datetime(2020, 3, 8, 13, 12, 11, 123_000, UTC)
    (row,) = written(("TIMESTAMP_LTZ(3)", "TIMESTAMP", "timestamp"), [at])
    assert (row["type"], row["at"], row["epoch"], row["partition"], row["topic"]) == ("CreateTime", at, 0, 0, name)
    assert (row["h"], row["l"]) == ([], [])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        case(42, "headers", {"k1": b"\xc0\xff\xee", "k2": b"\xba\xbe\x01"}, None),
        case(43, "null-header-value", {"k1": b"\xc0", "k2": None}, None),
        case(45, "written-as-a-map", {"k1": b"\xc0", "k2": b"\xba"}, [("k1", b"\xc0"), ("k2", b"\xba")]),
    ],
)
def test_headers(written, value: dict[str, bytes | None], expected: Any) -> None:
    first, second = written((MAP, "MAP<STRING, BINARY>", "headers"), [value, None])
    assert dict(first["h"]) == value
    assert second["h"] == []
    assert expected is None or sorted(pairs(first["l"])) == expected


ENTRIES: Final = [
    [("k1", b"\xc0\xff\xee"), ("k1", b"\xba\xbe\x01")],
    [("k1", b"\xc0"), (None, b"\xba"), ("k2", b"\xbe"), ("k3", None)],
    [("ka", b"\xc0"), None, ("kb", None)],
    None,
]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        case(
            44,
            "header-list",
            "l",
            [
                [("k1", b"\xc0\xff\xee"), ("k1", b"\xba\xbe\x01")],
                [("k1", b"\xc0"), ("k2", b"\xbe"), ("k3", None)],
                [("ka", b"\xc0"), ("kb", None)],
                [],
            ],
        ),
        case(
            45,
            "read-as-a-map",
            "h",
            [
                [("k1", b"\xba\xbe\x01")],
                [("k1", b"\xc0"), ("k2", b"\xbe"), ("k3", None)],
                [("ka", b"\xc0"), ("kb", None)],
                [],
            ],
        ),
    ],
)
def test_header_lists(written, kafka_bootstrap: str, name: str, column: str, expected: Any) -> None:
    found = written((LIST, "ARRAY<STRUCT<k: STRING, v: BINARY>>", "header-list"), ENTRIES)
    assert [row["h"] if column == "h" else pairs(row["l"]) for row in found] == expected
    assert len(messages(kafka_bootstrap, name)) == len(ENTRIES)
