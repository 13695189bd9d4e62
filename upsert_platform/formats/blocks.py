"""A block of messages read in bulk where that can be trusted, and one by one where it cannot."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.formats.base import Decoded
from upsert_platform.formats.columns import batch_of, join

SMALLEST_BLOCK: Final = 64
"""A block of as many messages that does not fit the bulk way is read one by one; a larger one is split."""
_PATIENCE: Final = 8

UNREADABLE: Final = (ValueError, ArithmeticError, RecursionError)
"""What a reader raises because of a message, and not because of the platform."""
ReadBulk = Callable[[Sequence[bytes]], tuple[pa.RecordBatch, np.ndarray | None] | None]
"""Reads messages that give a row each.

Gives the rows and the places of their messages in the block, None standing for all of them; messages without a row are
read one by one. None: not this block.
"""
ReadOne = Callable[[bytes], list[list[Any]]]
"""Reads a message into its rows of Arrow-ready values; ValueError: it cannot be read."""


def reason_of(error: Exception) -> str:
    """Return the reason for which a message cannot be read, for the quarantine."""
    return "nested too deep" if isinstance(error, RecursionError) else str(error)


def decode_blocks(
    messages: Sequence[bytes], schema: pa.Schema, read_bulk: ReadBulk | None, read_one: ReadOne
) -> Decoded:
    """Decodes a block.

    When small blocks keep failing, the rest is read one by one: splitting costs more then than it saves.
    """
    parts: list[tuple[pa.RecordBatch, pa.Array]] = []
    errors: dict[int, str] = {}
    misses = 0
    pending = [(0, len(messages))]
    while pending:
        start, end = pending.pop()
        if read_bulk is not None and misses < _PATIENCE and start < end:
            found = read_bulk(messages[start:end])
            if found is not None:
                misses = max(misses - 2, 0)
                _keep(found, (start, end), messages, schema, read_one, parts, errors)
                continue
            if end - start > SMALLEST_BLOCK:
                middle = (start + end) // 2
                pending += [(middle, end), (start, middle)]
                continue
            misses += 1
        _one_by_one(messages, range(start, end), schema, read_one, parts, errors)
    return join(schema, parts, errors)


def keep_rows(
    batch: pa.RecordBatch, places: np.ndarray | None, doubts: Sequence[pa.Array]
) -> tuple[pa.RecordBatch, np.ndarray | None]:
    """The result of a bulk reader: a batch without the rows that some mask marks as doubtful.

    Args:
        places: of the messages of the rows, None for all of a block.
        doubts: masks over the rows.
    """
    if not doubts:
        return batch, places
    mask = doubts[0]
    for doubt in doubts[1:]:
        mask = pc.or_(mask, doubt)
    sure = pc.invert(mask)
    kept = np.nonzero(sure.to_numpy(zero_copy_only=False))[0]
    return batch.filter(sure), kept if places is None else places[kept]


def _keep(
    found: tuple[pa.RecordBatch, np.ndarray | None],
    span: tuple[int, int],
    messages: Sequence[bytes],
    schema: pa.Schema,
    read_one: ReadOne,
    parts: list[tuple[pa.RecordBatch, pa.Array]],
    errors: dict[int, str],
) -> None:
    batch, places = found
    block = np.arange(*span, dtype=np.int32)
    parts.append((batch, pa.array(block if places is None else block[places])))
    if places is not None:
        _one_by_one(messages, np.delete(block, places).tolist(), schema, read_one, parts, errors)


def _one_by_one(
    messages: Sequence[bytes],
    places: Sequence[int],
    schema: pa.Schema,
    read_one: ReadOne,
    parts: list[tuple[pa.RecordBatch, pa.Array]],
    errors: dict[int, str],
) -> None:
    rows: list[list[Any]] = []
    sources: list[int] = []
    for place in places:
        try:
            found = read_one(messages[place])
        except UNREADABLE as error:
            errors[place] = reason_of(error)
            continue
        rows += found
        sources += [place] * len(found)
    if not rows:
        return
    try:
        parts.append((batch_of(schema, rows), pa.array(sources, pa.int32())))
    except pa.ArrowException:
        _each(schema, rows, sources, parts, errors)


def _each(
    schema: pa.Schema,
    rows: list[list[Any]],
    sources: list[int],
    parts: list[tuple[pa.RecordBatch, pa.Array]],
    errors: dict[int, str],
) -> None:
    """Makes batches of rows of a message each; one whose values a column does not hold is an error of its message."""
    for place, found in itertools.groupby(zip(sources, rows, strict=True), key=lambda item: item[0]):
        own = [row for _, row in found]
        try:
            parts.append((batch_of(schema, own), pa.array([place] * len(own), pa.int32())))
        except pa.ArrowException:  # its text shows the value
            errors[place] = "it has a value that the type of its column does not hold, such as a text that is no UTF-8"
