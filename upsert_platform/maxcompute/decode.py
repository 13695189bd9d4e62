"""Values on their way back from MaxCompute: the inverse of `upsert_platform.maxcompute.encode`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import LogicalType, TypeName, arrow_type
from upsert_platform.maxcompute.types import MaxComputeType


def decode(values: pa.Array, declared: LogicalType, kind: MaxComputeType) -> pa.Array:
    """Casts a column that was read to `upsert_platform.core.types.arrow_type(declared)`.

    A CHAR column comes back padded with blanks, which are taken off: they are not significant in CHAR.

    Args:
        values: as MaxCompute sends them, in any unit, with or without a zone.
        kind: the type of the table's column.
    """
    wanted = arrow_type(declared)
    match declared.name:
        case TypeName.CHAR | TypeName.VARCHAR | TypeName.STRING:
            text = values.cast(wanted)
            return pc.utf8_rtrim(text, " ") if kind.root == "CHAR" else text
        case TypeName.TIME:
            day = pc.binary_join_element_wise("1970-01-01", values.cast(pa.string()), " ")
            return day.cast(pa.timestamp("us")).cast(pa.int64())
        case TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
            return _micros(values).cast(wanted)
        case TypeName.ARRAY:
            assert declared.element is not None
            lists = values.cast(pa.list_(values.type.value_type)).take(pa.array(np.arange(len(values))))
            child = decode(lists.values, declared.element, kind.children[0])
            return pa.ListArray.from_arrays(lists.offsets, child, mask=pc.is_null(lists)).cast(wanted)
        case TypeName.MAP | TypeName.MULTISET:
            key_type = declared.key if declared.name is TypeName.MAP else declared.element
            item_type = declared.element if declared.name is TypeName.MAP else LogicalType(TypeName.INT)
            assert key_type is not None
            assert item_type is not None
            maps = values.take(pa.array(np.arange(len(values))))
            keys = decode(maps.keys, key_type, kind.children[0])
            items = decode(maps.items, item_type, kind.children[1])
            return pa.MapArray.from_arrays(maps.offsets, keys, items, mask=pc.is_null(maps)).cast(wanted)
        case TypeName.ROW:
            columns = [
                decode(values_below, item.type, below)
                for item, below, values_below in zip(declared.fields, kind.children, values.flatten(), strict=True)
            ]
            names = [item.name for item in declared.fields]
            return pa.StructArray.from_arrays(columns, names=names, mask=pc.is_null(values)).cast(wanted)
    return values.cast(wanted)


def _micros(values: pa.Array) -> pa.Array:
    """Microseconds since 1970 UTC, of a timestamp in any unit or of the pair of seconds and nanoseconds."""
    if pa.types.is_struct(values.type):
        seconds, nanos = values.flatten()
        return pc.add(pc.multiply(seconds.cast(pa.int64()), 1_000_000), pc.divide(nanos.cast(pa.int64()), 1_000))
    if values.type.unit == "ns":
        values = pc.floor_temporal(values, unit="microsecond")
    return values.cast(pa.timestamp("us", tz=values.type.tz), safe=False).cast(pa.int64())


def decode_partition(value: str, declared: LogicalType) -> pa.Scalar:
    """The value of a partition column, from its text."""
    wanted = arrow_type(declared)
    if pa.types.is_date(wanted):
        return pa.scalar(value).cast(pa.timestamp("us")).cast(wanted)
    return pa.scalar(value).cast(wanted)


def default_value(text: str, declared: LogicalType) -> object:
    """The value of a partition column whose text is the default; None where the type has no value of that text."""
    try:
        return decode_partition(text, declared).as_py()
    except pa.ArrowInvalid:
        return None


def decode_partitions(texts: pa.Array, declared: LogicalType, default: str | None) -> pa.Array:
    """The values of a partition column, from their texts.

    Args:
        default: the text of rows that had no value; null where the type has no value of that text.
    """
    wanted = arrow_type(declared)
    texts = texts.cast(pa.string())
    if default is not None and default_value(default, declared) is None:
        texts = pc.if_else(pc.equal(texts, default), pa.scalar(None, pa.string()), texts)
    return texts.cast(pa.timestamp("s")).cast(wanted) if pa.types.is_date(wanted) else texts.cast(wanted)
