"""Java's SimpleDateFormat in UTC and English, as far as dates and times are written with it."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+", re.DOTALL)
_NUMBERS: Final = "yuMdDHkhKmsS"
_LETTERS: Final = _NUMBERS + "aEzZX"
_MONTHS: Final = tuple(calendar.month_name)[1:]
_DAYS: Final = tuple(calendar.day_name)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of one letter, or literal text where `letter` is empty."""

    letter: str
    text: str

    @property
    def is_number(self) -> bool:
        return self.letter != "" and self.letter in _NUMBERS and not (self.letter == "M" and len(self.text) > 2)


class DateFormat:
    """A pattern. Numbers beyond their range roll over, as Java's lenient calendar has it.

    Args:
        pattern: of SimpleDateFormat.

    Raises:
        ValueError: it has a letter that is not supported, or a quotation mark is not closed.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._pieces = tuple(_pieces(pattern))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DateFormat) and other.pattern == self.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def format(self, milliseconds: int) -> str:
        """The text of a moment.

        Raises:
            ValueError: the moment is outside the years 1 to 9999.
        """
        try:
            moment = _EPOCH + timedelta(milliseconds=milliseconds)
        except OverflowError:
            raise ValueError("the moment is outside the years 1 to 9999") from None
        return "".join(_shown(piece, moment) for piece in self._pieces)

    def parse(self, text: str) -> int:
        """The moment of a text, in milliseconds since 1970; what follows in the text is passed over.

        Raises:
            ValueError: it does not follow the pattern.
        """
        position = 0
        found: dict[str, int] = {}
        following = [after.is_number for _, after in pairwise(self._pieces)] + [False]
        for piece, adjoins in zip(self._pieces, following, strict=True):
            position = _read(piece, text, position, found, adjoins=adjoins)
        return _moment(found)


def _pieces(pattern: str) -> list[_Piece]:
    pieces: list[_Piece] = []
    position = 0
    while position < len(pattern):
        match = _TOKEN.match(pattern, position)
        if match is None:
            raise ValueError(f"'{pattern}': a quotation mark is not closed")
        quoted, letter = match.groups()
        if letter is not None:
            if letter not in _LETTERS:
                raise ValueError(f"'{pattern}': pattern letter '{letter}' is not supported")
            pieces.append(_Piece(letter, match.group()))
        else:
            pieces.append(_Piece("", "'" if quoted == "" else (quoted or match.group()).replace("''", "'")))
        position = match.end()
    return pieces


def _shown(piece: _Piece, moment: datetime) -> str:
    width = len(piece.text)
    match piece.letter:
        case "":
            return piece.text
        case "y":
            return f"{moment.year % 100:02}" if width == 2 else f"{moment.year:0{width}}"
        case "M" if width > 2:
            name = _MONTHS[moment.month - 1]
            return name if width > 3 else name[:3]
        case "E":
            name = _DAYS[moment.weekday()]
            return name if width > 3 else name[:3]
        case "a":
            return "AM" if moment.hour < 12 else "PM"
        case "z":
            return "UTC"
        case "Z":
            return "+0000"
        case "X":
            return "Z"
    return f"{_number(piece.letter, moment):0{width}}"


def _number(letter: str, moment: datetime) -> int:
    return {
        "u": moment.isoweekday(),
        "M": moment.month,
        "d": moment.day,
        "D": moment.timetuple().tm_yday,
        "H": moment.hour,
        "k": moment.hour or 24,
        "K": moment.hour % 12,
        "h": moment.hour % 12 or 12,
        "m": moment.minute,
        "s": moment.second,
        "S": moment.microsecond // 1000,
    }[letter]


def _read(piece: _Piece, text: str, position: int, found: dict[str, int], *, adjoins: bool) -> int:
    """Reads a piece and returns the position after it."""
    wrong = ValueError(f"'{text[:80]}' does not follow the pattern at character {position + 1}")
    if not piece.letter:
        if not text.startswith(piece.text, position):
            raise wrong
        return position + len(piece.text)
    if piece.is_number:
        # Numbers that touch have as many digits as their letters, others as many as there are.
        digits = rf"\d{{{len(piece.text)}}}" if adjoins else r"-?\d+"
        match = re.compile(rf"[ \t]*({digits})", re.ASCII).match(text, position)
        if match is None or len(match.group(1)) > 18:
            raise wrong
        number = int(match.group(1))
        if piece.letter == "y" and len(piece.text) == 2 and len(match.group(1)) == 2:
            century = datetime.now(UTC).year - 80
            number += (century - number + 99) // 100 * 100
        found[piece.letter] = number
        return match.end()
    if piece.letter in "ME":
        names = _MONTHS if piece.letter == "M" else _DAYS
        for index, name in enumerate(names):
            for form in (name, name[:3]):
                if text[position : position + len(form)].lower() == form.lower():
                    found[piece.letter] = index + 1 if piece.letter == "M" else 0
                    return position + len(form)
        raise wrong
    if piece.letter == "a":
        half = text[position : position + 2].upper()
        if half not in ("AM", "PM"):
            raise wrong
        found["a"] = int(half == "PM")
        return position + 2
    zone = re.compile(r"(?:UTC|GMT)?(?:([+-])(\d\d?):?(\d\d)?)|UTC|GMT|Z").match(text, position)
    if zone is None:
        raise wrong
    sign, hours, minutes = zone.groups()
    offset = int(hours or 0) * 60 + int(minutes or 0)
    found["offset"] = -offset if sign == "-" else offset
    return zone.end()


def _moment(found: dict[str, int]) -> int:
    months = found.get("M", 1) - 1
    year, month = found.get("y", 1970) + months // 12, months % 12 + 1
    hours = found.get("H", found.get("k", 0) % 24)
    if "h" in found or "K" in found:
        hours = found.get("h", found.get("K", 0)) % 12 + 12 * found.get("a", 0)
    try:
        day = datetime(year, month, 1, tzinfo=UTC)
        days = found["D"] - 1 if "D" in found and "d" not in found else found.get("d", 1) - 1
        if "D" in found and "d" not in found:
            day = datetime(year, 1, 1, tzinfo=UTC)
        moment = day + timedelta(
            days=days, hours=hours, minutes=found.get("m", 0) - found.get("offset", 0), seconds=found.get("s", 0),
            milliseconds=found.get("S", 0),
        )  # fmt: skip
    except (ValueError, OverflowError):
        raise ValueError("the moment is outside the years 1 to 9999") from None
    return (moment - _EPOCH) // timedelta(milliseconds=1)
