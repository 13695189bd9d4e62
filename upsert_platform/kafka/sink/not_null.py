"""Nulls where a type says NOT NULL, in whole columns and within arrays, maps and rows. Runs in Spark workers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.types import LogicalType, TypeName


def refuses_nulls(declared: LogicalType) -> bool:
    """Whether the type, or one within it, says NOT NULL."""
    inner = (declared.element, *(field.type for field in declared.fields))
    return not declared.nullable or any(kind is not None and refuses_nulls(kind) for kind in inner)


def nulls_where_none_may_be(column: pa.Array, declared: LogicalType) -> np.ndarray:
    """Which rows hold a null that the type forbids.

    Args:
        column: of the Arrow type that Spark has for `declared`.
    """
    missing = column.is_null().to_numpy(zero_copy_only=False)
    broken = missing.copy() if not declared.nullable else np.zeros(len(column), bool)
    match declared.name:
        case TypeName.ROW:
            for index, field in enumerate(declared.fields):
                if refuses_nulls(field.type):
                    broken |= nulls_where_none_may_be(column.field(index), field.type) & ~missing
        case TypeName.ARRAY | TypeName.MAP:
            inner = declared.element
            if inner is not None and refuses_nulls(inner):
                lists = column.cast(_as_lists(column.type)) if declared.name is TypeName.MAP else column
                items = pc.list_flatten(lists)
                values = items.field(1) if declared.name is TypeName.MAP else items
                rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
                broken[rows[nulls_where_none_may_be(values, inner)]] = True
    return broken


def _as_lists(kind: pa.MapType) -> pa.DataType:
    entry = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
    return pa.list_(entry)
