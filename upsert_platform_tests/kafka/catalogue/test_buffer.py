"""Buffer of the sink: behaviours 71 to 83.

Flink keeps the last row per key in a writer's memory until it is full. Here every write is reduced over all of its
batches, so it sends what a buffer as large as the write would; `sink.buffer-flush` bounds what the producer holds.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from upsert_platform.changelog import rows as changelog
from upsert_platform.changelog.latest import latest_per_key
from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Insert
from upsert_platform.kafka.sink.read_back import ranges_behind
from upsert_platform.kafka.source.fetch import close_consumers
from upsert_platform.kafka.source.read_range import RangeReader
from upsert_platform.sync.transform import change_query
from upsert_platform_tests.kafka.catalogue.cases import behaviour, case
from upsert_platform_tests.kafka.tables import declare, problems_of, read
from upsert_platform_tests.kafka.writing import frame, messages, write

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark.sql import SparkSession

COLUMNS: Final = {"number": "INT", "id": "INT", "name": "STRING"}
FLUSH: Final = {"sink.buffer-flush.max-rows": "2", "sink.buffer-flush.interval": "100000"}
EXACTLY_ONCE: Final = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "p"}
NOON: Final = datetime(2024, 5, 1, 12, tzinfo=UTC)
Changes = list[tuple[str, int, str | None]]

WRITES: Final[dict[int, Changes]] = {
    72: [("+I", 1001, "a"), ("+I", 1002, "b"), ("+I", 1004, "c"), ("+U", 1004, "d"), ("-D", 1005, None)],
    74: [("+I", 1001, "a"), ("+I", 1002, "b"), ("+I", 1004, "c"), ("+U", 1004, "d")],
    75: [("+I", 1, "without a time")],
    78: [("+I", 1, "a"), ("-D", 1, None)],
    79: [("-U", 1, "a"), ("+U", 1, "b")],
    80: [("+U", 1, "a"), ("+U", 1, "b"), ("+U", 1, "c"), ("+U", 2, "x"), ("+U", 3, "y")],
    81: [("+I", key, "a") for key in (33, 2, 17, 1, 500)],
}
"""Number of the behaviour to changes in order; what they become is in the tests."""


@pytest.fixture(scope="module")
def topic_of_all(spark: SparkSession, kafka_bootstrap: str, make_topic: Any) -> dict[int, dict[int, Message]]:
    """All of WRITES through reduction and sink in one write; records by number and id."""
    from upsert_platform.kafka.sink.destination import KafkaDestination

    topic = make_topic(config={"cleanup.policy": "compact"})
    options = {"properties.bootstrap.servers": kafka_bootstrap, "sink.control-topic": f"control-{topic}", **FLUSH}
    key = ("number", "id")
    metadata = {"at": ("TIMESTAMP_LTZ(3)", "timestamp")}
    table = declare(COLUMNS, key=key, metadata=metadata, topic=topic, **options)
    rows = [
        (1, kind, "t", 0, offset, NOON, 0, number, row_id, text, None if number == 75 else NOON)
        for number, changes in WRITES.items()
        for offset, (kind, row_id, text) in enumerate(changes)
    ]
    ddl = (
        "_batch BIGINT, _kind STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP, _row INT,"
        " number INT, id INT, name STRING, at TIMESTAMP"
    )
    reduced = latest_per_key(spark.createDataFrame(rows, ddl), key=key, columns=[*COLUMNS, "at"])
    reduced.createOrReplaceTempView("case_buffer")
    projections = ("`number`", "`id`", "`name`", "`at`")
    insert = Insert("users", "users", projections, None, "", SourceLocation("case.sql", 1))
    write(KafkaDestination(read(table, writes=True)), spark.sql(change_query(insert, table, table, "case_buffer")), 1)
    found: dict[int, dict[int, Message]] = {number: {} for number in WRITES}
    for message in messages(kafka_bootstrap, topic):
        key_of = json.loads(message.key())
        assert key_of["id"] not in found[key_of["number"]], "a key is written once"
        found[key_of["number"]][key_of["id"]] = message
    return found


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        case(72, "last-row-per-key", 72, {1001: "a", 1002: "b", 1004: "d", 1005: None}),
        case(74, "nothing-stays-behind", 74, {1001: "a", 1002: "b", 1004: "d"}),
        case(75, "null-time", 75, {1: "without a time"}),
        case(78, "a-tombstone-is-written-all-the-same", 78, {1: None}),
        case(79, "no-tombstone-of-a-pair", 79, {1: "b"}),
        case(80, "distinct-keys", 80, {1: "c", 2: "x", 3: "y"}),
        case(81, "whatever-the-order", 81, {33: "a", 2: "a", 17: "a", 1: "a", 500: "a"}),
    ],
)
def test_what_is_written(
    topic_of_all: dict[int, dict[int, Message]], number: int, expected: dict[int, str | None]
) -> None:
    found = topic_of_all[number]
    texts = {row_id: message.value() and json.loads(message.value())["name"] for row_id, message in found.items()}
    assert texts == expected
    for row_id, message in found.items():
        at = message.timestamp()[1]
        if expected[row_id] is not None and number != 75:
            assert at == round(NOON.timestamp() * 1000)  # each its own event time
        else:
            assert at > round(datetime(2025, 1, 1, tzinfo=UTC).timestamp() * 1000)  # the client's clock


@pytest.mark.parametrize(
    ("options", "last"),
    [
        case(76, "buffered", {}, "payload 3 again"),
        case(77, "csv-with-null-literals", {"format": "csv", "literal": "<NULL>"}, None),
    ],
)
def test_read_back(
    spark: SparkSession, destination_of, name, kafka_bootstrap: str, options: dict[str, str], last: str | None
) -> None:
    formats: dict[str, str] = {}
    if options:
        formats = {f"{side}.format": "csv" for side in ("key", "value")}
        formats |= {f"{side}.csv.null-literal": options["literal"] for side in ("key", "value")}
    destination = destination_of(name, {"id": "INT", "name": "STRING"}, **formats, **FLUSH)
    rows = [(1, "payload 1", "U", 1), (2, "payload 2", "U", 1), (3, last, "U", 1)]
    report = write(destination, frame(spark, rows), 1)
    assert report.upserts == len(messages(kafka_bootstrap, name)) == 3
    reader = RangeReader(destination.table, reduces=False)
    found = [
        row for wanted in ranges_behind(destination.table) for part in reader.read(wanted) for row in part.to_pylist()
    ]
    kept = {row["id"]: (row["_kind"], row["name"]) for row in found if row["_kind"] != changelog.KIND_ACCOUNTING}
    assert kept == {1: ("+U", "payload 1"), 2: ("+U", "payload 2"), 3: ("+U", last)}
    close_consumers()


@behaviour(80, "the-producer-is-emptied-on-the-way")
def test_flushes(spark: SparkSession, destination_of, name) -> None:
    destination = destination_of(name, **FLUSH, **{"sink.parallelism": "1"})
    report = write(destination, frame(spark, [(key, "a", "U", 1) for key in range(25_000)]), 1)
    assert report.upserts == 25_000
    assert report.metrics["flushes"] >= 3  # Spark hands rows over in blocks, which are flushed as a whole


@behaviour(82, "an-interval-alone")
def test_one_of_the_pair() -> None:
    (message,) = problems_of(declare(**{"sink.buffer-flush.max-rows": "0", "sink.buffer-flush.interval": "1 s"}))
    assert "sink.buffer-flush.max-rows" in message
    assert "sink.buffer-flush.interval" in message


@behaviour(83, "with-exactly-once")
def test_buffered_and_exactly_once(spark: SparkSession, destination_of, name, kafka_bootstrap: str) -> None:
    options = {"sink.buffer-flush.max-rows": "100", "sink.buffer-flush.interval": "1 s", **EXACTLY_ONCE}
    report = write(destination_of(name, **options), frame(spark, [(1, "a", "U", 1)]), 1)
    assert report.metrics["flushes"] == 0
    assert [message.value() for message in messages(kafka_bootstrap, name)] == [b'{"id":1,"name":"a"}']
