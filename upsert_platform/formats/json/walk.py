"""Messages compared with a layout, from value to value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.formats.json.block import Block
from upsert_platform.formats.json.digits import MOST_DIGITS, TENS, points, wholes
from upsert_platform.formats.json.layout import Fixed, Layout, Path, Value

_QUOTE: Final = ord('"')
_NULL: Final = np.uint64(int.from_bytes(b"null", "little"))
_TRUE: Final = np.uint64(int.from_bytes(b"true", "little"))
_FALSE: Final = np.uint64(int.from_bytes(b"alse", "little"))
_FOUR_BYTES: Final = np.uint64(0xFFFFFFFF)
_EXACT: Final = 1 << 53
"""Below, whole numbers are doubles; so are powers of ten up to 22, and their quotient is rounded once."""
_NUMBER: Final = r"^-?(?:0|[1-9][0-9]{0,80})(?:\.[0-9]{1,80})?(?:[eE][+-]?[0-9]{1,3})?$"
_PLAIN_NUMBER: Final = r"^-?(?:0|[1-9][0-9]{0,80})(?:\.[0-9]{1,80})?$"
_LITERALS: Final = r"^(?:null|true|false)$"


@dataclass(slots=True)
class Found:
    """Messages of a layout, of which most follow each other.

    Attributes:
        rows: their numbers, ascending.
        texts: where values begin and end, by their paths.
        wholes: whole numbers and booleans by their paths; of other numbers their digits, where that is all of them.
        fractions: how many of these digits stand behind the point.
        nulls: which values are null, by their paths; of those that may be.
    """

    layout: Layout
    rows: np.ndarray
    texts: dict[Path, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    wholes: dict[Path, np.ndarray] = field(default_factory=dict)
    fractions: dict[Path, np.ndarray] = field(default_factory=dict)
    nulls: dict[Path, np.ndarray] = field(default_factory=dict)

    def keep(self, kept: np.ndarray) -> None:
        """Drops all other messages."""
        self.rows = self.rows[kept]
        self.texts = {path: (starts[kept], ends[kept]) for path, (starts, ends) in self.texts.items()}
        self.wholes = {path: numbers[kept] for path, numbers in self.wholes.items()}
        self.fractions = {path: digits[kept] for path, digits in self.fractions.items()}
        self.nulls = {path: nulls[kept] for path, nulls in self.nulls.items()}


@dataclass(slots=True)
class Walk:
    """Messages that have been compared with a layout up to some place of theirs.

    Attributes:
        item: they, and what was found in them.
        marks: places of all quotation marks.
        at: the place in each.
        mark: number of the next mark.
        last: number of the mark behind each message.
        end: where each ends.
    """

    block: Block
    item: Found
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
        """Return where the next mark of each message is; somewhere, if it has none."""
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
        if not kept.all():
            starts, ends, quoted = starts[kept], ends[kept], quoted[kept]
            if not self.keep(kept):
                return False
        if kind is not None:
            self.item.texts[value.path] = starts, ends
            if pa.types.is_decimal(kind):
                return self.keep(self._numbers(value.path, kind, starts, ends, ~quoted))
        return True

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
        """Return which values are read here, of those without marks, and which are null; notes numbers."""
        block = self.block
        if kind is not None and pa.types.is_integer(kind):
            numbers, good = wholes(block, starts, ends)
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
        if kind is not None:
            return self._numbers(path, kind, starts, ends, null), null
        return _matches(block.texts(starts, ends), f"{_NUMBER}|{_LITERALS}") | null, null

    def _numbers(
        self, path: Path, kind: pa.DataType, starts: np.ndarray, ends: np.ndarray, null: np.ndarray
    ) -> np.ndarray:
        """Return which values are numbers or null; notes their digits, if all of them are exact in their type."""
        if kind != pa.float32():
            digits, fractions, good = points(self.block, starts, ends)
            if pa.types.is_decimal(kind):
                digits, over = _scaled(digits, kind.scale - fractions)
                good &= ~over & (fractions <= kind.scale) & (np.abs(digits) < 10 ** min(kind.precision, MOST_DIGITS))
            else:
                good &= np.abs(digits) < _EXACT
            if (good | null).all():
                self.item.wholes[path], self.item.fractions[path] = np.where(null, 0, digits), fractions
                return good | null
        return _matches(self.block.texts(starts, ends), _pattern_of(kind)) | null

    def ends(self, fixed: Fixed) -> bool:
        """Return whether there are messages that end with some bytes; drops the others."""
        return self.passes(fixed) and self.keep((self.at == self.end) & (self.mark == self.last))


def _pattern_of(kind: pa.DataType) -> str:
    """Numbers that fit a decimal as they are, since Arrow does not tell of all that do not; or floating point ones."""
    if not pa.types.is_decimal(kind):
        return _PLAIN_NUMBER
    whole = kind.precision - kind.scale
    fraction = rf"(?:\.[0-9]{{1,{kind.scale}}})?" if kind.scale else ""
    return rf"^-?(?:0{rf'|[1-9][0-9]{{0,{whole - 1}}}' if whole else ''}){fraction}$"


def _scaled(digits: np.ndarray, zeros: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers with so many zeros behind them, and which of them would have more than 18 digits."""
    power = TENS[np.clip(zeros, 0, MOST_DIGITS)]
    over = (zeros > 18) | (np.abs(digits) > (10**18 - 1) // power)
    return np.where(over, 0, digits) * power, over


def _is_null(block: Block, places: np.ndarray) -> np.ndarray:
    return np.asarray(block.words[places] & _FOUR_BYTES == _NULL)


def _matches(texts: pa.StringArray, pattern: str) -> np.ndarray:
    return np.asarray(pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False))
