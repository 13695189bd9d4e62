"""Sink: behaviours 49 to 70."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Insert
from upsert_platform.core.types import arrow_type, parse_type
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.options import UpsertKafkaSettings
from upsert_platform.kafka.rules import SEVERAL_TOPICS
from upsert_platform.kafka.sink.control import Applied
from upsert_platform.kafka.sink.encode import RecordEncoder
from upsert_platform.kafka.sink.written_metadata import NO_TIMESTAMP, RecordMetadata
from upsert_platform.sync.transform import change_query
from upsert_platform_tests.kafka.answering import Asked, answering
from upsert_platform_tests.kafka.catalogue.cases import behaviour, case
from upsert_platform_tests.kafka.ranges import brief, run
from upsert_platform_tests.kafka.tables import ID_NAME, declare, problems_of, read, records
from upsert_platform_tests.kafka.writing import span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXCEPT_KEY: Final = {"value.fields-include": "EXCEPT_KEY"}
Record = tuple[bytes, bytes | None]


def encode(
    rows: Sequence[tuple[Any, ...]], columns: dict[str, str] | None = None, *, key: Sequence[str] = ("id",), **more: str
) -> list[Record]:
    """Records of change rows, which end in their operation."""
    table = read(declare(columns, key=key, **more), writes=True)
    names = list(columns or ID_NAME)
    kinds = [arrow_type(parse_type(kind)) for kind in (columns or ID_NAME).values()]
    arrays = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    arrays.append(pa.array([row[-1] for row in rows]))
    block = RecordEncoder(table).encode(pa.RecordBatch.from_arrays(arrays, names=[*names, "_op"]))
    assert block.refused == {}
    return list(zip(block.keys.to_pylist(), block.values.to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("rows", "columns", "options", "expected"),
    [
        case(49, "insert", [(1, "a", "U")], None, {}, [(b'{"id":1}', b'{"id":1,"name":"a"}')]),
        case(50, "update", [(1, "b", "U")], None, {}, [(b'{"id":1}', b'{"id":1,"name":"b"}')]),
        case(51, "delete", [(1, "b", "D")], None, {}, [(b'{"id":1}', None)]),
        case(51, "delete-of-a-key-alone", [(1, None, "D")], None, {}, [(b'{"id":1}', None)]),
        case(53, "null-column", [(1, None, "U")], None, EXCEPT_KEY, [(b'{"id":1}', b'{"name":null}')]),
        case(
            53,
            "null-column-left-out",
            [(1, None, "U")],
            None,
            {**EXCEPT_KEY, "value.json.encode.ignore-null-fields": "true"},
            [(b'{"id":1}', b"{}")],
        ),
        case(
            55,
            "csv",
            [(1, "payload 1", "U")],
            None,
            {**EXCEPT_KEY, "key.format": "csv", "value.format": "csv"},
            [(b"1", b'"payload 1"')],
        ),
        case(58, "key-columns-alone", [(1, "U")], {"id": "INT"}, EXCEPT_KEY, [(b'{"id":1}', b"{}")]),
    ],
)
def test_records(rows: list[Any], columns: Any, options: dict[str, str], expected: list[Record]) -> None:
    assert encode(rows, columns, **options) == expected


@behaviour(54, "prefix-is-stripped-in-the-key")
def test_a_prefix() -> None:
    options = {**EXCEPT_KEY, "key.fields-prefix": "k_"}
    found = encode([(1, "a", "U")], {"k_id": "INT", "id": "STRING"}, key=["k_id"], **options)
    assert found == [(b'{"id":1}', b'{"id":"a"}')]


@behaviour(56, "avro")
def test_avro() -> None:
    columns = {"user_region": "STRING NOT NULL", "pv": "BIGINT", "uv": "BIGINT"}
    options = {"key.format": "avro", "value.format": "avro"}
    found = encode([("EU", 10, 3, "U"), ("EU", None, None, "U")], columns, key=["user_region"], **options)
    assert [(key.hex(), value and value.hex()) for key, value in found] == [
        ("044555", "04455502140206"),
        ("044555", "0445550000"),
    ]


@behaviour(57, "raw-null-is-refused-where-flink-deletes")
def test_a_null_of_format_raw_is_no_delete() -> None:
    table = read(declare(**EXCEPT_KEY, **{"value.format": "raw"}), writes=True)
    rows = pa.RecordBatch.from_pydict({"id": pa.array([1, 2], pa.int32()), "name": [None, "x"], "_op": ["U", "U"]})
    block = RecordEncoder(table).encode(rows)
    assert list(block.refused) == [0]
    assert block.values.to_pylist()[1] == b"x"


@behaviour(57, "raw-null-is-warned-of")
def test_a_raw_column_that_can_be_null() -> None:
    options = {**EXCEPT_KEY, "value.format": "raw"}
    (message,) = problems_of(declare(**options), writes=True, severity="warning")
    assert "'name'" in message
    assert "delete" in message
    assert (
        problems_of(declare({"id": "INT", "name": "STRING NOT NULL"}, **options), writes=True, severity="warning") == []
    )
    rows, _ = run(read(declare(**options)), records(('{"id":1}', None)))
    assert brief(rows) == [("-D", 0, 1, None)]


@behaviour(58, "key-columns-alone-are-read-back")
def test_a_table_of_keys() -> None:
    table = read(declare({"id": "INT"}, **EXCEPT_KEY))
    (row,), _ = run(table, records(('{"id":1}', "{}")))
    assert (row["_kind"], row["id"]) == ("+U", 1)


@behaviour(59, "empty-csv-is-refused")
def test_a_csv_value_without_columns() -> None:
    (message,) = problems_of(declare({"id": "INT"}, **EXCEPT_KEY, **{"value.format": "csv"}), writes=True)
    assert "cannot be read back" in message


@behaviour(52, "before-image-deletes")
def test_a_before_image(spark: SparkSession) -> None:
    """No before-image reaches the writer: the change query makes a delete of it, as the writer would."""
    spark.createDataFrame(
        [("-U", 1, 1, "a")], "_kind STRING, _seq BIGINT, id INT, name STRING"
    ).createOrReplaceTempView("case_52")
    insert = Insert("users", "users", ("`id`", "`name`"), None, "", SourceLocation("case.sql", 1))
    (row,) = spark.sql(change_query(insert, declare(), declare(), "case_52")).collect()
    assert (row._op, row.id) == ("D", 1)
    assert encode([(row.id, row.name, row._op)]) == [(b'{"id":1}', None)]


@behaviour(60, "a-topic-column-does-not-choose")
def test_a_topic_column() -> None:
    table = declare(metadata={"t": ("STRING", "topic")})
    (message,) = problems_of(table, writes=True, severity="warning")
    assert "every record goes to the one 'topic'" in message
    assert read(table, writes=True).written_metadata == ()


@pytest.mark.parametrize("options", [{"topic": "t1;t2"}, {"topic": None, "topic-pattern": "topic.*"}])
def test_several_topics_are_refused(options: dict[str, str]) -> None:
    """Numbers 61 to 63, which are not there yet."""
    (message,) = problems_of(declare(metadata={"t": ("STRING", "topic")}, **options), writes=True)
    assert SEVERAL_TOPICS in message


@behaviour(64, "null-time")
def test_a_null_time() -> None:
    table = read(declare(metadata={"at": ("TIMESTAMP_LTZ(3)", "timestamp")}), writes=True)
    rows = pa.RecordBatch.from_arrays([pa.array([None], pa.timestamp("us", tz="UTC"))], names=["at"])
    assert RecordMetadata(table).timestamps(rows, {}) == [NO_TIMESTAMP]


EMOJI_ESCAPED: Final = b'{"k":"\\uD83D\\uDE00"}'
PARTITIONS: Final[dict[bytes, dict[int, int]]] = {
    b'{"id":1}': {3: 0, 4: 0, 12: 0, 15: 6, 32: 4},
    b'{"id":2}': {3: 1, 4: 0, 12: 4, 15: 4, 32: 8},
    b'{"id":3}': {3: 0, 4: 3, 12: 3, 15: 6, 32: 3},
    b'{"event_id":100,"user_id":1}': {3: 0, 4: 1, 12: 9, 15: 6, 32: 21},
    b'{"user_id":1,"event_id":100}': {3: 2, 4: 0, 12: 8},
    b"1": {3: 0, 4: 3, 12: 3, 15: 9, 32: 15},
    b"\0\0\0\1": {3: 0, 4: 0, 12: 0, 15: 0, 32: 16},
    b"TT0124": {15: 10},
    b"fd7af248-ce5c-46a5-93d7-1c0c9005b99d": {32: 26},
    EMOJI_ESCAPED: {12: 0},
    '{"k":"\U0001f600"}'.encode(): {12: 10},
}
"""Key to number of partitions to the partition that Kafka's own murmur2 gives."""


