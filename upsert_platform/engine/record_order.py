"""The order in which rows arrive, of rows that are only added: that of the records that they are made of.

Within a topic's partition the offset alone decides. Between partitions the records' time decides, then topic and
partition: of two partitions the one whose next record is earlier goes on, so a record whose time goes back waits for
those before it. What a later batch brings comes later.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from upsert_platform.changelog.last_rows import choose, ordered
from upsert_platform.changelog.row_codes import code_rows


def partition_columns(records: Sequence[Sequence[str]]) -> list[str]:
    """Names of the columns that tell in which topics and partitions the records of a row are."""
    return [name for record in records for name in record[-4:-2]]


def of_chosen_records(table: pa.Table, codes: np.ndarray, record: Sequence[str], *, first: bool) -> pa.Table:
    """The rows that are made of the first or last record of their group.

    Args:
        codes: the group of each row.
        record: names of the columns with its time, topic, partition, offset and row number, perhaps after its batch.
    """
    if table.num_rows < 2:
        return table
    time, topic, partition, offset, row = record[-5:]
    found = choose(
        table, codes, place=(topic, partition), within=(offset, row), between=(time, topic, partition), first=first
    )
    (records,) = code_rows([table], [[topic, partition, offset, row]])
    return table.filter(pa.array(records == records[found.by_group()[codes]]))


def arrival_ranks(
    table: pa.Table, codes: np.ndarray, records: Sequence[Sequence[str]], *, latest: bool, arrived: str | None
) -> np.ndarray:
    """Numbers that order the rows of a group by arrival; rows of the same records have the same number.

    Args:
        codes: the group of each row.
        records: names of the columns with batch, time, topic, partition, offset and row number of each record.
        latest: the last row comes first.
        arrived: the column with the batch in which the query has read the row; None if that is one batch.
    """
    if not table.num_rows:
        return np.zeros(0, dtype=np.int64)
    batches = ordered(table, arrived) if arrived is not None else np.zeros(table.num_rows, dtype=np.int64)
    keys: list[np.ndarray] = []
    if len(records) > 1:
        # A row that is put together arrives when the last of its records does.
        keys.append(~batches if latest else batches)
        codes = _dense((keys[0], codes))
    for record in records:
        keys.append(_record_ranks(table, codes, record, batches, latest=latest))
        codes = _dense((keys[-1], codes))
    return keys[0] if len(keys) == 1 else _dense(tuple(reversed(keys)))


def _record_ranks(
    table: pa.Table, codes: np.ndarray, record: Sequence[str], arrived: np.ndarray, *, latest: bool
) -> np.ndarray:
    batch, time, topic, partition, offset, row = record
    (splits,) = code_rows([table], [[topic, partition]])
    moments = _dense((ordered(table, time), ordered(table, batch), arrived))
    columns = [ordered(table, row), ordered(table, offset), ordered(table, partition), ordered(table, topic)]
    if latest:
        moments = int(moments.max()) - moments
        columns = [~numbers for numbers in columns]
    rows, offsets, partitions, topics = columns
    order = np.lexsort((rows, offsets, splits, codes))
    starts = np.append(True, (np.diff(splits[order]) != 0) | (np.diff(codes[order]) != 0))
    # No record overtakes one before it in its partition: it waits until that one's moment.
    base = (np.cumsum(starts) - 1) * (int(moments.max()) + 1)
    waits = np.zeros(len(order), dtype=np.int64)
    waits[order] = np.maximum.accumulate(base + moments[order]) - base
    return _dense((rows, offsets, partitions, topics, waits, codes))


def _dense(columns: Sequence[np.ndarray]) -> np.ndarray:
    """A number per row, from 0, ordered as the rows are by these columns, of which the last decides first."""
    order = np.lexsort(columns)
    differs = np.zeros(len(order), dtype=bool)
    for column in columns:
        differs[1:] |= column[order][1:] != column[order][:-1]
    found = np.zeros(len(order), dtype=np.int64)
    found[order] = np.cumsum(differs)
    return found
