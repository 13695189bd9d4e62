"""Format json: behaviours 91 to 108."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from upsert_platform.core.errors import DestinationError
from upsert_platform.core.model import Insert, Project
from upsert_platform.declarations.validate import project_problems
from upsert_platform.formats import build_decoder, build_encoder
from upsert_platform.kafka.sink.encode import RecordEncoder
from upsert_platform.sync.connectors import CONNECTORS
from upsert_platform_tests.formats.support import columns_of
from upsert_platform_tests.kafka.catalogue.cases import behaviour, case
from upsert_platform_tests.kafka.tables import declare, problems_of, read

IGNORE: Final = {"json.ignore-parse-errors": "true"}
ISO: Final = {"json.timestamp-format.standard": "ISO-8601"}
MISSING: Final = {"json.fail-on-missing-field": "true"}
OLD_PARSER: Final = {"json.decode.json-parser.enabled": "false"}
ERROR: Final = "error"


def rows_of(columns: str, text: str | bytes, options: dict[str, str]) -> Any:
    """Rows of one message, or `error`."""
    message = text.encode() if isinstance(text, str) else text
    decoded = build_decoder("json", columns_of(columns), options).decode([message])
    return ERROR if decoded.errors else [list(row.values()) for row in decoded.rows.to_pylist()]


def reason_of(columns: str, text: str) -> str:
    return build_decoder("json", columns_of(columns), {}).decode([text.encode()]).errors[0]


@pytest.mark.parametrize(
    ("kind", "text", "options", "expected"),
    [
        case(91, "boolean-of-any-text", "BOOLEAN", '"trueA"', {}, False),
        case(92, "fraction-is-cut", "BIGINT", "112.013", {}, 112),
        case(93, "int", "INT", '"abc"', {}, ERROR),
        case(93, "int-ignored", "INT", '"abc"', IGNORE, None),
        case(93, "decimal", "DECIMAL(10, 2)", '"abc"', {}, ERROR),
        case(93, "decimal-ignored", "DECIMAL(10, 2)", '"abc"', IGNORE, None),
        case(93, "float", "FLOAT", '"112.013.123"', {}, ERROR),
        case(93, "float-ignored", "FLOAT", '"112.013.123"', IGNORE, None),
        case(93, "time", "TIME(0)", '"18:00:243"', {}, ERROR),
        case(93, "time-ignored", "TIME(0)", '"18:00:243"', IGNORE, None),
        case(93, "date", "DATE", '"20191112"', {}, ERROR),
        case(93, "date-ignored", "DATE", '"20191112"', IGNORE, None),
        case(94, "boolean", "STRING", "true", {}, "true"),
        case(94, "number", "STRING", "123.234", {}, "123.234"),
        case(94, "array", "STRING", '[1, "x", {"y": 2}]', {}, '[1,"x",{"y":2}]'),
        case(94, "object", "STRING", '{"k": 1, "l": [true]}', {}, '{"k":1,"l":[true]}'),
        case(95, "sql-with-t", "TIMESTAMP(3)", '"2019-11-12T18:00:12"', {}, ERROR),
        case(95, "iso-with-blank", "TIMESTAMP(3)", '"2019-11-12 18:00:12"', ISO, ERROR),
        case(95, "zone", "TIMESTAMP(3)", '"2019-11-12 18:00:12Z"', {}, ERROR),
        case(96, "no-zone", "TIMESTAMP_LTZ(3)", '"2019-11-12 18:00:12"', {}, ERROR),
        case(96, "offset", "TIMESTAMP_LTZ(3)", '"2019-11-12 18:00:12+0800"', {}, ERROR),
        case(97, "array-element", "ARRAY<INT>", '[123,"abc"]', IGNORE, [123, None]),
        case(
            98,
            "map-value",
            "MAP<STRING, INT>",
            '{"key1":"123","key2":"abc"}',
            IGNORE,
            [("key1", 123), ("key2", None)],
        ),
        case(99, "exact", "DECIMAL(38, 18)", "799.929496989092949698", {}, Decimal("799.929496989092949698")),
        case(100, "raw-tab", "STRING", '"a\tb"', {}, "a\tb"),
        case(104, "sql-3", "TIMESTAMP(3)", '"2020-01-02 03:04:05.123"', {}, datetime(2020, 1, 2, 3, 4, 5, 123_000)),  # noqa: DTZ001
        case(
            104,
            "ltz",
            "TIMESTAMP_LTZ(3)",
            '"2020-01-02 03:04:05.123Z"',
            {},
            datetime(2020, 1, 2, 3, 4, 5, 123_000, UTC),
        ),
        case(106, "overflow-is-null", "DECIMAL(5, 2)", "1234.5", {}, None),
        case(106, "rounded-to-overflow", "DECIMAL(5, 2)", "999.995", {}, None),
        case(106, "rounded", "DECIMAL(5, 2)", "123.456", {}, Decimal("123.46")),
    ],
)
def test_a_field(kind: str, text: str, options: dict[str, str], expected: Any) -> None:
    found = rows_of(f"a {kind}", f'{{"a":{text}}}', options)
    assert (found if found == ERROR else found[0][0]) == expected


@pytest.mark.parametrize(
    ("columns", "text", "options", "expected"),
    [
        case(101, "missing-fails", "a INT, b INT", '{"a":1}', MISSING, ERROR),
        case(101, "null-is-not-missing", "a INT, b INT", '{"a":1,"b":null}', MISSING, [[1, None]]),
        case(101, "missing-is-null", "a INT, b INT", '{"a":1}', {}, [[1, None]]),
        case(101, "missing-ignored", "a INT, b INT", '{"a":1}', IGNORE, [[1, None]]),
        case(105, "counts-fields", "id INT, name STRING", '{"id":1,"id":2,"name":"a"}', {}, [[2, None]]),
        case(105, "old-parser", "id INT, name STRING", '{"id":1,"id":2,"name":"a"}', OLD_PARSER, [[2, "a"]]),
        case(107, "first-object-only", "a INT", '{"a":1}{"a":2}', {}, [[1]]),
    ],
)
def test_a_record(columns: str, text: str, options: dict[str, str], expected: Any) -> None:
    assert rows_of(columns, text, options) == expected


@behaviour(101, "both-switches")
def test_missing_and_ignored() -> None:
    (message,) = problems_of(declare(**{f"value.{name}": value for name, value in {**MISSING, **IGNORE}.items()}))
    assert "json.fail-on-missing-field" in message
    assert "json.ignore-parse-errors" in message


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        case(102, "fail", {}, ERROR),
        case(102, "drop", {"json.map-null-key.mode": "DROP"}, b'{"m":{"x":{"p":1}}}'),
        case(
            102,
            "literal",
            {"json.map-null-key.mode": "LITERAL", "json.map-null-key.literal": "none"},
            b'{"m":{"x":{"p":1,"none":2},"none":{"q":3}}}',
        ),
    ],
)
def test_null_keys_of_maps(options: dict[str, str], expected: bytes | str) -> None:
    """Maps of Arrow and Spark have none; lists of entries can."""
    inner = pa.list_(pa.struct([("key", pa.string()), ("value", pa.int32())]))
    outer = pa.list_(pa.struct([("key", pa.string()), ("value", inner)]))
    entries = [{"key": "x", "value": [{"key": "p", "value": 1}, {"key": None, "value": 2}]}]
    entries.append({"key": None, "value": [{"key": "q", "value": 3}]})
    rows = pa.RecordBatch.from_arrays([pa.array([entries], outer)], names=["m"])
    messages, errors = build_encoder("json", columns_of("m MAP<STRING, MAP<STRING, INT>>"), options).encode(rows)
    assert (ERROR if errors else messages[0].as_py()) == expected


@pytest.mark.parametrize(
    ("value", "scale", "short"),
    [
        case(103, "trailing-zero", "100.50", 2, "100.5"),
        case(103, "exponent", "1200.000", 3, "1.2E+3"),
        case(103, "zero", "0.00", 2, "0"),
        case(103, "long", "454621864049246170", 0, "4.5462186404924617E+17"),
    ],
)
def test_decimals_are_written(value: str, scale: int, short: str) -> None:
    columns = columns_of(f"a DECIMAL(30, {scale})")
    rows = pa.RecordBatch.from_arrays([pa.array([Decimal(value)], pa.decimal128(30, scale))], names=["a"])
    plain = {"json.encode.decimal-as-plain-number": "true"}
    assert build_encoder("json", columns, {}).encode(rows)[0][0].as_py() == f'{{"a":{short}}}'.encode()
    assert build_encoder("json", columns, plain).encode(rows)[0][0].as_py() == f'{{"a":{value}}}'.encode()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        case(104, "round-trip-3", "TIMESTAMP(3)", '{"a":"1990-10-14 12:12:43.123"}'),
        case(104, "round-trip-6", "TIMESTAMP(6)", '{"a":"1990-10-14 12:12:43.123456"}'),
        case(104, "round-trip-ltz", "TIMESTAMP_LTZ(3)", '{"a":"1990-10-14 12:12:43.123Z"}'),
    ],
)
def test_timestamps_come_back(kind: str, text: str) -> None:
    columns = columns_of(f"a {kind}")
    decoded = build_decoder("json", columns, {}).decode([text.encode()])
    assert build_encoder("json", columns, {}).encode(decoded.rows)[0].to_pylist() == [text.encode()]


@behaviour(104, "nine-digits-are-refused")
def test_nanoseconds() -> None:
    """Spark and Arrow hold microseconds, so nine digits would not come back: a source is refused, or cuts them."""
    source = declare({"id": "INT", "at": "TIMESTAMP(9)"})
    assert problems_of(source) == []
    insert = Insert(source.name, "t", ("1",), None, "INSERT", source.location)
    found = project_problems(Project("", {source.name: source}, (insert,)), CONNECTORS)
    (message,) = [problem.message for problem in found if "fraction digits" in problem.message]
    assert "'at'" in message
    assert "declare 6 at most, or set 'truncate-timestamps' = 'true'" in message


@behaviour(108, "errors-name-the-field")
def test_reasons() -> None:
    assert "field a" in reason_of("a INT", '{"a":"x"}')
    nested = reason_of("a ROW<b INT>", '{"a":{"b":"x"}}')
    assert nested.index("field a") < nested.index("field b")
    rows = pa.RecordBatch.from_pydict({"id": [1], "name": [[1]], "_op": ["U"]})
    with pytest.raises(DestinationError, match=r"'name' comes as list.* written as STRING"):
        RecordEncoder(read(declare(), writes=True)).encode(rows)
