"""The change frame of an insert in Arrow, computed where the rows are: in this process, or in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.change_rows import changes_of_files, computed_rows
from upsert_platform.changelog.last_rows import last_rows
from upsert_platform.changelog.rows import (
    BATCH,
    KIND,
    KIND_DELETE,
    KIND_INSERT,
    KIND_UPDATE_AFTER,
    ORDER,
    PARTITIONS_MET,
)
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.destination import FAILED, OPERATION, OPERATION_DELETE, OPERATION_UPSERT, SEQUENCE
from upsert_platform.core.model import Column, Table
from upsert_platform.core.plan import Native
from upsert_platform.core.task_runner import numbers_of
from upsert_platform.core.types import LogicalType, TypeName, arrow_type
from upsert_platform.engine.steps import columns_of, evaluate, parts_read

_T = TypeVar("_T")
_MICROSECOND_DIGITS: Final = 6


@dataclass(frozen=True)
class NativeInsert:
    """An insert that Arrow computes as Spark would.

    Attributes:
        columns: that are written.
        key: names of those of the target's primary key.
        values: how each column is computed from those of the source; None for null.
        condition: of the WHERE clause.
        failure: of rows that are put, why a value cannot be computed, null where all can: the column `FAILED` of change
            frames. None if that cannot be.
        digits: of seconds that the target has room for.
        condition_fails: the failure also tells of which rows the condition cannot be computed.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    values: tuple[Native | None, ...]
    condition: Native | None
    failure: Native | None
    digits: int
    condition_fails: bool = False

    def of_key(self) -> NativeInsert:
        """The insert of the primary key alone, of every row: of those that its condition keeps out too."""
        chosen = [place for place, column in enumerate(self.columns) if column.name in self.key]
        columns = tuple(self.columns[place] for place in chosen)
        return NativeInsert(columns, self.key, tuple(self.values[place] for place in chosen), None, None, self.digits)

    def reads(self) -> tuple[str, ...]:
        """Names of the columns of the source that it is computed of."""
        return tuple(dict.fromkeys(name for value in self._forms() for name in columns_of(value)))

    def parts(self) -> dict[str, tuple[str, ...]]:
        """The fields of columns of type ROW that it is computed of, by column, where nothing reads all of them."""
        return parts_read(self._forms())

    def _forms(self) -> tuple[Native | None, ...]:
        return (*self.values, self.condition, self.failure)

    def changes(self, reduced: pa.Table, *, sequence: str) -> pa.Table:
        """The change frame of rows of the source, of which each key has one; with those that cannot be computed.

        Args:
            sequence: the column of the batch that a row is of.
        """
        kept = put = _is_put(reduced)
        known: dict[Native, Any] = {}
        if self.condition is not None:
            put = pc.and_(put, pc.fill_null(evaluate(self.condition, reduced, known), False))
        found = self._computed(reduced, put, known)
        if self.failure is not None:
            found[FAILED] = _where(kept if self.condition_fails else put, evaluate(self.failure, reduced, known))
        found[SEQUENCE] = reduced.column(sequence)
        return pa.table(found).combine_chunks()

    def changes_of(self, reduced: pa.Table, *, sequence: str) -> tuple[pa.Table, dict[str, int]]:
        """As `changes`, with counts.

        Args:
            reduced: one row per key, with `PARTITIONS_MET`.

        Returns:
            The counts are ``met``, keys of several partitions, and ``deletes`` of rows that do not meet the condition.
        """
        changes = self.changes(reduced, sequence=sequence)
        counted = computed_rows(changes)[0] if self.condition_fails else changes  # others that fail are no deletes
        return changes, {"met": _met(reduced), "deletes": count_deletes(counted) - deleted_rows(reduced)}

    def every_change(self, rows: pa.Table) -> pa.Table:
        """The changes that rows of a source without a key stand for: several of a key of the target, perhaps.

        Rows that do not meet the condition are left out; those that cannot be computed are there.

        Returns:
            The target's columns, `_op`, `FAILED` where an expression can fail, and those that order rows
            (`rows.ORDER`).
        """
        put = _is_put(rows)
        failed = None
        if self.failure is not None and self.condition_fails:
            failed = _where(put, evaluate(self.failure, rows))
        if self.condition is not None:
            met = pc.fill_null(evaluate(self.condition, rows), False)
            kept = met if failed is None else pc.or_(met, pc.is_valid(failed))
            rows, put = rows.filter(kept), pc.and_(put, met).filter(kept)
            failed = None if failed is None else failed.filter(kept)
        known: dict[Native, Any] = {}
        found = self._computed(rows, put, known)
        if self.failure is not None:
            found[FAILED] = _where(put, evaluate(self.failure, rows, known)) if failed is None else failed
        return pa.table(found | {name: rows.column(name) for name in ORDER}).combine_chunks()

    def told(self, last: pa.Table) -> tuple[pa.Table, dict[str, int]]:
        """The change frame of the rows of `every_change` that count, with counts.

        Args:
            last: one row per key, with `PARTITIONS_MET`.

        Returns:
            The counts are ``met``, keys of several partitions, and ``deletes``.
        """
        names = [column.name for column in self.columns]
        changes = last.select([*names, OPERATION, BATCH]).rename_columns([*names, OPERATION, SEQUENCE])
        return changes, {"met": _met(last), "deletes": count_deletes(changes)}

    def _computed(self, rows: pa.Table, put: Any, known: dict[Native, Any]) -> dict[str, Any]:
        """The target's columns, with nulls outside the key of rows that are not put; and `_op`."""
        every = pc.all(put, min_count=0).as_py()
        found: dict[str, Any] = {}
        for column, value in zip(self.columns, self.values, strict=True):
            assert column.type is not None
            kind = arrow_type(column.type)
            if value is None:
                found[column.name] = pa.nulls(rows.num_rows, kind)
                continue
            array = _cut(evaluate(value, rows, known), column.type, self.digits)
            if column.name not in self.key and not every:
                array = _where(put, array)
            found[column.name] = array
        found[OPERATION] = pc.if_else(put, OPERATION_UPSERT, OPERATION_DELETE)
        return found

    def failed(self, changes: pa.Table) -> pa.Table:
        """Rows of `every_change` that cannot be computed as a change frame has them."""
        names = [column.name for column in self.columns]
        return changes.select([*names, OPERATION, BATCH, FAILED]).rename_columns([*names, OPERATION, SEQUENCE, FAILED])


