"""The check of a batch of few keys as one task: what the changelog says, beside what the destination has.

Runs in Spark's workers, or in a run's own process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from upsert_platform.core.destination import OPERATION, OPERATION_UPSERT, SEQUENCE, STATUS, WANTED
from upsert_platform.core.plain_values import shown_values

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Compared:
    """The result of a check.

    Attributes:
        compared: keys that were looked at.
        wrong: some rows that differ, as `RowComparison` gives them: `k0`, ... (the key), `e0`, ... and `a0`, ... (the
            other columns as expected and as found) and `STATUS`.
    """

    compared: int
    missing: int
    extra: int
    stale: int
    wrong: tuple[Mapping[str, Any], ...]


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
        from upsert_platform.changelog.change_rows import computed_rows

        changes, failed = computed_rows(self.changes()[0])
        if failed.num_rows:
            return None
        if self.drawn is not None:
            changes = _with_sample(changes, after=self.drawn[0], one_in=self.drawn[1])
        if self.held is not None:
            changes = self.held(changes)
        actual = self.read(changes.select(list(self.key)))
        return None if actual is None else _compared(self, changes, actual)


def _with_sample(changes: pa.Table, *, after: int, one_in: int) -> pa.Table:
    """Every row written after a batch, and about SAMPLE_ROWS of the others, which each batch draws anew."""
    import numpy as np
    import pyarrow as pa

    drawn = np.random.default_rng(after).integers(0, one_in, changes.num_rows) == 0
    return changes.filter(pa.array(drawn | (changes.column(SEQUENCE).to_numpy() > after)))


def _compared(check: CheckOfBatch, changes: pa.Table, actual: pa.Table) -> Compared:
    """Compare the expected rows with those that the destination has of their keys, perhaps among others."""
    import pyarrow.compute as pc

    from upsert_platform.changelog.compared_rows import RowComparison, side_of

    expected = side_of(changes, check.key, check.columns, "e")
    expected = expected.append_column(WANTED, pc.equal(changes.column(OPERATION), OPERATION_UPSERT))
    compared = RowComparison(len(check.key), len(check.columns)).of(
        expected, side_of(actual, check.key, check.columns, "a")
    )
    asked = compared.filter(pc.is_valid(compared.column(WANTED)))
    wrong = asked.filter(pc.is_valid(asked.column(STATUS)))
    counts = {item["values"]: item["counts"] for item in pc.value_counts(wrong.column(STATUS)).to_pylist()}
    shown = wrong.slice(0, check.shown)
    values = [shown_values(column) for column in shown.columns]
    return Compared(
        compared=asked.num_rows,
        missing=counts.get("missing", 0),
        extra=counts.get("extra", 0),
        stale=counts.get("stale", 0),
        wrong=tuple(dict(zip(shown.column_names, row, strict=True)) for row in zip(*values, strict=True)),
    )
