"""Columns as Arrow's JSON reader gives them, to columns of declared types.

Dates, times, timestamps and bytes are read as text and converted here: Arrow's own reading of them accepts what Flink
refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import LogicalType, TypeName, arrow_type
from upsert_platform.formats.text_columns import BYTES, STAMPS, convert_text, pattern_of

_TEXTUAL: Final = (TypeName.DATE, TypeName.TIME, *STAMPS, *BYTES)
_QUOTABLE: Final = (
    TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT,
    TypeName.FLOAT, TypeName.DOUBLE, TypeName.BOOLEAN,
)  # fmt: skip


class DoubtError(Exception):
    """Values inside a container do not match the pattern of their type: the whole block is read another way."""


def wire_type(logical: LogicalType, samples: Sequence[Any] = ()) -> pa.DataType:
    """The Arrow type in which a column is read.

    Args:
        samples: values of the column in some messages; a number or boolean that comes in quotes in one is read as text.
            (A decimal is read either way.)
    """
    if logical.name in _TEXTUAL:
        return pa.string()
    if logical.name is TypeName.ARRAY:
        assert logical.element is not None
        items = [item for sample in samples if isinstance(sample, list) for item in sample]
        return pa.list_(wire_type(logical.element, items))
    if logical.name is TypeName.ROW:
        rows = [sample for sample in samples if isinstance(sample, dict)]
        return pa.struct(
            [pa.field(item.name, wire_type(item.type, [row.get(item.name) for row in rows])) for item in logical.fields]
        )
    if logical.name in _QUOTABLE and any(isinstance(sample, str) for sample in samples):
        return pa.string()
    return arrow_type(logical)


def convert_column(array: pa.Array, logical: LogicalType, *, standard: str) -> tuple[pa.Array, pa.Array | None]:
    """Converts a column.

    Returns:
        The column in its declared type, and a mask of rows that do not match (their value is null), or None.

    Raises:
        DoubtError: values nested in the column do not match.
    """
    if logical.name in (TypeName.ARRAY, TypeName.ROW):
        return _nested(array, logical, standard), None
    if logical.name in _TEXTUAL or array.type != arrow_type(logical):
        return convert_text(array, logical, pattern_of(logical, standard))
    if logical.name in (TypeName.FLOAT, TypeName.DOUBLE):
        plain = pc.is_finite(array)
        zeros = pc.equal(array, 0)
        if pc.any(zeros).as_py():  # readers of trees do not know a negative one
            signed = pa.array(np.signbit(array.fill_null(1).to_numpy(zero_copy_only=False)))
            plain = pc.and_not(plain, pc.and_(zeros, signed))
        if pc.all(plain, min_count=0).as_py() is False:
            return array, pc.fill_null(pc.invert(plain), False)
    return array, None


def _nested(array: pa.Array, logical: LogicalType, standard: str) -> pa.Array:
    def inner(part: pa.Array, kind: LogicalType) -> pa.Array:
        converted, doubt = convert_column(part, kind, standard=standard)
        if doubt is not None:
            raise DoubtError
        return converted

    mask = array.is_null() if array.null_count else None
    if logical.name is TypeName.ARRAY:
        assert logical.element is not None
        return pa.ListArray.from_arrays(array.offsets, inner(array.values, logical.element), mask=mask)
    fields = [pa.field(item.name, arrow_type(item.type)) for item in logical.fields]
    parts = [inner(array.field(place), item.type) for place, item in enumerate(logical.fields)]
    return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
