"""Numbers and text as the Java classes behind Flink's formats read and write them.

Reading: ``Integer.parseInt``, ``Double.parseDouble``, ``new BigDecimal(String)``, ``DecimalData.fromBigDecimal``.
Writing: ``BigDecimal.toString``; floating point numbers are written by `java_double`.
"""

from __future__ import annotations

import re
import struct
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

BLANKS: Final = "".join(map(chr, range(33)))
"""What ``String.trim`` takes away: all characters up to the blank."""

_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?")
_DOUBLE = re.compile(
    r"[+-]?(?:(NaN)|(Infinity)|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    r"|(0[xX](?:[0-9A-Fa-f]+\.?|[0-9A-Fa-f]*\.[0-9A-Fa-f]+)[pP][+-]?[0-9]+))[fFdD]?)"
)
WIDE: Final = Context(prec=100_000, Emax=999_999_999_999, Emin=-999_999_999_999, rounding=ROUND_HALF_UP)
"""Arithmetic on decimals of any size, as Java's."""
_INT_BOUND = 2**31
_FLOAT_MAX: Final = float(2**128 - 2**104)
_FLOAT_END: Final = Decimal(2**128 - 2**103)


def parse_integer(text: str, bits: int) -> int:
    """Reads a whole number of 8 to 64 bits; digits of any script in the Basic Multilingual Plane count.

    Raises:
        ValueError: no number, or out of range.
    """
    if _INTEGER.fullmatch(text) is None or (not text.isascii() and max(text) > "\uffff"):
        raise ValueError(f"'{shorten(text)}' is not a whole number")
    value = int(text)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"{shorten(text)} is out of the range of {bits} bits")
    return value


def parse_double(text: str) -> float:
    """Reads a double; NaN, Infinity, hexadecimal numbers and the suffixes f and d are allowed, outer blanks ignored.

    Raises:
        ValueError: no number.
    """
    trimmed = text.strip(BLANKS)
    match = _DOUBLE.fullmatch(trimmed)
    if match is None:
        raise ValueError(f"'{shorten(text)}' is not a number")
    if match[3]:
        return _hexadecimal(trimmed)
    return float(trimmed) if match[1] or match[2] else float(trimmed.rstrip("fFdD"))


def parse_float(text: str) -> float:
    """Reads a float in one rounding (not through a double); the result is a double of the same value.

    Raises:
        ValueError: no number.
    """
    wide = parse_double(text)
    bits = struct.unpack("<q", struct.pack("<d", wide))[0]
    if bits & 0x1FFFFFFF != 0x10000000 and abs(wide) >= 1.2e-38:
        return narrow(wide)
    return _nearest_float(text.strip(BLANKS).rstrip("fFdD"), wide)


def narrow(value: float) -> float:
    """A double rounded to the nearest float; Infinity beyond the range."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _nearest_float(text: str, wide: float) -> float:
    # The double may lie exactly between two floats although the text does not: decide by the text.
    first = narrow(wide)
    if wide != wide or abs(wide) == float("inf") or "x" in text.lower():
        return first
    if abs(first) == float("inf"):
        if WIDE.create_decimal(text).copy_abs() >= _FLOAT_END:  # abs() would round to 28 digits
            return first
        first = _FLOAT_MAX if wide > 0 else -_FLOAT_MAX
    bits = struct.unpack("<i", struct.pack("<f", abs(first)))[0]
    exact = WIDE.create_decimal(text).copy_abs()
    best = min(
        (bits + step for step in (-1, 0, 1) if 0 <= bits + step < 0x7F800000),
        key=lambda one: (_distance(Decimal(struct.unpack("<f", struct.pack("<i", one))[0]), exact), one & 1),
    )
    magnitude: float = struct.unpack("<f", struct.pack("<i", best))[0]
    return -magnitude if text.startswith("-") else magnitude


def _distance(one: Decimal, other: Decimal) -> Decimal:
    return WIDE.subtract(one, other).copy_abs()


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(re.sub(r"[fFdD]$", "", text))
    except OverflowError:
        return float("-inf") if text.startswith("-") else float("inf")


_LARGEST_POWER: Final = 536_870_919
"""The greatest power of ten that a BigInteger takes."""


def parse_decimal(text: str) -> Decimal:
    """Reads a decimal of any size; no blanks.

    Raises:
        ValueError: no number, or an exponent of more than 32 bits.
    """
    match = _DECIMAL.fullmatch(text)
    if match is None or (not text.isascii() and max(text) > "\uffff"):
        raise ValueError(f"'{shorten(text)}' is not a decimal number")
    if match[1] and not -_INT_BOUND < int(match[1]) < _INT_BOUND:
        raise ValueError(f"the exponent of '{shorten(text)}' is too large")
    return Decimal(text, WIDE)


def fit_decimal(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """A decimal rounded half up to a scale; None when it then has too many digits (Flink's silent overflow).

    Raises:
        ValueError: written out it is more than Java's integers hold, which is an error there.
    """
    if value and value.adjusted() >= precision - scale:
        power = value.as_tuple().exponent
        if isinstance(power, int) and power + scale > _LARGEST_POWER:
            raise ValueError(f"the exponent {power} is too large")
        return None
    fitted = value.quantize(Decimal((0, (1,), -scale)), context=WIDE)
    if fitted and fitted.adjusted() >= precision - scale:
        return None
    return fitted if fitted else fitted.copy_abs()


def format_decimal(value: Decimal, *, strip: bool) -> str:
    """Text of a decimal.

    Args:
        strip: take trailing zeros away first, also before the point (1200.00 is written 1.2E+3).
    """
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0") or "0"
    if strip:
        stripped = text.rstrip("0")
        exponent, text = (exponent + len(text) - len(stripped), stripped) if stripped else (0, "0")
    mark = "-" if sign and text != "0" else ""
    adjusted = exponent + len(text) - 1
    if exponent == 0:
        return mark + text
    if exponent < 0 and adjusted >= -6:
        padded = text.rjust(1 - exponent, "0")
        return f"{mark}{padded[:exponent]}.{padded[exponent:]}"
    fraction = f".{text[1:]}" if len(text) > 1 else ""
    return f"{mark}{text[0]}{fraction}E{adjusted:+d}"


def repair_surrogates(text: str) -> str:
    """Text with each lone surrogate as a question mark, as Java writes it to UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def shorten(text: str, limit: int = 40) -> str:
    """The beginning of a text, for messages."""
    return text if len(text) <= limit else text[:limit] + "…"
