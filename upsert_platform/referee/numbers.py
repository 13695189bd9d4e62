"""Numbers from texts, as Java's parsers take them, where that is beyond doubt."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import copysign

from upsert_platform.referee.errors import UndecodableError, UnjudgedError
from upsert_platform.referee.kinds import INTEGERS, Kind, rounded_decimal, single

_INTEGER = re.compile(r"[+-]?\d{1,200}", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,5})?[fFdD]?", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_LARGEST = float(2**128 - 2**104)
_OVERFLOWS = 2**128 - 2**103
_SMALLEST = 2.0**-149
"""Numbers of single precision: the largest, half a step beyond it, the smallest above zero."""
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "+Infinity": float("inf"), "-Infinity": float("-inf")}


def trimmed(text: str) -> str:
    """Without what Java's ``trim`` takes off: all characters up to the blank."""
    return text.strip("".join(map(chr, range(33))))


def read_integer(text: str, kind: Kind) -> int:
    """A whole number of the type's range."""
    text = trimmed(text)
    if not _INTEGER.fullmatch(text):
        raise _doubt(text, "whole number")
    return in_range(int(text), kind)


def in_range(value: int, kind: Kind) -> int:
    """The value, if the type can hold it."""
    bound = 1 << (INTEGERS[kind.root] - 1)
    if not -bound <= value < bound:
        raise UndecodableError(f"{value} is out of the range of {kind.root}")
    return value


def read_float(text: str, kind: Kind) -> float:
    """A number of single or double precision, rounded once."""
    text = trimmed(text)
    if text in _SPECIAL:
        return _SPECIAL[text]
    if not _DOUBLE.fullmatch(text):
        raise _doubt(text, "number")
    plain = text.rstrip("fFdD")
    value = float(plain)
    return value if kind.root == "DOUBLE" else _single(value, plain)


def _single(value: float, text: str) -> float:
    """The value of single precision that is nearest to the text itself, not to its double."""
    near = single(value)
    if near == value or abs(value) > 1e39:
        return near
    exact = Fraction(text)
    if abs(near) == float("inf"):
        return near if abs(exact) >= _OVERFLOWS else float(copysign(_LARGEST, value))
    other = copysign(_SMALLEST, value) if near == 0 else single(near + 2 * (value - near))
    return min((near, other), key=lambda item: abs(Fraction(item) - exact)) if abs(other) <= _LARGEST else near


def read_decimal(text: str, kind: Kind) -> Decimal | None:
    """A decimal, rounded half up; None where it has more digits than the type."""
    if not _DECIMAL.fullmatch(text):
        raise _doubt(text, "decimal")
    try:
        return rounded_decimal(Decimal(text), kind)
    except InvalidOperation:
        raise UnjudgedError(f"'{text[:40]}' is too long for the referee") from None


def _doubt(text: str, what: str) -> Exception:
    if any(char.isnumeric() for char in text) or not text.isascii():
        return UnjudgedError(f"'{text[:40]}' may be a {what}")
    return UndecodableError(f"'{text[:40]}' is not a {what}")
