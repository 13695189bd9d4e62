"""Sections 3, 8.5 and 8.7: key modes, primary keys and the types of fields."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from upsert_platform.tablestore.connect.change import row_change
from upsert_platform.tablestore.connect.values import AUTO_INCREMENT, text_of
from upsert_platform_tests.tablestore.connect.records import envelope, outcome, record, table

AT = ("t_3", 42)


@pytest.mark.parametrize(
    ("case", "key", "value", "key_format", "value_format", "expected"),
    [
        ("50", "k1", "hello", "string", "string", (AT, "PUT", {"key": "k1", "value": "hello"}, ())),
        ("51", "k1", None, "string", "string", (AT, "PUT", {"key": "k1"}, ())),
        ("52", None, None, "string", "string", "dirty"),
        ("53", "k1", {"A": "x", "B": 1, "id": "k1"}, "string", "json",
         (AT, "PUT", {"A": "x", "B": "1", "id": "k1", "key": "k1"}, ())),
        ("54", "k", {"offset": 1, "key": "v", "A": "a", "topic_partition": "x"}, "string", "json",
         (AT, "PUT", {"key": "k", "A": "a"}, ())),
        ("2.2 null and JSON key", {"id": "k1"}, None, "json", "json", (AT, "PUT", {"id": "k1"}, ())),
        ("2.2 JSON null value", "k1", "null", "string", "json", (AT, "PUT", {"key": "k1"}, ())),
        ("2.2 string, JSON key", {"id": "k1"}, "hello", "json", "string", (AT, "PUT", {"value": "hello", "id": "k1"},
          ())),
        ("2.2 empty string, no key", None, "", "json", "string", (AT, "PUT", {"value": ""}, ())),
        ("2.2 {} and key", "k1", {}, "string", "json", (AT, "PUT", {"key": "k1"}, ())),
        ("2.2 {} and no key", None, {}, "string", "json", "dirty"),
        ("2.2 null field", "k1", {"A": 1, "B": None}, "string", "json", (AT, "PUT", {"A": "1", "key": "k1"}, ())),
        ("66 array", "k1", [1], "string", "json", "dirty"),
        ("66 scalar", "k1", "7", "string", "json", "dirty"),
        ("broken JSON", "k1", '{"A":', "string", "json", "dirty"),
        ("NaN is not JSON", "k1", '{"A":NaN}', "string", "json", "dirty"),
        ("broken UTF-8", "k1", b"\xff", "string", "string", "dirty"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 24 else "",
)  # fmt: skip
def test_2_2_kafka_mode(case: str, key: Any, value: Any, key_format: str, value_format: str, expected: Any) -> None:
    assert outcome(table(key_format=key_format, value_format=value_format), key, value) == expected, case


@pytest.mark.parametrize(
    ("value", "expected"), [({"A": None}, "dirty"), ({"A": 1, "B": None}, (AT, "UPDATE", {"A": "1"}, ()))]
)
def test_2_2_update_in_kafka_mode(value: Any, expected: Any) -> None:  # fmt: skip
    assert outcome(table(insert_mode="update"), None, value) == expected


@pytest.mark.parametrize(
    ("case", "key", "value", "key_format", "value_format", "expected"),
    [
        ("62", "k1", "k", "string", "string", ("PUT", {"key": "k1"}, ())),
        ("63", None, "k", "string", "string", "dirty"),
        ("64", "k1", {}, "string", "json", "dirty"),
        ("65", "k1", {"pk0": "k"}, "string", "json", ("PUT", {"key": "k1"}, ())),
        ("2.3 only the key", None, {"pk0": "k"}, "string", "json", "dirty"),
        ("2.3 null value", "k1", None, "string", "json", "dirty"),
        ("2.3 null key field", "k1", {"pk0": None}, "string", "json", "dirty"),
        ("2.3 normal", {"x": 1}, {"pk0": "k", "A": 1}, "json", "json", ("PUT", {"A": "1", "x": "1"}, ())),
        ("2.3 null fields", None, {"pk0": "k", "A": None, "B": 2}, "json", "json", ("PUT", {"B": "2"}, ())),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 24 else "",
)
def test_2_3_record_value_mode(
    case: str, key: Any, value: Any, key_format: str, value_format: str, expected: Any
) -> None:
    made = table(primarykey_mode="record_value", key_format=key_format, value_format=value_format)
    assert outcome(made, key, value) == expected, case


@pytest.mark.parametrize(
    ("case", "made", "key", "value", "expected"),
    [
        ("56", {}, {"pk0": "k", "x": 1}, {"A": "v", "x": 2}, ("PUT", {"A": "v", "x": "1"}, ())),
        ("57", {}, {"pk0": "k"}, {"pk0": "other", "A": "v"}, ("PUT", {"A": "v"}, ())),
        ("58", {"key": "pk0:integer", "key_format": "string"}, "12", {"A": 1}, ((12,), "PUT", {"A": "1"}, ())),
        ("59", {"key": "pk0:integer", "key_format": "string"}, "ab", {"A": 1}, "dirty"),
        ("61 null", {}, None, {"A": 1}, "dirty"),
        ("61 JSON null", {}, "null", {"A": 1}, "dirty"),
        ("61 lacks", {}, {"x": 1}, {"A": 1}, "dirty"),
        ("61 null field", {}, {"pk0": None}, {"A": 1}, "dirty"),
        ("2.4e string", {"value_format": "string"}, {"pk0": "k"}, "x", ("PUT", {"value": "x"}, ())),
        ("2.4e empty string", {"value_format": "string"}, {"pk0": "k"}, "", ("PUT", {"value": ""}, ())),
        ("66", {}, {"pk0": "k"}, [1], "dirty"),
        ("39 string schema", {}, {"schema": {"type": "string"}, "payload": "k"}, {"A": 1}, ("PUT", {"A": "1"}, ())),
        ("36", {"key": "a:string,b:integer,c:binary"},
         envelope({"a": "string", "b": "int32", "c": "bytes"}, {"a": "test", "b": 1, "c": b"test"}),
         {"A": 1}, (("test", 1, b"test"), "PUT", {"A": "1"}, ())),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 24 else "",
)  # fmt: skip
def test_8_7_record_key_mode(case: str, made: dict[str, str], key: Any, value: Any, expected: Any) -> None:
    assert outcome(table(primarykey_mode="record_key", **made), key, value) == expected, case


PRIMARY_KEYS = [
    (1, "1", 1), ("1", "1", 1), (1.5, "1.5", "dirty"), ("1.9", "1.9", "dirty"), (1.0, "1.0", 1),
    ("abc", "abc", "dirty"), ("", "", "dirty"), (" 12 ", " 12 ", "dirty"), (True, "true", "dirty"),
    ({"x": 1}, '{"x":1}', "dirty"),
    ([1, 2], "[1,2]", "dirty"), (2**63, "dirty", "dirty"), (-(2**63), str(-(2**63)), -(2**63)),
    (None, "dirty", "dirty"),
    ("k" * 1025, "dirty", "dirty"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "text", "number"), PRIMARY_KEYS, ids=lambda value: str(value)[:12])
def test_3_2_primary_keys_of_json(field: Any, text: Any, number: Any) -> None:
    for wanted, expected in (("string", text), ("integer", number), ("binary", "dirty")):
        found = outcome(table(primarykey_mode="record_key", key=f"pk0:{wanted}"), {"pk0": field}, {"A": 1})
        assert found == ("dirty" if expected == "dirty" else ((expected,), "PUT", {"A": "1"}, ())), wanted


@pytest.mark.parametrize(
    ("kind", "field", "accepted"),
    [("int8", 1, "integer"), ("int16", 1, "integer"), ("int32", 1, "integer"), ("int64", 1, "integer"),
     ("string", "x", "string"), ("bytes", b"x", "binary"), ("float", 1.0, ""), ("double", 1.0, ""),
     ("boolean", True, ""), ("struct", {"a": 1}, ""), ("map", {"a": 1}, "")],
)  # fmt: skip
def test_3_2_primary_keys_of_a_schema_match_exactly(kind: str, field: Any, accepted: str) -> None:
    for wanted in ("string", "integer", "binary"):
        made = table(primarykey_mode="record_key", key=f"pk0:{wanted}")
        found = outcome(made, envelope({"pk0": kind}, {"pk0": field}), {"A": 1})
        assert found == (((field,), "PUT", {"A": "1"}, ()) if wanted == accepted else "dirty")


def test_38_a_generated_key_column() -> None:
    made = table(
        primarykey_mode="record_key", key="pk0:string,n:auto_increment", **{"auto_increment_repeated-rows": "true"}
    )
    change = row_change(record({"pk0": "k"}, {"A": 1}), made)
    assert change.key == (("pk0", "k"), ("n", AUTO_INCREMENT))
    assert row_change(record({"pk0": "k", "n": 7}, {"A": 1}), made).key[1] == ("n", 7)


AS_TEXT = [
    ("1", "1"), ("1.0", "1.0"), ("1e10", "1.0E10"), ("100000000.0", "1.0E8"),
    ("123456789012345678.123", "1.2345678901234568E17"), ("-0.0", "-0.0"), ("1e400", "Infinity"), ("true", "true"),
    ('{"a": 1, "b": "x"}', '{"a":1,"b":"x"}'), ('[1, "x", null]', '[1,"x",null]'), ("[]", "[]"), ('""', ""),
    ("12345678901234567890", "dirty"), ("9223372036854775808", "dirty"), ("0.001", "0.001"), ("0.0001", "1.0E-4"),
    ("228429866853658850.0", "2.28429866853658848E17"), ("2e23", "1.9999999999999998E23"),  # Java 17's own digits
    ("9999999.0", "9999999.0"), ("10000000.0", "1.0E7"), ("1234567.5", "1234567.5"), ('"é"', "é"),
]  # fmt: skip


@pytest.mark.parametrize(("literal", "text"), AS_TEXT, ids=[case[0] for case in AS_TEXT])
def test_3_1_all_as_string(literal: str, text: str) -> None:
    expected = "dirty" if text == "dirty" else ("PUT", {"A": text}, ())
    assert outcome(table(primarykey_mode="record_key"), {"pk0": "k"}, f'{{"A":{literal}}}') == expected


@pytest.mark.parametrize(
    ("field", "cell"),
    [("s", "s"), (True, True), (1, 1.0), (1.5, 1.5), (9007199254740993, 9007199254740992.0), ({"a": 1}, '{"a":1}'),
     ([1], "[1]"), (float("1e308"), 1e308)],
    ids=str,
)  # fmt: skip
def test_3_1_automatic_types(field: Any, cell: Any) -> None:
    made = table(primarykey_mode="record_key", json_field_conversion="auto")
    found = outcome(made, {"pk0": "k"}, {"A": field})
    assert found == ("PUT", {"A": cell}, ())
    assert type(found[1]["A"]) is type(cell)


@pytest.mark.parametrize("literal", ["1e400", "-1e400", "1" + "0" * 400])
def test_3_1_infinity_is_no_double(literal: str) -> None:
    made = table(primarykey_mode="record_key", json_field_conversion="auto")
    assert outcome(made, {"pk0": "k"}, f'{{"A":{literal}}}') == "dirty"
    listed = table(primarykey_mode="record_key", whitelist="A:double")
    assert outcome(listed, {"pk0": "k"}, f'{{"A":{literal}}}') == "dirty"


KINDS = ("string", "integer", "double", "boolean", "binary")
WHITELISTED = [
    (1, "1", 1, 1.0, True, b"1"), (0, "0", 0, 0.0, False, b"0"), (1.9, "1.9", 1, 1.9, True, b"1.9"),
    ("1", "1", 1, 1.0, True, b"1"), ("1.5", "1.5", 1, 1.5, True, b"1.5"), ("abc", "abc", None, None, None, b"abc"),
    (True, "true", None, None, True, b"true"), ("true", "true", None, None, True, b"true"),
    ("false", "false", None, None, False, b"false"), ("TRUE", "TRUE", None, None, None, b"TRUE"),
    ("", "", None, None, None, b""), ({"a": 1}, '{"a":1}', None, None, None, b'{"a":1}'),
    ([1, 2], "[1,2]", None, None, None, b"[1,2]"), (2**63, None, None, float(2**63), True, None),
    (-1.9, "-1.9", -1, -1.9, True, b"-1.9"),
]  # fmt: skip


@pytest.mark.parametrize("case", WHITELISTED, ids=lambda case: repr(case[0]))
def test_3_1_whitelist_conversion(case: tuple[Any, ...]) -> None:
    field, *cells = case
    for wanted, cell in zip(KINDS, cells, strict=True):
        made = table(primarykey_mode="record_key", whitelist=f"A:{wanted}")
        found = outcome(made, {"pk0": "k"}, {"A": field})
        assert found == ("dirty" if cell is None else ("PUT", {"A": cell}, ())), wanted
        assert cell is None or type(found[1]["A"]) is type(cell)


STRUCTURED: list[tuple[Any, Any, Any]] = [
    ("string", "test", "test"), ("int8", 1, 1), ("int16", 1, 1), ("int32", 1, 1), ("int64", 2**63 - 1, 2**63 - 1),
    ("float", 1.5, 1.5), ("double", 1, 1.0), ("boolean", True, True), ("bytes", b"test", b"test"),
    ("struct", {"a": 1}, "dirty"), ("array", [1], "dirty"), ("map", {"a": 1}, "dirty"), ("int32", "1", "dirty"),
    (("int64", "org.apache.kafka.connect.data.Timestamp"), 1_700_000_000_000, 1_700_000_000_000),
    (("int32", "org.apache.kafka.connect.data.Date"), 19_000, 19_000),
    (("int32", "org.apache.kafka.connect.data.Time"), 1_000, 1_000),
    (("bytes", "org.apache.kafka.connect.data.Decimal"), (258).to_bytes(2, "big"), b"2.58"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "field", "cell"), STRUCTURED, ids=[str(case[0]) for case in STRUCTURED])
def test_37_71_types_of_a_schema(kind: Any, field: Any, cell: Any) -> None:
    found = outcome(table(primarykey_mode="record_key"), {"pk0": "k"}, envelope({"A": kind}, {"A": field}))
    assert found == ("dirty" if cell == "dirty" else ("PUT", {"A": cell}, ()))


def test_3_1_a_schema_and_a_whitelist_must_agree() -> None:
    made = table(primarykey_mode="record_key", whitelist="A:string")
    assert outcome(made, {"pk0": "k"}, envelope({"A": "int32"}, {"A": 1})) == "dirty"
    assert outcome(made, {"pk0": "k"}, envelope({"A": "string"}, {"A": "1"})) == ("PUT", {"A": "1"}, ())


@pytest.mark.parametrize("payload", [{"s": {"x": 1}}, {"m": {"a": {"x": 1}}}])
def test_40_41_nested_values_are_neither_key_nor_column(payload: dict[str, Any]) -> None:
    name = next(iter(payload))
    message = envelope({name: "struct"}, payload)
    assert outcome(table(primarykey_mode="record_key", key=f"{name}:string"), message, {"A": 1}) == "dirty"
    assert outcome(table(primarykey_mode="record_key"), {"pk0": "k"}, message) == "dirty"


@pytest.mark.parametrize(
    "value", [{"1a": 1}, {"é": 1}, {"A": "x" * (2 * 1024 * 1024 + 1)}, {f"c{n}": 1 for n in range(1025)}]
)
def test_92_limits(value: Any) -> None:  # fmt: skip
    assert outcome(table(primarykey_mode="record_key"), {"pk0": "k"}, value) == "dirty"


def test_72_search_mode() -> None:
    made = table(primarykey_mode="search")
    change = row_change(record(None, {"A": 1}), made)
    assert change.key == (("md5", "ff9af"), ("topic", "t"), ("partition", 3), ("offset", 42))
    assert change.cells == {"A": "1", "timestamp": 1_700_000_000_000}
    assert outcome(made, None, {"A": 1}, timestamp=None) == "dirty"


def test_base64_of_a_payload_is_checked() -> None:
    broken = {"schema": envelope({"A": "bytes"}, None)["schema"], "payload": {"A": "%%"}}
    assert outcome(table(primarykey_mode="record_key"), {"pk0": "k"}, broken) == "dirty"
    assert base64.b64decode("eA==") == b"x"


@pytest.mark.parametrize("value", [1.0, 123456789.125, 1e-3, 9.99e-4, 1e7, 1.7976931348623157e308, 5e-324, -2.5])
def test_java_text_reads_back(value: float) -> None:
    assert float(text_of(value)) == value
