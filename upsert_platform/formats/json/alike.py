"""JSON messages that are written alike, read in bulk: their values stand between bytes that are compared at once.

A layout (`layout`) is learned from a message, and its constant bytes are compared with those of all others, so that no
message has to be parsed; then values are cut out by the places of quotation marks. A message with other bytes, or with
a value that is not written plainly, is none of a layout's, and is left to another reader.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.formats.json.layout import MOST_FIXED, Fixed, Layout, Path, Value, layout_of
from upsert_platform.formats.messages import Messages

_FEWEST: Final = 64
"""Messages for which a layout is looked for."""
_MOST_LAYOUTS: Final = 8
_AT_ONCE: Final = 16_384
"""Messages that are looked at together: few enough to stay in the processor's cache."""
_MOST_BYTES: Final = 1 << 30
_TRIES: Final = 8
_LEAST_SHARE: Final = 128
"""Of as many messages a layout has one; rarer ones are not worth a look."""
_PATIENCE: Final = 3
"""Blocks that are tried in vain before none is tried for `_PAUSE` blocks."""
_PAUSE: Final = 200
_ROOM: Final = MOST_FIXED + 64
"""Bytes before and behind the messages, so that words at their ends can be read."""
_QUOTE, _BACKSLASH, _SPACE, _MINUS, _ZERO = (ord(sign) for sign in '"\\ -0')
_NULL: Final = np.uint64(int.from_bytes(b"null", "little"))
_TRUE: Final = np.uint64(int.from_bytes(b"true", "little"))
_FALSE: Final = np.uint64(int.from_bytes(b"alse", "little"))
_FOUR_BYTES: Final = np.uint64(0xFFFFFFFF)
_ZEROS: Final = np.uint64(0x3030303030303030)
_FILL: Final = np.array([(1 << 8 * (8 - count)) - 1 for count in range(9)], np.uint64)
"""Masks of the bytes before the last so many of a word."""
_MOST_DIGITS: Final = 18
_NUMBER: Final = r"^-?(?:0|[1-9][0-9]{0,80})(?:\.[0-9]{1,80})?(?:[eE][+-]?[0-9]{1,3})?$"
_PLAIN_NUMBER: Final = r"^-?(?:0|[1-9][0-9]{0,80})(?:\.[0-9]{1,80})?$"
_LITERALS: Final = r"^(?:null|true|false)$"


@dataclass(slots=True)
class _Block:
    """The bytes of messages.

    Attributes:
        data: with room before and behind; all places count from its start.
        words: of eight bytes, from each place on.
        bounds: where each message begins, and where the last one ends.
    """

    data: np.ndarray
    words: np.ndarray
    bounds: np.ndarray

    @staticmethod
    def of(messages: Messages) -> _Block | None:
        """The bytes, if they are UTF-8 and not too many."""
        array = messages.array
        if array.type != pa.binary():
            return None
        try:
            array.view(pa.string()).validate(full=True)
        except pa.ArrowInvalid:
            return None
        offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        if last - first > _MOST_BYTES or array.buffers()[2] is None:
            return None
        data = np.empty(last - first + 2 * _ROOM, np.uint8)
        data[:_ROOM] = data[-_ROOM:] = _SPACE
        data[_ROOM:-_ROOM] = np.frombuffer(array.buffers()[2], np.uint8)[first:last]
        words = np.ndarray(shape=(len(data) - 7,), dtype="<u8", buffer=data.data, strides=(1,))
        return _Block(data, words, offsets.astype(np.int64) - first + _ROOM)

    def texts(self, starts: np.ndarray, ends: np.ndarray) -> pa.StringArray:
        """The texts between places, which ascend."""
        offsets = np.empty(2 * len(starts) + 1, np.int32)
        offsets[:-1:2], offsets[1::2], offsets[-1] = starts, ends, ends[-1] if len(ends) else 0
        every = pa.StringArray.from_buffers(2 * len(starts), pa.py_buffer(offsets), pa.py_buffer(self.data))
        return every.take(pa.array(np.arange(0, 2 * len(starts), 2, dtype=np.int32)))


