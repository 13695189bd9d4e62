"""JSON objects with maps read by orjson, column by column: Arrow's JSON reader has no maps of any key.

orjson refuses what Jackson refuses (and a little more: raw control characters, trailing text), but says nothing of
repeated names and keeps no source text of numbers. So names are counted in the text too, and a column whose values are
not all of the one kind that its type takes is not read this way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from types import NoneType
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import TEXTS, LogicalType, TypeName, arrow_type
from upsert_platform.formats.base import Columns
from upsert_platform.formats.blocks import keep_rows
from upsert_platform.formats.columns import schema_of
from upsert_platform.formats.json.columns import DoubtError
from upsert_platform.formats.json.values import JsonManner
from upsert_platform.formats.text_columns import convert_text, pattern_of

_LONG_MESSAGE: Final = 900
_SPACED_NAME: Final = re.compile(rb'"[ \t\r\n]+:')
_MINUS_ZERO: Final = re.compile(rb"-0(?![0-9.eE])")
_WHOLE: Final = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)


def has_object_form(columns: Columns, manner: JsonManner) -> bool:
    """Return whether columns can be read this way: no FLOAT (which needs the source text), distinct names."""
    names = [name for name, _ in columns]
    parts = [part for _, logical in columns for part in logical.parts()]
    if manner.fail_on_missing and any(part.name is TypeName.ROW for part in parts):
        return False
    if any(part.name is TypeName.FLOAT for part in parts):
        return False
    inner = [[item.name for item in part.fields] for part in parts]
    return all(len(set(group)) == len(group) for group in [names, *inner])


class JsonObjects:
    """Reads blocks of messages that are one object each."""

    def __init__(self, columns: Columns, manner: JsonManner) -> None:
        self._columns = list(columns)
        self._manner = manner
        self._schema = schema_of(columns)

    def for_block(self, messages: Sequence[bytes]) -> JsonObjects:
        """The reader for a block: itself."""
        return self

    def read(self, messages: Sequence[bytes]) -> tuple[pa.RecordBatch, np.ndarray | None] | None:
        """Reads a row per message; see `upsert_platform.formats.blocks.ReadBulk`."""
        rows: list[dict[str, Any]] = []
        places: list[int] = []
        for place, message in enumerate(messages):
            tree = _load(message)
            if tree is not None:
                rows.append(tree)
                places.append(place)
        if len(rows) * 2 < len(messages):
            return None
        minus_zero = any(map(_MINUS_ZERO.search, messages))
        arrays: list[pa.Array] = []
        doubts: list[pa.Array] = []
        try:
            for name, logical in self._columns:
                array, doubt = self._column([row.get(name) for row in rows], logical, minus_zero=minus_zero)
                arrays.append(array)
                if doubt is not None:
                    doubts.append(doubt)
                if self._manner.fail_on_missing and array.null_count:
                    doubts.append(array.is_null())
        except (DoubtError, pa.ArrowInvalid, OverflowError):
            return None
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return keep_rows(batch, None if len(rows) == len(messages) else np.array(places), doubts)

    def _column(self, values: list[Any], logical: LogicalType, *, minus_zero: bool) -> tuple[pa.Array, pa.Array | None]:
        kinds = set(map(type, values)) - {NoneType}
        target = arrow_type(logical)
        if not kinds:
            return pa.nulls(len(values), target), None
        if logical.name in TEXTS:
            return pa.array(_only(values, kinds, str), target), None
        if logical.name in _WHOLE:
            return pa.array(_only(values, kinds, int), target), None
        match logical.name:
            case TypeName.BOOLEAN:
                return pa.array(_only(values, kinds, bool), target), None
            case TypeName.DOUBLE:
                return _doubles(values, kinds, minus_zero=minus_zero), None
            case TypeName.ARRAY:
                return self._array(_only(values, kinds, list), logical, minus_zero=minus_zero), None
            case TypeName.MAP | TypeName.MULTISET:
                return self._map(_only(values, kinds, dict), logical, minus_zero=minus_zero), None
            case TypeName.ROW:
                return self._row(_only(values, kinds, dict), logical, minus_zero=minus_zero), None
        text = pa.array(_only(values, kinds, str), pa.string())
        return convert_text(text, logical, pattern_of(logical, self._manner.standard))

    def _inner(self, values: list[Any], logical: LogicalType, *, minus_zero: bool) -> pa.Array:
        array, doubt = self._column(values, logical, minus_zero=minus_zero)
        if doubt is not None:
            raise DoubtError
        return array

    def _array(self, values: list[Any], logical: LogicalType, *, minus_zero: bool) -> pa.Array:
        assert logical.element is not None
        items = self._inner(list(chain.from_iterable(filter(None, values))), logical.element, minus_zero=minus_zero)
        return pa.ListArray.from_arrays(_offsets(values), items)

    def _map(self, values: list[Any], logical: LogicalType, *, minus_zero: bool) -> pa.Array:
        kind = logical.element if logical.name is TypeName.MAP else LogicalType(TypeName.INT)
        assert kind is not None
        full = [value for value in values if value]
        keys = pa.array(list(chain.from_iterable(full)), pa.string())
        items = self._inner(list(chain.from_iterable(value.values() for value in full)), kind, minus_zero=minus_zero)
        return pa.MapArray.from_arrays(_offsets(values), keys, items)

    def _row(self, values: list[Any], logical: LogicalType, *, minus_zero: bool) -> pa.Array:
        parts = [
            self._inner([None if value is None else value.get(item.name) for value in values], item.type,
                        minus_zero=minus_zero)
            for item in logical.fields
        ]  # fmt: skip
        fields = [pa.field(item.name, arrow_type(item.type)) for item in logical.fields]
        mask = pa.array([value is None for value in values])
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)


def _load(message: bytes) -> dict[str, Any] | None:
    """The object of a message, or None where another reader must decide."""
    if b"\\" in message:  # an escaped quote would spoil the count of names
        return None
    try:
        tree = orjson.loads(message)
    except orjson.JSONDecodeError:
        return None
    if type(tree) is not dict or message.count(b'":') != _count_names(tree) or _SPACED_NAME.search(message):
        return None
    if len(message) >= _LONG_MESSAGE and message.count(b"{") + message.count(b"[") >= _LONG_MESSAGE:
        return None
    return tree


def _count_names(tree: dict[str, Any]) -> int:
    count = len(tree)
    for value in tree.values():
        if type(value) is dict:
            count += _count_names(value)
        elif type(value) is list:
            count += _count_in_list(value)
    return count


def _count_in_list(items: list[Any]) -> int:
    return sum(
        _count_names(item) if type(item) is dict else _count_in_list(item) if type(item) is list else 0
        for item in items
    )


def _only(values: list[Any], kinds: set[type], kind: type) -> list[Any]:
    if kinds != {kind}:
        raise DoubtError
    return values


def _doubles(values: list[Any], kinds: set[type], *, minus_zero: bool) -> pa.Array:
    if not kinds <= {int, float} or (int in kinds and minus_zero):
        raise DoubtError
    if int in kinds:
        values = [None if value is None else float(value) for value in values]
    array = pa.array(values, pa.float64())
    if pc.all(pc.is_finite(array), min_count=0).as_py() is False:
        raise DoubtError
    return array


def _offsets(values: list[Any]) -> pa.Array:
    # A null offset makes a null list.
    sizes = np.fromiter((len(value) if value else 0 for value in values), np.int32, len(values))
    ends = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    absent = np.fromiter((value is None for value in values), bool, len(values))
    return pa.array(ends, mask=np.append(absent, False)) if absent.any() else pa.array(ends)
