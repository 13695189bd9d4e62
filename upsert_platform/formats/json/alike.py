"""JSON messages that are written alike, read in bulk: their values stand between bytes that are compared at once.

A layout (`layout`) is learned from a message, and its constant bytes are compared with those of all others, so that no
message has to be parsed; then values are cut out by the places of quotation marks. A message with other bytes, or with
a value that is not written plainly, is none of a layout's, and is left to another reader.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from upsert_platform.formats.json.assembly import Assembly, merged
from upsert_platform.formats.json.block import Block
from upsert_platform.formats.json.layout import Layout, Path, layout_of
from upsert_platform.formats.json.walk import Found, Walk
from upsert_platform.formats.messages import Messages

_FEWEST: Final = 64
"""Messages for which a layout is looked for."""
_MOST_LAYOUTS: Final = 8
_AT_ONCE: Final = 16_384
"""Messages that are looked at together: few enough to stay in the processor's cache."""
_TRIES: Final = 8
_LEAST_SHARE: Final = 128
"""Of as many messages a layout has one; rarer ones are not worth a look."""
_PATIENCE: Final = 3
"""Blocks that are tried in vain before none is tried for `_PAUSE` blocks."""
_PAUSE: Final = 200
_QUOTE, _BACKSLASH, _SPACE = (ord(sign) for sign in '"\\ ')


class AlikeReader:
    """Reads blocks of messages in Arrow types that a JSON reader would be given.

    It remembers layouts from block to block.

    Args:
        wire: the columns, of whole numbers, texts, decimals, floating point numbers, booleans and structs of these.
    """

    def __init__(self, wire: pa.Schema) -> None:
        self.wire = wire
        self._layouts: list[Layout] = []
        self._misses = 0
        self._kinds = dict(_leaves(wire))
        self._suits = all(_is_read(item.type) for item in wire)

    def read(self, messages: Messages) -> tuple[list[pa.Array], np.ndarray | None] | None:
        """The columns of messages, and their places, None standing for all; None where many have no layout."""
        if not self._suits or len(messages) < _FEWEST:
            return None
        if self._misses >= _PATIENCE:
            self._misses = (self._misses + 1) % _PAUSE
            return None
        block = Block.of(messages)
        if block is None:
            return None
        try:
            found = self._found(messages, block)
        except pa.ArrowInvalid:  # a decimal with too many digits
            found = None
        if found is None:
            self._layouts.clear()
            self._misses += 1
            return None
        self._misses = 0
        return found

    def _found(self, messages: Messages, block: Block) -> tuple[list[pa.Array], np.ndarray | None] | None:
        count = len(messages)
        open_, found = np.ones(count, bool), list[Found]()
        for start in range(0, count, _AT_ONCE):
            stop = min(start + _AT_ONCE, count)
            self._match(messages, block, start, stop, open_, found)
            if 4 * sum(len(item.rows) for item in found) < 3 * stop:
                return None
        rows = sum(len(item.rows) for item in found)
        found = merged(found)
        often = {item.layout: len(item.rows) for item in found}
        self._layouts.sort(key=lambda layout: -often.get(layout, 0))  # the first one leaves few to the others
        places = None
        if rows < count:
            places = np.sort(np.concatenate([item.rows for item in found]))
            number = np.full(count, -1)
            number[places] = np.arange(rows)
            for item in found:
                item.rows = number[item.rows]
            block.bounds = block.bounds[:-1][places]
        return Assembly(block, found, rows).columns(self.wire), places

    def _match(
        self, messages: Messages, block: Block, start: int, stop: int, open_: np.ndarray, found: list[Found]
    ) -> None:
        """Finds the messages of layouts among some, and learns the layouts of others."""
        bounds = block.bounds[start : stop + 1]
        data = block.data[bounds[0] : bounds[-1]]
        odd = data == _BACKSLASH
        if data.min(initial=_SPACE) < _SPACE:
            odd |= data < _SPACE
        if odd.any():
            open_[start + np.searchsorted(bounds, np.flatnonzero(odd) + bounds[0], side="right") - 1] = False
        marks = np.flatnonzero(data == _QUOTE)
        marks += bounds[0]
        first = np.searchsorted(marks, bounds)
        for layout in self._layouts:
            self._take(layout, block, bounds, marks, first, start, open_, found)
        left = np.flatnonzero(open_[start:stop])
        for _ in range(_TRIES):
            if len(left) * _LEAST_SHARE < stop - start or not len(left) or len(self._layouts) >= _MOST_LAYOUTS:
                break
            row, before = int(left[0]), len(found)
            new = layout_of(messages.array[start + row].as_py())
            if new is not None and self._fits(new):
                self._take(new, block, bounds, marks, first, start, open_, found)
                if len(found) > before and len(found[-1].rows) * _LEAST_SHARE >= stop - start:
                    self._layouts.append(new)
            left = np.flatnonzero(open_[start:stop])
            left = left[left > row]

    def _fits(self, layout: Layout) -> bool:
        """Return whether each value is of the kind that its column takes."""
        kinds = self._kinds
        if any(path in kinds and not pa.types.is_struct(kinds[path]) for path in layout.objects):
            return False
        for value in layout.values:
            kind = kinds.get(value.path)
            if value.null or kind is None:
                continue
            if value.quoted != (kind == pa.string()) and not pa.types.is_decimal(kind):
                return False
        return True

    def _take(
        self,
        layout: Layout,
        block: Block,
        bounds: np.ndarray,
        marks: np.ndarray,
        first: np.ndarray,
        start: int,
        open_: np.ndarray,
        found: list[Found],
    ) -> None:
        """Adds the open messages of a layout, which are open no longer."""
        rows = np.flatnonzero(open_[start : start + len(first) - 1])
        if not len(rows):
            return
        item = Found(layout, rows + start)
        walk = Walk(block, item, marks, bounds[rows], first[rows], first[rows + 1], bounds[rows + 1])
        for value in layout.values:
            if not (walk.passes(value.before) and walk.takes(value, self._kinds.get(value.path))):
                return
        if walk.ends(layout.behind):
            open_[item.rows] = False
            found.append(item)


def _is_read(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(kind):
        return all(_is_read(item.type) for item in kind)
    numbers = types.is_signed_integer(kind) or types.is_floating(kind) or types.is_decimal128(kind)
    return numbers or types.is_boolean(kind) or kind == pa.string()


def _leaves(wire: pa.Schema) -> list[tuple[Path, pa.DataType]]:
    """Columns and fields by their paths, structs too."""
    found: list[tuple[Path, pa.DataType]] = []

    def add(kind: pa.DataType, path: Path) -> None:
        found.append((path, kind))
        if pa.types.is_struct(kind):
            for item in kind:
                add(item.type, (*path, item.name))

    for item in wire:
        add(item.type, (item.name,))
    return found
