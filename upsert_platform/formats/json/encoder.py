"""Format ``json``, write side: one compact object per row, byte for byte as Flink writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import TEXTS, LogicalType, TypeName
from upsert_platform.formats.base import Columns
from upsert_platform.formats.fragments import (
    Refusals,
    drop_refused,
    keep_present,
    lift_refusals,
    scalar_text,
    valid_text,
    without_bad_times,
)
from upsert_platform.formats.json.text import quote_for_bytes
from upsert_platform.formats.options import JsonSettings

_QUOTED: Final = (
    TypeName.DATE, TypeName.TIME, TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ,
    TypeName.BINARY, TypeName.VARBINARY, TypeName.BYTES,
)  # fmt: skip
_FIRST_PLAIN: Final = 0x20
_FOUR_BYTES: Final = 0xF0
"""From this byte on begins a character beyond the Basic Multilingual Plane, in UTF-8."""
_NEEDS_ESCAPES: Final = '["\\\\\\x00-\\x1f\U00010000-\U0010ffff]'


class JsonEncoder:
    """Encodes rows into JSON objects."""

    def __init__(self, columns: Columns, settings: JsonSettings) -> None:
        self._columns = list(columns)
        self._settings = settings

    def encode(self, rows: pa.RecordBatch) -> tuple[pa.Array, dict[int, str]]:
        """Encodes a block; see `upsert_platform.formats.base.Encoder`."""
        refusals: Refusals = {}
        names = [name for name, _ in self._columns]
        kinds = [logical for _, logical in self._columns]
        arrays = without_bad_times(rows.columns, self._columns, refusals)
        text = json_objects(arrays, names, kinds, self._settings, refusals)
        return drop_refused(text.view(pa.binary()), refusals), refusals


def json_objects(
    arrays: Sequence[pa.Array],
    names: Sequence[str],
    kinds: Sequence[LogicalType],
    settings: JsonSettings,
    refusals: Refusals,
) -> pa.Array:
    """JSON objects of rows given by columns, as a string array without nulls."""
    values = [_bare_values(array, kind, settings, refusals) for array, kind in zip(arrays, kinds, strict=True)]
    if settings.encode_ignore_null_fields:
        return _objects_of_present(names, [_quote(text) if quoted else text for text, quoted in values])
    pieces: list[pa.Array | pa.Scalar] = []
    constant = "{"  # what stands between two values, in one piece: every piece costs a copy's time
    for place, (name, (text, quoted)) in enumerate(zip(names, values, strict=True)):
        constant += f"{',' if place else ''}{quote_for_bytes(name)}:"
        if text.null_count:
            text, quoted = pc.fill_null(_quote(text) if quoted else text, "null"), False
        mark = '"' if quoted else ""
        pieces += [pa.scalar(constant + mark), text]
        constant = mark
    return pc.binary_join_element_wise(*pieces, pa.scalar(constant + "}"), "")


def _objects_of_present(names: Sequence[str], texts: Sequence[pa.Array]) -> pa.Array:
    """JSON objects of the texts of values, without the fields that are null."""
    pieces: list[pa.Array] = []
    for name, text in zip(names, texts, strict=True):
        member = pc.binary_join_element_wise(pa.scalar(f",{quote_for_bytes(name)}:"), text, "")
        pieces.append(pc.fill_null(member, ""))
    members = pc.replace_substring_regex(pc.binary_join_element_wise(*pieces, ""), "^,", "")
    return pc.binary_join_element_wise(pa.scalar("{"), members, pa.scalar("}"), "")


def json_values(array: pa.Array, kind: LogicalType, settings: JsonSettings, refusals: Refusals) -> pa.Array:
    """JSON text of each value, null where the value is null. Refusals are by row of this array."""
    text, quoted = _bare_values(array, kind, settings, refusals)
    return _quote(text) if quoted else text


def _quote(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar('"'), text, pa.scalar('"'), "")


def _bare_values(
    array: pa.Array, kind: LogicalType, settings: JsonSettings, refusals: Refusals
) -> tuple[pa.Array, bool]:
    """As `json_values`, and whether quotation marks belong around each value that is not null."""
    match kind.name:
        case TypeName.ARRAY:
            return _arrays(array, kind, settings, refusals), False
        case TypeName.MAP | TypeName.MULTISET:
            return _maps(array, kind, settings, refusals), False
        case TypeName.ROW:
            return _rows(array, kind, settings, refusals), False
    if kind.name in TEXTS:
        return _escaped(valid_text(array)), True
    text = scalar_text(array, kind, plain_decimal=settings.encode_decimal_as_plain_number, iso=_iso(settings))
    if kind.name in (TypeName.FLOAT, TypeName.DOUBLE):
        special = pc.invert(pc.is_finite(array))
        if pc.any(special).as_py():
            return pc.if_else(special, _quote(text), text), False
    return text, kind.name in _QUOTED


def _iso(settings: JsonSettings) -> bool:
    return settings.timestamp_standard == "ISO-8601"


def _escaped(array: pa.Array) -> pa.Array:
    """Texts with what JSON escapes in them."""
    if not _may_need_escapes(array):
        return array
    hard = pc.fill_null(pc.match_substring_regex(array, _NEEDS_ESCAPES), False)
    written = [quote_for_bytes(text)[1:-1] for text in array.filter(hard).to_pylist()]
    return pc.replace_with_mask(array, hard, pa.array(written, array.type)) if written else array


def _may_need_escapes(array: pa.Array) -> bool:
    """Return whether texts hold a byte that JSON escapes, or whose character it does; one look at all of them."""
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return False
    bounds = np.frombuffer(offsets, np.int32)
    found = np.frombuffer(data, np.uint8)[bounds[array.offset] : bounds[array.offset + len(array)]]
    if not len(found):
        return False
    if found.min() < _FIRST_PLAIN or found.max() >= _FOUR_BYTES:
        return True
    return bool((found == ord('"')).any() or (found == ord("\\")).any())


def _spans(array: pa.Array) -> tuple[list[int], pa.Array]:
    """Bounds of each list in the flattened children."""
    offsets = array.offsets.to_pylist()
    return offsets, pc.is_valid(array)


def _arrays(array: pa.Array, kind: LogicalType, settings: JsonSettings, refusals: Refusals) -> pa.Array:
    assert kind.element is not None
    inner: Refusals = {}
    text = pc.fill_null(json_values(array.values, kind.element, settings, inner), "null").to_pylist()
    offsets, valid = _spans(array)
    lift_refusals(inner, offsets, refusals)
    bounds = zip(offsets, offsets[1:], valid.to_pylist(), strict=False)
    return pa.array(
        [f"[{','.join(text[low:high])}]" if present else None for low, high, present in bounds], pa.string()
    )


def _maps(array: pa.Array, kind: LogicalType, settings: JsonSettings, refusals: Refusals) -> pa.Array:
    value = kind.element if kind.name is TypeName.MAP else LogicalType(TypeName.INT)
    assert value is not None
    inner: Refusals = {}
    if pa.types.is_map(array.type):
        key_array, items = array.keys, array.items
    else:  # a list of entries, which can hold a null key where an Arrow map cannot
        key_array, items = array.values.field(0), array.values.field(1)
    text = pc.fill_null(json_values(items, value, settings, inner), "null").to_pylist()
    keys = valid_text(key_array).to_pylist()
    offsets, valid = _spans(array)
    lift_refusals(inner, offsets, refusals)
    written: list[str | None] = []
    for at, (low, high, present) in enumerate(zip(offsets, offsets[1:], valid.to_pylist(), strict=False)):
        if not present:
            written.append(None)
            continue
        entries: dict[str, str] = {}
        for key, item in zip(keys[low:high], text[low:high], strict=True):
            if key is None:
                if settings.map_null_key_mode == "DROP":
                    continue
                if settings.map_null_key_mode != "LITERAL":
                    refusals.setdefault(
                        at, "a map has a null key; set 'json.map-null-key.mode' to DROP or LITERAL to write it"
                    )
                    break
                key = settings.map_null_key_literal
            entries[key] = item
        written.append("{" + ",".join(f"{quote_for_bytes(key)}:{item}" for key, item in entries.items()) + "}")
    return pa.array(written, pa.string())


def _rows(array: pa.Array, kind: LogicalType, settings: JsonSettings, refusals: Refusals) -> pa.Array:
    names = [item.name for item in kind.fields]
    kinds = [item.type for item in kind.fields]
    inner: Refusals = {}
    text = json_objects(array.flatten(), names, kinds, settings, inner)
    keep_present(inner, array, refusals)
    return text if array.null_count == 0 else pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))
