"""Blocks of rows: how many rows of a task go to a system at once. Runs in Spark workers."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


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


def halves(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The halves of a block, in one of which a row is that a system does not take."""
    middle = batch.num_rows // 2
    return batch.slice(0, middle), batch.slice(middle)
