"""Places of rows in state, by hashes, and what is done to rows that are equal.

Hashes only narrow down; codes (`changelog/row_codes.py`) decide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.changelog.row_hashes import hash_rows, mix, normal


def place_rows(table: pa.Table, group: Sequence[str], rest: Sequence[str] = ()) -> np.ndarray:
    """Return the positions of rows in state: the upper half is the group, the lower half its rows; sorted as int64."""
    high = hash_rows(table, group)
    low = hash_rows(table, rest) if rest else high << np.uint64(32)
    return ((high & np.uint64(0xFFFFFFFF00000000)) | (low >> np.uint64(32))).view(np.int64)


def bucket_rows(places: np.ndarray, buckets: int, *, spread: bool) -> np.ndarray:
    """The bucket of each place; rows of a group share one unless they are spread."""
    unsigned = places.view(np.uint64)
    chosen = mix(unsigned) if spread else mix(unsigned >> np.uint64(32))
    return (chosen % np.uint64(buckets)).astype(np.int64)


def is_member(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return a mask of the codes that are in the other array."""
    known = np.zeros(1 + int(max(one.max(initial=-1), other.max(initial=-1))), dtype=bool)
    known[other] = True
    return known[one]


def match_rows(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of positions at which two arrays of codes are equal, in the order of the left one."""
    held = np.bincount(right, minlength=1 + int(max(left.max(initial=-1), right.max(initial=-1))))
    counts = held[left]
    if held.max(initial=0) <= 1:  # as it is where one side has the key of its table: nothing is sorted
        position = np.zeros(len(held), dtype=np.int64)
        position[right] = np.arange(len(right))
        lefts = np.flatnonzero(counts)
        return lefts, position[left[lefts]]
    order = np.argsort(right, kind="stable")
    starts = (np.cumsum(held) - held)[left]
    lefts = np.repeat(np.arange(len(left)), counts)
    within = np.arange(len(lefts)) - np.repeat(np.cumsum(counts) - counts, counts)
    return lefts, order[np.repeat(starts, counts) + within]


def consolidate(table: pa.Table, *, weight: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Rows that are equal become one with the sum of their weights; those that add up to nothing are left out."""
    names = list(columns) if columns is not None else [name for name in table.column_names if name != weight]
    if not table.num_rows:
        return table
    (codes,) = code_rows([table], [names]) if names else [np.zeros(table.num_rows, dtype=np.int64)]
    weights = table.column(weight).to_numpy()
    count = int(codes.max()) + 1
    if count == table.num_rows:
        return table if weights.all() else table.filter(pa.array(weights != 0))
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, codes, weights)
    first = first_rows(codes, count)
    kept = sums != 0
    chosen = table.take(pa.array(first[kept]))
    return chosen.set_column(chosen.schema.get_field_index(weight), weight, pa.array(sums[kept]))


def settle(table: pa.Table, *, weight: str) -> pa.Table:
    """As `consolidate`, but a row that was given with weight 0, and has no other, stays: it is still in use."""
    in_use = table.column(weight).to_numpy() == 0
    if not in_use.any():
        return consolidate(table, weight=weight)
    changed = consolidate(table.filter(pa.array(~in_use)), weight=weight)
    used = consolidate(_weighing(table.filter(pa.array(in_use)), weight, 1), weight=weight)
    names = [name for name in table.column_names if name != weight]
    if changed.num_rows and names:
        one, other = code_rows([used, changed], [names, names])
        used = used.filter(pa.array(~is_member(one, other)))
    return pa.concat_tables([changed, _weighing(used, weight, 0)])


def rows_in_use(table: pa.Table, *, weight: str) -> pa.Table:
    """The rows with weight 0."""
    return table.filter(pa.array(table.column(weight).to_numpy() == 0))


def _weighing(table: pa.Table, weight: str, number: int) -> pa.Table:
    weights = pa.array(np.full(table.num_rows, number, dtype=np.int64))
    return table.set_column(table.schema.get_field_index(weight), weight, weights)


def sum_rows(table: pa.Table, *, weight: str) -> pa.Table | None:
    """As `consolidate`, by sorting rows as numbers; None for rows that are not put into one number each.

    Sorting whole numbers takes a third of the time of a hash table of as many rows.
    """
    names = [name for name in table.column_names if name != weight]
    if not table.num_rows or not names:
        return None
    codes = np.zeros(table.num_rows, dtype=np.int64)
    packed: list[tuple[int, int, pa.Array | None]] = []
    room = 1 << 62
    for name in names:
        array = normal(table.column(name))
        numbers, least, dictionary = _numbered(array)
        radix = int(numbers.max()) + 1
        room //= radix
        if not room:
            return None
        codes = codes * radix + numbers
        packed.append((radix, least, dictionary))
    weights = table.column(weight).to_numpy()
    order = np.argsort(codes)
    codes = codes[order]
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    sums = np.add.reduceat(weights[order], starts)
    codes = codes[starts]
    kept = sums != 0
    codes, sums = codes[kept], sums[kept]
    columns: dict[str, pa.Array] = {weight: pa.array(sums)}
    for name, (radix, least, dictionary) in zip(reversed(names), reversed(packed), strict=True):
        codes, numbers = np.divmod(codes, radix)
        kind = table.schema.field(name).type
        columns[name] = (
            dictionary.take(pa.array(numbers)) if dictionary is not None else _unnumbered(numbers, least, kind)
        )
    return pa.table([columns[name] for name in table.column_names], names=table.column_names)


def _numbered(array: pa.Array) -> tuple[np.ndarray, int, pa.Array | None]:
    """A number from 0 per value; the value that is 0, or the values by their numbers."""
    kind = array.type
    if not array.null_count and (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        whole = array.cast(pa.int32()) if pa.types.is_date32(kind) else array
        numbers = whole.cast(pa.int64()).to_numpy()
        least, greatest = int(numbers.min()), int(numbers.max())
        if greatest - least < 1 << 62:
            return numbers - least, least, None
    encoded = pc.dictionary_encode(array, null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), 0, encoded.dictionary


def _unnumbered(numbers: np.ndarray, least: int, kind: pa.DataType) -> pa.Array:
    whole = pa.array(numbers + least)
    return (whole.cast(pa.int32()) if pa.types.is_date32(kind) else whole).cast(kind)


def first_rows(codes: np.ndarray, count: int) -> np.ndarray:
    """Position of the first row of each code from 0 to count - 1."""
    first = np.zeros(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first
