"""Values with more digits, or of greater length, than their column declares: what each format makes of them.

The vectors of Flink's formats show most of it: JSON's TIME drops its fraction, CSV's keeps the declared digits, a
DECIMAL is rounded half up and null where it has too many digits, and nothing looks at lengths of CHAR, VARCHAR, BINARY
and VARBINARY. They show too that the formats keep every digit of a TIMESTAMP. Flink cuts those where a row leaves the
operator: `BinaryRowWriter.writeTimestamp` holds a precision up to 3 as milliseconds alone, downwards, which no vector
of a format can show. Here TIMESTAMP(0) to (2) and TIME lose the digits between, too: tables hold the declared type.
"""

from __future__ import annotations

import base64
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from upsert_platform.changelog.declared_values import declared_values
from upsert_platform.core.types import arrow_type, parse_type
from upsert_platform_tests.formats.proto import shop, write_set
from upsert_platform_tests.kafka.answering import answering
from upsert_platform_tests.kafka.ranges import run
from upsert_platform_tests.kafka.tables import declare, read, records

LONG: Final = "abcdef"


def plain(*parts: int) -> datetime:
    """A moment without a zone."""
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


# Type, the text of a value, what the column holds.
EXPECTED: Final = [
    ("TIMESTAMP(0)", "2026-01-02 03:04:05.987654", plain(2026, 1, 2, 3, 4, 5)),
    ("TIMESTAMP(1)", "2026-01-02 03:04:05.987654", plain(2026, 1, 2, 3, 4, 5, 900000)),
    ("TIMESTAMP(3)", "2026-01-02 03:04:05.123456", plain(2026, 1, 2, 3, 4, 5, 123000)),
    ("TIMESTAMP(3)", "1969-12-31 23:59:59.999999", plain(1969, 12, 31, 23, 59, 59, 999000)),
    ("TIMESTAMP(3)", "0001-01-01 00:00:00.000001", plain(1, 1, 1)),
    ("TIMESTAMP(3)", "2026-01-02 03:04:05.12", plain(2026, 1, 2, 3, 4, 5, 120000)),
    ("TIMESTAMP(6)", "2026-01-02 03:04:05.1234567", plain(2026, 1, 2, 3, 4, 5, 123456)),
    ("TIMESTAMP_LTZ(0)", "1969-12-31 23:59:59.5Z", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ("TIMESTAMP_LTZ(3)", "2026-01-02 03:04:05.123999Z", datetime(2026, 1, 2, 3, 4, 5, 123000, tzinfo=UTC)),
    ("TIMESTAMP_LTZ(6)", "2026-01-02 03:04:05.1234569Z", datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
    ("DECIMAL(5, 2)", "1.005", Decimal("1.01")),
    ("DECIMAL(5, 2)", "-1.005", Decimal("-1.01")),
    ("DECIMAL(5, 2)", "999.994", Decimal("999.99")),
    ("DECIMAL(5, 2)", "999.995", None),
    ("DECIMAL(5, 2)", "12345", None),
    ("CHAR(3)", LONG, LONG),
    ("CHAR(8)", LONG, LONG),
    ("VARCHAR(3)", LONG, LONG),
    ("BINARY(3)", base64.b64encode(b"abcdef").decode(), b"abcdef"),
    ("VARBINARY(3)", base64.b64encode(b"abcdef").decode(), b"abcdef"),
]  # fmt: skip
TIMES: Final = {
    "json": [("TIME(0)", "03:04:05.987", 11_045_000_000), ("TIME(3)", "03:04:05.987", 11_045_000_000)],
    "csv": [
        ("TIME(0)", "03:04:05.987", 11_045_000_000), ("TIME(2)", "03:04:05.987", 11_045_980_000),
        ("TIME(3)", "03:04:05.987654", 11_045_987_000),
    ],
}  # fmt: skip
"""TIME, of which each format has its own rule; microseconds of the day."""
CASES: Final = [
    *(("json", *case) for case in (*EXPECTED, *TIMES["json"])),
    *(("csv", *case) for case in (*EXPECTED, *TIMES["csv"])),
]
ODD: Final = {"json": '{"v":null,"id":2} tail', "csv": '"2"x,'}
"""A message that the quick reader of a format does not take, so that its block is read message by message."""


def _id(case: tuple[Any, ...]) -> str:
    return " ".join(map(str, case[:-1]))


@pytest.mark.parametrize("beside", ["bulk", "strict"])
@pytest.mark.parametrize(("format_id", "kind", "text", "held"), CASES, ids=map(_id, CASES))
def test_a_value_is_held_in_its_declared_type(format_id: str, kind: str, text: str, held: Any, beside: str) -> None:
    table = read(declare({"id": "INT", "v": kind}, value__format=format_id, key__format="json"))
    value = json.dumps({"id": 1, "v": text}) if format_id == "json" else f"1,{text}"
    more = [('{"id":2}', ODD[format_id])] if beside == "strict" else []
    found, account = run(table, records(('{"id":1}', value), *more))
    assert [row["v"] for row in found if row["id"] == 1] == [held]
    assert account.quarantined == (len(more) if format_id == "csv" else 0)


@pytest.mark.parametrize(("format_id", "kind", "text", "held"), CASES, ids=map(_id, CASES))
def test_a_key_is_held_in_its_declared_type(format_id: str, kind: str, text: str, held: Any) -> None:
    columns = {"v": kind, "n": "INT"}
    options = {"key.format": format_id, "value.format": "json", "value.fields-include": "EXCEPT_KEY"}
    table = read(declare(columns, key=("v",), **options))
    key = json.dumps({"v": text}) if format_id == "json" else text
    found, account = run(table, records((key, '{"n":1}')))
    if held is None:  # no key at all
        assert (account.quarantined, found[0]["_reason"]) == (1, "key: primary key column 'v' is null")
    else:
        assert [(row["v"], row["n"]) for row in found] == [(held, 1)]


@pytest.mark.parametrize("digits", ["123456", "123", "1239"])
def test_a_copy_of_the_key_with_other_digits_is_no_conflict(digits: str) -> None:
    table = read(declare({"v": "TIMESTAMP(3)", "n": "INT"}, key=("v",)))
    key, copy = "2026-01-02 03:04:05.123777", f"2026-01-02 03:04:05.{digits}"
    found, account = run(table, records((json.dumps({"v": key}), json.dumps({"v": copy, "n": 1}))))
    assert account.quarantined == 0
    assert [row["v"] for row in found] == [plain(2026, 1, 2, 3, 4, 5, 123000)]


CHANGED: Final = [*EXPECTED, *TIMES["json"]]
ENVELOPES: Final = {
    "debezium-json": lambda row: {"before": None, "after": row, "op": "c"},
    "canal-json": lambda row: {"data": [row], "type": "INSERT"},
    "maxwell-json": lambda row: {"data": row, "type": "insert"},
    "ogg-json": lambda row: {"after": row, "op_type": "I"},
}


@pytest.mark.parametrize("format_id", ENVELOPES)
@pytest.mark.parametrize(
    ("kind", "text", "held"), [*EXPECTED, *TIMES["json"]], ids=map(_id, [*EXPECTED, *TIMES["json"]])
)
def test_a_change_holds_its_row_in_declared_types(format_id: str, kind: str, text: str, held: Any) -> None:
    options = {"connector": "kafka", "key.format": None, "value.format": format_id}
    table = read(declare({"id": "INT", "v": kind}, key=(), **options))
    message = json.dumps(ENVELOPES[format_id]({"id": 1, "v": text}))
    found, _ = run(table, records((None, message)), reduces=False)
    assert [(row["_kind"], row["v"]) for row in found] == [("+I", held)]


@pytest.mark.parametrize(
    ("kind", "message", "held"),
    [("CHAR(3)", b"abcdef", LONG), ("VARCHAR(3)", b"abcdef", LONG), ("BINARY(3)", b"abcdef", b"abcdef"),
     ("VARBINARY(3)", b"abcdef", b"abcdef")],
)  # fmt: skip
def test_raw_holds_every_length(kind: str, message: bytes, held: Any) -> None:
    options = {"key.format": "raw", "value.format": "json", "value.fields-include": "EXCEPT_KEY"}
    found, _ = run(read(declare({"v": kind, "n": "INT"}, key=("v",), **options)), records((message, '{"n":1}')))
    assert [row["v"] for row in found] == [held]
    columns = {"id": "STRING", "v": kind}
    options = {"key.format": "raw", "value.format": "raw", "value.fields-include": "EXCEPT_KEY"}
    found, _ = run(read(declare(columns, **options)), records(("1", message)))
    assert [row["v"] for row in found] == [held]


# Avro's milliseconds hold more than TIMESTAMP(0); a scale is the schema's own, which is derived of the type.
AVRO: Final = [
    ("TIMESTAMP(0)", {"type": "long", "logicalType": "timestamp-millis"}, 1_700_000_000_987,
     plain(2023, 11, 14, 22, 13, 20)),
    ("TIMESTAMP(2)", {"type": "long", "logicalType": "timestamp-millis"}, -1,
     plain(1969, 12, 31, 23, 59, 59, 990000)),
    ("TIMESTAMP(3)", {"type": "long", "logicalType": "timestamp-millis"}, 1_700_000_000_987,
     plain(2023, 11, 14, 22, 13, 20, 987000)),
    ("TIME(0)", {"type": "int", "logicalType": "time-millis"}, 11_045_987, 11_045_000_000),
    ("TIME(3)", {"type": "int", "logicalType": "time-millis"}, 11_045_987, 11_045_987_000),
    ("CHAR(3)", "string", LONG, LONG),
    ("VARCHAR(3)", "string", LONG, LONG),
    ("BINARY(3)", "bytes", b"abcdef", b"abcdef"),
    ("VARBINARY(3)", "bytes", b"abcdef", b"abcdef"),
]  # fmt: skip


def _avro(kind: Any, value: Any) -> tuple[str, bytes]:
    bare = kind["type"] if isinstance(kind, dict) else kind  # the writer would turn numbers of clocks into clocks
    shown = {"type": "record", "name": "r", "fields": [{"name": "v", "type": ["null", kind]}]}
    plain = {"type": "record", "name": "r", "fields": [{"name": "v", "type": ["null", bare]}]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), {"v": value})
    return json.dumps(shown), out.getvalue()


@pytest.mark.parametrize("format_id", ["avro", "avro-confluent"])
@pytest.mark.parametrize(("kind", "schema", "value", "held"), AVRO, ids=[case[0] for case in AVRO])
def test_avro_holds_a_value_in_its_declared_type(format_id: str, kind: str, schema: Any, value: Any, held: Any) -> None:
    text, message = _avro(schema, value)
    answer = json.dumps({"schema": text}).encode()
    with answering(lambda asked: (200, answer)) as registry:
        options = {"key.format": format_id, "value.format": "json", "value.fields-include": "EXCEPT_KEY"}
        if format_id == "avro-confluent":
            options["key.avro-confluent.url"] = registry.url
            message = b"\0\0\0\0\7" + message
        found, account = run(
            read(declare({"v": kind, "n": "INT"}, key=("v",), **options)), records((message, '{"n":1}'))
        )
        assert [row["v"] for row in found] == [held], account
        options = {"value.format": format_id, "value.fields-include": "EXCEPT_KEY"}
        if format_id == "avro-confluent":
            options["value.avro-confluent.url"] = registry.url
        found, account = run(read(declare({"id": "INT", "v": kind}, **options)), records(('{"id":1}', message)))
        assert [row["v"] for row in found] == [held], account


def test_protobuf_holds_every_length(tmp_path: Path) -> None:
    path = write_set(tmp_path / "shop.desc", shop())
    options = {
        "value.format": "protobuf", "value.protobuf.message-class-name": "shop.Order",
        "value.protobuf.descriptor-file": path, "value.fields-include": "EXCEPT_KEY",
    }  # fmt: skip
    columns = {"key_id": "INT", "text": "VARCHAR(3)", "data": "VARBINARY(3)"}
    message = b"\x3a\x06abcdef\x42\x06abcdef"  # fields 7 and 8
    table = read(declare(columns, key=("key_id",), **options))
    found, _ = run(table, records(('{"key_id":1}', message)))
    assert [(row["text"], row["data"]) for row in found] == [(LONG, b"abcdef")]


@pytest.mark.parametrize(
    ("kind", "given", "held"),
    [
        ("ARRAY<TIMESTAMP(3)>", [None, [], [1_234_567, None, -1]], [None, [], [1_234_000, None, -1000]]),
        ("MAP<STRING, TIME(0)>", [[("a", 1_500_000)], None], [[("a", 1_000_000)], None]),
        ("MAP<TIMESTAMP(0), INT>", [[(1_500_000, 1)]], [[(1_000_000, 1)]]),
        ("MULTISET<TIMESTAMP(0)>", [[(1_500_000, 2)], None], [[(1_000_000, 2)], None]),
        ("ROW<a INT, b ROW<c TIMESTAMP(3)>>", [None, {"a": 1, "b": {"c": 1_234_567}}, {"a": 2, "b": None}],
         [None, {"a": 1, "b": {"c": 1_234_000}}, {"a": 2, "b": None}]),
        ("TIMESTAMP(3)", [-(1 << 63), (1 << 63) - 1], [-(1 << 63), (1 << 63) - 808]),
    ],
)  # fmt: skip
def test_values_are_cut_at_any_depth_and_from_any_slice(kind: str, given: list[Any], held: list[Any]) -> None:
    logical = parse_type(kind)
    target, numbers = arrow_type(logical), _as_numbers(arrow_type(logical))
    array = pa.array([given[0], *given, given[-1]], numbers).cast(target)
    found = declared_values(array.slice(1, len(given)), logical)
    found.validate(full=True)
    assert found.type == target
    assert found.cast(numbers).to_pylist() == held


def _as_numbers(kind: pa.DataType) -> pa.DataType:
    """A type with moments as numbers: datetimes of Python do not hold all of them."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_map(kind):
        return pa.map_(_as_numbers(kind.key_type), _as_numbers(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_as_numbers(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(item.name, _as_numbers(item.type)) for item in kind])
    return kind
