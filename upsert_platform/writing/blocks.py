"""Blocks of rows: how many rows of a task go to a system at once. Runs in Spark workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")
Rows = TypeVar("Rows", pa.RecordBatch, range)


def blocks(batches: Iterator[pa.RecordBatch], *, rows: int, size: float = float("inf")) -> Iterator[pa.RecordBatch]:
    """Yield the rows in blocks of `rows`, or of fewer that have some `size` in bytes; Arrow's own are often small.

    A column of more texts than Arrow's 32-bit offsets reach comes in several blocks.
    """
    held: list[pa.RecordBatch] = []
    count = weight = 0
    for batch in batches:
        held.append(batch)
        count, weight = count + batch.num_rows, weight + batch.nbytes
        while count >= rows or weight >= size:
            whole = pa.Table.from_batches(held).combine_chunks()
            yield from whole.slice(0, rows).to_batches()
            held = whole.slice(rows).to_batches()
            count, weight = max(count - rows, 0), 0
    if count:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def by_halves(
    block: Rows, act: Callable[[Rows], T], refuses: Callable[[Exception], bool]
) -> Iterator[tuple[Rows, T | Exception]]:
    """Yield the parts of a block that a system takes, with what `act` gave for them, and each row that it does not.

    Args:
        block: rows, or the places of rows that the system has already.
        act: hands rows to the system, which takes all of them or none.
        refuses: whether an error is of the rows; `act` is called again for each half of them, down to single ones,
            which come with their error.
    """
    try:
        done: T | Exception = act(block)
    except Exception as error:
        if not refuses(error):
            raise
        done = error
    if isinstance(done, Exception) and len(block) > 1:
        middle = len(block) // 2
        for half in (block[:middle], block[middle:]):
            yield from by_halves(half, act, refuses)
    else:
        yield block, done
