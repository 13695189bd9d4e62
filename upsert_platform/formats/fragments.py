"""Text of scalar values in bulk, as Java prints them; shared by the JSON, CSV and Avro-JSON encoders."""

from __future__ import annotations

import binascii
import bisect
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.formats.java.double import format_double, format_float
from upsert_platform.formats.java.text import format_decimal
from upsert_platform.formats.java.time import DAY_NS, format_date

Refusals = dict[int, str]
"""Index of a row to why it cannot be written."""


def lift_refusals(inner: Refusals, offsets: Sequence[int], refusals: Refusals) -> None:
    """Refusals of children become those of the rows that hold them; row n has the children from offset n to n + 1."""
    for at, reason in inner.items():
        refusals.setdefault(bisect.bisect_right(offsets, at) - 1, reason)


def without_bad_times(
    arrays: Sequence[pa.Array], columns: Sequence[tuple[str, LogicalType]], refusals: Refusals
) -> list[pa.Array]:
    """Columns to encode, with null for a TIME that is not a time of the day; its row is refused."""
    checked = list(arrays)
    for place, (name, logical) in enumerate(columns):
        if logical.name is not TypeName.TIME or len(checked[place]) == 0:
            continue
        array = checked[place]
        span = pc.min_max(array)
        if (span["min"].as_py() or 0) >= 0 and (span["max"].as_py() or 0) < _DAY_MICROS:
            continue
        good = pc.and_(pc.greater_equal(array, 0), pc.less(array, _DAY_MICROS))
        for at in pc.indices_nonzero(pc.fill_null(pc.invert(good), False)).to_pylist():
            refusals[at] = f"column '{name}': {array[at].as_py()} microseconds is not a time of the day"
        checked[place] = pc.if_else(good, array, pa.scalar(None, array.type))
    return checked


def drop_refused(messages: pa.Array, refusals: Refusals) -> pa.Array:
    """Messages with null in the places of refused rows."""
    if not refusals:
        return messages
    kept = pa.array([place not in refusals for place in range(len(messages))])
    return pc.if_else(kept, messages, pa.scalar(None, pa.binary()))


def keep_present(inner: Refusals, array: pa.Array, refusals: Refusals) -> None:
    """Refusals of the fields of rows count where the row itself is not null."""
    if inner:
        present = array.is_valid().to_pylist()
        for at, reason in inner.items():
            if present[at]:
                refusals.setdefault(at, reason)


_DAY_MICROS: Final = DAY_NS // 1000
_YEAR_ONE: Final = -719_162
_YEAR_10000: Final = 2_932_897


