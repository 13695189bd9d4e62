"""The order of the rows of a key, applied in one place (`rows.ORDER`).

Of the rows that one topic-partition gave to a key the offset alone decides, whatever their times: producers set those,
and they may go back. Between partitions (the topic was widened, or producers partition differently) the last rows of
each are compared: the later batch wins, within a batch the later record time, then the greater partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.changelog.rows import BETWEEN_PARTITIONS, IN_PARTITION, PARTITIONS_MET, PLACE
from upsert_platform.core.destination import OPERATION, OPERATION_DELETE

_SPARSE: Final = 4
"""Numbers of groups, per row, from which on counting them anew takes less memory than leaving room for each."""


class Chosen(NamedTuple):
    """Positions of rows, ascending.

    Attributes:
        rows: the row of each group that counts.
        ends: the last row of each group and partition.
        several: of each group, whether its rows are of several partitions.
        codes: the group of each row of the table.
    """

    rows: np.ndarray
    ends: np.ndarray
    several: np.ndarray
    codes: np.ndarray

    def by_group(self) -> np.ndarray:
        """The row of each group that counts, by the group's number."""
        found = np.zeros(len(self.several), dtype=np.int64)
        found[self.codes[self.rows]] = self.rows
        return found


def last_rows(
    changes: pa.Table, *, key: Sequence[str], of_partitions: bool = False, greatest: str | None = None
) -> pa.Table:
    """Return the row of each key that counts.

    Args:
        changes: rows of a changelog, with the columns of `ORDER`.
        key: names of the key columns, of which there is at least one.
        of_partitions: return the last row of each key in each topic-partition: what may count beside other rows.
        greatest: a column of numbers, of which each row gets the greatest value among all rows of its key.

    Returns:
        All columns of `changes`, and `PARTITIONS_MET`.
    """
    (codes,) = code_rows([changes], [key])
    found = choose(changes, codes)
    chosen = found.ends if of_partitions else found.rows
    reduced = changes if len(chosen) == changes.num_rows else changes.take(pa.array(chosen))
    if greatest is not None:
        values = changes.column(greatest).to_numpy()
        most = np.zeros(len(values), values.dtype)
        np.maximum.at(most, codes, values)
        place = changes.schema.get_field_index(greatest)
        reduced = reduced.set_column(place, greatest, pa.array(most[codes[chosen]]))
    met = np.where(found.several[codes[chosen]], 2, 1)
    return reduced.append_column(PARTITIONS_MET, pa.array(met, pa.int32()))


def last_per_place(changes: pa.Table, *, key: Sequence[str]) -> pa.Table:
    """Return the rows that no later delete of their key overtakes, and the deletes.

    For a table that keeps one row per key and place: a delete removes the key from every place.

    Args:
        changes: rows of a change frame, with `_op` and the columns of `rows.ORDER`.
    """
    gone = np.flatnonzero(pc.equal(changes.column(OPERATION), OPERATION_DELETE))
    if not len(gone):
        return changes
    (codes,) = code_rows([changes], [key])
    groups, of_gone = np.unique(codes[gone], return_inverse=True)
    last = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
    last[groups] = gone[choose(changes.take(pa.array(gone)), of_gone).by_group()]
    behind = np.flatnonzero(last[codes] >= 0)
    delete = last[codes[behind]]
    (splits,) = code_rows([changes], [PLACE])
    same = splits[behind] == splits[delete]
    earlier = np.where(
        same, _is_before(changes, IN_PARTITION, behind, delete), _is_before(changes, BETWEEN_PARTITIONS, behind, delete)
    )
    kept = np.ones(changes.num_rows, dtype=bool)
    kept[behind[earlier]] = False
    kept[gone] = True
    return changes.filter(pa.array(kept))


