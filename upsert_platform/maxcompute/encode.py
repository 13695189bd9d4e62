"""Values on their way to MaxCompute: vectorised casts, and which values a column will not take.

Policies, all explicit: a DECIMAL with more fraction digits than its column is rounded half away from zero; a TIMESTAMP
without zone is taken as UTC; a moment finer than its column is cut towards the past; everything that would lose more
than that is refused with a reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.maxcompute.types import MAX_FIELD_BYTES, MaxComputeType, wire_type

_DAY = 86_400_000_000
_EPOCH_DAY_MICROS = {
    "DATETIME": (-62_135_596_800_000_000, 253_402_300_799_999_999),  # years 1 to 9999
    "TIMESTAMP": (-9_223_372_036_854_775, 9_223_372_036_854_775),  # nanoseconds in 64 bits
}
_TIME_TEXT_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Encoded:
    """A column in its wire type.

    Attributes:
        values: null where the input is null or refused.
        refused: for each kind of refusal, which rows (boolean numpy array) and why.
    """

    values: pa.Array
    refused: tuple[tuple[np.ndarray, str], ...] = ()


def encode(values: pa.Array, declared: LogicalType, kind: MaxComputeType) -> Encoded:
    """Casts a column to its wire type.

    Args:
        values: of `upsert_platform.core.types.arrow_type(declared)`, or what Spark makes of it.
        declared: the declared type.
        kind: the type of the table's column.
    """
    match kind.root:
        case "STRING" | "VARCHAR" | "CHAR" | "JSON":
            return _encode_text(values, declared, kind)
        case "BINARY":
            binary = values.cast(pa.binary())
            return _refuse(binary, _longer(pc.binary_length(binary), MAX_FIELD_BYTES), _too_big(kind))
        case "DECIMAL":
            return _encode_decimal(values, kind)
        case "DATETIME" | "TIMESTAMP" | "TIMESTAMP_NTZ":
            return _encode_moment(values, kind)
        case "ARRAY":
            return _encode_list(values, declared, kind)
        case "MAP":
            return _encode_map(values, declared, kind)
        case "STRUCT":
            return _encode_struct(values, declared, kind)
    return Encoded(values.cast(wire_type(kind)))


def _encode_text(values: pa.Array, declared: LogicalType, kind: MaxComputeType) -> Encoded:
    if declared.name is TypeName.TIME:
        return _encode_time(values, declared)
    text = values.cast(pa.string())
    if kind.root == "CHAR":  # blanks at its end are not significant: one value has one form, and one bucket
        text = pc.utf8_rtrim(text, " ")
    if kind.length is None:
        return _refuse(text, _longer(pc.binary_length(text), MAX_FIELD_BYTES), _too_big(kind))
    bad = _longer(pc.utf8_length(text), kind.length)
    return _refuse(text, bad, f"has more than the {kind.length} characters of {kind}")


def _encode_time(values: pa.Array, declared: LogicalType) -> Encoded:
    micros = values.cast(pa.int64())
    outside = _mask(pc.or_(pc.less(micros, 0), pc.greater_equal(micros, _DAY)))
    kept = _refuse(micros, outside, "is not a time of day (microseconds from 0 to 86399999999)")
    moments = kept.values.cast(pa.timestamp("us"))
    if (declared.precision or 0) <= _TIME_TEXT_DIGITS:
        moments = moments.cast(pa.timestamp("ms"), safe=False)
    return Encoded(pc.strftime(moments, "%H:%M:%S"), kept.refused)


def _encode_decimal(values: pa.Array, kind: MaxComputeType) -> Encoded:
    wanted = wire_type(kind)
    if values.type == wanted:
        return Encoded(values)
    precision, scale = kind.precision or 38, kind.scale or 0
    wide = values.cast(pa.decimal256(76, max(getattr(values.type, "scale", 0), scale)))
    rounded = pc.round(wide, ndigits=scale, round_mode="half_towards_infinity")
    bound = pa.scalar(Decimal(10) ** (precision - scale), rounded.type)
    bad = _mask(pc.greater_equal(pc.abs(rounded), bound))
    kept = _refuse(rounded, bad, f"has more than the {precision - scale} integer digits of {kind}")
    return Encoded(kept.values.cast(wanted), kept.refused)


def _encode_moment(values: pa.Array, kind: MaxComputeType) -> Encoded:
    micros = values.cast(pa.int64()) if pa.types.is_timestamp(values.type) and values.type.unit == "us" else (
        values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    )  # fmt: skip
    low, high = _EPOCH_DAY_MICROS["DATETIME" if kind.root == "DATETIME" else "TIMESTAMP"]
    outside = _mask(pc.or_(pc.less(micros, low), pc.greater(micros, high)))
    years = "0001 to 9999" if kind.root == "DATETIME" else "1678 to 2261"
    kept = _refuse(micros, outside, f"is outside the years {years} of {kind}")
    moments = kept.values.cast(pa.timestamp("us"))
    if kind.root == "DATETIME":
        moments = pc.floor_temporal(moments, unit="millisecond")
    return Encoded(moments.cast(wire_type(kind)), kept.refused)


def _encode_list(values: pa.Array, declared: LogicalType, kind: MaxComputeType) -> Encoded:
    assert declared.element is not None
    lists = values.cast(pa.list_(values.type.value_type)).take(pa.array(np.arange(len(values))))
    child = encode(lists.values, declared.element, kind.children[0])
    rebuilt = pa.ListArray.from_arrays(lists.offsets, child.values, mask=pc.is_null(lists))
    return _raise_children(rebuilt, child.refused, np.asarray(lists.offsets), "element")


def _encode_map(values: pa.Array, declared: LogicalType, kind: MaxComputeType) -> Encoded:
    key_type = declared.key if declared.name is TypeName.MAP else declared.element
    item_type = declared.element if declared.name is TypeName.MAP else LogicalType(TypeName.INT)
    assert key_type is not None
    assert item_type is not None
    maps = values.take(pa.array(np.arange(len(values))))  # without slice offsets and without rows behind nulls
    keys = encode(maps.keys, key_type, kind.children[0])
    items = encode(maps.items, item_type, kind.children[1])
    offsets = np.asarray(maps.offsets)
    if keys.refused and any(bad.any() for bad, _ in keys.refused):
        lifted = _raise_children(maps, keys.refused, offsets, "key")
        return Encoded(pa.nulls(len(values), wire_type(kind)), lifted.refused)
    rebuilt = pa.MapArray.from_arrays(maps.offsets, keys.values, items.values, mask=pc.is_null(maps))
    return _raise_children(rebuilt.cast(wire_type(kind)), items.refused, offsets, "value")


def _encode_struct(values: pa.Array, declared: LogicalType, kind: MaxComputeType) -> Encoded:
    columns = []
    refused: list[tuple[np.ndarray, str]] = []
    for item, below, values_below in zip(declared.fields, kind.children, values.flatten(), strict=True):
        child = encode(values_below, item.type, below)
        columns.append(child.values)
        refused.extend((bad, f"field '{item.name}' {reason}") for bad, reason in child.refused)
    rebuilt = pa.StructArray.from_arrays(columns, names=list(kind.names), mask=pc.is_null(values))
    return Encoded(rebuilt, tuple(refused))


def _raise_children(
    values: pa.Array, refused: tuple[tuple[np.ndarray, str], ...], offsets: np.ndarray, what: str
) -> Encoded:
    """Refusals of elements become refusals of the rows that hold them."""
    lifted = []
    for bad, reason in refused:
        owner = np.searchsorted(offsets, np.flatnonzero(bad), side="right") - 1
        rows = np.zeros(len(values), dtype=bool)
        rows[owner] = True
        lifted.append((rows, f"has a {what} that {reason}"))
    return Encoded(values, tuple(lifted))


def _refuse(values: pa.Array, bad: np.ndarray, reason: str) -> Encoded:
    if not bad.any():
        return Encoded(values)
    return Encoded(pc.if_else(pa.array(bad), pa.scalar(None, values.type), values), ((bad, reason),))


def _longer(lengths: pa.Array, limit: int) -> np.ndarray:
    return _mask(pc.greater(lengths, limit))


def _mask(condition: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(condition, False))


def _too_big(kind: MaxComputeType) -> str:
    return f"has more than the {MAX_FIELD_BYTES} bytes that a {kind} holds"


def neutral_value(kind: MaxComputeType) -> pa.Scalar:
    """A value for a NOT NULL column of a deleted row, which no one reads."""
    wanted = wire_type(kind)
    match kind.root:
        case "STRING" | "VARCHAR" | "CHAR" | "JSON":
            return pa.scalar("", wanted)
        case "BINARY":
            return pa.scalar(b"", wanted)
        case "BOOLEAN":
            return pa.scalar(False, wanted)
        case "ARRAY" | "MAP":
            return pa.scalar([], wanted)
        case "STRUCT":
            fields = zip(kind.names, kind.children, strict=True)
            return pa.scalar({name: neutral_value(child).as_py() for name, child in fields}, wanted)
        case "DECIMAL":
            return pa.scalar(Decimal(0), wanted)
    return pa.scalar(0, pa.int64()).cast(pa.int32()).cast(wanted) if kind.root == "DATE" else pa.scalar(0, wanted)
