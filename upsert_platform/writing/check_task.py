"""The check of a batch of few keys as one task: what the changelog says, beside what the destination has.

Runs in Spark's workers, or in a run's own process.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from upsert_platform.core.destination import OPERATION, OPERATION_UPSERT, SEQUENCE
from upsert_platform.writing.plain_values import comparable_values, shown_values

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Compared:
    """The result of a check.

    Attributes:
        compared: keys that were looked at.
        wrong: some rows that differ: the status of each, and its values as `k0`, ... (the key), `e0`, ... and `a0`, ...
            (the other columns as expected and as found).
    """

    compared: int
    missing: int
    extra: int
    stale: int
    wrong: tuple[tuple[str, Mapping[str, Any]], ...]


@dataclass(frozen=True)
class CheckOfBatch:
    """The check of a batch as one task: expected rows of the changelog, beside those that the destination has.

    Attributes:
        changes: makes the expected rows, and counts.
        columns: names of those outside the key.
        drawn: the batch after which every key counts, and of how many earlier ones one does; None: all count.
        held: gives rows as the destination's format holds them; None where it holds every value.
        read: gives the rows of keys; None where that is too much for a task.
        shown: rows that differ, of which values are returned at most.
    """

    changes: Callable[[], tuple[pa.Table, dict[str, int]]]
    key: tuple[str, ...]
    columns: tuple[str, ...]
    drawn: tuple[int, int] | None
    held: Callable[[pa.Table], pa.Table] | None
    read: Callable[[pa.Table], pa.Table | None]
    shown: int

    def __call__(self) -> Compared | None:
        """The comparison; None where rows have to be read otherwise."""
        changes, _ = self.changes()
        if self.drawn is not None:
            changes = _with_sample(changes, self.key, after=self.drawn[0], one_in=self.drawn[1])
        if self.held is not None:
            changes = self.held(changes)
        actual = self.read(changes.select(list(self.key)))
        return None if actual is None else _compared(self, changes, actual)


def _with_sample(changes: pa.Table, key: Sequence[str], *, after: int, one_in: int) -> pa.Table:
    """Every key written after a batch, and about SAMPLE_ROWS of the others: of another batch other keys."""
    import pyarrow as pa

    drawn = [
        sequence > after or zlib.crc32(repr((after, values)).encode()) % one_in == 0
        for sequence, values in zip(changes.column(SEQUENCE).to_pylist(), _keys(changes, key), strict=True)
    ]
    return changes.filter(pa.array(drawn, pa.bool_()))


def _keys(rows: pa.Table, key: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(comparable_values(rows.column(name)) for name in key), strict=True)


def _compared(check: CheckOfBatch, changes: pa.Table, actual: pa.Table) -> Compared:
    key, columns = list(check.key), list(check.columns)
    found: dict[tuple[Any, ...], list[int]] = {}
    for row, values in enumerate(_keys(actual, key)):
        found.setdefault(values, []).append(row)
    wanted = [operation == OPERATION_UPSERT for operation in changes.column(OPERATION).to_pylist()]
    pairs: list[tuple[int, int]] = []
    counts: Counter[str | None] = Counter()
    wrong: list[tuple[str, int, int | None]] = []
    for row, values in enumerate(_keys(changes, key)):
        there = found.get(values, [])
        if wanted[row] and there:
            pairs += [(row, other) for other in there]
        elif wanted[row]:
            wrong.append(("missing", row, None))
        else:
            wrong += [("extra", row, other) for other in there]
            counts[None] += not there
    for row, other in _stale(changes, actual, pairs, columns):
        wrong.append(("stale", row, other))
    counts[None] += len(pairs)
    for status, _, _ in wrong:
        counts[status] += 1
        counts[None] -= status == "stale"
    return Compared(
        compared=sum(counts.values()),
        missing=counts["missing"],
        extra=counts["extra"],
        stale=counts["stale"],
        wrong=tuple((item[0], _row(changes, actual, item, key, columns)) for item in wrong[: check.shown]),
    )


def _stale(
    changes: pa.Table, actual: pa.Table, pairs: Sequence[tuple[int, int]], columns: Sequence[str]
) -> list[tuple[int, int]]:
    """The pairs of an expected and a found row that differ in some column."""
    import pyarrow as pa

    if not pairs:
        return []
    left, right = (pa.array([pair[side] for pair in pairs], pa.int64()) for side in (0, 1))
    differs: set[int] = set()
    for name in columns:
        expected, is_now = changes.column(name).take(left), actual.column(name).take(right)
        if expected.equals(is_now):
            continue
        both = zip(comparable_values(expected), comparable_values(is_now), strict=True)
        differs.update(place for place, (one, other) in enumerate(both) if not _same(one, other))
    return [pairs[place] for place in sorted(differs)]


def _same(one: Any, other: Any) -> bool:
    """Return whether values are the same: NaN is NaN, nulls are the same."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _row(
    changes: pa.Table, actual: pa.Table, item: tuple[str, int, int | None], key: Sequence[str], columns: Sequence[str]
) -> Mapping[str, Any]:
    """The values of a row that differs."""
    _, row, other = item
    shown: dict[str, Any] = {f"k{place}": _shown(changes, name, row) for place, name in enumerate(key)}
    for place, name in enumerate(columns):
        shown[f"e{place}"] = _shown(changes, name, row)
        shown[f"a{place}"] = None if other is None else _shown(actual, name, other)
    return shown


def _shown(rows: pa.Table, name: str, row: int) -> Any:
    return shown_values(rows.column(name).slice(row, 1))[0]
