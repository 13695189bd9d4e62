"""The comparison of rows: each row as expected beside the row found of the same key, and how both differ.

Runs in Spark's workers, through ``mapInArrow``, or in the process that asks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.row_codes import code_rows
from upsert_platform.core.destination import FOUND, GONE, SEQUENCE, STATUS, WANTED
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.plain_values import comparable_values

REFUSED: Final = internal("refused")
"""Whether the destination refused the last change of an expected row's key."""
GROUP: Final = internal("group")
"""Column of the rows of both sides: rows of the same key have the same number."""
_TASK_ROWS: Final = 200_000
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RowComparison:
    """Compares rows by the rules of a destination.

    Rows as expected have the columns `k0`, ... (the key), `e0`, ... (the others), `WANTED`, `_seq`, if any was,
    `REFUSED`, and, if partitions expire, `GONE`; rows as found `k0`, ... and `a0`, ....

    Attributes:
        keys: the number of key columns.
        columns: the number of the others.
        skips_nulls: a null that is expected leaves the column as it is (`capabilities.WritesByMode`).
        keeps_deleted: a deleted key may keep a row without any other column.
        expired: the batch up to which rows, and cells of rows, may have expired.
        places: those of the other columns that identify the place of a row (`capabilities.KeepsOlderRows`): a row that
            is found in another place than its expected row's does not count.
        kept: further columns of expected rows that the result has.
    """

    keys: int
    columns: int
    skips_nulls: bool = False
    keeps_deleted: bool = False
    expired: int = 0
    places: tuple[int, ...] = ()
    kept: tuple[str, ...] = ()

    def of(self, expected: pa.Table, found: pa.Table) -> pa.Table:
        """Return the rows of both sides, those of the same key side by side.

        A null in a key is the same as a null.

        Returns:
            `k0`, ..., `e0`, ..., `a0`, ..., the columns of `kept`, `WANTED`, `FOUND` and `STATUS`: ``missing``,
            ``extra``, ``stale``, ``refused``, ``expired``, or null where nothing differs.
        """
        names = [f"k{place}" for place in range(self.keys)]
        key = pa.schema([expected.schema.field(name).with_nullable(True) for name in names])
        for field in key:
            found = found.set_column(
                found.schema.get_field_index(field.name), field, found.column(field.name).cast(field.type)
            )
        left, right = self._pairs(expected, found)
        if self.places:
            wanted = _flags(expected, WANTED, left) & (right >= 0)
            moved = np.zeros(len(left), bool)
            for place in self.places:
                moved |= ~_same(_taken(expected, f"e{place}", left), _taken(found, f"a{place}", right))
            found = found.take(np.setdiff1d(np.arange(found.num_rows), right[wanted & moved]))
            left, right = self._pairs(expected, found)
        is_expected, is_found = left >= 0, right >= 0
        # Of several rows of a key one is the expected one, and the others are too many.
        again = is_expected & is_found & np.append(False, left[1:] == left[:-1])[: len(left)]
        wanted = _flags(expected, WANTED, left)
        if self.expired:
            sequences = pc.fill_null(pc.less_equal(_taken(expected, SEQUENCE, left), self.expired), False)
            may_be_gone = _as_mask(sequences)
        else:
            may_be_gone = np.zeros(len(left), bool)
        same, bare = np.ones(len(left), bool), np.full(len(left), self.keeps_deleted)
        values: dict[str, Any] = {}
        for place in range(self.columns):
            one, other = _taken(expected, f"e{place}", left), _taken(found, f"a{place}", right)
            values[f"e{place}"], values[f"a{place}"] = one, other
            empty = _as_mask(other.is_null())
            # Cells that were written at different times expire one by one.
            unsaid = (_as_mask(one.is_null()) & self.skips_nulls) | (may_be_gone & empty)
            same &= unsaid | _same(one, other, among=is_expected & is_found)
            bare &= empty
        cases = {
            "refused": _flags(expected, REFUSED, left),
            "expired": wanted & ~is_found & (may_be_gone | _flags(expected, GONE, left)),
            "missing": wanted & ~is_found,
            "extra": (~wanted | again) & is_found & ~bare,
            "stale": wanted & ~same,
        }
        status = np.select(list(cases.values()), np.arange(1, len(cases) + 1), 0)
        named = pa.array([None, *cases], pa.string()).take(pa.array(status, pa.int64()))
        either = pa.concat_tables([side.select(names).cast(key) for side in (expected, found)])
        keys = {name: _taken(either, name, np.where(is_expected, left, expected.num_rows + right)) for name in names}
        others = {name: _taken(expected, name, left) for name in self.kept}
        return pa.table(
            {**keys, **values, **others, WANTED: _taken(expected, WANTED, left), FOUND: is_found, STATUS: named}
        )

    def _pairs(self, expected: pa.Table, found: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the places of rows on either side, in pairs; -1 where a side has no row of the key."""
        names = [f"k{place}" for place in range(self.keys)]
        codes, others = code_rows([expected, found], [names, names])
        order = np.argsort(others, kind="stable")
        first, end = (np.searchsorted(others[order], codes, side=side) for side in ("left", "right"))
        counts = end - first
        left = np.repeat(np.arange(len(codes)), np.maximum(counts, 1))
        starts = np.cumsum(np.maximum(counts, 1)) - np.maximum(counts, 1)
        places = np.repeat(first - starts, np.maximum(counts, 1)) + np.arange(len(left))
        matched = np.repeat(counts > 0, np.maximum(counts, 1))
        right = np.full(len(left), -1, np.int64)
        right[matched] = order[places[matched]]
        alone = np.setdiff1d(np.arange(len(others)), right)
        return np.append(left, np.full(len(alone), -1)), np.append(right, alone)


@dataclass(frozen=True)
class ComparedRows:
    """The function for ``mapInArrow`` that compares the rows of both sides, which it gets in the order of `GROUP`.

    Rows have the columns of both sides; of a row that is found `WANTED` is null.

    Attributes:
        columns: of the result, in their order.
    """

    comparison: RowComparison
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        count = 0
        for batch in batches:
            held.append(batch)
            count += batch.num_rows
            if count < _TASK_ROWS:
                continue
            rows = pa.Table.from_batches(held)
            groups = rows.column(GROUP).to_numpy()
            whole = int(np.searchsorted(groups, groups[-1], side="left"))  # the last group may go on
            yield from self._compared(rows.slice(0, whole))
            held = rows.slice(whole).to_batches()
            count = sum(part.num_rows for part in held)
        if count:
            yield from self._compared(pa.Table.from_batches(held))

    def _compared(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        if not rows.num_rows:
            return
        expected = pc.is_valid(rows.column(WANTED))
        sides = rows.filter(expected), rows.filter(pc.invert(expected))
        yield from self.comparison.of(*sides).select(self.columns).to_batches()


def _taken(rows: pa.Table, name: str, places: npt.NDArray[np.int64]) -> pa.Array:
    """Return the values of rows, null where the place is -1."""
    column = rows.column(name).combine_chunks()
    found = column.take(pa.array(places, pa.int64(), mask=places < 0))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _flags(rows: pa.Table, name: str, places: npt.NDArray[np.int64]) -> _Mask:
    """Return whether a column, if there is one, is true in rows."""
    if name not in rows.column_names:
        return np.zeros(len(places), bool)
    return _as_mask(pc.fill_null(_taken(rows, name, places), False))


def _as_mask(values: Any) -> _Mask:
    return np.asarray(values.to_numpy(zero_copy_only=False), bool)


def _same(one: pa.Array, other: pa.Array, *, among: _Mask | None = None) -> _Mask:
    """Return of pairs of values whether they are the same: a null is a null, NaN is NaN, and -0.0 is 0.0.

    Args:
        among: the pairs that are asked about; all if None.
    """
    if pa.types.is_timestamp(one.type) and one.type != other.type:
        other = other.cast(one.type)  # another zone is no difference
    if one.equals(other):
        return np.ones(len(one), bool)
    if pa.types.is_nested(one.type):
        asked = np.arange(len(one)) if among is None else np.flatnonzero(among)
        both = zip(*(comparable_values(side.take(pa.array(asked))) for side in (one, other)), strict=True)
        found = np.zeros(len(one), bool)
        found[asked] = [
            value == another or _plain(value, one.type) == _plain(another, other.type) for value, another in both
        ]
        return found
    nulls = pc.and_(one.is_null(), other.is_null())
    same = pc.or_(pc.fill_null(pc.equal(one, other), False), nulls)
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    return _as_mask(same)


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value in a form that is equal for equal values: NaN is NaN, and entries of a map have no order."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return "NaN" if math.isnan(value) else value
    if pa.types.is_map(kind):
        return frozenset((_plain(key, kind.key_type), _plain(item, kind.item_type)) for key, item in value)
    if pa.types.is_struct(kind):
        return tuple(_plain(value[field.name], field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return tuple(_plain(item, kind.value_type) for item in value)
    return value


def side_of(rows: pa.Table, key: Sequence[str], columns: Sequence[str], letter: str) -> pa.Table:
    """Return rows under the names that `RowComparison` has for a side: ``e`` of expected rows, ``a`` of found ones."""
    named = {f"k{place}": rows.column(name) for place, name in enumerate(key)}
    return pa.table(named | {f"{letter}{place}": rows.column(name) for place, name in enumerate(columns)})
