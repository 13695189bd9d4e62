"""Dates and times in rows, in the forms since MySQL 5.6.4 and before.

The newer forms are big-endian: bit fields, then the fraction of a second in as many bytes as its digits need.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.gather import Cells, big, fixed, from_numbers, little
from upsert_platform.mysql.columns import ZeroDates

_SECOND = 1_000_000


def fraction_bytes(digits: int) -> int:
    """Bytes that the fraction of a second takes."""
    return (digits + 1) // 2


def timestamps(cells: Cells, kind: pa.DataType, *, digits: int, policy: ZeroDates, column: str) -> pa.Array:
    """TIMESTAMP: seconds since 1970 in UTC; all zeros are the date that is none."""
    extra = fraction_bytes(digits)
    matrix = fixed(cells, 4 + extra)
    seconds = big(matrix[:, :4]).astype(np.int64)
    micros = seconds * _SECOND + _micros(matrix[:, 4:], extra)
    return _dated(micros, micros != 0, kind, cells=cells, policy=policy, column=column)


def old_timestamps(cells: Cells, kind: pa.DataType, *, policy: ZeroDates, column: str) -> pa.Array:
    """TIMESTAMP before 5.6.4: little-endian seconds."""
    seconds = little(cells, 4, signed=False).astype(np.int64)
    return _dated(seconds * _SECOND, seconds != 0, kind, cells=cells, policy=policy, column=column)


def datetimes(cells: Cells, kind: pa.DataType, *, digits: int, policy: ZeroDates, column: str) -> pa.Array:
    """DATETIME: year times 13 plus month (17 bits), day (5), hour (5), minute (6), second (6); bias 2 to the 39th."""
    extra = fraction_bytes(digits)
    matrix = fixed(cells, 5 + extra)
    packed = big(matrix[:, :5]).astype(np.int64) - (1 << 39)
    months = packed >> 22
    clock = ((packed >> 12) & 31) * 3600 + ((packed >> 6) & 63) * 60 + (packed & 63)
    days, good = days_of(months // 13, months % 13, (packed >> 17) & 31)
    micros = (days * 86_400 + clock) * _SECOND + _micros(matrix[:, 5:], extra)
    return _dated(micros, good, kind, cells=cells, policy=policy, column=column)


def old_datetimes(cells: Cells, kind: pa.DataType, *, policy: ZeroDates, column: str) -> pa.Array:
    """DATETIME before 5.6.4: the decimal number YYYYMMDDhhmmss in 8 bytes."""
    packed = little(cells, 8, signed=False).astype(np.int64)
    date, time = packed // 1_000_000, packed % 1_000_000
    days, good = days_of(date // 10_000, date // 100 % 100, date % 100)
    clock = time // 10_000 * 3600 + time // 100 % 100 * 60 + time % 100
    return _dated((days * 86_400 + clock) * _SECOND, good, kind, cells=cells, policy=policy, column=column)


def dates(cells: Cells, kind: pa.DataType, *, policy: ZeroDates, column: str) -> pa.Array:
    """DATE: day (5 bits), month (4), year (15), little-endian in 3 bytes."""
    packed = little(cells, 3, signed=False).astype(np.int64)
    days, good = days_of(packed >> 9, (packed >> 5) & 15, packed & 31)
    return _dated(days.astype(np.int32), good, kind, cells=cells, policy=policy, column=column)


def times(cells: Cells, kind: pa.DataType, *, digits: int) -> pa.Array:
    """TIME as signed microseconds: hour (10 bits), minute (6), second (6), fraction, all of it biased by 2 to the 23rd.

    Below 0 the number as a whole, its fraction included, is negated.
    """
    extra = fraction_bytes(digits)
    packed = big(fixed(cells, 3 + extra)).astype(np.int64) - (1 << (23 + 8 * extra))
    size = np.abs(packed)
    fraction = (size & ((1 << (8 * extra)) - 1)) * 10 ** (6 - 2 * extra)
    whole = size >> (8 * extra)
    seconds = ((whole >> 12) & 1023) * 3600 + ((whole >> 6) & 63) * 60 + (whole & 63)
    return from_numbers(np.sign(packed) * (seconds * _SECOND + fraction), kind, cells.valid)


def old_times(cells: Cells, kind: pa.DataType) -> pa.Array:
    """TIME before 5.6.4: the signed decimal number hhmmss in 3 bytes."""
    packed = little(cells, 3, signed=True)
    size = np.abs(packed)
    seconds = size // 10_000 * 3600 + size // 100 % 100 * 60 + size % 100
    return from_numbers(np.sign(packed) * seconds * _SECOND, kind, cells.valid)


def time_texts(micros: pa.Array, *, digits: int) -> pa.Array:
    """TIME as a server writes it: hours of two digits or more, and as many digits of a second as are declared."""
    encoded = micros.dictionary_encode()
    texts = []
    for value in encoded.dictionary.to_pylist():
        seconds, fraction = divmod(abs(value), _SECOND)
        told = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        told += f".{fraction:06}"[: digits + 1] if digits else ""
        texts.append(f"-{told}" if value < 0 else told)
    return pa.array(texts, pa.string()).take(encoded.indices)


def _micros(matrix: np.ndarray, width: int) -> np.ndarray | int:
    """Microseconds of a fraction: one byte holds two digits, two hold four, three hold six."""
    return big(matrix).astype(np.int64) * 10 ** (6 - 2 * width) if width else 0


def days_of(year: np.ndarray, month: np.ndarray, day: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Days since 1970, and which of the dates exist; years 0 to 9999 of the proleptic Gregorian calendar."""
    inside = (month >= 1) & (month <= 12) & (day >= 1)
    start = (np.where(inside, year, 1970) - 1970) * 12 + np.where(inside, month, 1) - 1
    first = start.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    following = (start + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    good = inside & (first + day - 1 < following)
    return first + day - 1, good


def _dated(
    values: np.ndarray, good: np.ndarray, kind: pa.DataType, *, cells: Cells, policy: ZeroDates, column: str
) -> pa.Array:
    return dated(values, good, kind, present=cells.valid, policy=policy, column=column)


def dated(
    values: np.ndarray,
    good: np.ndarray,
    kind: pa.DataType,
    *,
    present: np.ndarray | None,
    policy: ZeroDates,
    column: str,
) -> pa.Array:
    """Dates, or moments, of which some do not exist.

    Args:
        values: days, or microseconds.
        good: which of them exist.
        present: which are not NULL; None if none is.

    Raises:
        ReplicationError: one does not exist, and the policy is to fail.
    """
    valid = good if present is None else good & present
    none = ~good if present is None else ~good & present
    if policy is ZeroDates.FAIL and none.any():
        told = f"{column}: {int(none.sum())} of {len(values)} values are dates that do not exist, such as 0000-00-00"
        raise ReplicationError(f"{told}; 'zero-dates' = 'null' carries them as NULL")
    return pa.array(values, mask=~valid).cast(kind)
