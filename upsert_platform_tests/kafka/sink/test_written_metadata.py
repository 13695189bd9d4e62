"""Timestamps and headers of written records: from columns to what a consumer of the topic sees."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform.kafka.sink.written_metadata import NO_TIMESTAMP, RecordMetadata
from upsert_platform_tests.kafka.tables import declare, problems_of, read
from upsert_platform_tests.kafka.writing import frame, messages, write

LIST = "ARRAY<ROW<k STRING, v BYTES>>"
MAP = "MAP<STRING, BYTES>"
STAMP = pa.timestamp("us", tz="UTC")
ROWS = pa.list_(pa.struct([("k", pa.string()), ("v", pa.binary())]))


def metadata(*, fixed: Any = (), **columns: tuple[str, str]) -> RecordMetadata:
    return RecordMetadata(read(declare(metadata=columns), writes=True), headers=fixed)


def batch(column: str, kind: pa.DataType, *values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], names=[column])


def test_64_a_null_time_is_left_to_the_client() -> None:
    at = datetime(2020, 3, 8, 13, 12, 11, 123_456, UTC)
    refused: dict[int, str] = {}
    found = metadata(at=("TIMESTAMP_LTZ(3)", "timestamp")).timestamps(batch("at", STAMP, at, None), refused)
    assert found == [1_583_673_131_123, NO_TIMESTAMP]
    assert refused == {}


@pytest.mark.parametrize("at", [datetime(1970, 1, 1, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)])
def test_a_time_that_no_record_can_carry_refuses_the_row(at: datetime) -> None:
    refused: dict[int, str] = {}
    rows = batch("at", pa.timestamp("us"), datetime(2020, 1, 1), at.replace(tzinfo=None))  # noqa: DTZ001
    metadata(at=("TIMESTAMP(3)", "timestamp")).timestamps(rows, refused)
    assert list(refused) == [1]
    assert "'at'" in refused[1]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([[("k", b"1"), ("n", None)]], [[("k", b"1"), ("n", None)]], id="43-null-value"),
        pytest.param([None, []], [[], []], id="42-null-map"),
    ],
)
def test_headers_of_a_map(values: list[Any], expected: list[Any]) -> None:
    assert metadata(h=(MAP, "headers")).headers(batch("h", pa.map_(pa.string(), pa.binary()), *values)) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([("k1", b"a"), ("k1", b"b")], [("k1", b"a"), ("k1", b"b")], id="44-repeated"),
        pytest.param(
            [("k1", b"a"), (None, b"x"), ("k2", b"b"), ("k3", None)],
            [("k1", b"a"), ("k2", b"b"), ("k3", None)],
            id="44-null-key",
        ),
        pytest.param([("ka", b"a"), None, ("kb", None)], [("ka", b"a"), ("kb", None)], id="44-null-row"),
        pytest.param(None, [], id="44-null-list"),
    ],
)
def test_headers_of_a_list(values: list[Any] | None, expected: list[Any]) -> None:
    rows = values and [item and dict(zip("kv", item, strict=True)) for item in values]
    assert metadata(h=(LIST, "header-list")).headers(batch("h", ROWS, rows)) == [expected]


def test_headers_of_the_table_come_first() -> None:
    found = metadata(h=(MAP, "headers"), fixed=(("t", b"x"),)).headers(
        batch("h", pa.map_(pa.string(), pa.binary()), [("k", b"1")], None)
    )
    assert found == [[("t", b"x"), ("k", b"1")], [("t", b"x")]]
    assert metadata().headers(batch("h", pa.int32(), 1)) is None
    assert metadata().timestamps(batch("h", pa.int32(), 1), {}) is None


def test_what_is_virtual_or_read_only_is_not_written() -> None:
    assert read(declare(metadata={"at": ("TIMESTAMP(3)", "timestamp")}, virtual=True)).written_metadata == ()
    (message,) = problems_of(declare(metadata={"o": ("BIGINT", "offset")}), writes=True)
    assert "'o'" in message
    assert "VIRTUAL" in message


def test_60_a_topic_column_does_not_choose_the_topic() -> None:
    table = declare(metadata={"t": ("STRING", "topic")})
    (message,) = problems_of(table, writes=True, severity="warning")
    assert "'t' has no effect" in message
    assert read(table, writes=True).written_metadata == ()


def test_records_carry_them(spark, destination_of, name, kafka_bootstrap) -> None:
    destination = destination_of(
        name,
        metadata={"at": ("TIMESTAMP_LTZ(3)", "timestamp"), "h": (MAP, "headers")},
        **{"sink.add-tableId-to-header-enabled": "true"},
    )
    at = datetime(2024, 5, 1, 12, tzinfo=UTC)
    rows = [
        (1, "a", at, {"k": bytearray(b"\xc0")}, "U", 1),
        (2, "b", None, None, "U", 1),
        (3, None, None, None, "D", 1),
    ]
    rows.append((4, "old", datetime(1960, 1, 1, tzinfo=UTC), None, "U", 1))
    ddl = "id INT, name STRING, at TIMESTAMP, h MAP<STRING, BINARY>, _op STRING, _seq BIGINT"
    kept: list[Any] = []
    report = write(destination, frame(spark, rows, ddl), 1, keep_refused=kept.extend)
    assert (report.upserts, report.deletes, report.refused_count) == (2, 1, 1)
    assert "'at'" in kept[0].reason
    found = {message.key(): message for message in messages(kafka_bootstrap, name)}
    named = [("namespace", b""), ("schemaName", b""), ("tableName", b"users")]
    assert found[b'{"id":1}'].timestamp() == (1, int(at.timestamp() * 1000))
    assert found[b'{"id":1}'].headers() == [*named, ("k", b"\xc0")]
    assert found[b'{"id":2}'].headers() == found[b'{"id":3}'].headers() == named
    now = datetime.now(UTC).timestamp() * 1000
    assert all(now - 120_000 < found[key].timestamp()[1] <= now for key in (b'{"id":2}', b'{"id":3}'))
    assert {row.id for row in destination.read(spark).collect()} == {1, 2}
