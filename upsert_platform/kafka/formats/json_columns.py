"""Columns as Arrow's JSON reader gives them, to columns of declared types.

Dates, times, timestamps and bytes are read as text, matched by an anchored pattern, then converted: Arrow's own reading
of them accepts what Flink refuses. The patterns take only what both read alike; the rest is doubtful.
"""

from __future__ import annotations

import binascii
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.types import LogicalType, TypeName, arrow_type

_DATE: Final = (
    r"(?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})-"
    r"(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
)
_CLOCK: Final = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_FRACTION: Final = r"(?:\.\d{1,9})?"
_PATTERNS: Final = {
    (TypeName.DATE, "SQL"): f"^{_DATE}$",
    (TypeName.DATE, "ISO-8601"): f"^{_DATE}$",
    (TypeName.TIME, "SQL"): f"^{_CLOCK}{_FRACTION}$",
    (TypeName.TIME, "ISO-8601"): f"^{_CLOCK}{_FRACTION}$",
    (TypeName.TIMESTAMP, "SQL"): f"^{_DATE} {_CLOCK}{_FRACTION}$",
    (TypeName.TIMESTAMP, "ISO-8601"): f"^{_DATE}T{_CLOCK}{_FRACTION}$",
    (TypeName.TIMESTAMP_LTZ, "SQL"): f"^{_DATE} {_CLOCK}{_FRACTION}Z$",
    (TypeName.TIMESTAMP_LTZ, "ISO-8601"): f"^{_DATE}T{_CLOCK}{_FRACTION}Z$",
}
_BASE64: Final = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_BYTES: Final = (TypeName.BINARY, TypeName.VARBINARY, TypeName.BYTES)
_TEXTUAL: Final = (TypeName.DATE, TypeName.TIME, TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ, *_BYTES)
_QUOTED: Final = {
    TypeName.TINYINT: r"^-?\d{1,2}$",
    TypeName.SMALLINT: r"^-?\d{1,4}$",
    TypeName.INT: r"^-?\d{1,9}$",
    TypeName.BIGINT: r"^-?\d{1,18}$",
    TypeName.FLOAT: r"^-?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?$",
    TypeName.DOUBLE: r"^-?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?$",
    TypeName.BOOLEAN: r"^(?:true|false)$",
}


class DoubtError(Exception):
    """Values inside a container do not match the pattern of their type: the whole block is read another way."""


def quoted_form(logical: LogicalType) -> str | None:
    """The pattern of a number or boolean in quotes that converts in bulk; None for other types."""
    return _QUOTED.get(logical.name)


def wire_type(logical: LogicalType) -> pa.DataType:
    """The Arrow type in which a column of unquoted values is read."""
    if logical.name in _TEXTUAL:
        return pa.string()
    if logical.name is TypeName.ARRAY:
        assert logical.element is not None
        return pa.list_(wire_type(logical.element))
    if logical.name is TypeName.ROW:
        return pa.struct([pa.field(item.name, wire_type(item.type)) for item in logical.fields])
    return arrow_type(logical)


def convert_column(array: pa.Array, logical: LogicalType, *, standard: str) -> tuple[pa.Array, pa.Array | None]:
    """Converts a column.

    Returns:
        The column in its declared type, and a mask of rows that do not match (their value is null), or None.

    Raises:
        DoubtError: values nested in the column do not match.
    """
    if array.type == wire_type(logical) and logical.name not in _TEXTUAL:
        if logical.name in (TypeName.FLOAT, TypeName.DOUBLE):
            finite = pc.all(pc.is_finite(array), min_count=0).as_py()
            return array, None if finite is not False else pc.fill_null(pc.invert(pc.is_finite(array)), False)
        return (
            (array, None) if logical.name not in (TypeName.ARRAY, TypeName.ROW) else _nested(array, logical, standard)
        )
    pattern = (
        _BASE64 if logical.name in _BYTES
        else _QUOTED[logical.name] if logical.name in _QUOTED
        else _PATTERNS[logical.name, standard]
    )  # fmt: skip
    matched = pc.match_substring_regex(array, pattern)
    doubt = None
    if pc.all(matched, min_count=0).as_py() is False:
        doubt = pc.fill_null(pc.invert(matched), False)
        array = pc.if_else(pc.fill_null(matched, False), array, pa.scalar(None, pa.string()))
    return _from_text(array, logical), doubt


def _nested(array: pa.Array, logical: LogicalType, standard: str) -> tuple[pa.Array, None]:
    def inner(part: pa.Array, kind: LogicalType) -> pa.Array:
        converted, doubt = convert_column(part, kind, standard=standard)
        if doubt is not None:
            raise DoubtError
        return converted

    if logical.name is TypeName.ARRAY:
        assert logical.element is not None
        values = inner(array.values, logical.element)
        return pa.ListArray.from_arrays(array.offsets, values, mask=array.is_null() if array.null_count else None), None
    fields = [pa.field(item.name, arrow_type(item.type)) for item in logical.fields]
    parts = [inner(array.field(place), item.type) for place, item in enumerate(logical.fields)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null() if array.null_count else None), None


def _from_text(array: pa.Array, logical: LogicalType) -> pa.Array:
    target = arrow_type(logical)
    match logical.name:
        case TypeName.DATE:
            return array.cast(target)
        case TypeName.TIME:
            clock = pc.utf8_slice_codeunits(array, 0, 8)
            stamps = pc.binary_join_element_wise(pa.scalar("1970-01-01"), clock, " ").cast(pa.timestamp("s"))
            return pc.multiply(stamps.cast(pa.int64()), 1_000_000)
        case TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
            trimmed = pc.utf8_rtrim(array, "Z")
            if pc.max(pc.binary_length(trimmed)).as_py() not in (None, *range(27)):
                trimmed = pc.utf8_slice_codeunits(trimmed, 0, 26)
            return trimmed.cast(pa.timestamp("us")).cast(target)
        case TypeName.BINARY | TypeName.VARBINARY | TypeName.BYTES:
            decode = binascii.a2b_base64
            return pa.array([None if text is None else decode(text) for text in array.to_pylist()], target)
        case TypeName.BOOLEAN:
            return pc.equal(array, "true")
    return array.cast(target)
