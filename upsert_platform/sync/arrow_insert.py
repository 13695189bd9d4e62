"""The change frame of an insert in Arrow: `transform.change_frame` where Arrow computes the same values as Spark.

Inserts of columns, fields of rows, constants, and what else Arrow evaluates alike, into a table with a primary key.
Spark computes other inserts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast

from upsert_platform.changelog.change_rows import can_be_told_apart
from upsert_platform.changelog.latest_in_tasks import SpanReduction, reduction_in_tasks
from upsert_platform.changelog.rows import stored_columns
from upsert_platform.core.capabilities import StoresOtherValues, WritesInTask
from upsert_platform.core.destination import Destination
from upsert_platform.core.model import Column, ColumnKind, Insert, Table
from upsert_platform.core.plan import Native, form_at, now_in_milliseconds
from upsert_platform.core.types import LogicalType, TypeName, arrow_type
from upsert_platform.sql.insert import written_columns
from upsert_platform.sql.native import native_condition, native_form, type_of
from upsert_platform.sql.rendered import cut_fractions
from upsert_platform.sync.binding import Target
from upsert_platform.sync.connectors import stored_fraction_digits

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from upsert_platform.changelog.counting_rows import Drawn
    from upsert_platform.changelog.store import ChangelogStore
    from upsert_platform.engine.native_insert import ChangesOfSpan, NativeInsert

_NULL = "NULL"


@dataclass(frozen=True)
class ArrowInsert:
    """An insert that Arrow computes.

    Attributes:
        native: what is computed.
    """

    target: Target
    native: NativeInsert

    @classmethod
    def of(cls, target: Target, destination: Destination, *, sets_aside: bool = False) -> Self | None:
        """The form of an insert; None where Spark has to compute it, or to write it. After `Destination.prepare`.

        Functions of the clock give the time of this call.

        Args:
            sets_aside: whoever takes the rows sets those aside that cannot be computed; otherwise Spark computes
                inserts that can fail for a row.
        """
        from upsert_platform.engine.native_insert import NativeInsert

        source, insert = target.source.table, target.insert
        stored = _stored(source)
        keyed = all(can_be_told_apart(stored.get(name)) for name in source.primary_key)
        if not (keyed and target.table.primary_key and destination.primary_key):
            return None
        if insert.overwrite or (insert.failure and not sets_aside) or not _is_written_in_task(destination):
            return None
        columns = written_columns(target.table)
        by_target = [column for column in columns if not source.primary_key and column.name in target.table.primary_key]
        if not all(can_be_told_apart(column.type) for column in by_target):
            return None
        forms = _Forms.of(insert, source, target.table)
        if forms.missing:
            return None
        digits = stored_fraction_digits(target.table)
        native = NativeInsert(
            columns, tuple(target.table.primary_key), *forms.at(now_in_milliseconds()), digits=digits,
            condition_fails=forms.condition_fails,
        )  # fmt: skip
        return cls(target, native)

    def of_span(self, store: ChangelogStore, paths: Sequence[str], *, after: int, upto: int) -> ChangesOfSpan:
        """Return the function that computes the changes of the batches after `after` up to `upto`.

        Args:
            paths: of the files of the changelog that may hold them; they are small.
        """
        from upsert_platform.engine.native_insert import ChangesOfSpan

        return ChangesOfSpan(self.native, store.table, store.location, tuple(paths), after, upto)

    @contextmanager
    def shares_of(
        self, spark: SparkSession, store: ChangelogStore, *, after: int, upto: int
    ) -> Iterator[tuple[Callable[[int, int], Iterator[tuple[pa.Table, dict[str, int]]]], int] | None]:
        """Give what makes the changes of a span in shares, and the deletes to take off those that it counts.

        Tasks reduce a span by themselves where it is short enough, or deal its rows by files: in a lake of this
        machine, since what another one is worth there was not measured.

        Yields:
            None where Spark has to divide the rows.
        """
        from upsert_platform.engine.native_insert import SharesOfSpan

        span = self.reduction(spark, store, after=after, upto=upto)
        if span is not None:
            yield SharesOfSpan(span, span.tasks, self.native), 0
            return
        local = spark.sparkContext.master.startswith("local")
        if not local or store.location.path is None:
            yield None
            return
        from upsert_platform.engine.dealt_rows import dealt_rows

        with dealt_rows(spark, self.native, store, after=after, upto=upto) as dealt:
            yield dealt

    def reduction(
        self,
        spark: SparkSession,
        store: ChangelogStore,
        *,
        after: int,
        upto: int,
        drawn: Drawn | None = None,
        counts_longer: bool = False,
    ) -> SpanReduction | None:
        """Return what reduces a span in tasks, each by itself; None where it is too long, or the source has no key."""
        if not store.table.primary_key:
            return None
        return reduction_in_tasks(
            spark, store, after=after, upto=upto, key=store.table.primary_key, columns=self.native.reads(), drawn=drawn,
            counts_longer=counts_longer,
        )  # fmt: skip


@dataclass(frozen=True)
class _Forms:
    """The forms of an insert's expressions.

    Attributes:
        values: of the columns that are written; None for null.
        failure: why rows cannot be computed: of those that meet the condition, unless that can fail too.
        condition_fails: as of `NativeInsert`.
        missing: what Spark has to compute: names of columns, WHERE, and what else has no form.
    """

    values: tuple[Native | None, ...]
    condition: Native | None
    failure: Native | None
    condition_fails: bool
    missing: tuple[str, ...]

    @classmethod
    def of(cls, insert: Insert, source: Table, target: Table) -> Self:
        stored = _stored(source)
        named, computed = _with_computed(source, stored)
        digits = stored_fraction_digits(target)
        missing, values = [], []
        for text, column in zip(insert.projections, written_columns(target), strict=True):
            found = None if text == _NULL else native_form(text, named)
            if (found is None and text != _NULL) or not _is_carried(found, column, named, digits):
                missing.append(column.name)
            values.append(None if found is None else _replaced(found, computed))
        met = native_condition(insert.predicate, named) if insert.predicate else None
        condition = None if met is None else _replaced(met, computed)
        failed = native_form(insert.failure, named) if insert.failure else None
        failed = None if failed is None else _replaced(failed, computed)
        failure = None if failed is None or condition is None else _where_met(failed, condition)
        condition_fails = failed is not None and condition is not None and failure is None
        failure = failed if failure is None else failure
        if insert.predicate and met is None:
            missing.append("WHERE")
        elif insert.failure and failure is None:
            missing.append("the reasons of rows that fail")
        return cls(tuple(values), condition, failure, condition_fails, tuple(missing))

    def at(self, now: int) -> tuple[tuple[Native | None, ...], Native | None, Native | None]:
        """Return values, condition and failure with a time, in milliseconds since 1970, for those of the clock."""
        values = tuple(None if value is None else form_at(value, now) for value in self.values)
        condition, failure = (None if form is None else form_at(form, now) for form in (self.condition, self.failure))
        return values, condition, failure


def left_to_spark(insert: Insert, source: Table, target: Table) -> tuple[str, ...]:
    """Return what of an insert passes Spark SQL: all rows, with the reason, or what Arrow does not compute of them.

    The latter are names of columns, and WHERE. What only the table tells as it is (`WritesInTask`) is not known here.
    """
    if not target.primary_key:
        return ("all rows, since the table has no primary key",)
    if insert.overwrite:
        return ("all rows, since they replace the table",)
    if insert.failure and fails_at_bad_rows(target):
        return ("all rows, since the first that cannot be computed ends the write before any is written",)
    return _Forms.of(insert, source, target).missing


def fails_at_bad_rows(target: Table) -> bool:
    """Return whether a row that cannot be computed ends the write of a table, by its option ``on-error``."""
    return target.options.get("on-error", "").strip().lower() == "fail"


def _stored(source: Table) -> dict[str, LogicalType]:
    return {column.name: column.type for column in stored_columns(source) if column.type is not None}


def _with_computed(
    source: Table, stored: Mapping[str, LogicalType]
) -> tuple[dict[str, LogicalType], dict[str, Native]]:
    """The columns of a source with their types, those that are computed where Arrow does so; and the forms of these."""
    named, computed = dict(stored), dict[str, Native]()
    for column in source.columns:
        if column.kind is not ColumnKind.COMPUTED or column.expression is None or column.expression_type is None:
            continue
        form = None if column.failure else native_form(column.expression, stored)
        kind = None if form is None else type_of(form, stored)
        if form is not None and kind is not None and arrow_type(kind) == arrow_type(column.expression_type):
            named[column.name], computed[column.name] = column.expression_type, form
    return named, computed


def _replaced(native: Native, computed: Mapping[str, Native]) -> Native:
    """A form with those of computed columns in their place."""
    if native[0] == "literal":
        return native
    if native[0] == "column":
        return computed.get(native[1], native)
    return tuple(_replaced(item, computed) if isinstance(item, tuple) else item for item in native)


def _where_met(failure: Native, condition: Native) -> Native | None:
    """Return why rows that meet a condition cannot be computed; None where the condition itself can fail."""
    if failure[:2] == ("case", condition) and len(failure) == 4 and failure[3][:2] == ("literal", None):
        return cast("Native", failure[2])
    return None


def _is_written_in_task(destination: Destination) -> bool:
    if not isinstance(destination, WritesInTask) or not destination.writes_in_task():
        return False
    return not (isinstance(destination, StoresOtherValues) and destination.folded_key())


def _is_carried(value: Native | None, column: Column, stored: Mapping[str, LogicalType], digits: int) -> bool:
    """Return whether a value needs nothing but `_cut` to be what the target's column takes."""
    if column.type is None:
        return False
    if value is None:
        return True
    given = type_of(value, stored)
    if given is None or arrow_type(given) != arrow_type(column.type):
        return False
    cut = bool(digits) and cut_fractions("value", column.type, digits=digits) != "value"
    return not cut or column.type.name in (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ, TypeName.TIME)
