"""The task that writes a partition of a change frame. Runs in Spark workers, through ``mapInArrow``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from upsert_platform.tablestore.rows import Block, blocks_of, encode_block
from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform.tablestore.task import WritingTask
from upsert_platform.writing.lease import Terms
from upsert_platform.writing.refused_output import OpenFile


def writing_task(
    table: TablestoreTable, *, terms: Terms, open_file: OpenFile | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow`` that writes a change frame under a lease.

    It yields batches of `upsert_platform.writing.refused_output.OUTCOME_SCHEMA`.

    Args:
        terms: of the lease.
        open_file: opens a file for refused rows; without it the task yields them.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = WritingTask(
            table.settings,
            name=table.name,
            table_name=table.table_name,
            mask=table.mask,
            terms=terms,
            open_file=open_file,
        )
        try:
            yield from task.run(_encoded(batches, table))
        finally:
            task.close()

    return write


def _encoded(batches: Iterator[pa.RecordBatch], table: TablestoreTable) -> Iterator[Block]:
    for batch in batches:
        for part in blocks_of(batch):
            yield encode_block(part, table)
