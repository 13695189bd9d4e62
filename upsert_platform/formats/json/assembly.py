"""Columns of the values that were found in messages of several layouts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from upsert_platform.formats.json.block import Block
from upsert_platform.formats.json.layout import Path
from upsert_platform.formats.json.walk import Found

_POWERS: Final = 10.0 ** np.arange(23)
"""Powers of ten that are doubles."""


def merged(found: list[Found]) -> list[Found]:
    """One for each layout."""
    whole_ones = []
    for layout in dict.fromkeys(item.layout for item in found):
        items = [item for item in found if item.layout is layout]
        rows = np.concatenate([item.rows for item in items])
        whole = Found(layout, rows)
        for path in items[0].texts:
            starts, ends = zip(*(item.texts[path] for item in items), strict=True)
            whole.texts[path] = np.concatenate(starts), np.concatenate(ends)
        for path in items[0].wholes:
            if all(path in item.wholes for item in items):
                whole.wholes[path] = np.concatenate([item.wholes[path] for item in items])
        for path in items[0].fractions:
            if all(path in item.fractions for item in items):
                whole.fractions[path] = np.concatenate([item.fractions[path] for item in items])
        for path in {path for item in items for path in item.nulls}:
            parts = [item.nulls.get(path, np.zeros(len(item.rows), bool)) for item in items]
            whole.nulls[path] = np.concatenate(parts)
        whole_ones.append(whole)
    return whole_ones


@dataclass(slots=True)
class Assembly:
    """Columns of the messages of several layouts.

    Attributes:
        count: of messages; each is of one of the layouts.
    """

    block: Block
    found: list[Found]
    count: int
    _validities: dict[tuple[int, ...], tuple[pa.Buffer | None, int]] = field(default_factory=dict)

    def columns(self, wire: pa.Schema) -> list[pa.Array]:
        """The columns of a schema.

        Raises:
            pa.ArrowInvalid: a decimal has more digits than its column.
        """
        return [self._column(item.type, (item.name,)) for item in wire]

    def _column(self, kind: pa.DataType, path: Path) -> pa.Array:
        if pa.types.is_struct(kind):
            parts = [self._column(item.type, (*path, item.name)) for item in kind]
            valid, nulls = self._validity([item for item in self.found if path in item.layout.objects], None)
            return pa.Array.from_buffers(kind, self.count, [valid], nulls, children=parts)
        holders = [item for item in self.found if path in item.texts]
        if not holders:
            return pa.nulls(self.count, kind)
        valid, nulls = self._validity(holders, path)
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            dtype = kind.to_pandas_dtype()
            if len(holders) == 1 and len(holders[0].rows) == self.count:
                numbers = holders[0].wholes[path].astype(dtype, copy=False)
            else:
                numbers = np.zeros(self.count, dtype)
                for item in holders:
                    numbers[item.rows] = item.wholes[path]
            data = np.packbits(numbers, bitorder="little") if pa.types.is_boolean(kind) else numbers
            return pa.Array.from_buffers(kind, self.count, [valid, pa.py_buffer(data)], nulls)
        if all(path in item.fractions for item in holders):
            return self._exact(holders, path, kind, valid, nulls)
        texts = self._texts(holders, path, valid, nulls)
        return texts if kind == pa.string() else texts.cast(kind)

    def _exact(
        self, holders: list[Found], path: Path, kind: pa.DataType, valid: pa.Buffer | None, nulls: int
    ) -> pa.Array:
        """Decimals and doubles of numbers whose digits are known."""
        if pa.types.is_decimal(kind):
            halves = np.zeros((self.count, 2), np.int64)
            for item in holders:
                halves[item.rows, 0] = item.wholes[path]
            halves[:, 1] = halves[:, 0] >> 63
            return pa.Array.from_buffers(kind, self.count, [valid, pa.py_buffer(halves)], nulls)
        doubles = np.zeros(self.count)
        for item in holders:
            doubles[item.rows] = item.wholes[path] / _POWERS[item.fractions[path]]
        return pa.Array.from_buffers(kind, self.count, [valid, pa.py_buffer(doubles)], nulls)

    def _texts(self, holders: list[Found], path: Path, valid: pa.Buffer | None, nulls: int) -> pa.StringArray:
        if len(holders) == 1:
            item = holders[0]
            rows, (starts, ends) = item.rows, item.texts[path]
        else:
            rows = np.concatenate([item.rows for item in holders])
            order = np.argsort(rows, kind="stable")
            rows = rows[order]
            starts, ends = (np.concatenate([item.texts[path][side] for item in holders])[order] for side in (0, 1))
        some = [item for item in holders if path in item.nulls]
        if some:
            null = np.zeros(self.count, bool)
            for item in some:
                null[item.rows] = item.nulls[path]
            starts = np.where(null[rows], ends, starts)
        texts = self.block.texts(starts, ends)
        if len(rows) == self.count and valid is None:
            return texts
        offsets = np.zeros(self.count + 1, np.int32)
        offsets[1:][rows] = ends - starts
        np.cumsum(offsets, out=offsets)
        return pa.StringArray.from_buffers(self.count, pa.py_buffer(offsets), texts.buffers()[2], valid, nulls)

    def _validity(self, holders: list[Found], path: Path | None) -> tuple[pa.Buffer | None, int]:
        """Bits of the messages of some layouts, but for values that are null; and how many there are not."""
        own = path is not None and any(item.nulls.get(path) is not None for item in holders)
        name = tuple(map(id, holders))
        if not own and name in self._validities:
            return self._validities[name]
        there = np.zeros(self.count, bool)
        for item in holders:
            null = item.nulls.get(path) if path is not None else None
            there[item.rows] = True if null is None else ~null
        nulls = self.count - int(there.sum())
        found = (pa.py_buffer(np.packbits(there, bitorder="little")) if nulls else None), nulls
        if not own:
            self._validities[name] = found
        return found
