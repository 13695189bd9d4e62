"""The Spark SQL that turns changes of a source into changes of a target.

Input is a view over the source's changelog: its stored columns, `_kind` and `_seq`. Output is a change frame as
`core.destination` describes it: the target's columns, then `_op` and `_seq`; and of an insert that can fail
for a row, `FAILED`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.rows import (
    KIND,
    KIND_DELETE,
    KIND_INSERT,
    KIND_UPDATE_AFTER,
    KIND_UPDATE_BEFORE,
    stored_columns,
)
from upsert_platform.core.destination import (
    FAILED,
    OPERATION,
    OPERATION_DELETE,
    OPERATION_UPSERT,
    SEQUENCE,
    KeepRefused,
)
from upsert_platform.core.internal_columns import internal
from upsert_platform.core.model import Column, ColumnKind, Insert, Table
from upsert_platform.core.plan import now_in_milliseconds, text_at
from upsert_platform.core.types import quote_name, spark_type
from upsert_platform.sql.evaluation import flink_sql
from upsert_platform.sql.insert import written_columns
from upsert_platform.sql.rendered import cut_fractions
from upsert_platform.sync.connectors import stored_fraction_digits
from upsert_platform.writing.outcomes import TaskStats, Written, opener_of, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHANGES: Final = internal("changes")
_SOURCE: Final = internal("source")
"""Aliases of subqueries: a name before a dot means an alias before it means a column."""
_PUTS: Final = f"{KIND} IN ('{KIND_INSERT}', '{KIND_UPDATE_AFTER}')"


def change_query(insert: Insert, source: Table, target: Table, view: str) -> str:
    """Spark SQL of the change frame that an insert makes of changes of its source.

    With a primary key in the source, a row that is deleted or does not (any more) meet the predicate becomes ``D``: the
    target may hold it from before. Without one every row stands for itself: rows that do not meet the predicate are
    left out, deleted ones among them, and a before-image that meets it becomes ``D`` where the target has a key: its
    row is no longer what it was, and the row after it, which may have another key or not meet the predicate, follows in
    the order of changes.

    Args:
        view: name of a temporary view with the source's stored columns, `_kind` and `_seq`; reduced to the last row per
            key where the source has one.
    """
    columns = written_columns(target)
    met = f" AND COALESCE({insert.predicate}, FALSE)" if insert.predicate else ""
    put = f"{_PUTS}{met}"
    operation = f"IF({put}, '{OPERATION_UPSERT}', '{OPERATION_DELETE}')"
    failed = f"CASE WHEN {_PUTS} THEN {insert.failure} END" if insert.failure else None
    where = ""
    if not source.primary_key:
        taken_back = f" OR ({KIND} = '{KIND_UPDATE_BEFORE}'{met})" if target.primary_key else ""
        deleted = f"({KIND} = '{KIND_DELETE}'{met})"
        stays = f" OR {failed} IS NOT NULL" if failed else ""
        where = f"\n  WHERE ({put}) OR {deleted}{taken_back}{stays}"
    selected = [
        _selected(projection, column, target) for projection, column in zip(insert.projections, columns, strict=True)
    ]
    read = [quote_name(column.name) for column in source.columns]
    reason = [f"{failed} AS {FAILED}"] if failed else []
    inner = ",\n    ".join([f"{operation} AS {OPERATION}", SEQUENCE, *reason, *read])
    outer = ",\n  ".join([*selected, OPERATION, SEQUENCE, *([FAILED] if failed else [])])
    changes = f"SELECT\n    {inner}\n  FROM {_with_computed(source, view)}{where}"
    return f"SELECT\n  {outer}\nFROM (\n  {changes}\n) AS {_CHANGES}"


def expressions_of(insert: Insert, target: Table) -> dict[str, str]:
    """Return the columns that an insert writes, each with its expression."""
    return {column.name: text for column, text in zip(written_columns(target), insert.projections, strict=True)}


def change_frame(spark: SparkSession, insert: Insert, source: Table, target: Table, view: str) -> DataFrame:
    """The change frame of `change_query`, in which functions of the clock give the time of this call.

    Several queries of Spark compute it, each of which would have a time of its own.
    """
    return flink_sql(spark, text_at(change_query(insert, source, target, view), now_in_milliseconds()))


def computed(frame: DataFrame) -> DataFrame:
    """The rows of a change frame that could be computed, without `FAILED`."""
    return frame.where(f"{FAILED} IS NULL").drop(FAILED) if FAILED in frame.columns else frame


def failed_rows(frame: DataFrame, key: Sequence[str], *, what: str, keep: KeepRefused) -> Written[TaskStats] | None:
    """Sets the rows of a change frame that could not be computed aside, by tasks; None where there can be none.

    Args:
        key: names of the target's key columns.
        what: is written, for messages.
        keep: opens files for the rows, where it takes files; they are not kept yet.
    """
    if FAILED not in frame.columns:
        return None
    from upsert_platform.writing.refused_output import aside_task

    columns = [name for name in frame.columns if name not in (SEQUENCE, FAILED, OPERATION)]
    task = aside_task(reason=FAILED, columns=columns, key=key, what=what, open_file=opener_of(keep))
    return run_tasks(frame.where(f"{FAILED} IS NOT NULL").drop(SEQUENCE), task, TaskStats, what=what, keep=keep)


def _selected(projection: str, column: Column, target: Table) -> str:
    assert column.type is not None
    kind = spark_type(column.type)
    value = f"CAST({projection} AS {kind})"
    digits = stored_fraction_digits(target)
    if digits:
        value = cut_fractions(value, column.type, digits=digits)
    if target.primary_key and column.name not in target.primary_key:
        value = f"CASE WHEN {OPERATION} = '{OPERATION_UPSERT}' THEN {value} END"
    return f"{value} AS {quote_name(column.name)}"


def _with_computed(source: Table, view: str) -> str:
    """The view with computed columns added; they are evaluated when changes are read, not stored."""
    computed = [column for column in source.columns if column.kind is ColumnKind.COMPUTED]
    name = quote_name(view)
    if not computed:
        return name
    stored = [quote_name(column.name) for column in stored_columns(source)]
    added = [f"{column.expression} AS {quote_name(column.name)}" for column in computed]
    return f"(SELECT {KIND}, {SEQUENCE}, {', '.join([*stored, *added])} FROM {name}) AS {_SOURCE}"