@pytest.fixture(scope="module")
def partitions(kafka_bootstrap: str, make_topic: Callable[..., str]) -> dict[tuple[bytes, int], int]:
    """Where a producer of the platform really put those keys."""
    producer = KafkaEndpoint(kafka_bootstrap).open_producer(**{"enable.idempotence": "false"})
    found: dict[tuple[bytes, int], int] = {}
    for count in (3, 4, 12, 15, 32):
        topic = make_topic(partitions=count)

        def delivered(error: Any, message: Any, count: int = count) -> None:
            assert error is None
            found[message.key(), count] = message.partition()

        for key in PARTITIONS:
            producer.produce(topic, b"v", key, on_delivery=delivered)
        assert producer.flush(30) == 0
    return found


@behaviour(65, "murmur2")
def test_partitions(partitions: dict[tuple[bytes, int], int]) -> None:
    expected = {(key, count): place for key, places in PARTITIONS.items() for count, place in places.items()}
    assert {place: partitions[place] for place in expected} == expected


@behaviour(66, "order-of-the-primary-key")
def test_an_order_of_its_own(partitions: dict[tuple[bytes, int], int]) -> None:
    columns = {"user_id": "BIGINT", "event_id": "BIGINT"}
    one, other = (
        encode([(1, 100, "U")], columns, key=key)[0][0] for key in (("event_id", "user_id"), ("user_id", "event_id"))
    )
    assert (one, other) == (b'{"event_id":100,"user_id":1}', b'{"user_id":1,"event_id":100}')
    assert all(partitions[one, count] != partitions[other, count] for count in (3, 4, 12))


