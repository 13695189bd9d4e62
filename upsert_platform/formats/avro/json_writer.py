"""Avro's JSON encoding written column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import BYTES, TEXTS, LogicalType, TypeName
from upsert_platform.formats.avro.schema import NAMESPACE, RECORD_NAME, key_and_value, schema_of_type
from upsert_platform.formats.fragments import Refusals, keep_present, lift_refusals, scalar_text, valid_text
from upsert_platform.formats.json.text import quote_for_bytes

_STAMPS: Final = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)


def write_json(arrays: Sequence[pa.Array], row: LogicalType, refusals: Refusals, record: str = RECORD_NAME) -> pa.Array:
    """JSON text of records given by columns."""
    pieces: list[pa.Array | pa.Scalar] = []
    for place, (array, item) in enumerate(zip(arrays, row.fields, strict=True)):
        lead = f"{',' if place else '{'}{quote_for_bytes(item.name)}:"
        pieces += [pa.scalar(lead), _value(array, item.type, refusals, record=f"{record}_{item.name}", name=item.name)]
    return pc.binary_join_element_wise(*pieces, pa.scalar("}"), "")


def _value(array: pa.Array, logical: LogicalType, refusals: Refusals, *, record: str, name: str) -> pa.Array:
    if array.null_count and not logical.nullable:
        for place in pc.indices_nonzero(array.is_null()).to_pylist():
            refusals.setdefault(place, f"column '{name}' is NOT NULL, and null in this row")
    text = _bare(array, logical, refusals, record=record)
    if logical.nullable:
        lead = f"{{{quote_for_bytes(_branch(logical, record))}:"
        text = pc.binary_join_element_wise(pa.scalar(lead), text, pa.scalar("}"), "")
    return pc.fill_null(text, "null")


def _branch(logical: LogicalType, record: str) -> str:
    bare = schema_of_type(_not_null(logical), record, legacy=False)
    kind = bare["type"] if isinstance(bare, dict) else bare
    return f"{NAMESPACE}.{record}" if kind == "record" else str(kind)


def _not_null(logical: LogicalType) -> LogicalType:
    return (
        replace(logical, nullable=False, element=None, fields=())
        if logical.name is TypeName.ROW
        else replace(logical, nullable=False)
    )


def _bare(array: pa.Array, logical: LogicalType, refusals: Refusals, *, record: str) -> pa.Array:
    if logical.name in TEXTS:
        return _quoted([None if text is None else str(text) for text in valid_text(array).to_pylist()])
    if logical.name in BYTES:
        return _quoted([None if content is None else content.decode("latin-1") for content in array.to_pylist()])
    if logical.name in _STAMPS:
        per_milli = {"us": 1000, "ns": 1_000_000}[array.type.unit]
        counts = [None if one is None else str(one // per_milli) for one in array.cast(pa.int64()).to_pylist()]
        return pa.array(counts, pa.string())
    match logical.name:
        case TypeName.DATE:
            return array.cast(pa.int32()).cast(pa.string())
        case TypeName.TIME:
            return pc.divide(array, 1000).cast(pa.string())
        case TypeName.DECIMAL:
            from upsert_platform.formats.avro.writer import unscaled_bytes

            content = [unscaled_bytes(value, array.type.scale) for value in array.to_pylist()]
            return _quoted([None if one is None else one.decode("latin-1") for one in content])
        case TypeName.FLOAT | TypeName.DOUBLE:
            text = scalar_text(array, logical, plain_decimal=False, iso=False)
            quoted = pc.binary_join_element_wise(pa.scalar('"'), text, pa.scalar('"'), "")
            return pc.if_else(pc.is_finite(array), text, quoted)
        case TypeName.ROW:
            inner: Refusals = {}
            text = write_json(array.flatten(), logical, inner, record)
            keep_present(inner, array, refusals)
            return text if array.null_count == 0 else pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))
        case TypeName.ARRAY:
            assert logical.element is not None
            return _joined(array, _inner(array, array.values, logical.element, refusals, record), "[]")
        case TypeName.MAP | TypeName.MULTISET:
            keys = _quoted(valid_text(array.keys).to_pylist())
            values = _inner(array, array.items, key_and_value(logical)[1], refusals, record)
            return _joined(array, pc.binary_join_element_wise(keys, values, ":"), "{}")
    return scalar_text(array, logical, plain_decimal=False, iso=False)


def _quoted(texts: Sequence[str | None]) -> pa.Array:
    return pa.array([None if text is None else quote_for_bytes(text) for text in texts], pa.string())


def _inner(parent: pa.Array, values: pa.Array, logical: LogicalType, refusals: Refusals, record: str) -> pa.Array:
    inner: Refusals = {}
    text = _value(values, logical, inner, record=record, name="(element)")
    lift_refusals(inner, parent.offsets.to_pylist(), refusals)
    return text


def _joined(array: pa.Array, items: pa.Array, brackets: str) -> pa.Array:
    text, offsets = items.to_pylist(), array.offsets.to_pylist()
    bounds = zip(offsets, offsets[1:], array.is_valid().to_pylist(), strict=False)
    return pa.array(
        [f"{brackets[0]}{','.join(text[low:high])}{brackets[1]}" if here else None for low, high, here in bounds],
        pa.string(),
    )