_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def valid_text(array: pa.Array) -> pa.Array:
    """A string column with bytes that are not UTF-8 replaced by U+FFFD, as Java decodes them."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        content = array.view(pa.binary()).to_pylist()
        return pa.array([None if item is None else java_text(item) for item in content], pa.string())
    return array


def java_text(content: bytes) -> str:
    """Bytes as Java decodes UTF-8: what is broken becomes U+FFFD."""
    return _SURROGATE.sub("\ufffd".encode(), content).decode(errors="replace")


def scalar_text(
    array: pa.Array, kind: LogicalType, *, plain_decimal: bool, iso: bool, millis: bool = False
) -> pa.Array:
    """Text of each value of a scalar column, null where the value is null.

    Args:
        plain_decimal: write decimals with all digits of their scale; else without trailing zeros, in powers of ten.
        iso: a T between date and time.
        millis: write the milliseconds of a TIME where it has some.
    """
    match kind.name:
        case TypeName.CHAR | TypeName.VARCHAR | TypeName.STRING:
            return valid_text(array)
        case TypeName.BOOLEAN | TypeName.TINYINT | TypeName.SMALLINT | TypeName.INT | TypeName.BIGINT:
            return array.cast(pa.string())
        case TypeName.FLOAT | TypeName.DOUBLE:
            return _floats(array)
        case TypeName.DECIMAL:
            return _decimals(array, plain=plain_decimal)
        case TypeName.BINARY | TypeName.VARBINARY | TypeName.BYTES:
            encode = binascii.b2a_base64
            return pa.array(
                [None if value is None else encode(value, newline=False).decode() for value in array.to_pylist()],
                pa.string(),
            )
        case TypeName.DATE:
            return _dates(array)
        case TypeName.TIME:
            return _times(array, millis=millis)
    return _timestamps(array, iso=iso, zone=kind.name is TypeName.TIMESTAMP_LTZ)


def _floats(array: pa.Array) -> pa.Array:
    # Arrow prints the shortest digits too, in another notation: only the common range is taken from it.
    magnitude = pc.abs(array)
    common = pc.and_(pc.greater_equal(magnitude, 0.001), pc.less(magnitude, 1e7))
    text = array.cast(pa.string())
    dotted = pc.if_else(pc.match_substring(text, "."), text, pc.binary_join_element_wise(text, pa.scalar(".0"), ""))
    if pc.all(common).as_py():
        return dotted
    write = format_float if pa.types.is_float32(array.type) else format_double
    return pa.array(
        [
            easy if fits else None if value is None else write(value)
            for easy, fits, value in zip(dotted.to_pylist(), common.to_pylist(), array.to_pylist(), strict=True)
        ],
        pa.string(),
    )


_TINY: Final = r"E|^-?0\.000000"
_ROUND: Final = r"^-?0(?:\.0*)?$|^-?\d*0(?:\.0*)?$"


def _decimals(array: pa.Array, *, plain: bool) -> pa.Array:
    # Arrow prints all digits of the scale, small numbers in powers of ten.
    text = array.cast(pa.string())
    odd = pc.match_substring_regex(text, "E" if plain else f"{_TINY}|{_ROUND}")
    short = text if plain or array.type.scale == 0 else pc.replace_substring_regex(text, r"\.?0+$", "")
    if not pc.any(odd).as_py():
        return short
    written = short.to_pylist()
    for place in pc.indices_nonzero(pc.fill_null(odd, False)).to_pylist():
        written[place] = _decimal(array[place].as_py() if plain else None, text[place].as_py())
    return pa.array(written, pa.string())


def _decimal(value: Decimal | None, text: str) -> str:
    if value is not None:
        return f"{value:f}"
    if "E" in text or text.lstrip("-").startswith("0.000000"):
        return format_decimal(Decimal(text), strip=True)
    whole, _, _ = text.partition(".")
    digits = whole.rstrip("0")
    if digits in ("", "-"):
        return "0"
    sign, digits = ("-", digits[1:]) if digits[0] == "-" else ("", digits)
    fraction = f".{digits[1:]}" if digits[1:] else ""
    return f"{sign}{digits[0]}{fraction}E+{len(whole) - len(sign) - 1}"


def _dates(array: pa.Array) -> pa.Array:
    days = array.cast(pa.int32())
    if pc.all(pc.and_(pc.greater_equal(days, _YEAR_ONE), pc.less(days, _YEAR_10000)), min_count=0).as_py() is False:
        return pa.array([None if day is None else format_date(day) for day in days.to_pylist()], pa.string())
    return array.cast(pa.string())


def _times(array: pa.Array, *, millis: bool) -> pa.Array:
    unit = "ms" if millis else "s"
    if millis:
        whole = pc.divide(array, 1000).cast(pa.int32()).cast(pa.time32(unit)).cast(pa.string())
        return _trim_fraction(whole)
    return pc.divide(array, 1_000_000).cast(pa.int32()).cast(pa.time32(unit)).cast(pa.string())


def _trim_fraction(text: pa.Array) -> pa.Array:
    """Times without the zeros at the end of their fraction, and without a fraction of zeros; each has a fraction."""
    return pc.ascii_rtrim(pc.ascii_rtrim(text, "0"), ".")


def _timestamps(array: pa.Array, *, iso: bool, zone: bool) -> pa.Array:
    naive = array.cast(pa.timestamp(array.type.unit))
    per_day = {"s": 86_400, "ms": 86_400_000, "us": DAY_NS // 1000, "ns": DAY_NS}[array.type.unit]
    count = naive.cast(pa.int64())
    low, high = _YEAR_ONE * per_day, _YEAR_10000 * per_day
    if (
        abs(high) >= 1 << 63
        or pc.all(pc.and_(pc.greater_equal(count, low), pc.less(count, high)), min_count=0).as_py() is not False
    ):
        text = naive.cast(pa.string())
        if array.type.unit != "s":
            text = _trim_fraction(text)
        if iso:
            text = pc.replace_substring(text, " ", "T", max_replacements=1)
    else:
        text = pa.array(
            [None if one is None else _timestamp(one, per_day, iso=iso) for one in count.to_pylist()], pa.string()
        )
    return pc.binary_join_element_wise(text, pa.scalar("Z"), "") if zone else text


def _timestamp(count: int, per_day: int, *, iso: bool) -> str:
    days, rest = divmod(count, per_day)
    seconds, fraction = divmod(rest, per_day // 86_400)
    digits = f"{fraction:0{len(str(per_day // 86_400)) - 1}}".rstrip("0") if fraction else ""
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{format_date(days)}{'T' if iso else ' '}{clock}{'.' if digits else ''}{digits}"
