"""Casts of texts to numbers, truth values, dates and timestamps: Arrow reads what Spark does, and refuses what it does,
in texts of every shape.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from upsert_platform.core.types import arrow_type, parse_type
from upsert_platform.engine.steps import evaluate
from upsert_platform.sql.evaluation import flink_sql
from upsert_platform.sql.native import native_form, type_of
from upsert_platform_tests.sql.declared_columns import rendered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

TYPES = {"s": parse_type("STRING")}
SIGNS: Final = (
    "0123456789" * 2 + "....--++eE  :::/,tTzZ_\t\n\r\x0b\x0c\x00\x1c\x1f\x7f\x85\xa0\u2028\u2029\u3000\ufeff"
    "xXpPaAfFdDnNiIlL\u0663\uff15\u0967\U0001d7d8\u2212é"
)
NUMBERS: Final = [
    "", " ", "0", "-0", "+0", "00", "1", "-1", "+1", "127", "128", "-128", "-129", "32767", "32768", "-32768", "-32769",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "+9223372036854775807", "00000000000000000000000000000000000000001",
    "99999999999999999999999999999999999999", "100000000000000000000000000000000000000", "9" * 300, "9" * 5000,
    "0" * 5000 + "7", ".", "-.", "+.", "-", "+", "5.", ".5", "-.5", "+.5", "5.x", "1.5", "-1.5", "1.9", "1.2.3", "--1",
    "1-", "1 2", " 1", "1 ", "\t1\n", "\r\n1\x00", "\x7f1\x7f", "\xa01", "1\xa0", "\u20281", "1\u0085", "1\u2028",
    "1\r\n", "1\r", "1\n\n", "1\n\r", "1e3", "1E3", "1e+3", "1e-3", "1e", "e1", "1e1.5", ".e1", "1.e1", ".1e1", "1e400",
    "-1e400", "1e-400", "1e38", "1e37", "0e37", "0e38", "0e-50", "0.0e38", "9e9999999999", "1e99999999999",
    "1e0000000000001", "1e-00000000000000000002", "1e2147483648", "1e-2147483649", "0.005", "-0.005", "0.0049999",
    "0.015", "1.005", "99999999.994", "99999999.995", "-99999999.995", "999999999", "12345678.9",
    "0.00000000000000000000000000000000000001", "0." + "4" * 60, "0.00" + "4" * 50 + "9", "0.00" + "5" + "0" * 50 + "1",
    "12345678901234567890.123456789", "1d", "1D", "1f", "1F", "1.5d", "1df", "1L", "0x10", "0x1p3", "-0x1.8P-1f",
    "0x.8p0", "0x1.p1", "0x.p1", "0x1", "0xp1", "0x1.fffffep127", "0x1.ffffffp127", "0x1.fffffefffffffffffffp127",
    "0x1.000001p0", "0x1.0000010000000001p0", "0x1p-149", "0x1p-150", "0x1.1p-150", "0x1p-1074", "0x1p-1075",
    "0x1.0000001p-1075", "0x1p99999999999", "0x1p-99999999999", "0x0p99999999999", "NaN", "nan", "NAN", "+NaN", "-NaN",
    "+nan", "-nan", "Infinity", "+Infinity", "-Infinity", "infinity", "inf", "+inf", "-inf", "INF", "iNf", "- inf",
    " inf ", "infi", "1_000", "1,000", "\u0661\u0662", "\uff11.\uff15", "1\u0660", "\U0001d7d8", "1\U0001d7d8",
    "-\u0661", "1e\u0662", "\u2212 1", "12a", "12 a", "12a  ", "12a\n", "12a\r\n", "12a\t\u2028", "1.5e", "1.5E",
    "1.5x", "x", "ab", "+x", "-x", ".x", "+.x", " .5x ", "12ab", "12345678901234567x", "123456789012345678x",
    "0.1234567890123456x", "1\x00", "1 \n", "1. ", "1.-", "1.+", "1++", "-\n", "+\r\n", "\n", "\r\n", "\t\n ", " -",
    "- ", "-\u2028", "x\u2028", "5-\u2029", "5\u0085", "5e\n", "5e\r\n", "5e\u0085", "3.4028235e38", "3.4028236e38",
    "1.4e-45", "7e-46", "7.1e-46", "2.4703282292062327e-324", "2.4703282292062328e-324", "4.9e-324",
    "1.7976931348623157e308", "1.7976931348623159e308", "0.1", "16777217", "16777217.0000000001", "16777216.9999999999",
    "9007199254740993", "9007199254740992.99999", "1e23", "8.5899345920000001e9",
    "1.00000017881393421514957253748434595763683319091796875001", "-0.0", "-0e5", "+0.0", "true", "TRUE", " True ", "t",
    "T", "false", "f", "F", "y", "Y", "yes", "YES", "no", "n", "No", "\tno\x00", "on", "off", "truee", "tr ue",
    "ye\u017f", "\xa0true", "1.0", "01", "null", "NULL",
]  # fmt: skip
TIMES: Final = [
    "", " ", "2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "0000-01-01", "0001-01-01", "9999-12-31",
    "10000-01-01", "+10000-01-01", "-0001-01-01", "2024-2-9", "2024-02-9", "24-01-01", "0024-01-01", "2024-00-10",
    "2024-13-01", "2024-01-00", "2024-01-32", "2024-04-31", "2024-1-1 1:2:3", "2024-01-01 01:02:03",
    "2024-01-01 1:2:3.5", "2024-01-01 24:00:00", "2024-01-01 23:60:00", "2024-01-01 23:59:60", "2024-01-01 23:59:59",
    "2024-01-01 23:59:59.9", "2024-01-01 23:59:59.123456789", "2024-01-01 23:59:59.1234567890",
    "2024-01-01 23:59:59.999999999", "1969-12-31 23:59:59.9999999", "1969-12-31 23:59:59.001",
    "0001-01-01 00:00:00.0005", "2024-01-01 23:59:59.", "2024-01-01T23:59:59", "2024-01-01t23:59:59",
    "2024-01-01T23:59:59Z", "2024-01-01 23:59:59Z", "2024-01-01 23:59:59+01:00", "2024-01-01 23:59:59 UTC",
    "2024-01-01 23:59", "2024-01-01 23", "2024-01-01  23:59:59", " 2024-01-01 23:59:59", "2024-01-01 23:59:59 ",
    "2024-01-01 23:59:59\n", "2024-01-01 23:59:59\r\n", "2024-01-01 23:59:59\r", "2024-01-01 23:59:59\n\n",
    "2024-01-01 23:59:59\n\r", "2024-01-01 23:59:59\u0085", "2024-01-01 23:59:59\u2028", "2024-01-01\n",
    "2024-01-01\r\n", "2024-01-01\u0085", "2024-01-01\u2029", "2024-01-01\t", "2024-01-01 ", "2024-01-01 x",
    "2024-01-01x", " 2024-01-01", "  2024-01-01 ", "\t2024-01-01", "\n2024-01-01\n", "2024", "02024-01-01", "002024",
    "0", "00000", "5", "12345", "2024-1", "2024-01-", "2024-", "2024 -1-1", "2024- 1-1", "2024\t-\t1-\n1",
    "2024-001-01", "2024-01-001", "2024-111-01", "2024-1-111", "a 2024-01-01", "2024-01-01\u00a0", "2024-01-01\x00",
    "2024-01-01\x1c", "2024/01/01", "2024.01.01", "20240101", "2024010112", "20240101123456", "120240101", "+120240101",
    "01-02-2024", "1-2-2024", "01/02/2024 03:04:05", "01/02/2024", "32/01/2024", "29/02/2023", "2024-01-01 23:59:59.1",
    "2024-01-01 23:59:59.12", "2024-01-01 23:59:59.123", "2024-01-01 23:59:59.1234", "2024-01-01T23:59:59.123",
    "+12024-01-01 23:59:59", "+02024-01-01 23:59:59", "+2024-01-01 23:59:59", "-2024-01-01 23:59:59",
    "+294246-12-31 23:59:59", "-290307-01-01 00:00:00", "-0000-01-01", "-00000101", "-20240101", "-12024-01-01",
    "0000-01-01 00:00:00", "1582-10-10 00:00:00", "\u0662\u0660\u0662\u0664-01-01", "2024-01-01 \uff112:00:00",
    "2024\u221201-01", "2024-01-0\u0661", "2024-01-01 00:00:00", "1970-01-01 00:00:00", "9999-12-31 23:59:59.999999",
    "2024-12-31\u2028 x", "\u2028", "  ", "- -", "2024-1-1 ", "2024-1-1  1",
]  # fmt: skip
PATTERNS: Final = [
    "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd", "yyyyMMdd", "yyyyMMddHHmmss", "dd/MM/yyyy", "dd/MM/yyyy HH:mm:ss",
    "MM-dd-yyyy", "yyyy-MM-dd HH:mm", "yyyy-MM-dd HH", "yyyy/MM/dd", "yyyy-MM-dd''T''HH:mm:ss",
    "yyyy-MM-dd''T''HH:mm:ss.SSS", "yyyy-MM-dd HH:mm:ss.SSS", "yyyy-MM-dd HH:mm:ss.S", "yyyy-MM-dd HH:mm:ss.SSSSSSSSS",
    "yyyy.MM.dd", "HH:mm:ss dd_MM_yyyy", "ddMMyyyy", "yyyyMMdd HHmmss", "MMddyyyyHHmm",
]  # fmt: skip
ENDLESS: Final = re.compile(r"[eE](?:-\d{5}|[+-]?0*[1-9]\d{9}\D*$)")
"""Spark takes hours to round numbers of such exponents to a DECIMAL."""
TOO_LATE: Final = re.compile(r"[+-](?!294246-|290307-)(?:\d{6,8}|\d{10,13}|\d{16,19})(?!\d)")
"""Years at which Spark stops, of patterns that begin with the year."""
_MADE: Final = 2500
_AT_ONCE: Final = 24


def texts_like(given: Sequence[str], seed: int) -> list[str | None]:
    """The given texts, others that differ from them in a few signs, and some of any signs."""
    chance = random.Random(seed)
    found = list(given)
    for _ in range(_MADE):
        signs = list(chance.choice([text for text in given if len(text) < 60]))
        for _ in range(chance.choice([1, 1, 2, 3])):
            at, sign = chance.randint(0, len(signs)), chance.choice(SIGNS)
            how = chance.random()
            signs[at : at + (how < 0.6)] = [] if how < 0.15 else [sign]
        found.append("".join(signs))
    found += ["".join(chance.choices(SIGNS, k=chance.randint(1, 7))) for _ in range(_MADE)]
    return [None, *dict.fromkeys(found)]


def assert_same(spark: SparkSession, expressions: Sequence[str], texts: Sequence[str | None]) -> None:
    """Compare the values of expressions, and why they have none, with what Spark computes."""
    table = pa.table({"s": pa.array(texts, pa.string())})
    parts = pa.concat_tables([table.slice(0, 3), table.slice(3, 0), table.slice(3)])
    found = [rendered(expression) for expression in expressions]
    asked = [text for value in found for text in (value.sql, value.fails) if text is not None]
    numbered = table.append_column("_row", pa.array(range(len(texts))))
    spark.createDataFrame(numbered, "s STRING, _row BIGINT").coalesce(1).createOrReplaceTempView("_texts")
    wrong = []
    for start in range(0, len(asked), _AT_ONCE):
        some = asked[start : start + _AT_ONCE]
        listed = ", ".join(f"{text} AS v{place}" for place, text in enumerate(some))
        answers = flink_sql(spark, f"SELECT _row, {listed} FROM _texts").toArrow().sort_by("_row")
        for place, text in enumerate(some):
            native = native_form(text, TYPES)
            assert native is not None, text
            kind = type_of(native, TYPES)
            assert kind is not None, text
            ours, theirs = evaluate(native, parts), answers.column(f"v{place}")
            assert ours.type == arrow_type(kind), text
            assert len(evaluate(native, table.slice(0, 0))) == 0
            differ = [
                (given, one, other)
                for given, one, other in zip(texts, _shown(ours), _shown(theirs), strict=True)
                if one != other
            ]
            if differ:
                wrong.append((text, f"{len(differ)} rows: text, found and wanted {differ[:5]}"))
            # Plain texts alone are read at once.
            plain = table.filter(pa.array([given is not None and len(given) < 20 for given in texts])).slice(2, 40)
            assert (
                _shown(evaluate(native, plain))
                == [
                    one for given, one in zip(texts, _shown(ours), strict=True) if given is not None and len(given) < 20
                ][2:42]
            )
    assert not wrong, "\n".join(f"{text[:200]}: {how}" for text, how in wrong)


def _shown(values: pa.ChunkedArray) -> list[str]:
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    elif pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return [repr(value) for value in values.to_pylist()]


def test_numbers_and_truth_values_are_those_that_spark_reads(spark: SparkSession) -> None:
    kinds = ["TINYINT", "SMALLINT", "INT", "BIGINT", "DOUBLE", "FLOAT", "BOOLEAN"]
    assert_same(spark, [f"CAST(s AS {kind})" for kind in kinds], texts_like(NUMBERS, 1))


def test_decimals_are_those_that_spark_reads(spark: SparkSession) -> None:
    kinds = [(10, 2), (18, 0), (18, 18), (5, 1), (1, 0), (19, 0), (20, 2), (38, 10), (38, 38), (38, 0)]
    texts = [text for text in texts_like(NUMBERS, 2) if text is None or not ENDLESS.search(text)]
    assert_same(spark, [f"CAST(s AS DECIMAL({precision}, {scale}))" for precision, scale in kinds], texts)


def test_digits_and_blanks_are_those_that_spark_takes_for_such(spark: SparkSession) -> None:
    signs = [*(chr(code) for code in range(1, 0xFFFF) if not 0xD800 <= code < 0xE000), "\U000104a0", "\U0001e950"]
    texts = [text for sign in signs for text in (sign, f"1{sign}", f"{sign}t", f"1{sign}2")]
    assert_same(
        spark, [f"CAST(s AS {kind})" for kind in ("INT", "DECIMAL(20, 2)", "DECIMAL(9, 0)", "FLOAT", "BOOLEAN")], texts
    )


def test_dates_and_timestamps_are_those_that_spark_reads(spark: SparkSession) -> None:
    asked = [f"CAST(s AS {kind}({digits}))" for kind in ("TIMESTAMP", "TIMESTAMP_LTZ") for digits in range(7)]
    asked += ["CAST(s AS DATE)", "TO_DATE(s)", "TO_TIMESTAMP(s)", "TO_TIMESTAMP_LTZ(s)", "TRY_CAST(s AS TIMESTAMP(3))"]
    assert_same(spark, asked, texts_like(TIMES, 3))


def test_times_by_a_pattern_are_those_that_spark_reads(spark: SparkSession) -> None:
    asked = [f"{name}(s, '{pattern}')" for pattern in PATTERNS for name in ("TO_TIMESTAMP", "TO_DATE")]
    texts = [text for text in texts_like(TIMES, 4) if text is None or not TOO_LATE.search(text)]
    assert_same(spark, asked, texts)


def test_a_year_of_which_spark_has_no_timestamp_is_null() -> None:
    native = native_form(rendered("TO_TIMESTAMP(s, 'yyyy-MM-dd')").sql, TYPES)
    assert native is not None
    years = [f"+{year}-01-01" for year in ("294247", "294248", "9999999999")]
    values = evaluate(native, pa.table({"s": years})).cast(pa.int64())
    assert values.is_valid().to_pylist() == [True, False, False]


@pytest.mark.parametrize(
    "text",
    [
        "TRY_CAST(`s` AS INT)", "TRY_CAST(`s` AS TIMESTAMP)", "CAST(`s` AS TIMESTAMP_NTZ)", "CAST(`s` AS DATE)",
        "CAST(`s` AS BINARY)", "TRY_TO_TIMESTAMP(`s`)", "TRY_TO_TIMESTAMP(`s`, `s`)",
        "CASE WHEN `s` RLIKE '^a' THEN TRY_CAST(`s` AS TIMESTAMP_NTZ) END",
        rendered("CAST(s AS TIMESTAMP(6))").sql.replace("TRY_CAST(`s`", "TRY_CAST('a'"),
        rendered("CAST(s AS DATE)").sql.replace("'1')) AS DATE", "'2')) AS DATE"),
        rendered("CAST(s AS DECIMAL(9, 2))").sql.replace("ELSE '0'", "ELSE '1'"),
        rendered("CAST(s AS DECIMAL(9, 2))").sql.replace("ELSE CAST(`s` AS DECIMAL(9,2))", "ELSE CAST(`s` AS DATE)"),
        *(f"TRY_TO_TIMESTAMP(`s`, '{pattern}')" for pattern in (
            "yyyy", "y-M-d", "yyyy-MM", "HH:mm:ss", "yyyy-MM-dd mm:ss", "yyyy-MM-dd ss", "yyyy-MM-dd HH:mm:ssSSS",
            "yyyy-MM-dd hh:mm:ss", "yyyy-MM-dd HH:mm:ss.SSSSSSSSSS", "yyyy-MM-dd dd", "yyyy-MM-dd HH:mm:ss S.", "",
            "yyyy-MM-dd[ HH]", "yyyy-MM-dd HH:mm:ss XXX", "yyyy-MM-ddTHH", "yyyyy-MM-dd", "yyyy-MMM-dd",
            "SSS.yyyy-MM-dd",
        )),
    ],
)  # fmt: skip
def test_what_is_not_sure_to_be_the_same_has_no_form(text: str) -> None:
    assert native_form(text, TYPES) is None
