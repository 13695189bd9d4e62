"""Formats csv and raw, rule by rule."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.core.errors import SourceLocation
from upsert_platform.formats import build_decoder, build_encoder, validate_format
from upsert_platform.formats.csv.decoder import CsvDecoder
from upsert_platform.formats.options import CsvSettings
from upsert_platform_tests.formats.support import columns_of, plain_rows

IGNORE = {"csv.ignore-parse-errors": "true"}
ERROR = "error"


def _days(year: int, month: int, day: int) -> int:
    return date(year, month, day).toordinal() - 719_163


def read(format_id: str, columns: str, message: bytes, options: dict[str, str] | None = None) -> Any:
    decoded = build_decoder(format_id, columns_of(columns), options or {}).decode([message])
    return ERROR if decoded.errors else plain_rows(decoded.rows, columns_of(columns))[0]


@pytest.mark.parametrize(
    ("columns", "message", "options", "want"),
    [
        pytest.param("a INT, b STRING, c INT", b"1,a", {}, ERROR, id="109-too-few"),
        pytest.param("a INT, b STRING, c INT", b"1,a", IGNORE, [1, b"a", None], id="109-too-few-ignored"),
        pytest.param("a INT, b STRING, c DOUBLE", b"1,a,2.5,extra", {}, ERROR, id="110-too-many"),
        pytest.param("a INT, b STRING, c DOUBLE", b"1,a,2.5,extra", IGNORE, ERROR, id="110-too-many-quarantined"),
        pytest.param("a INT, b STRING, c INT", b"1,a,2,", {}, [1, b"a", 2], id="111-one-empty-more"),
        pytest.param("a INT, b STRING", b"n/a,n/a", {"csv.null-literal": "n/a"}, [None, None], id="112-null-literal"),
        pytest.param("a STRING", b'"n/a"', {"csv.null-literal": "n/a"}, [None], id="112-quoted-null-literal"),
        pytest.param("a ARRAY<STRING>, b INT", b"x;y;z,1", {}, [[b"x", b"y", b"z"], 1], id="113-array"),
        pytest.param("a ROW<x INT, y INT>", b"1;2;3", {}, [[1, 2]], id="row-with-more"),
        pytest.param("a ROW<x INT, y INT>", b"1", {}, ERROR, id="row-with-less"),
        pytest.param("a DECIMAL(5, 2)", b"123456", {}, [None], id="decimal-too-large"),
        pytest.param("a DECIMAL(5, 2)", b"1e600", {}, [None], id="decimal-far-too-large"),
        pytest.param("a DECIMAL(5, 2)", b"1e2147483647", {}, ERROR, id="decimal-beyond-java"),
        pytest.param("a DECIMAL(5, 2)", b"1e2147483647", IGNORE, [None], id="decimal-beyond-java-ignored"),
        pytest.param("a INT", b"", {}, ERROR, id="empty"),
        pytest.param("a INT", b"", IGNORE, ERROR, id="empty-quarantined"),
        pytest.param("a INT", b"1\n2", {}, [1], id="first-line-only"),
        pytest.param("a STRING, b INT", b'"x\ny",2', {}, [b"x\ny", 2], id="quoted-newline"),
        pytest.param("a INT", b"#x", {"csv.allow-comments": "true"}, ERROR, id="comment"),
        pytest.param("a BOOLEAN", b"yes", {}, [False], id="boolean-yes"),
        pytest.param("a INT", b"1.9", {}, ERROR, id="int-fraction"),
        pytest.param("a INT", b" 7 ", {}, [7], id="int-blanks"),
        pytest.param("a INT", b"x", IGNORE, [None], id="field-ignored"),
        pytest.param("a DATE", b"2024-02-30", {}, [_days(2024, 3, 1)], id="date-lenient"),
        pytest.param("a DATE", b"1582-10-10", {}, [_days(1582, 10, 20)], id="date-left-out-by-the-calendar"),
        pytest.param("a STRING, b INT", b"x\t2", {"csv.field-delimiter": "\\t"}, [b"x", 2], id="tab-delimiter"),
        pytest.param("a STRING", b'x"y"', {}, [b'x"y"'], id="quote-inside"),
        pytest.param("a STRING, b INT", b'"x" ,1', {}, [b"x", 1], id="blank-after-quote"),
        pytest.param("a STRING, b INT", b'"x"y,1', {}, ERROR, id="text-after-quote"),
        pytest.param("a STRING", b'"x', {}, ERROR, id="open-quote"),
        pytest.param("a STRING, b INT", b"x!,y,1", {"csv.escape-character": "!"}, [b"x,y", 1], id="escape"),
        pytest.param("a INT", b"\xff", {}, ERROR, id="not-utf8"),
    ],
)
def test_csv_is_read_as_flink_reads_it(columns: str, message: bytes, options: dict[str, str], want: Any) -> None:
    assert read("csv", columns, message, options) == want


def test_113_an_array_element_with_the_delimiter_comes_back_as_two() -> None:
    columns = columns_of("a ARRAY<STRING>")
    rows = pa.record_batch([pa.array([["x;y"]], pa.list_(pa.string()))], names=["a"])
    [message] = build_encoder("csv", columns, {}).encode(rows)[0].to_pylist()
    assert read("csv", "a ARRAY<STRING>", message) == [[b"x", b"y"]]


@pytest.mark.parametrize(
    ("kind", "message", "options", "want"),
    [
        pytest.param("INT", b"\0\0\1", {}, ERROR, id="114-short"),
        pytest.param("INT", b"\0\0\0\0\1", {}, ERROR, id="114-long"),
        pytest.param("INT", b"", {}, ERROR, id="114-empty"),
        pytest.param("INT", b"\0\0\0\1", {}, 1, id="int"),
        pytest.param("INT", b"\1\0\0\0", {"raw.endianness": "little-endian"}, 1, id="int-little"),
        pytest.param("BOOLEAN", b"\7", {}, True, id="boolean-non-zero"),
        pytest.param("STRING", b"", {}, b"", id="empty-string"),
        pytest.param("STRING", b"\xff", {}, ERROR, id="not-utf8"),
        pytest.param("STRING", b"\xc4\xe3", {"raw.charset": "GBK"}, "你".encode(), id="gbk"),
        pytest.param("BYTES", b"\xff", {}, b"\xff", id="bytes"),
    ],
)
def test_raw_is_read_as_flink_reads_it(kind: str, message: bytes, options: dict[str, str], want: Any) -> None:
    found = read("raw", f"a {kind}", message, options)
    assert (found if found == ERROR else found[0]) == want


def test_115_raw_little_endian_double() -> None:
    rows = pa.record_batch([pa.array([1.5, None])], names=["a"])
    encoder = build_encoder("raw", columns_of("a DOUBLE"), {"raw.endianness": "little-endian"})
    assert encoder.encode(rows)[0].to_pylist() == [bytes.fromhex("000000000000f83f"), None]


@pytest.mark.parametrize(
    ("rule", "format_id", "options", "columns", "word"),
    [
        ("V21", "csv", {"csv.field-delimiter": "ab"}, "a INT", "csv.field-delimiter"),
        ("V21", "csv", {"csv.array-element-delimiter": ""}, "a INT", "csv.array-element-delimiter"),
        ("V21", "csv", {"csv.quote-character": "''"}, "a INT", "csv.quote-character"),
        ("V21", "csv", {"csv.escape-character": "\U0001f600"}, "a INT", "csv.escape-character"),
        ("V22", "csv", {"csv.quote-character": "'", "csv.disable-quote-character": "true"}, "a INT",
         "csv.disable-quote-character"),
        ("nesting", "csv", {}, "a ARRAY<ARRAY<INT>>", "one level"),
        ("V23", "raw", {}, "a INT, b INT", "exactly one column"),
        ("V24", "raw", {}, "a DECIMAL(4, 1)", "DECIMAL(4, 1)"),
        ("V25", "raw", {"raw.endianness": "middle"}, "a INT", "raw.endianness"),
        ("V25", "raw", {"raw.charset": "nope"}, "a INT", "raw.charset"),
        ("V29", "raw", {"raw.charsett": "UTF-8"}, "a INT", "did you mean 'raw.charset'"),
    ],
)  # fmt: skip
def test_declarations_are_checked(rule: str, format_id: str, options: dict[str, str], columns: str, word: str) -> None:
    problems = validate_format(
        format_id, options, columns_of(columns), side="key", direction="source", subject="table 't'",
        location=SourceLocation("t.sql", 1),
    )  # fmt: skip
    assert len(problems) == 1, rule
    assert word in problems[0].message


def test_r6_an_only_column_of_csv_that_can_be_null_is_warned_of() -> None:
    def warnings(columns: str, options: dict[str, str]) -> list[str]:
        return [
            problem.severity
            for problem in validate_format(
                "csv",
                options,
                columns_of(columns),
                side="value",
                direction="sink",
                subject="table 't'",
                location=SourceLocation("t.sql", 1),
            )
        ]

    assert warnings("a STRING", {}) == ["warning"]
    assert warnings("a STRING", {"csv.null-literal": "-"}) == []
    assert warnings("a STRING NOT NULL", {}) == []
    assert warnings("a STRING, b STRING", {}) == []
    assert warnings("a STRING, b INT", {}) == ["warning"]
    assert warnings("a STRING, b INT", {"csv.null-literal": "-"}) == []
    assert warnings("a STRING, b INT NOT NULL", {}) == []


FIELDS = ["1", "-0", "2.5", "x", "", " 3", '"4"', '"a""b"', '"a,b"', '"x"y', 'x"y', '"', "n/a", '"n/a"', "true", "é",
          "2024-01-02", "2024-02-30", "1500-02-29", "2024-01-02 03:04:05", '"2024-01-02 03:04:05.5"', "01:02:03.999",
          "01:02", "YQ==", "YQ", "1e39", "9" * 25, "a;b", "1;2", "#", "\r", "\\", "99999.5", "0.125"]  # fmt: skip
KINDS = ["STRING", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(6, 2)", "DECIMAL(2, 2)", "BOOLEAN", "DATE", "TIME(0)",
         "TIME(2)", "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", "BYTES", "ARRAY<INT>", "ROW<x INT, y STRING>"]  # fmt: skip
DIALECTS: list[dict[str, str]] = [
    {},
    IGNORE,
    {"csv.null-literal": "n/a"},
    {"csv.disable-quote-character": "true"},
    {"csv.allow-comments": "true"},
    {"csv.escape-character": "\\"},
    {"csv.quote-character": "x"},
]


@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
    st.sampled_from(DIALECTS),
    st.lists(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=4), min_size=1, max_size=4),
)
@settings(max_examples=400, deadline=None)
def test_both_ways_agree(kinds: list[str], options: dict[str, str], records: list[list[str]]) -> None:
    columns = columns_of(", ".join(f"c{place} {kind}" for place, kind in enumerate(kinds)))
    messages = [",".join(record).encode() for record in records]
    model = CsvSettings.model_validate(options)
    slow = CsvDecoder(columns, model)
    slow._bulk = None
    want, got = slow.decode(messages), CsvDecoder(columns, model).decode(messages)
    assert plain_rows(got.rows, columns) == plain_rows(want.rows, columns)
    assert (got.message.to_pylist(), got.errors) == (want.message.to_pylist(), want.errors)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("STRING", "a"), ("STRING", '"a""b"'), ("INT", "5"), ("DECIMAL(6, 2)", "1.5"), ("DATE", "2024-01-02"),
     ("TIME(2)", "01:02:03.999"), ("TIMESTAMP(3)", '"2024-01-02 03:04:05"'), ("BYTES", "YQ=="), ("FLOAT", "1.5"),
     ("BOOLEAN", "True"), ("ARRAY<INT>", "1;2")],
)  # fmt: skip
def test_the_bulk_way_is_taken(kind: str, text: str) -> None:
    bulk = CsvDecoder(columns_of(f"a {kind}, b INT"), CsvSettings())._bulk
    assert bulk is not None
    found = bulk.read([f"{text},1".encode()] * 2)
    assert found is not None
    assert found[1] is None
