"""What JsonConverter makes of an envelope of schema and payload: schema first, defaults, required values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from upsert_platform.tablestore.connect.change import row_change
from upsert_platform.tablestore.connect.record import ConnectRecord
from upsert_platform.tablestore.connect.values import DirtyRecordError, UndecodableError, fate_of_record
from upsert_platform_tests.tablestore.connect.records import outcome, record, table

ROW = {"primarykey_mode": "record_key", "delete_mode": "row"}
COLUMNS = {"primarykey_mode": "record_key", "insert_mode": "update", "delete_mode": "column"}
KEY = {"pk0": "k"}


def _struct(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), **more}


def _fails(made: dict[str, str], value: Any, key: Any = KEY) -> str:
    with pytest.raises(UndecodableError) as raised:
        row_change(record(key, value), table(**made))
    return str(raised.value)


INT = {"field": "A", "type": "int32"}
NOT_SCHEMAS: list[tuple[str, Any]] = [
    ("text", "v1"), ("number", 7), ("array", []), ("no type", {}), ("type is a number", {"type": 3}),
    ("unknown type", {"type": "date"}), ("struct without fields", {"type": "struct"}),
    ("fields are not list", {"type": "struct", "fields": {}}), ("field without name", _struct({"type": "int32"})),
    ("field of unknown type", _struct({"field": "A", "type": "integer"})), ("two fields of a name", _struct(INT, INT)),
    ("array without items", {"type": "array", "optional": True}),
    ("map without keys", {"type": "map", "values": {"type": "int32"}}),
    ("parameter is a number", _struct(optional=True, parameters={"scale": 2})),
    ("default of another type", _struct({**INT, "optional": True, "default": "x"}, optional=True)),
    ("default null of a required field", _struct({**INT, "default": None}, optional=True)),
]  # fmt: skip


@pytest.mark.parametrize("schema", [case[1] for case in NOT_SCHEMAS], ids=[case[0] for case in NOT_SCHEMAS])
def test_a_null_payload_under_a_broken_schema_deletes_nothing(schema: Any) -> None:
    assert "the value" in _fails(ROW, {"schema": schema, "payload": None})


@pytest.mark.parametrize("optional", [None, False, "true"])
def test_a_null_payload_of_a_required_struct_deletes_nothing(optional: Any) -> None:
    schema = _struct(INT) if optional is None else _struct(INT, optional=optional)
    assert "requires a value" in _fails(ROW, {"schema": schema, "payload": None})


@pytest.mark.parametrize("schema", [None, _struct(INT, optional=True), {"type": "string", "optional": True}])
def test_a_null_payload_that_the_schema_allows_deletes_the_row(schema: Any) -> None:
    assert outcome(table(**ROW), KEY, {"schema": schema, "payload": None}) == ("DELETE", {}, ())


def test_the_default_of_a_struct_takes_the_place_of_a_null_payload() -> None:
    schema = _struct(INT, optional=True, default={"A": 3})
    assert outcome(table(**ROW), KEY, {"schema": schema, "payload": None}) == ("PUT", {"A": 3}, ())


def test_a_payload_under_a_struct_without_fields_is_no_empty_row() -> None:
    assert "no list of fields" in _fails(ROW, {"schema": {"type": "struct"}, "payload": {"A": "x"}})


def test_a_null_is_no_envelope_where_envelopes_are_required() -> None:
    assert "not a JSON object of 'schema' and 'payload'" in _fails(
        {**ROW, "value_converter_schemas_enable": "true"}, "null"
    )
    assert outcome(table(**ROW), KEY, "null") == ("DELETE", {}, ())


@pytest.mark.parametrize("payload", [{"A": None}, {}])
def test_a_default_takes_the_place_of_null_and_of_a_missing_field(payload: dict[str, Any]) -> None:
    for optional in (True, False):
        schema = _struct({**INT, "optional": optional, "default": 7})
        assert outcome(table(**COLUMNS), KEY, {"schema": schema, "payload": payload}) == ("UPDATE", {"A": 7}, ())


@pytest.mark.parametrize("payload", [{"A": None, "B": 1}, {"B": 1}])
def test_a_required_column_that_is_null_or_missing_deletes_nothing(payload: dict[str, Any]) -> None:
    schema = _struct(INT, {"field": "B", "type": "int32"})
    assert "field 'A' is null or missing" in _fails(COLUMNS, {"schema": schema, "payload": payload})
    allowed = _struct({**INT, "optional": True}, {"field": "B", "type": "int32"})
    assert outcome(table(**COLUMNS), KEY, {"schema": allowed, "payload": payload}) == ("UPDATE", {"B": 1}, ("A",))


def test_a_key_is_judged_like_a_value() -> None:
    assert "the key" in _fails(ROW, {"A": 1}, key={"schema": {"type": "struct"}, "payload": {"pk0": "k"}})
    schema = _struct({"field": "pk0", "type": "string", "default": "k"})
    assert outcome(table(**ROW), {"schema": schema, "payload": {}}, {"A": 1}) == ("PUT", {"A": "1"}, ())


def test_values_of_a_map_are_required_unless_it_says_otherwise() -> None:
    item = {"type": "int32"}
    value = {"schema": {"type": "map", "keys": {"type": "string"}, "values": item}, "payload": {"A": None}}
    assert "field 'A' is null" in _fails(COLUMNS, value)
    value["schema"]["values"] = {**item, "optional": True}
    assert outcome(table(**COLUMNS), KEY, value) == ("UPDATE", {}, ("A",))


@pytest.mark.parametrize(("kind", "beyond"), [("int8", 128), ("int16", 2**15), ("int32", 2**31), ("int64", 2**63)])
def test_an_integer_beyond_its_type_is_not_wrapped(kind: str, beyond: int) -> None:
    schema = _struct({"field": "A", "type": kind})
    for number, fits in ((beyond - 1, True), (beyond, False), (-beyond, True), (-beyond - 1, False)):
        value = {"schema": schema, "payload": {"A": number}}
        if fits:
            assert outcome(table(**ROW), KEY, value) == ("PUT", {"A": number}, ())
        else:
            assert "not of Connect type" in _fails(ROW, value)


DECIMAL = {"field": "A", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
DECIMALS = [
    ('"AQI="', b"2.58"), ("2.58", b"2.58"), ("2.580", b"2.580"), ("258", b"258"), ("-0.10", b"-0.10"), ("1e3", b"1000"),
    ("12345678901234567890.123456789", b"12345678901234567890.123456789"), ("true", None), ('"%%"', None),
    ("1e99999999", None),
]  # fmt: skip


@pytest.mark.parametrize(("written", "text"), DECIMALS)
def test_a_decimal_is_base64_or_a_number(written: str, text: bytes | None) -> None:
    """``decimal.format`` = ``NUMERIC`` of JsonConverter 2.4 and later writes numbers; all of their digits stay."""
    value = f'{{"schema": {json.dumps(_struct(DECIMAL))}, "payload": {{"A": {written}}}}}'
    assert outcome(table(**ROW), KEY, value) == (("PUT", {"A": text}, ()) if text is not None else "dirty")


HUGE = "9" * 400
DEEP = '{"a":' * 990 + "1" + "}" * 990
NESTED = {
    "schema": json.loads('{"type":"array","items":' * 400 + '{"type":"int8"}' + "}" * 400),
    "payload": json.loads("[" * 400 + "]" * 400),
}
POISON = [
    ("400 digits as double", '{"A":' + HUGE + "}", {"whitelist": "A:double"}),
    ("400 digits, automatic", '{"A":' + HUGE + "}", {"json_field_conversion": "auto"}),
    ("400 digits as integer", '{"A":' + HUGE + "}", {"whitelist": "A:integer"}),
    ("5000 digits", '{"A":' + "9" * 5000 + "}", {}),
    ("double of 400 digits in an envelope",
     f'{{"schema":{json.dumps(_struct({"field": "A", "type": "double"}))},"payload":{{"A":{HUGE}}}}}', {}),
    ("990 deep", '{"A":' + DEEP + "}", {}),
    ("990 deep, automatic", '{"A":' + DEEP + "}", {"json_field_conversion": "auto"}),
    ("100000 deep", '{"A":' + "[" * 100_000 + "]" * 100_000 + "}", {}),
    ("990 deep with half a surrogate pair", '{"A":' + DEEP.replace("1", '"\\ud800"') + "}", {}),
    ("a schema of 400 levels", json.dumps(NESTED), {}),
]  # fmt: skip


@pytest.mark.parametrize(("value", "options"), [case[1:] for case in POISON], ids=[case[0] for case in POISON])
def test_what_no_column_can_hold_is_the_fate_of_its_record(value: str, options: dict[str, str]) -> None:
    assert outcome(table(**ROW, **options), KEY, value) == "dirty"


def test_json_as_deep_as_allowed_is_read_however_deep_its_reader_stands() -> None:
    text = '{"A":' + '{"a":' * 499 + "1" + "}" * 500

    def standing(frames: int) -> Any:
        return standing(frames - 1) if frames else outcome(table(**ROW), KEY, text)

    assert standing(0) == standing(300) == ("PUT", {"A": text[5:-1]}, ())


def test_an_error_that_nobody_thought_of_is_the_fate_of_its_record() -> None:
    @fate_of_record
    def make(found: ConnectRecord) -> int:
        return 1 // found.partition

    with pytest.raises(DirtyRecordError, match="ZeroDivisionError: "):
        make(ConnectRecord("t", 0, 1, None, None))
    assert make(ConnectRecord("t", 1, 1, None, None)) == 1
