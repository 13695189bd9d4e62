"""SQL types in Tablestore: which cell type holds a value, conversion in bulk, and its lossless inverse.

Tablestore knows STRING, INTEGER, DOUBLE, BOOLEAN and BINARY; null is the absence of a column. What has no such type is
kept as text that sorts as the value does where one exists: decimals in plain notation padded to the scale (``12.30``),
dates and times in ISO-8601 with exactly the declared fraction digits (``2026-11-01T10:00:00.000``, LTZ in UTC with
``Z``), nested values as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from upsert_platform.core.types import NESTED, LogicalType, TypeName, arrow_type
from upsert_platform.tablestore.json_text import json_text, parse_json_text

if TYPE_CHECKING:
    import pyarrow as pa


class StoredType(StrEnum):
    """Type of a cell."""

    INTEGER = "INTEGER"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    BINARY = "BINARY"


PRIMARY_KEY_TYPES = (StoredType.STRING, StoredType.INTEGER, StoredType.BINARY)
_INTEGERS = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)
_DAY_MICROSECONDS = 86_400_000_000
_FIRST, _LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001 - no zone


@dataclass(frozen=True, slots=True)
class Converted:
    """A column in cell types.

    Attributes:
        values: ``int64``, ``float64``, ``bool``, ``string`` or ``binary``; null where there is no cell.
        refused: row to reason, for values that Tablestore cannot hold; they are null in `values`.
    """

    values: pa.Array
    refused: dict[int, str] = field(default_factory=dict)


def stored_type(logical: LogicalType) -> StoredType:
    """The cell type of a SQL type."""
    if logical.name in _INTEGERS:
        return StoredType.INTEGER
    match logical.name:
        case TypeName.FLOAT | TypeName.DOUBLE:
            return StoredType.DOUBLE
        case TypeName.BOOLEAN:
            return StoredType.BOOLEAN
        case TypeName.BINARY | TypeName.VARBINARY | TypeName.BYTES:
            return StoredType.BINARY
    return StoredType.STRING


def primary_key_type(logical: LogicalType) -> StoredType | None:
    """The primary key type of a SQL type, or None where Tablestore takes no such key (doubles, booleans, nested)."""
    stored = stored_type(logical)
    return stored if stored in PRIMARY_KEY_TYPES and logical.name not in NESTED else None


def stored_arrow_type(stored: StoredType) -> pa.DataType:
    """The Arrow type that carries cells of a type."""
    import pyarrow as pa

    match stored:
        case StoredType.INTEGER:
            return pa.int64()
        case StoredType.DOUBLE:
            return pa.float64()
        case StoredType.BOOLEAN:
            return pa.bool_()
        case StoredType.BINARY:
            return pa.binary()
    return pa.string()


def to_stored(values: pa.Array, logical: LogicalType) -> Converted:
    """Converts a column of `upsert_platform.core.types.arrow_type`, or what Spark made of it, to cells."""
    import pyarrow as pa
    import pyarrow.compute as pc

    stored = stored_type(logical)
    match logical.name:
        case TypeName.FLOAT | TypeName.DOUBLE:
            doubles = values.cast(pa.float64())
            return _refusing(doubles, pc.is_finite(doubles), "a DOUBLE cell cannot hold NaN or Infinity")
        case TypeName.CHAR | TypeName.VARCHAR | TypeName.STRING:
            return _valid_utf8(values.cast(pa.string()))
        case TypeName.DECIMAL:
            return Converted(_plain_decimals(values.cast(arrow_type(logical))))
        case TypeName.DATE:
            days = values.cast(pa.date32())
            inside = pc.and_(pc.greater_equal(days, pa.scalar(date.min)), pc.less_equal(days, pa.scalar(date.max)))
            kept = _refusing(days, inside, "the year is outside 0001 to 9999")
            return Converted(kept.values.cast(pa.string()), kept.refused)
        case TypeName.TIME:
            return _times(values.cast(pa.int64()), logical.precision or 0)
        case TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
            return _timestamps(values, logical.precision or 0, suffix="Z" if logical.name != "TIMESTAMP" else "")
    if logical.name in NESTED:
        return _each(values, lambda value: json_text(value, logical))
    return Converted(values.cast(stored_arrow_type(stored)))


def from_stored(values: pa.Array, logical: LogicalType) -> pa.Array:
    """The inverse of `to_stored`, to `upsert_platform.core.types.arrow_type`.

    Raises:
        ValueError: a cell is not the text of such a value (pyarrow.ArrowInvalid is a ValueError).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    target = arrow_type(logical)
    if logical.name in NESTED:
        parsed = [None if text is None else parse_json_text(text, logical) for text in values.to_pylist()]
        return pa.array(parsed, type=target)
    match logical.name:
        case TypeName.TIME:
            # Arrow parses no time of day from text; on the first day of the epoch a timestamp is one.
            dated = pc.binary_join_element_wise("1970-01-01T", _fraction_of_six(values, 8), "")
            return dated.cast(pa.timestamp("us")).cast(pa.int64())
        case TypeName.TIMESTAMP:
            return _fraction_of_six(values, 19).cast(target)
        case TypeName.TIMESTAMP_LTZ:
            local = pc.utf8_rtrim(values, characters="Z")
            return _fraction_of_six(local, 19).cast(pa.timestamp("us")).cast(pa.int64()).cast(target)
        case TypeName.FLOAT:
            return values.cast(target, safe=False)
    return values.cast(target)


