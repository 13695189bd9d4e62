"""Rows of extreme and of usual values of every kind, and the judge of native forms over them: Spark itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from upsert_platform.core.types import arrow_type, parse_type, spark_type
from upsert_platform.engine.steps import evaluate
from upsert_platform.sql.evaluation import flink_sql
from upsert_platform.sql.native import native_form, type_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DAY: Final = 86_400_000_000
_YEARS: Final = {"0001-01-01": -62_135_596_800_000_000, "9999-12-31": 253_402_300_799_999_999}
_MOMENTS: Final = [
    0, 1, -1, 999, -999, 1000, -1000, 1_001, 59_999_999, 3_599_999_999, -3_600_000_000, _DAY - 1, -_DAY, -_DAY - 1,
    *_YEARS.values(), 951_782_400_000_000, 1_709_212_455_123_456, 1_709_212_455_120_000, -1_709_212_455_123_456,
]  # fmt: skip
_DAYS: Final = [0, 1, -1, 59, 365, -365, 10_956, 11_016, 19_782, -719_162, 2_932_896, -25_567, 6, 7]
_TEXTS: Final = [
    "", " ", "   ", "a", "ab", " ab ", "  ab\t ", "abcabc", "a%b", "a_b", "a\\b", "it's", "é", "ééab", "e\u0301a",
    "😀", "a😀b😀", "中文 a", "A", "\u00a0ab\u00a0", "a\nb", "ab\r\n", "x.y", "$1", "[ab]",
    "\U00010400ab", "\u2028", "ba",
]  # fmt: skip
_WRITTEN: Final = [
    "", " 7 ", "7", "-12", "+3", "1.5", ".5", "-0.005", "1e3", "99999999999999999999", "12a", "1,5", "NaN", "inf",
    "0x1p3", "true", " F", "2024-02-29", "2023-02-29", "1969-12-31 23:59:59.999", "2024-2-9 1:02:3",
    "0001-01-01 00:00:00",
    "2024-02-29 24:00:00", "2024-02-29 13:14:15.123456789", "2024-02-29T13:14:15", "29.02.2024", "2024-02-29 x", "1\n",
]  # fmt: skip
"""Texts of numbers and times, and what resembles them."""
_DOUBLES: Final = [
    0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 0.1, 1e308, -1e308, 5e-324, float("inf"), float("-inf"), float("nan"),
    3.4028235e38,
    2.0**53 + 2, 1e-40,
]  # fmt: skip


def _wholes(bits: int) -> list[int]:
    return [0, 1, -1, 2, -7, 12, 99, 100, -100, (1 << bits) - 1, -(1 << bits), (1 << bits) - 2, 10, -10]


def _decimals(precision: int, scale: int) -> list[Decimal]:
    most = 10**precision - 1
    unscaled = [0, 1, -1, 5, -5, 49, 50, -50, 95, 99, most, -most, most // 2, most - 4, most // 10, -(most // 100) - 5]
    return [Decimal(f"{value}e-{scale}") for value in unscaled if abs(value) <= most]


VALUES: Final[dict[str, tuple[str, list[Any]]]] = {
    "t": ("TINYINT", _wholes(7)),
    "s": ("SMALLINT", _wholes(15)),
    "i": ("INT", _wholes(31)),
    "j": ("INT", _wholes(31)),
    "b": ("BIGINT", [*_wholes(63), 10**18, 10**17 + 1, -(10**16), 2**53 + 1, 253_402_300_799_999]),
    "c": ("BIGINT", [*_wholes(63), 1_709_212_455_123, -1]),
    "d5": ("DECIMAL(5, 2)", _decimals(5, 2)),
    "d10": ("DECIMAL(10, 2)", _decimals(10, 2)),
    "d18": ("DECIMAL(18, 4)", _decimals(18, 4)),
    "d24": ("DECIMAL(24, 3)", _decimals(24, 3)),
    "d38": ("DECIMAL(38, 1)", _decimals(38, 1)),
    "d0": ("DECIMAL(38, 0)", _decimals(38, 0)),
    "small": ("DECIMAL(20, 20)", _decimals(20, 20)),
    "f": ("DOUBLE", _DOUBLES),
    "g": ("DOUBLE", _DOUBLES),
    "r": ("FLOAT", [value for value in _DOUBLES if value != value or abs(value) < 1e300 or abs(value) > 1.7e308]),
    "ok": ("BOOLEAN", [True, False]),
    "yes": ("BOOLEAN", [True, False]),
    "x": ("STRING", _TEXTS),
    "y": ("STRING", _TEXTS),
    "v": ("VARCHAR(20)", _TEXTS),
    "ts": ("TIMESTAMP(6)", _MOMENTS),
    "ts3": ("TIMESTAMP(3)", [value // 1000 * 1000 for value in _MOMENTS]),
    "ltz": ("TIMESTAMP_LTZ(6)", _MOMENTS),
    "ltz3": ("TIMESTAMP_LTZ(3)", [value // 1000 * 1000 for value in _MOMENTS]),
    "day": ("DATE", _DAYS),
    "day2": ("DATE", _DAYS),
    "tod": ("TIME(3)", [0, 1_000, 86_399_999_000, 43_200_000_000]),
    "w": ("STRING", _WRITTEN),
}
TYPES: Final = {name: parse_type(kind) for name, (kind, _) in VALUES.items()}
_ROWS: Final = 160
_AT_ONCE: Final = 80


def rows() -> pa.Table:
    """Columns of `TYPES`: in the first rows each value, behind them values by chance; some of them null."""
    chance = random.Random(7)
    columns = {}
    for name, (_, values) in VALUES.items():
        chosen = [None, *values, *chance.choices([None, *values], k=_ROWS)][:_ROWS]
        if name in ("j", "c", "g", "yes", "y", "day2"):
            chance.shuffle(chosen)
        columns[name] = pa.array(chosen, arrow_type(TYPES[name]))
    return pa.table(columns)


def assert_same(spark: SparkSession, texts: Sequence[str]) -> None:
    """Compare values and types of the forms of Spark SQL with what Spark computes, bit by bit."""
    table = rows()
    parts = pa.concat_tables([table.slice(0, 3), table.slice(3, 0), table.slice(3)])
    formless = [text for text in texts if native_form(text, TYPES) is None]
    assert formless == []
    ddl = ", ".join(f"`{name}` {spark_type(kind)}" for name, kind in TYPES.items())
    numbered = table.append_column("_row", pa.array(range(_ROWS)))
    spark.createDataFrame(numbered, f"{ddl}, _row BIGINT").coalesce(1).createOrReplaceTempView("_r")
    wrong = []
    for start in range(0, len(texts), _AT_ONCE):
        some = texts[start : start + _AT_ONCE]
        listed = ", ".join(f"{text} AS v{place}" for place, text in enumerate(some))
        answers = flink_sql(spark, f"SELECT _row, {listed} FROM _r").toArrow().sort_by("_row")
        for place, text in enumerate(some):
            native = native_form(text, TYPES)
            assert native is not None, text
            kind = type_of(native, TYPES)
            assert kind is not None, text
            found, wanted = evaluate(native, parts), answers.column(f"v{place}")
            assert found.type == arrow_type(kind), text
            if len(evaluate(native, table.slice(0, 0))) != 0:
                wrong.append((text, "rows of none"))
            if _kind(found.type) != _kind(wanted.type):
                wrong.append((text, f"{found.type}, and {wanted.type} in Spark"))
            differ = [
                (row, one, other)
                for row, (one, other) in enumerate(zip(_shown(found), _shown(wanted), strict=True))
                if one != other
            ]
            if differ:
                wrong.append((text, f"{len(differ)} rows: row, found and wanted {differ[:3]}"))
    assert not wrong, "\n".join(f"{text}: {how}" for text, how in wrong)


def _kind(kind: pa.DataType) -> str:
    return f"timestamp {kind.tz is None}" if pa.types.is_timestamp(kind) else str(kind)


def _shown(values: Any) -> list[str]:
    """Values by all their digits; moments and days as numbers, since Python has no year 0."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    elif pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return [repr(value) for value in values.to_pylist()]
