"""Format json, rule by rule: the catalogue of behaviours, and inputs that Arrow's JSON reader takes otherwise."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upsert_platform.core.errors import SourceLocation
from upsert_platform.formats import Decoded, build_decoder, build_encoder, validate_format
from upsert_platform_tests.formats.support import columns_of, plain_rows

PLACE = SourceLocation("t.sql", 3)
IGNORE = {"json.ignore-parse-errors": "true"}
ISO = {"json.timestamp-format.standard": "ISO-8601"}
MISSING = {"json.fail-on-missing-field": "true"}
TREE = {"json.decode.json-parser.enabled": "false"}
SECOND = 1_000_000
NEW_2020 = 1_577_934_245 * SECOND  # 2020-01-02 03:04:05
ERROR = "error"


def decode(columns: str, *messages: bytes, options: dict[str, str] | None = None) -> Decoded:
    return build_decoder("json", columns_of(columns), options or {}).decode(messages)


def outcome(columns: str, *messages: bytes, options: dict[str, str] | None = None) -> list[Any]:
    """For each message: its only row (or its rows), or `error`."""
    decoded = decode(columns, *messages, options=options)
    rows: list[list[Any]] = [[] for _ in messages]
    for row, message in zip(plain_rows(decoded.rows, columns_of(columns)), decoded.message.to_pylist(), strict=True):
        rows[message].append(row)
    return [ERROR if at in decoded.errors else (one[0] if len(one) == 1 else one) for at, one in enumerate(rows)]


def field(kind: str, text: str, options: dict[str, str] | None = None) -> Any:
    """What `{"a": text}` gives for a column of a type."""
    [found] = outcome(f"a {kind}", f'{{"a":{text}}}'.encode(), options=options)
    return found if found == ERROR else found[0]


@pytest.mark.parametrize(
    ("kind", "text", "options", "want"),
    [
        pytest.param("BOOLEAN", '"trueA"', {}, False, id="91-boolean-text"),
        pytest.param("BOOLEAN", "1", {}, False, id="91-boolean-number"),
        pytest.param("BOOLEAN", '" TRUE "', {}, True, id="91-boolean-blanks-and-case"),
        pytest.param("BIGINT", "112.013", {}, 112, id="92-bigint-fraction"),
        pytest.param("BIGINT", "1e3", {}, 1000, id="92-bigint-exponent"),
        pytest.param("SMALLINT", "1.9", {}, ERROR, id="92-smallint-fraction"),
        pytest.param("INT", '"abc"', {}, ERROR, id="93-int-text"),
        pytest.param("INT", '"abc"', IGNORE, None, id="93-int-text-ignored"),
        pytest.param("DECIMAL(10, 2)", '"abc"', {}, ERROR, id="93-decimal-text"),
        pytest.param("FLOAT", '"112.013.123"', {}, ERROR, id="93-float-text"),
        pytest.param("TIME(0)", '"18:00:243"', {}, ERROR, id="93-time"),
        pytest.param("DATE", '"20191112"', {}, ERROR, id="93-date"),
        pytest.param("DATE", '"20191112"', IGNORE, None, id="93-date-ignored"),
        pytest.param("STRING", "true", {}, b"true", id="94-string-boolean"),
        pytest.param("STRING", "123.234", {}, b"123.234", id="94-string-number"),
        pytest.param("STRING", "1.50", {}, b"1.50", id="94-string-keeps-source-text"),
        pytest.param("STRING", "1.50", TREE, b"1.5", id="94-string-tree-parser"),
        pytest.param("STRING", '[1, "x", {"y":2.50}]', {}, b'[1,"x",{"y":2.5}]', id="94-string-container"),
        pytest.param("STRING", '{"k":1,"k":2}', {}, b'{"k":2}', id="94-string-last-repeated-name"),
        pytest.param("TIMESTAMP(3)", '"2019-11-12T18:00:12"', {}, ERROR, id="95-sql-with-t"),
        pytest.param("TIMESTAMP(3)", '"2019-11-12 18:00:12"', ISO, ERROR, id="95-iso-with-blank"),
        pytest.param("TIMESTAMP(3)", '"2019-11-12 18:00:12Z"', {}, ERROR, id="95-zone"),
        pytest.param("TIMESTAMP_LTZ(3)", '"2019-11-12 18:00:12"', {}, ERROR, id="96-ltz-without-zone"),
        pytest.param("TIMESTAMP_LTZ(3)", '"2019-11-12 18:00:12+0800"', {}, ERROR, id="96-ltz-offset"),
        pytest.param("ARRAY<INT>", '[123,"abc"]', IGNORE, [123, None], id="97-array-element-ignored"),
        pytest.param(
            "MAP<STRING, INT>", '{"key1":"123","key2":"abc"}', IGNORE,
            [(b"key1", 123), (b"key2", None)], id="98-map-value-ignored",
        ),
        pytest.param("STRING", '"a\tb"', {}, b"a\tb", id="100-raw-tab"),
        pytest.param("DECIMAL(5, 2)", "1234.5", {}, None, id="106-overflow-is-null"),
        pytest.param("DECIMAL(5, 2)", "999.995", {}, None, id="106-rounding-overflows"),
        pytest.param("STRING", '"\\ud800x"', {}, b"?x", id="lone-surrogate"),
        pytest.param("TIME(3)", '"24:00:00"', {}, 0, id="time-midnight"),
        pytest.param("TIME(3)", '"01:02:03.999"', {}, 3723 * SECOND, id="time-fraction-dropped"),
        pytest.param("BYTES", '"YQ=="', {}, b"a", id="bytes"),
        pytest.param("BYTES", '"YQ"', {}, ERROR, id="bytes-without-padding"),
        pytest.param("BYTES", "5", {}, ERROR, id="bytes-number"),
        pytest.param("BYTES", "5", TREE, None, id="bytes-number-tree-parser"),
        pytest.param("MAP<STRING, INT>", "5", TREE, [], id="map-from-number-tree-parser"),
        pytest.param("INT", '"+5"', {}, 5, id="quoted-sign"),
        pytest.param("INT", '"５"', {}, 5, id="quoted-full-width-digit"),
        pytest.param("INT", '"1_0"', {}, ERROR, id="quoted-underscore"),
        pytest.param("INT", "2147483648", {}, ERROR, id="never-wraps"),
        pytest.param("FLOAT", "1e39", {}, "7f800000", id="float-overflow"),
        pytest.param("FLOAT", "-0", {}, "80000000", id="float-negative-zero"),
        pytest.param("FLOAT", "16777217.0000000001", {}, "4b800001", id="float-rounded-once"),
        pytest.param("DOUBLE", '"NaN"', {}, "NaN", id="quoted-nan"),
        pytest.param("DOUBLE", '"1.5f"', {}, "3ff8000000000000", id="quoted-suffix"),
        pytest.param("DOUBLE", '"0x1p3"', {}, "4020000000000000", id="quoted-hexadecimal"),
    ],
)  # fmt: skip
def test_a_field_is_read_as_flink_reads_it(kind: str, text: str, options: dict[str, str], want: Any) -> None:
    assert field(kind, text, options) == want


def test_99_decimals_are_exact() -> None:
    from decimal import Decimal

    assert field("DECIMAL(38, 18)", "799.929496989092949698") == Decimal("799.929496989092949698")
    assert field("DECIMAL(5, 2)", "123.456") == Decimal("123.46")


def test_101_missing_fields() -> None:
    assert outcome("a INT, b INT", b'{"a":1}', b'{"a":1,"b":null}') == [[1, None], [1, None]]
    assert outcome("a INT, b INT", b'{"a":1}', b'{"a":1,"b":null}', options=MISSING) == [ERROR, [1, None]]
    assert outcome("a ROW<x INT, y INT>", b'{"a":{"x":1}}', options=MISSING) == [ERROR]
    problems = validate_format(
        "json", {**MISSING, **IGNORE}, columns_of("a INT"), side="value", direction="source", subject="table 't'",
        location=PLACE,
    )  # fmt: skip
    assert "json.ignore-parse-errors" in problems[0].message


def test_105_repeated_names_count_as_fields() -> None:
    columns = "id INT, name STRING"
    assert outcome(columns, b'{"id":1,"id":2,"name":"a"}') == [[2, None]]
    assert outcome(columns, b'{"id":1,"name":"a","id":2}') == [[1, b"a"]]
    assert outcome(columns, b'{"id":1,"id":2,"name":"a"}', options=TREE) == [[2, b"a"]]


def test_107_what_follows_the_first_value_is_ignored() -> None:
    assert outcome("a INT", b'{"a":1}{"a":2}', b'{"a":3} rest', b'{"a":4}\xff') == [[1], [3], [4]]


# Inputs that Arrow's reader takes silently, or dies of; the second column is Flink's result.
TRAPS = [
    pytest.param("a INT", [b"null", b'{"a":1}'], [ERROR, [1]], id="null-first"),
    pytest.param("a INT", [b'{"a":1}', b"null"], [[1], ERROR], id="null-later"),
    pytest.param("a INT", [b'{"a":1}{"a":2}', b"", b'{"a":3}'], [[1], ERROR, [3]], id="two-objects-and-an-empty-value"),
    pytest.param("a INT", [b'{"a":1}\n{"a":2}', b" ", b'{"a":3}'], [[1], ERROR, [3]], id="two-lines-and-a-blank"),
    pytest.param("a STRING", [b'{"a":"x', b'y"}'], [ERROR, ERROR], id="cut-in-text"),
    pytest.param("a INT, b INT", [b'{"a":1,', b'"b":2}'], [ERROR, ERROR], id="cut-between-fields"),
    pytest.param("a STRING", [b'{"a":"\xff"}', b'{"a":"b"}'], [ERROR, [b"b"]], id="invalid-utf8"),
    pytest.param("a STRING", [b'{"a":"\xc0\x80"}'], [[b"\0"]], id="overlong-utf8"),
    pytest.param("a DECIMAL(12, 2)", [b'{"a":12345678901}'], [[None]], id="decimal-literal-too-long"),
    pytest.param("a DECIMAL(12, 2)", [b'{"a":"12345678901"}'], [[None]], id="decimal-text-too-long"),
    pytest.param("a DOUBLE", [b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}'], [ERROR] * 3, id="bare-nan"),
    pytest.param("a INT", [b'{"a":1,"b":NaN}', b'{"a":1,"b":Inf}'], [ERROR] * 2, id="bare-nan-in-unknown-field"),
    pytest.param(
        "a TIMESTAMP(3)",
        [b'{"a":"2020-01-02T03:04:05"}', b'{"a":"2020-01-02 03:04:05Z"}', b'{"a":"2020-01-02 03:04:05+08:00"}',
         b'{"a":"2020-01-02 03:04"}', b'{"a":"2020-01-02"}', b'{"a":"2020-01-02 03:04:05"}'],
        [ERROR] * 5 + [[NEW_2020]], id="timestamp-forms",
    ),
    pytest.param(
        "a TIMESTAMP_LTZ(3)",
        [b'{"a":"2020-01-02 03:04:05"}', b'{"a":"2020-01-02 03:04:05+08:00"}', b'{"a":"2020-01-02 03:04:05Z"}'],
        [ERROR, ERROR, [NEW_2020]], id="timestamp-ltz-forms",
    ),
    pytest.param("a BYTES", [b'{"a":"AAEC"}'], [[b"\0\1\2"]], id="base64"),
    pytest.param("a DATE, b TIME(0)", [b'{"a":1}', b'{"b":1}', b'{"a":"1970-01-02"}'], [ERROR, ERROR, [1, None]],
                 id="date-and-time-as-numbers"),
    # Arrow refuses these where Flink has a value.
    pytest.param("a BIGINT", [b'{"a":"12"}', b'{"a":1.9}', b'{"a":7}'], [[12], [1], [7]], id="longs-as-text"),
    pytest.param("a BIGINT", [b'{"a":7}', b'{"a":"12"}'], [[7], [12]], id="a-long-as-text-among-longs"),
    pytest.param("a DOUBLE", [b'{"a":1e400}', b'{"a":1.5}'], [["7ff0000000000000"], ["3ff8000000000000"]],
                 id="double-overflow"),
    pytest.param("a TIMESTAMP(3)", [b'{"a":"2020-01-02 03:04:05.123456789"}'], [[NEW_2020 + 123_456]],
                 id="nanoseconds-are-cut"),
    pytest.param("a TIMESTAMP(3)", [b'{"a":"2020-02-30 24:00:00"}'], [[1_583_020_800 * SECOND]],
                 id="30-february-24-hours"),
    pytest.param("a STRING", [b'{"a":"x\ty\nz"}', b'{"a":"x"}'], [[b"x\ty\nz"], [b"x"]], id="raw-controls-in-text"),
    pytest.param("a STRING", [b'{"a":"\\ud83d"}', b'{"a":"\\ud83d\\ude00"}'], [[b"?"], ["😀".encode()]],
                 id="surrogates"),
    pytest.param("a BOOLEAN", [b'{"a":"yes"}', b'{"a":"True"}', b'{"a":true}'], [[False], [True], [True]],
                 id="lenient-booleans"),
    pytest.param("a INT", [b'{"a":1} x', b'{"a":2}'], [[1], [2]], id="trailing-text"),
    pytest.param("a INT, b INT", [b'{"a":1,"a":2,"b":3}'], [[2, None]], id="repeated-field"),
    # Arrow and Flink agree on these.
    pytest.param("a ROW<x INT, y ARRAY<ROW<z STRING>>>", [b'{"a":{"y":[{"z":"q"},null],"u":{"v":[1]}}}'],
                 [[[None, [[b"q"], None]]]], id="nested"),
    pytest.param("`gr\u00fcn` INT, b DECIMAL(4, 1)", [b'{"gr\\u00fcn":1,"b":"1.5"}', b'{"b":2.5}'],
                 [[1, __import__("decimal").Decimal("1.5")], [None, __import__("decimal").Decimal("2.5")]],
                 id="escaped-name-and-decimals"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "messages", "want"), TRAPS)
def test_arrow_never_decides_alone(columns: str, messages: list[bytes], want: list[Any]) -> None:
    assert outcome(columns, *messages) == want
    assert outcome(columns, *[b"{}"] * 3, *messages)[3:] == want
    assert outcome(columns, *messages, *[b"{}"] * 80)[: len(messages)] == want


def test_extreme_nesting_and_numbers_are_refused_in_blocks_too() -> None:
    deep = b'{"a":1,"b":' + b"[" * 1500 + b"]" * 1500 + b"}"
    assert outcome("a INT", deep, b'{"a":2}') == [ERROR, [2]]


@pytest.mark.parametrize("depth", [880, 5000])
def test_what_is_nested_too_deep_to_print_is_refused(depth: int) -> None:
    deep = b'{"a":' + b"[" * depth + b"1.5" + b"]" * depth + b"}"
    assert outcome("a STRING", deep, b'{"a":"x"}') == [ERROR, [b"x"]]


def test_numbers_of_absurd_size_cost_no_time() -> None:
    huge = b'{"a":1e500000000,"b":1e-2000000000,"c":' + b"9" * 5000 + b"}"
    assert outcome("a DECIMAL(5, 2), b DOUBLE, c STRING", huge) == [[None, "0000000000000000", b"9" * 5000]]
    assert outcome("a DECIMAL(5, 2)", b'{"a":1e2000000000}') == [ERROR]  # more than a BigInteger holds
    assert outcome("c BIGINT", huge) == [ERROR]


def test_one_bad_message_costs_no_neighbour() -> None:
    messages = [b'{"a":%d}' % number for number in range(1000)]
    messages[500] = b"{"
    decoded = decode("a INT", *messages)
    assert list(decoded.errors) == [500]
    assert decoded.message.to_pylist() == [at for at in range(1000) if at != 500]
    assert decoded.rows.column(0).to_pylist() == decoded.message.to_pylist()


def test_array_gives_a_row_per_element() -> None:
    decoded = decode("a INT", b'[{"a":1},{"a":2}]', b"[]", b'{"a":3}', b'[{"a":4},null]', b'[{"a":5},6]')
    assert decoded.rows.column(0).to_pylist() == [1, 2, 3]
    assert decoded.message.to_pylist() == [0, 0, 2]
    assert sorted(decoded.errors) == [3, 4]


@pytest.mark.parametrize("message", [b"", b" ", b"null", b"5", b'"x"', b"xx", b'{"a":1,', b"[1]", b"[null]"])
@pytest.mark.parametrize("options", [{}, IGNORE, TREE, {**TREE, **IGNORE}], ids=["plain", "ignore", "tree", "both"])
def test_r1_what_cannot_be_read_never_becomes_a_row(message: bytes, options: dict[str, str]) -> None:
    found = outcome("a INT", message, options=options)
    assert found == ([[]] if message == b"[null]" and TREE.items() <= options.items() else [ERROR])


def test_reasons_name_the_field_and_the_rule() -> None:
    errors = decode("a ROW<b INT>", b'{"a":{"b":"x"}}', b'{"a":1}', b"").errors
    assert errors[0] == "field a: field b: 'x' is not a whole number"
    assert errors[1] == "field a: an object expected, not a number"
    assert "empty" in errors[2]
    assert decode("a DOUBLE", b'{"a":[1,2]}').errors[0] == "field a: DOUBLE expected, not an array"
    assert decode("a INT", b"[1,2]").errors[0] == "element 1 of the array: an object expected, not a number"
    assert decode("a INT", b'[{"a":1},{"a":"x"}]').errors[0].startswith("element 2 of the array: field a: 'x' is not")
    assert decode("a INT", b'{"a":{}}').errors[0] == "field a: INT expected, not an object"


def test_broken_utf8_is_called_so() -> None:
    errors = decode("a STRING", b'{"a":"x\xff"}', b'{"a":"x\xc3', b'{"a":"x', b'{"a":"\xc3\xa4"} \xff').errors
    assert errors[0] == "not JSON: broken UTF-8 at byte 7"
    assert errors[1] == "not JSON: broken UTF-8 at byte 7"
    assert errors[2] == "not JSON: Unterminated string starting at character 5"
    assert 3 not in errors, "what follows a value is not looked at"


@pytest.mark.parametrize(
    ("rule", "options", "columns", "direction", "words"),
    [
        ("V18", {**MISSING, **IGNORE}, "a INT", "source", ["json.fail-on-missing-field", "json.ignore-parse-errors"]),
        ("V19", {"json.timestamp-format.standard": "sql"}, "a INT", "source", ["json.timestamp-format.standard"]),
        ("V20", {"json.map-null-key.mode": "nope"}, "a INT", "sink", ["json.map-null-key.mode", "FAIL", "NOPE"]),
        ("102", {}, "a MAP<INT, INT>", "source", ["column 'a'", "STRING"]),
        ("V29", {"json.ignore-errors": "true"}, "a INT", "source", ["json.ignore-errors"]),
    ],
)
def test_declarations_are_checked(
    rule: str, options: dict[str, str], columns: str, direction: Any, words: list[str]
) -> None:
    problems = validate_format(
        "json", options, columns_of(columns), side="value", direction=direction, subject="table 't'", location=PLACE
    )
    assert [problem.severity for problem in problems] == ["error"], rule
    assert all(word in problems[0].message for word in [*words, "table 't'"]), problems[0].message


def test_v20_a_source_with_a_bad_null_key_mode_is_warned() -> None:
    problems = validate_format(
        "json", {"json.map-null-key.mode": "nope"}, columns_of("a INT"), side="key", direction="source",
        subject="table 't'", location=PLACE,
    )  # fmt: skip
    assert [problem.severity for problem in problems] == ["warning"]


def test_103_decimals_are_written_short_or_plain() -> None:
    import pyarrow as pa

    values = ["100.50", "1200.000", "0.00", "-0.028200"]
    for scale, value, short in zip((2, 3, 2, 6), values, ("100.5", "1.2E+3", "0", "-0.0282"), strict=True):
        from decimal import Decimal

        columns = columns_of(f"a DECIMAL(20, {scale})")
        rows = pa.record_batch([pa.array([Decimal(value)], pa.decimal128(20, scale))], names=["a"])
        assert build_encoder("json", columns, {}).encode(rows)[0][0].as_py() == f'{{"a":{short}}}'.encode()
        plain = build_encoder("json", columns, {"json.encode.decimal-as-plain-number": "true"})
        assert plain.encode(rows)[0][0].as_py() == f'{{"a":{value}}}'.encode()


CHARACTERS = st.sampled_from('a"\\\n\x00\x1f é\u2028\U0001f600')
TEXTS = st.lists(st.one_of(st.none(), st.text(alphabet=CHARACTERS, max_size=6)))


@given(TEXTS, st.integers(0, 3), st.booleans())
def test_written_texts_are_those_that_a_reader_gets(texts: list[str | None], skipped: int, drops_nulls: bool) -> None:
    given_rows = pa.record_batch({"c": pa.array(texts, pa.string()), "d": pa.array(texts, pa.string())}).slice(skipped)
    options = {"json.encode.ignore-null-fields": "true"} if drops_nulls else {}
    encoder = build_encoder("json", columns_of("c STRING, d STRING"), options)
    values, refused = encoder.encode(given_rows)
    assert not refused
    for value, text in zip(values.to_pylist(), texts[skipped:], strict=True):
        want = {"c": text, "d": text}
        assert json.loads(value) == ({} if drops_nulls and text is None else want)
        assert not any(byte < 0x20 or byte >= 0xF0 for byte in value)


def test_a_text_with_marks_beside_one_without() -> None:
    encoder = build_encoder("json", columns_of("c STRING"), {})
    values, _ = encoder.encode(pa.record_batch({"c": pa.array(['say "yes"\t\\', "plain", "\U0001f600", None])}))
    assert values.to_pylist() == [
        b'{"c":"say \\"yes\\"\\t\\\\"}', b'{"c":"plain"}', b'{"c":"\\uD83D\\uDE00"}', b'{"c":null}',
    ]  # fmt: skip
