"""UNNEST in Arrow: rows are repeated by the lengths of their collections, and the elements put beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.plan import Unnest
from upsert_platform.core.types import TypeName, arrow_type


def unnested(table: pa.Table, node: Unnest) -> pa.Table:
    """Rows with their elements; all other columns stay beside these."""
    kind = next(item.type for item in node.input.fields if item.name == node.column)
    values = table.column(node.column).combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    starts = values.offsets.to_numpy()[:-1].astype(np.int64)
    lengths = np.diff(values.offsets.to_numpy()).astype(np.int64)
    lengths[values.is_null().to_numpy(zero_copy_only=False)] = 0
    keys, items = (values.keys, values.items) if pa.types.is_map(values.type) else (None, values.values)
    times = np.maximum(lengths, 1) if node.padded else lengths
    chosen = np.repeat(np.arange(len(values)), times)
    within = np.arange(len(chosen)) - np.repeat(np.cumsum(times) - times, times)
    places = np.repeat(starts, times) + within
    there = within < lengths[chosen]
    if kind.name is TypeName.MULTISET:
        # A multiset is a map of an element to how often it is there.
        counts = pc.fill_null(items, 0).to_numpy().astype(np.int64)[np.where(there, places, 0)] if len(items) else 0
        copies = np.where(there, counts, 1)
        chosen, places, there = (np.repeat(array, copies) for array in (chosen, places, there))
        begins = np.append(True, chosen[1:] != chosen[:-1])[: len(chosen)]
        first = np.maximum.accumulate(np.where(begins, np.arange(len(chosen)), 0)) if len(chosen) else chosen
        within = np.arange(len(chosen)) - first
    taken = pa.array(np.where(there, places, 0), mask=~there)
    wide = table.take(pa.array(chosen))
    for field, column in zip(node.elements, _columns(kind.name, keys, items, node), strict=True):
        wide = wide.append_column(field.name, column.take(taken).cast(arrow_type(field.type)))
    if node.ordinality is not None:
        number = pa.array((within + 1).astype(np.int32), mask=~there)
        wide = wide.append_column(node.ordinality.name, number.cast(arrow_type(node.ordinality.type)))
    return wide


def _columns(kind: TypeName, keys: Any, items: Any, node: Unnest) -> list[Any]:
    if kind is TypeName.MAP:
        return [keys, items]
    if kind is TypeName.MULTISET:
        return [keys]
    if pa.types.is_struct(items.type) and len(node.elements) == items.type.num_fields:
        # Fields of a null row are null.
        return [pc.struct_field(items, [at]) for at in range(items.type.num_fields)]
    return [items]
