"""Numbers that stand as text in a block of messages, eight digits at a time."""

from __future__ import annotations

from typing import Final

import numpy as np

from upsert_platform.formats.json.block import Block

MOST_DIGITS: Final = 18
_MINUS, _ZERO, _POINT = ord("-"), ord("0"), ord(".")
_ZEROS: Final = np.uint64(0x3030303030303030)
_POINTS: Final = np.uint64(0x2E2E2E2E2E2E2E2E)
_LOW: Final = np.uint64(0x0101010101010101)
_HIGH: Final = np.uint64(0x8080808080808080)
_FILL: Final = np.array([(1 << 8 * (8 - count)) - 1 for count in range(9)], np.uint64)
"""Masks of the bytes before the last so many of a word."""
TENS: Final = np.array([10**power for power in range(MOST_DIGITS + 1)], np.int64)


def wholes(block: Block, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers between places, and which of them are such numbers: of at most 18 digits, without zeros before."""
    starts, first, negative = _behind_signs(block, starts)
    total, good = _digits(block, starts, ends)
    good &= (first != _ZERO) | (ends - starts == 1)
    return total if negative is None else np.where(negative, -total, total), good


def points(block: Block, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers with or without a point, of at most 16 characters without the sign.

    Returns:
        Their digits as a whole number, how many of these stand behind the point, and which of them are such numbers,
        without zeros before and not the negative zero.
    """
    starts, first, negative = _behind_signs(block, starts)
    count = ends - starts
    word = block.words[ends - 8]
    fill = _FILL[np.clip(count, 0, 8)]
    at = _place_of_point((word & ~fill) | (_ZEROS & fill))
    if int(count.max(initial=0)) > 8:  # as many characters are in the word before
        fill = _FILL[np.clip(count - 8, 0, 8)]
        before = _place_of_point((block.words[ends - 16] & ~fill) | (_ZEROS & fill))
        at = np.where(before < 8, before - 8, at)
    point = ends - 8 + at  # the end, of a number without one
    whole, good = _digits(block, starts, point)
    good &= (first != _ZERO) | (point - starts == 1)
    good &= count <= 16
    behind = ends - point - 1
    fraction, good_fraction = _digits(block, point + 1, ends)
    good &= good_fraction | (behind < 0)
    behind = np.maximum(behind, 0)
    total = whole * TENS[np.minimum(behind, 16)] + np.where(behind > 0, fraction, 0)
    if negative is not None:
        good &= ~(negative & (total == 0))
        total = np.where(negative, -total, total)
    return total, behind, good


def _behind_signs(block: Block, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return where the digits of numbers begin, the first byte of each, and which are negative; None if none is."""
    first = block.data[starts]
    negative = first == _MINUS
    if not negative.any():
        return starts, first, None
    starts = starts + negative
    return starts, block.data[starts], negative


def _digits(block: Block, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of digits alone between places, and which of them are such."""
    count = ends - starts
    most = int(count.max(initial=0))
    good = np.ones(len(starts), bool)
    if most > MOST_DIGITS or count.min(initial=1) < 1:
        good = (count > 0) & (count <= MOST_DIGITS)
        count = np.clip(count, 0, MOST_DIGITS)
    total = np.zeros(len(starts), np.int64)
    for group in range(-(-min(most, MOST_DIGITS) // 8)):
        fill = _FILL[np.minimum(count, 8) if not group else np.clip(count - 8 * group, 0, 8)]
        word = block.words[ends - 8 * (group + 1)]
        word &= ~fill
        word |= _ZEROS & fill
        value, odd = _eight_digits(word)
        good &= odd == 0
        total = value if not group else total + value * 100_000_000**group
    return total, good


def _place_of_point(word: np.ndarray) -> np.ndarray:
    """Return which byte of a word is a point, the first one if there are several; 8 if there is none."""
    with np.errstate(over="ignore"):
        differs = word ^ _POINTS
        zero = (differs - _LOW) & ~differs & _HIGH
        return np.bitwise_count((zero - np.uint64(1)) & ~zero).astype(np.int64) >> 3


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