def _is_before(table: pa.Table, order: Sequence[str], one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return a mask of the pairs of positions of which the first precedes the second."""
    before, same = np.zeros(len(one), dtype=bool), np.ones(len(one), dtype=bool)
    for name in order:
        numbers = ordered(table, name)
        before |= same & (numbers[one] < numbers[other])
        same &= numbers[one] == numbers[other]
    return before


def choose(
    table: pa.Table,
    codes: np.ndarray,
    *,
    place: Sequence[str] = PLACE,
    within: Sequence[str] = IN_PARTITION,
    between: Sequence[str] = BETWEEN_PARTITIONS,
    first: bool = False,
) -> Chosen:
    """Return which rows of groups come last in the order of rows, or first.

    Args:
        codes: the group of each row, from 0.
        place: the columns that tell partitions apart.
        within: the columns that order rows of a partition, the most important first.
        between: those that order the last rows of partitions.
    """
    count = int(codes.max(initial=-1)) + 1
    if count == len(codes):  # as batches are whose tasks reduced what they read
        every = np.arange(len(codes))
        return Chosen(every, every, np.zeros(count, bool), codes)
    splits = _splits(table, place)
    ends = _last(table, _pairs(codes, splits), np.arange(len(codes)), within, first=first)
    if len(ends) == count:
        return Chosen(ends, ends, np.zeros(count, bool), codes)
    chosen = _last(table, codes, ends, between, first=first)
    return Chosen(chosen, ends, np.bincount(codes[ends], minlength=count) > 1, codes)


def _pairs(codes: np.ndarray, splits: np.ndarray) -> np.ndarray:
    """A number per row, from 0, that tells pairs apart; none is much greater than there are rows.

    Memory is taken for each number up to the greatest one, and keys times partitions may be hundreds of times the rows.
    """
    pairs = codes * (int(splits.max()) + 1) + splits
    if int(pairs.max()) < _SPARSE * len(pairs):
        return pairs
    return np.unique(pairs, return_inverse=True)[1].reshape(-1)


def _last(table: pa.Table, groups: np.ndarray, among: np.ndarray, order: Sequence[str], *, first: bool) -> np.ndarray:
    """Return the positions of the last rows of groups among some positions, all ascending; or of the first ones."""
    columns = [ordered(table, name) for name in order]
    if len(among) < table.num_rows:
        columns, groups = [numbers[among] for numbers in columns], groups[among]
    at = np.arange(len(among))
    unordered = [numbers for numbers in columns if (numbers[1:] < numbers[:-1]).any()]
    last = np.full(int(groups.max()) + 1, -1, dtype=np.int64)
    if unordered:  # only groups of several rows are sorted, stably, by the least important column first
        contested = np.bincount(groups)[groups] > 1
        last[groups[~contested]] = at[~contested]
        at = at[contested]
        for numbers in reversed(columns):
            values = numbers[at]
            if (values[1:] < values[:-1]).any():
                at = at[np.argsort(values, kind="stable")]
    at = at[::-1] if first else at
    last[groups[at]] = at
    chosen = np.zeros(len(among), dtype=bool)
    chosen[last[last >= 0]] = True
    return among[chosen]


def _splits(table: pa.Table, place: Sequence[str]) -> np.ndarray:
    """A number per row, from 0, that tells topics and partitions apart."""
    topics, partitions = (table.column(name) for name in place)
    # Mostly there is one topic: comparing its name costs a quarter of coding it.
    if not topics.null_count and not partitions.null_count and pc.all(pc.equal(topics, topics[0])).as_py():
        numbers = partitions.to_numpy().astype(np.int64)
        return numbers - numbers.min()
    (splits,) = code_rows([table], [place])
    return splits


def ordered(table: pa.Table, name: str) -> np.ndarray:
    """Return numbers that order the rows of a table by a column, nulls before everything."""
    values = table.column(name)
    if pa.types.is_string(values.type):
        return pc.rank(pc.fill_null(values, ""), tiebreaker="min").to_numpy().astype(np.int64)
    return pc.fill_null(values.cast(pa.int64()), np.iinfo(np.int64).min).to_numpy()
