"""Nulls where a type says NOT NULL, in whole columns and within arrays, maps and rows. Runs in Spark workers.

The rule is that of Flink's sinks: a column declared NOT NULL takes no null, and neither does a field within it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.destination import OPERATION, OPERATION_DELETE
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.writing.judge import refuses_nulls


def null_refusals(changes: pa.RecordBatch, not_null: Sequence[tuple[str, LogicalType]]) -> dict[int, str]:
    """Rows of a change frame that hold a null where none may be, each with the reason; deletes know their key alone.

    Args:
        not_null: names and types of the columns to look at.
    """
    refused: dict[int, str] = {}
    deletes: np.ndarray | None = None
    for name, declared in not_null:
        broken = nulls_where_none_may_be(changes.column(name), declared)
        if not broken.any():
            continue
        if deletes is None:
            deletes = np.asarray(pc.equal(changes.column(OPERATION), OPERATION_DELETE))
        for row in np.flatnonzero(broken & ~deletes).tolist():
            refused.setdefault(row, f"column '{name}' is null, or a field within it, though declared NOT NULL")
    return refused


def nulls_where_none_may_be(column: pa.Array, declared: LogicalType) -> np.ndarray:
    """Return a mask of the rows with a null that the type forbids.

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