@dataclass(slots=True)
class _Found:
    """Messages of a layout, of which most follow each other.

    Attributes:
        rows: their numbers, ascending.
        texts: where values begin and end, by their paths.
        wholes: whole numbers and booleans by their paths.
        nulls: which values are null, by their paths; of those that may be.
    """

    layout: Layout
    rows: np.ndarray
    texts: dict[Path, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    wholes: dict[Path, np.ndarray] = field(default_factory=dict)
    nulls: dict[Path, np.ndarray] = field(default_factory=dict)

    def keep(self, kept: np.ndarray) -> None:
        """Drops all other messages."""
        self.rows = self.rows[kept]
        self.texts = {path: (starts[kept], ends[kept]) for path, (starts, ends) in self.texts.items()}
        self.wholes = {path: numbers[kept] for path, numbers in self.wholes.items()}
        self.nulls = {path: nulls[kept] for path, nulls in self.nulls.items()}


@dataclass(slots=True)
class _Walk:
    """Messages that have been compared with a layout up to some place of theirs.

    Attributes:
        item: they, and what was found in them.
        marks: places of all quotation marks.
        at: the place in each.
        mark: number of the next mark.
        last: number of the mark behind each message.
        end: where each ends.
    """

    block: _Block
    item: _Found
    marks: np.ndarray
    at: np.ndarray
    mark: np.ndarray
    last: np.ndarray
    end: np.ndarray

    def keep(self, kept: np.ndarray) -> bool:
        """Drops all other messages; returns whether there are any left."""
        if not kept.all():
            self.item.keep(kept)
            self.at, self.mark, self.last, self.end = (
                places[kept] for places in (self.at, self.mark, self.last, self.end)
            )
        return bool(len(self.at))

    def passes(self, fixed: Fixed) -> bool:
        """Goes on behind bytes that stay the same, in messages that have them; returns whether there are any."""
        wrong = np.zeros(len(self.at), np.uint64)
        for distance, word, mask in fixed.words:
            differs = self.block.words[self.at + distance]
            differs ^= word
            if mask is not None:
                differs &= mask
            wrong |= differs
        self.at = self.at + fixed.length
        self.mark = self.mark + fixed.marks
        return self.keep((wrong == 0) & (self.at <= self.end))

    def next_mark(self, further: int = 0) -> np.ndarray:
        """Where the next mark of each message is; somewhere, if it has none."""
        return self.marks[np.minimum(self.mark + further, len(self.marks) - 1)]

    def takes(self, value: Value, kind: pa.DataType | None) -> bool:
        """Goes on behind a value, in messages that have one that is read here; returns whether there are any."""
        if kind == pa.string() or (value.quoted if kind is None or pa.types.is_decimal(kind) else False):
            return self._takes_text(value, kind)
        return self._takes_scalar(value, kind)

    def _takes_text(self, value: Value, kind: pa.DataType | None) -> bool:
        quoted = self.block.data[self.at] == _QUOTE
        if quoted.all():
            starts, ends = self.at + 1, self.next_mark(1)
            self.at, self.mark = ends + 1, self.mark + 2
            kept = self.mark <= self.last
        else:
            null = _is_null(self.block, self.at)
            ends = np.where(quoted, self.next_mark(1), self.at)
            starts = self.at + quoted
            self.at = np.where(quoted, ends + 1, self.at + len("null"))
            self.mark = self.mark + 2 * quoted
            kept = (self.mark <= self.last) & (quoted | null)
            self.item.nulls[value.path] = ~quoted
        if kind is not None and pa.types.is_decimal(kind) and kept.all():
            kept = kept & (_matches(self.block.texts(starts, ends), _PLAIN_NUMBER) | ~quoted)
        if kind is not None:
            self.item.texts[value.path] = starts, ends
        return self.keep(kept)

    def _takes_scalar(self, value: Value, kind: pa.DataType | None) -> bool:
        starts = self.at
        ends = self.end - value.trail if value.is_last else self.next_mark() - value.trail
        kept = (ends > starts) & (ends <= self.end)
        if not kept.all():
            if not self.keep(kept):
                return False
            starts, ends = starts[kept], ends[kept]
        self.at = ends
        kept, null = self._judged(value.path, kind, starts, ends)
        if null is not None:
            self.item.nulls[value.path] = null
        if kind is not None:
            self.item.texts[value.path] = starts, ends
        return self.keep(kept)

    def _judged(
        self, path: Path, kind: pa.DataType | None, starts: np.ndarray, ends: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Which values are read here, of those without marks, and which are null; notes numbers."""
        block = self.block
        if kind is not None and pa.types.is_integer(kind):
            numbers, good = _wholes(block, starts, ends)
            if kind != pa.int64():
                bounds = np.iinfo(kind.to_pandas_dtype())
                good &= (numbers >= bounds.min) & (numbers <= bounds.max)
            self.item.wholes[path] = numbers
            if good.all():
                return good, None
        null = (ends - starts == len("null")) & _is_null(block, starts)
        if kind is not None and pa.types.is_integer(kind):
            return good | null, null
        if kind is not None and pa.types.is_boolean(kind):
            true = (ends - starts == len("true")) & (block.words[starts] & _FOUR_BYTES == _TRUE)
            false = (ends - starts == len("false")) & (block.data[starts] == ord("f"))
            false &= block.words[starts + 1] & _FOUR_BYTES == _FALSE
            self.item.wholes[path] = true.astype(np.int64)
            return true | false | null, null
        if kind is not None and pa.types.is_struct(kind):
            return null, null
        pattern = _PLAIN_NUMBER if kind is not None else f"{_NUMBER}|{_LITERALS}"
        return _matches(block.texts(starts, ends), pattern) | null, null

    def ends(self, fixed: Fixed) -> bool:
        """Return whether there are messages that end with some bytes; drops the others."""
        return self.passes(fixed) and self.keep((self.at == self.end) & (self.mark == self.last))


def _is_null(block: _Block, places: np.ndarray) -> np.ndarray:
    return np.asarray(block.words[places] & _FOUR_BYTES == _NULL)


def _matches(texts: pa.StringArray, pattern: str) -> np.ndarray:
    return np.asarray(pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False))


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
        try:
            found = self._found(messages)
        except pa.ArrowInvalid:  # a decimal with too many digits
            found = None
        if found is None:
            self._layouts.clear()
            self._misses += 1
            return None
        self._misses = 0
        return found

    def _found(self, messages: Messages) -> tuple[list[pa.Array], np.ndarray | None] | None:
        block = _Block.of(messages)
        if block is None:
            return None
        count = len(messages)
        open_, found = np.ones(count, bool), list[_Found]()
        for start in range(0, count, _AT_ONCE):
            stop = min(start + _AT_ONCE, count)
            self._match(messages, block, start, stop, open_, found)
            if 4 * sum(len(item.rows) for item in found) < 3 * stop:
                return None
        rows = sum(len(item.rows) for item in found)
        found = _merged(found)
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
        return _Assembly(block, found, rows).columns(self.wire), places

    def _match(
        self, messages: Messages, block: _Block, start: int, stop: int, open_: np.ndarray, found: list[_Found]
    ) -> None:
        """Finds the messages of layouts among some, and learns the layouts of others."""
        bounds = block.bounds[start : stop + 1]
        data = block.data[bounds[0] : bounds[-1]]
        odd = data == _BACKSLASH
        if data.min() < _SPACE:
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
            new = layout_of(messages[start + row])
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
        block: _Block,
        bounds: np.ndarray,
        marks: np.ndarray,
        first: np.ndarray,
        start: int,
        open_: np.ndarray,
        found: list[_Found],
    ) -> None:
        """Adds the open messages of a layout, which are open no longer."""
        rows = np.flatnonzero(open_[start : start + len(first) - 1])
        if not len(rows):
            return
        item = _Found(layout, rows + start)
        walk = _Walk(block, item, marks, bounds[rows], first[rows], first[rows + 1], bounds[rows + 1])
        for value in layout.values:
            if not (walk.passes(value.before) and walk.takes(value, self._kinds.get(value.path))):
                return
        if walk.ends(layout.behind):
            open_[item.rows] = False
            found.append(item)


def _wholes(block: _Block, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers between places, and which of them are such numbers: of at most 18 digits, without zeros before."""
    first = block.data[starts]
    negative = first == _MINUS
    signed = bool(negative.any())
    if signed:
        starts = starts + negative
        first = block.data[starts]
    digits = ends - starts
    good = first != _ZERO
    good |= digits == 1
    most = int(digits.max(initial=0))
    if most > _MOST_DIGITS or digits.min(initial=1) < 1:
        good &= (digits > 0) & (digits <= _MOST_DIGITS)
        digits = np.clip(digits, 0, _MOST_DIGITS)
    total = np.zeros(len(starts), np.int64)
    for group in range(-(-min(most, _MOST_DIGITS) // 8)):
        fill = _FILL[np.minimum(digits, 8) if not group else np.clip(digits - 8 * group, 0, 8)]
        word = block.words[ends - 8 * (group + 1)]
        word &= ~fill
        word |= _ZEROS & fill
        value, odd = _eight_digits(word)
        good &= odd == 0
        total = value if not group else total + value * 100_000_000**group
    return np.where(negative, -total, total) if signed else total, good


def _eight_digits(word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number whose digits are the bytes of a word, the last one highest; and bits where one is no digit."""
    with np.errstate(over="ignore"):
        digits = word - _ZEROS
        odd = ((digits + np.uint64(0x7676767676767676)) | digits | word) & np.uint64(0x8080808080808080)
        pairs = digits * np.uint64(10) + (digits >> np.uint64(8))
        mask = np.uint64(0x000000FF000000FF)
        upper = (pairs & mask) * np.uint64(0x000F424000000064)
        lower = ((pairs >> np.uint64(16)) & mask) * np.uint64(0x0000271000000001)
        return ((upper + lower) >> np.uint64(32)).astype(np.int64), odd


def _merged(found: list[_Found]) -> list[_Found]:
    """One for each layout."""
    merged = []
    for layout in dict.fromkeys(item.layout for item in found):
        items = [item for item in found if item.layout is layout]
        rows = np.concatenate([item.rows for item in items])
        whole = _Found(layout, rows)
        for path in items[0].texts:
            starts, ends = zip(*(item.texts[path] for item in items), strict=True)
            whole.texts[path] = np.concatenate(starts), np.concatenate(ends)
        for path in items[0].wholes:
            whole.wholes[path] = np.concatenate([item.wholes[path] for item in items])
        for path in {path for item in items for path in item.nulls}:
            parts = [item.nulls.get(path, np.zeros(len(item.rows), bool)) for item in items]
            whole.nulls[path] = np.concatenate(parts)
        merged.append(whole)
    return merged


@dataclass(slots=True)
class _Assembly:
    """Columns of the messages of several layouts.

    Attributes:
        count: of messages; each is of one of the layouts.
    """

    block: _Block
    found: list[_Found]
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
        texts = self._texts(holders, path, valid, nulls)
        return texts if kind == pa.string() else texts.cast(kind)

    def _texts(self, holders: list[_Found], path: Path, valid: pa.Buffer | None, nulls: int) -> pa.StringArray:
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

    def _validity(self, holders: list[_Found], path: Path | None) -> tuple[pa.Buffer | None, int]:
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
