"""DECIMAL in rows: groups of nine digits in four bytes, big-endian, the other digits in as few bytes as hold them.

The digits before and after the point are grouped apart, from the point outwards. The first bit is set for numbers from
0 on; of a number below 0 every bit is inverted (MySQL's ``strings/decimal.c`` tells the form).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from upsert_platform.mysql.binlog import gather
from upsert_platform.mysql.binlog.gather import Cells

_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes that so many digits take."""
_HALF: Final = 64


def groups(precision: int, scale: int) -> list[int]:
    """Digits of each group, in the order of the bytes."""
    whole, fraction = precision - scale, scale
    found = [whole % 9] if whole % 9 else []
    found += [9] * (whole // 9) + [9] * (fraction // 9)
    return found + ([fraction % 9] if fraction % 9 else [])


def width(precision: int, scale: int) -> int:
    """Bytes of one value."""
    return sum(_BYTES[digits] for digits in groups(precision, scale))


def read(cells: Cells, kind: pa.DataType, *, precision: int, scale: int) -> pa.Array:
    """DECIMAL as Arrow's decimals, or as text where it has more digits than these hold."""
    matrix = gather.fixed(cells, width(precision, scale)).copy()
    negative = (matrix[:, 0] & 0x80) == 0
    matrix[:, 0] ^= 0x80
    matrix[negative] ^= 0xFF
    if cells.valid is not None:
        matrix[~cells.valid] = 0
    small = precision <= 18
    total = np.zeros(len(cells), np.int64 if small else object)
    at = 0
    for digits in groups(precision, scale):
        size = _BYTES[digits]
        part = gather.big(matrix[:, at : at + size]).astype(np.int64)
        total = total * 10**digits + (part if small else part.astype(object))
        at += size
    total = np.where(negative, -total, total)
    if not pa.types.is_decimal(kind):
        return pa.array(
            [
                _text(int(number), scale) if cells.valid is None or cells.valid[row] else None
                for row, number in enumerate(total)
            ],
            pa.string(),
        )
    if small:
        return gather.decimals(total.view(np.uint64), total >> 63, kind, cells.valid)
    low = (total & ((1 << _HALF) - 1)).astype(np.uint64)
    return gather.decimals(low, (total >> _HALF).astype(np.int64), kind, cells.valid)


def _text(number: int, scale: int) -> str:
    """A number as the server shows it: every digit after the point, a zero before it."""
    digits = str(abs(number)).rjust(scale + 1, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"
