"""The stored form of values: what a table holds where a row has a value, as Spark computes it and as SQL writes it.

Whatever compares rows with what a table holds (lookups by key, moves between partitions, checks) goes through here:
blanks at the end of a CHAR are not significant, a TIME is text, and a partition has a value where a row has none.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.types import LogicalType, TypeName, spark_type
from upsert_platform.maxcompute.client import TableState
from upsert_platform.maxcompute.names import quote, sql_text
from upsert_platform.maxcompute.partition_spec import PartitionPlan, partition_holds
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.maxcompute.types import MaxComputeType

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

MOST_PREDICATE_BYTES: Final = 1 << 20
"""Longest predicate; statements of MaxCompute end at two of these."""
_BLANK = r"(?U)^\s*$"
_MILLISECOND_DIGITS = 3


def stored_value(table: MaxComputeTable, actual: TableState, name: str, value: SparkColumn) -> SparkColumn:
    """Return the value that the table holds for `value` in a declared column: the value of a static partition column,
    the default of a dynamic one that is null or blank (null where its type has no such default), a CHAR without
    trailing blanks.
    """
    from pyspark.sql import functions as F

    from upsert_platform.maxcompute.decode import decode_partition, default_value

    plan = table.partitions
    declared = next(column.type for column in table.columns if column.name == name)
    assert declared is not None
    fixed = dict(plan.static).get(name.lower())
    if fixed is not None:
        return F.lit(decode_partition(fixed, declared).as_py()).cast(spark_type(declared))
    if name.lower() in plan.dynamic:
        kept = F.rtrim(value) if declared.name is TypeName.CHAR else value
        default = default_value(plan.default, declared) if partition_holds(plan.default, declared) else None
        return F.when(is_absent(value, declared), F.lit(default).cast(spark_type(declared))).otherwise(kept)
    found = actual.column(name)
    assert found is not None
    return _stored(value, declared, found.type)


def _stored(value: SparkColumn, declared: LogicalType, kind: MaxComputeType) -> SparkColumn:
    """The stored form of a value, elements and fields included; keys of maps stay as they are."""
    from pyspark.sql import functions as F

    if not _trims(kind):
        return value
    match declared.name:
        case TypeName.CHAR | TypeName.VARCHAR | TypeName.STRING:
            return F.rtrim(value)
        case TypeName.ARRAY:
            element, below = declared.element, kind.children[0]
            assert element is not None
            return F.transform(value, lambda item: _stored(item, element, below))
        case TypeName.MAP:
            item, below = declared.element, kind.children[1]
            assert item is not None
            return F.transform_values(value, lambda _, found: _stored(found, item, below))
        case TypeName.ROW:
            fields = zip(declared.fields, kind.children, strict=True)
            columns = [_stored(value.getField(item.name), item.type, below).alias(item.name) for item, below in fields]
            return F.when(value.isNotNull(), F.struct(*columns))
    return value


def _trims(kind: MaxComputeType) -> bool:
    """Return whether a column holds CHAR values."""
    return kind.root == "CHAR" or any(_trims(child) for child in kind.children)


def stores_as_given(table: MaxComputeTable, actual: TableState) -> bool:
    """Return whether `stored_value` changes no value of any column."""
    return not table.partitions.columns and not any(_trims(column.type) for column in actual.columns)


def is_absent(value: SparkColumn, declared: LogicalType) -> SparkColumn:
    """Return whether a partition column has no value of its own: null, or text that is blank."""
    if spark_type(declared) == "STRING":
        return value.isNull() | value.rlike(_BLANK)
    return value.isNull()


def folded_key(table: MaxComputeTable, actual: TableState) -> tuple[str, ...]:
    """Primary key columns of which several values are stored as one, so that several keys may be one row."""
    return tuple(name for name in table.primary_key if _folds(name, table, actual))


def _folds(name: str, table: MaxComputeTable, actual: TableState) -> bool:
    from upsert_platform.maxcompute.decode import default_value

    plan = table.partitions
    declared = next(column.type for column in table.columns if column.name == name)
    assert declared is not None
    if name.lower() in dict(plan.static):
        return True
    if name.lower() in plan.dynamic:
        return spark_type(declared) == "STRING" or (
            partition_holds(plan.default, declared) and default_value(plan.default, declared) is not None
        )
    found = actual.column(name)
    return found is not None and found.type.root == "CHAR"


def default_text(plan: PartitionPlan, declared: LogicalType) -> str | None:
    """The partition value of rows that have none in a dynamic column; None where its type cannot be that text."""
    return plan.default if partition_holds(plan.default, declared) else None


def is_named(declared: LogicalType) -> bool:
    """Return whether `key_predicate` names values of a type. It leaves out timestamps: Python cannot hold them all."""
    return declared.name not in (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)


def key_predicate(keys: Sequence[Sequence[Any]], columns: Sequence[tuple[str, LogicalType, MaxComputeType]]) -> str:
    """SQL that holds for every row with one of these keys, and for few others; an empty text holds for all rows.

    It only spares work: rows are joined with the keys afterwards, for the service may ignore it. Each column is named
    once, with all its values: a service works through that in one pass, and a list of pairs would take it a comparison
    per row and pair.

    Args:
        keys: stored values (`stored_value`); a null has no rows.
        columns: name in the table, declared type and type in the table, for each place of a key.
    """
    parts = []
    for place, (name, declared, kind) in enumerate(columns):
        values = dict.fromkeys(key[place] for key in keys if key[place] is not None)
        texts = [text for value in values for text in _literals(value, declared, kind)]
        if all(_literals(value, declared, kind) for value in values) and texts:
            parts.append(f"{quote(name)} IN ({', '.join(texts)})")
    predicate = " AND ".join(parts)
    return predicate if len(predicate.encode()) <= MOST_PREDICATE_BYTES else ""


def _literals(value: Any, declared: LogicalType, kind: MaxComputeType) -> tuple[str, ...]:
    """The literals that a column of a type compares with where it holds a value; none when there is no sure one."""
    if declared.name is TypeName.TIME:
        return (sql_text(time_text(int(value), declared)),)
    match value:
        case bool():
            return ("true" if value else "false",)
        case int():
            return (str(value),)
        case str() if kind.root == "CHAR" and kind.length is not None:
            # Comparisons pad on one service and do not on another: both forms are named.
            return tuple(dict.fromkeys((sql_text(value), sql_text(value.ljust(kind.length)))))
        case str():
            return (sql_text(value),)
        case Decimal():
            return (f"{value:f}BD",)
        case dt.datetime():
            return ()
        case dt.date():
            return (f"DATE '{value.isoformat()}'",)
    return ()


def time_text(micros: int, declared: LogicalType) -> str:
    """A time of day as its column holds it: ``HH:mm:ss.SSS``, of six digits from TIME(4) on."""
    digits = 3 if (declared.precision or 0) <= _MILLISECOND_DIGITS else 6
    seconds, rest = divmod(micros, 1_000_000)
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours:02}:{minutes:02}:{seconds % 60:02}.{f'{rest:06}'[:digits]}"
