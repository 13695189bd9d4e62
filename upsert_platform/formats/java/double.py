"""Floating point numbers as ``Double.toString`` and ``Float.toString`` of JDK 8 to 18 write them.

Flink runs on Java 11 and 17 by default. Their algorithm generates digits until the number is told apart from its
neighbours; it is not always the shortest text (1.0E23 is written 9.999999999999999E22), because it asks for a second
digit where the text has an exponent, and takes neighbours as equally far on both sides. JDK 19 and newer write the
shortest digits; both read back as the same number.
"""

from __future__ import annotations

import math
import struct
from typing import Final

_POWERS_OF_5: Final = tuple(5**power for power in range(27))
_BITS_OF_5: Final = (0, *(power.bit_length() for power in _POWERS_OF_5[1:]))


def format_double(value: float) -> str:
    """Text of a double."""
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    return _format(value, bits & (1 << 52) - 1, bits >> 52 & 0x7FF, fraction_bits=52, bias=1023)


def format_float(value: float) -> str:
    """Text of a float, given as a double of the same value."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return _format(value, bits & (1 << 23) - 1, bits >> 23 & 0xFF, fraction_bits=23, bias=127)


def _format(value: float, fraction: int, exponent: int, *, fraction_bits: int, bias: int) -> str:
    if exponent == 2 * bias + 1:
        return "NaN" if fraction else "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if exponent == 0 and fraction == 0:
        return f"{sign}0.0"
    if exponent == 0:
        significant = fraction.bit_length()
        shift = fraction_bits + 1 - significant
        fraction <<= shift
        exponent = 1 - shift
    else:
        fraction |= 1 << fraction_bits
        significant = fraction_bits + 1
    digits, point = _digits(exponent - bias, fraction << (52 - fraction_bits), significant)
    return sign + lay_out(digits, point)


def lay_out(digits: str, point: int) -> str:
    """Digits with a decimal point after `point` of them, as Java places it: an exponent outside 0.001 to 10 000 000."""
    if -3 < point < 8:
        if point <= 0:
            return f"0.{'0' * -point}{digits}"
        padded = digits.ljust(point, "0")
        return f"{padded[:point]}.{padded[point:] or '0'}"
    return f"{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _digits(exponent: int, fraction: int, significant: int) -> tuple[str, int]:
    """Digits and the place of the point of fraction * 2**(exponent - 52), where bit 52 of the fraction is set."""
    tail = (fraction & -fraction).bit_length() - 1
    wide = 53 - tail
    tiny = max(0, wide - exponent - 1)
    if -21 <= exponent <= 62 and tiny == 0:
        return _whole_digits(exponent, fraction, significant)

    decimal = _estimate(fraction, exponent)
    b5, s5 = max(0, -decimal), max(0, decimal)
    b2 = b5 + tiny + exponent
    s2 = s5 + tiny
    m2 = b2 - significant
    fraction >>= tail
    b2 -= wide - 1
    common = min(b2, s2)
    b2, s2, m2 = b2 - common, s2 - common, m2 - common
    if wide == 1:
        m2 -= 1
    if m2 < 0:
        b2, s2, m2 = b2 - m2, s2 - m2, 0

    whole = wide + b2 + (_BITS_OF_5[b5] if b5 < 27 else b5 * 3)
    scale = s2 + 1 + (_BITS_OF_5[s5 + 1] if s5 + 1 < 27 else (s5 + 1) * 3)
    width = 32 if whole < 32 and scale < 32 else 64 if whole < 64 and scale < 64 else 0
    rest = fraction * 5**b5 << b2
    unit = 5**s5 << s2
    margin = 5**b5 << m2
    return _generate(rest, unit, margin, decimal, width)


def _generate(rest: int, unit: int, margin: int, decimal: int, width: int) -> tuple[str, int]:
    # `width` is that of the numbers Java computes in (0: unbounded): where they overflow, so do these.
    tens = unit * 10
    digit, rest = divmod(rest, unit)
    rest *= 10
    margin = _wrap(margin * 10, width)
    low, high = rest < margin, _reaches(rest, margin, tens, width)
    digits: list[int] = []
    if digit or high:
        digits.append(digit)
    else:
        decimal -= 1
    if decimal < -3 or decimal >= 8:
        low = high = False
    while not low and not high:
        digit, rest = divmod(rest, unit)
        digits.append(digit)
        rest *= 10
        margin = _wrap(margin * 10, width)
        low, high = margin <= 0 or rest < margin, margin <= 0 or _reaches(rest, margin, tens, width)
    if high and (not low or _round_up(rest, tens, digits)):
        decimal += _increment(digits)
    return "".join(map(str, digits)), decimal + 1


def _wrap(value: int, width: int) -> int:
    if not width or value < 1 << (width - 1):
        return value
    return (value + (1 << (width - 1))) % (1 << width) - (1 << (width - 1))


def _reaches(rest: int, margin: int, tens: int, width: int) -> bool:
    return _wrap(rest + margin, width) > tens if width else rest + margin >= tens


def _round_up(rest: int, tens: int, digits: list[int]) -> bool:
    doubled = rest * 2
    return doubled > tens or (doubled == tens and digits[-1] % 2 == 1)


def _increment(digits: list[int]) -> int:
    place = len(digits) - 1
    while digits[place] == 9 and place > 0:
        digits[place] = 0
        place -= 1
    if digits[place] == 9:
        digits[place] = 1
        return 1
    digits[place] += 1
    return 0


def _whole_digits(exponent: int, fraction: int, significant: int) -> tuple[str, int]:
    # A whole number below 2**63: the digits beyond its precision are rounded away.
    dropped = 0
    if exponent > significant and (power := exponent - significant - 1) > 1:
        dropped = len(str(1 << power)) - 1
    value = fraction << (exponent - 52) if exponent >= 52 else fraction >> (52 - exponent)
    if dropped:
        value, residue = divmod(value, 10**dropped)
        value += residue >= 10**dropped // 2
    text = str(value)
    return text.rstrip("0"), len(text) + dropped


def _estimate(fraction: int, exponent: int) -> int:
    mantissa = struct.unpack("<d", struct.pack("<Q", 0x3FF << 52 | fraction & (1 << 52) - 1))[0]
    return math.floor((mantissa - 1.5) * 0.289529654 + 0.176091259 + exponent * 0.301029995663981)