@dataclass(frozen=True)
class ChangesOfRows:
    """The function for ``mapInArrow`` that makes change rows of what another one gives.

    Attributes:
        rows: gives rows of the source, one per key, with `_kind` and `_seq`.
    """

    rows: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    insert: NativeInsert

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in self.rows(numbers):
            yield from self.insert.changes(pa.Table.from_batches([part]), sequence=SEQUENCE).to_batches()


@dataclass(frozen=True)
class SharesOfSpan:
    """Gives the change frame of a share of a span that tasks reduce by themselves, part by part. Can be pickled.

    Attributes:
        span: the function that gets numbers of tasks, and gives the rows of the keys that fall to each.
        tasks: how many numbers there are.
    """

    span: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    tasks: int
    insert: NativeInsert

    def __call__(self, number: int, shares: int) -> Iterator[tuple[pa.Table, dict[str, int]]]:
        """The rows of one of so many shares, and the counts of `NativeInsert.changes_of`."""
        mine = range(number, self.tasks, shares)
        for part in self.span(numbers_of(mine)) if mine else ():  # without a number it would read keys for nothing
            yield self.insert.changes_of(pa.Table.from_batches([part]), sequence=SEQUENCE)


@dataclass(frozen=True)
class ChangesOfSpan:
    """Makes the change frame of a span of batches, in a task: it reads their files, and can be pickled.

    Attributes:
        table: of the source, as declared.
        location: of its changelog.
        paths: of the files that may hold the batches after `after` and up to `upto`.
    """

    native: NativeInsert
    table: Table
    location: TableLocation
    paths: tuple[str, ...]
    after: int
    upto: int

    def __call__(self) -> tuple[pa.Table, dict[str, int]]:
        """The target's columns, `_op` and `_seq`, one row per key; and two counts.

        Those are ``met``, keys that came from more than one partition, and ``unmatched``, deletes of rows that do not
        meet the insert's WHERE.
        """
        rows = self.read(changes_of_files)
        if self.table.primary_key:
            changes, counts = self.native.changes_of(last_rows(rows, key=self.table.primary_key), sequence=BATCH)
            deleted = 0
        else:
            every, failed = computed_rows(self.native.every_change(rows))
            changes, counts = self.native.told(last_rows(every, key=self.native.key))
            if failed.num_rows:
                changes = pa.concat_tables([changes, self.native.failed(failed)], promote_options="default")
            deleted = deleted_rows(rows)
        return changes, {"met": counts["met"], "unmatched": max(0, counts["deletes"] - deleted)}

    def read(self, reader: Callable[..., _T]) -> _T:
        """Return the rows of the span by a reader: `changes_of_files` or `change_batches`."""
        names = dict.fromkeys([*self.table.primary_key, *self.native.reads()])
        return reader(
            self.table, self.location, self.paths, columns=tuple(names), after=self.after, upto=self.upto,
            parts=self.native.parts(),
        )  # fmt: skip


def _met(rows: pa.Table) -> int:
    return int(pc.sum(pc.greater(rows.column(PARTITIONS_MET), 1)).as_py() or 0)


def deleted_rows(rows: pa.Table) -> int:
    """The number of rows of a changelog that are deletes."""
    return int(pc.sum(pc.equal(rows.column(KIND), KIND_DELETE)).as_py() or 0)


def count_deletes(changes: pa.Table) -> int:
    """The number of rows of a change frame that are deletes."""
    return int(pc.sum(pc.equal(changes.column(OPERATION), OPERATION_DELETE)).as_py() or 0)


def _is_put(rows: pa.Table) -> Any:
    return pc.is_in(rows.column(KIND), value_set=pa.array([KIND_INSERT, KIND_UPDATE_AFTER]))


def _cut(values: Any, kind: LogicalType, digits: int) -> Any:
    """Moments without the digits that a type does not declare, downwards; see `sql.rendered.cut_fractions`."""
    if not digits or kind.name not in (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ, TypeName.TIME):
        return values
    step = 10 ** (_MICROSECOND_DIGITS - min(kind.precision or 0, digits, _MICROSECOND_DIGITS))
    if step == 1:
        return values
    micros = values.cast(pa.int64())
    rest = pc.subtract(micros, pc.multiply(pc.divide(micros, step), step))  # of the sign of the value
    rest = pc.if_else(pc.less(rest, 0), pc.add(rest, step), rest)
    return pc.subtract(micros, rest).cast(values.type)


def _where(put: Any, values: Any) -> Any:
    """The values of rows that are put, null elsewhere; of nested types too."""
    if not pa.types.is_nested(values.type):
        return pc.if_else(put, values, pa.scalar(None, values.type))
    places = pc.if_else(put, pa.array(np.arange(len(values))), pa.scalar(None, pa.int64()))
    return values.take(places)