def _refusing(values: pa.Array, accepted: pa.Array, reason: str) -> Converted:
    """Nulls the values that are not accepted (null in `accepted`, as in `values`, is no refusal)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.all(accepted, min_count=0).as_py():
        return Converted(values)
    rejected = pc.fill_null(pc.invert(accepted), False)
    rows = pc.indices_nonzero(rejected).to_pylist()
    return Converted(pc.if_else(rejected, pa.scalar(None, values.type), values), dict.fromkeys(rows, reason))


def _valid_utf8(values: pa.Array) -> Converted:
    buffer = values.buffers()[2]
    if buffer is None:
        return Converted(values)
    try:
        str(memoryview(buffer), "utf-8")
    except UnicodeDecodeError:
        import pyarrow as pa

        return _each(values.cast(pa.binary()), lambda value: value.decode("utf-8"))
    return Converted(values)


def _each(values: pa.Array, convert: Callable[..., str]) -> Converted:
    import pyarrow as pa

    texts: list[str | None] = []
    refused: dict[int, str] = {}
    for row, scalar in enumerate(values):
        text = None
        if scalar.is_valid:
            try:
                text = convert(scalar.as_py())
            except (ValueError, OverflowError) as error:
                refused[row] = f"the value has no text form: {error}"
        texts.append(text)
    return Converted(pa.array(texts, type=pa.string()), refused)


def _plain_decimals(values: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = values.cast(pa.string())
    scientific = pc.match_substring(texts, "E")
    if not pc.any(scientific, min_count=0).as_py():
        return texts
    plain = [None if number is None else format(number, "f") for number in values.filter(scientific).to_pylist()]
    return pc.replace_with_mask(texts, pc.fill_null(scientific, False), pa.array(plain, type=pa.string()))


def _times(micros: pa.Array, precision: int) -> Converted:
    import pyarrow as pa
    import pyarrow.compute as pc

    inside = pc.and_(pc.greater_equal(micros, 0), pc.less(micros, _DAY_MICROSECONDS))
    kept = _refusing(micros, inside, "a TIME is from 00:00:00 to 23:59:59.999999")
    texts = kept.values.cast(pa.time64("us")).cast(pa.string())
    return Converted(_with_digits(texts, 8, precision, ""), kept.refused)


def _timestamps(values: pa.Array, precision: int, *, suffix: str) -> Converted:
    import pyarrow as pa
    import pyarrow.compute as pc

    # Through int64: a zone on the Arrow type is a label, the number is UTC already.
    local = values.cast(pa.timestamp("us", tz=getattr(values.type, "tz", None))).cast(pa.int64())
    local = local.cast(pa.timestamp("us"))
    inside = pc.and_(
        pc.greater_equal(local, pa.scalar(_FIRST, local.type)), pc.less_equal(local, pa.scalar(_LAST, local.type))
    )
    kept = _refusing(local, inside, "the year is outside 0001 to 9999")
    texts = pc.binary_replace_slice(kept.values.cast(pa.string()), start=10, stop=11, replacement="T")
    return Converted(_with_digits(texts, 19, precision, suffix), kept.refused)


def _with_digits(texts: pa.Array, seconds_end: int, precision: int, suffix: str) -> pa.Array:
    """Cuts or pads texts with six fraction digits to `precision` digits; cutting truncates, as Flink's cast does."""
    import pyarrow.compute as pc

    if precision > 6:
        return pc.binary_join_element_wise(texts, "0" * (precision - 6) + suffix, "")
    stop = seconds_end + 1 + precision if precision else seconds_end
    if precision == 6 and not suffix:
        return texts
    return pc.binary_replace_slice(texts, start=stop, stop=seconds_end + 7, replacement=suffix)


def _fraction_of_six(texts: pa.Array, seconds_end: int) -> pa.Array:
    """Arrow parses up to six digits into microseconds; further ones are zeros by construction."""
    import pyarrow.compute as pc

    return pc.utf8_slice_codeunits(texts, start=0, stop=seconds_end + 7)