@behaviour(67, "escaped-beyond-the-basic-plane")
def test_an_emoji_in_a_key(partitions: dict[tuple[bytes, int], int]) -> None:
    ((key, _),) = encode([("\U0001f600", "a", "U")], {"k": "STRING", "name": "STRING"}, key=["k"])
    assert key == EMOJI_ESCAPED
    assert partitions[key, 12] == 0


@behaviour(68, "sink-parallelism")
def test_writing_tasks(destination_of) -> None:
    assert destination_of("t", **{"sink.parallelism": "100"})._shares(None, Applied(), {}, span(1), "") == 100


@pytest.mark.parametrize(
    ("strategy", "warnings"), [case(69, "pooling", "POOLING", 0), case(69, "incrementing", "INCREMENTING", 1)]
)
def test_naming_of_transactions(strategy: str, warnings: int) -> None:
    exactly_once = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "p"}
    table = declare(**{"sink.transaction-naming-strategy": strategy, **exactly_once})
    found = problems_of(table, writes=True, severity="warning")
    assert len(found) == warnings
    assert all("INCREMENTING" in message for message in found)
    settings = read(table, writes=True).settings
    assert isinstance(settings, UpsertKafkaSettings)
    assert settings.naming_strategy == strategy


@pytest.mark.parametrize(
    ("options", "subjects"),
    [
        case(
            70, "both", {"key.format": "avro-confluent", "value.format": "avro-confluent"}, ["users-key", "users-value"]
        ),
        case(70, "key", {"key.format": "avro-confluent"}, ["users-key"]),
        case(70, "value", {"value.format": "avro-confluent"}, ["users-value"]),
        case(
            70,
            "key-declared",
            {
                "key.format": "avro-confluent",
                "value.format": "avro-confluent",
                "key.avro-confluent.subject": "mine",
            },
            ["mine", "users-value"],
        ),
        case(
            70,
            "value-declared",
            {
                "key.format": "avro-confluent",
                "value.format": "avro-confluent",
                "value.avro-confluent.subject": "mine",
            },
            ["users-key", "mine"],
        ),
    ],
)
def test_subjects(options: dict[str, str], subjects: list[str]) -> None:
    def answer(asked: Asked) -> tuple[int, bytes]:
        return 200, json.dumps({"id": 7}).encode()

    with answering(answer) as registry:
        urls = {f"{side.partition('.')[0]}.avro-confluent.url": registry.url for side in options if "format" in side}
        ((key, value),) = encode([(1, "a", "U")], **options, **urls)
    assert [asked.path for asked in registry.asked] == [f"/subjects/{subject}/versions" for subject in subjects]
    framed = b"\0\0\0\0\7"
    assert key.startswith(framed) == ("key.format" in options)
    assert value is not None
    assert value.startswith(framed) == ("value.format" in options)
