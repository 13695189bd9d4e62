"""Columns of a plan, and what is computed of them: expressions, aggregates, orders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from upsert_platform.core.types import LogicalType, quote_name

Native = tuple[Any, ...]
"""An expression that Arrow evaluates as Flink does: ``("column", name)``, ``("literal", value, type)`` or an operator
and its operands (see `upsert_platform.engine.steps`)."""


class Key(frozenset[str]):
    """A set of columns that a plan holds: it shows them in one order, since plans are told apart by what they show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"frozenset({{{', '.join(map(repr, sorted(self)))}}})" if self else "frozenset()"


Keys = tuple[frozenset[str], ...]
"""Sets of columns whose values occur once each in a result; ``frozenset()``: there is at most one row."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column of an operator's result."""

    name: str
    type: LogicalType


@dataclass(frozen=True, slots=True)
class Expression:
    """A scalar expression over the columns of an operator.

    Attributes:
        sql: Spark SQL.
        native: the same without Spark, where that is possible.
        form: the same as `native`, found in the text of `sql`; plans of one fingerprint may have it or not.
        varies: name of a function in it that gives another value each time.
        reads: names of the columns in it.
        fails: Spark SQL of the reason why it has no value for a row; None if it cannot fail.
        keeps: a column that it tells, since it gives another value for every value of that: up to a unit of time in
            microseconds, or wholly with 0.
    """

    sql: str
    type: LogicalType
    native: Native | None = None
    varies: str | None = None
    reads: tuple[str, ...] = ()
    # Plans are told apart by what they show of themselves; one that can fail is not carried out.
    fails: str | None = field(default=None, repr=False)
    keeps: tuple[str, int] | None = field(default=None, repr=False, compare=False)
    form: Native | None = field(default=None, repr=False, compare=False)

    @property
    def arrow(self) -> Native | None:
        """Return the form that Arrow evaluates; None where Spark has to."""
        return self.native if self.native is not None else self.form

    @property
    def column(self) -> str | None:
        """The column's name, when it is nothing but one."""
        return self.native[1] if self.native is not None and self.native[0] == "column" else None


COLLECTS: Final = ("listagg", "array_agg", "collect", "percentile", "json_arrayagg", "json_objectagg")
"""Aggregates that show every value of a group."""


@dataclass(frozen=True, slots=True)
class Call:
    """An aggregate of a GROUP BY.

    Attributes:
        function: ``count``, ``sum``, ``avg``, ``min``, ``max``, ``listagg``, ``array_agg``, ``collect``,
            ``json_arrayagg``, ``json_objectagg``, ``percentile``, ``var_pop``, ``var_samp``, ``stddev_pop`` or
            ``stddev_samp``.
        argument: the column aggregated; None for ``COUNT(*)``.
        filter: a BOOLEAN column: rows for which it is true take part.
        separator: between the values of ``listagg`` and JSON; of ``array_agg`` ``IGNORE NULLS`` or ``RESPECT NULLS``;
            of ``percentile`` its shares as JSON.
    """

    name: str
    function: str
    type: LogicalType
    argument: str | None = None
    distinct: bool = False
    filter: str | None = None
    separator: str | None = None


@dataclass(frozen=True, slots=True)
class Closing:
    """The closing of windows, after which late rows are counted and dropped.

    Attributes:
        table: whose records tell the time: the least, over the partitions, of the greatest value in `column`.
        after: a window closes when that is so many microseconds behind its end.
    """

    table: str
    column: str
    after: int


@dataclass(frozen=True, slots=True)
class Order:
    """A column of ORDER BY."""

    column: str
    descending: bool = False
    nulls_first: bool = True


def column(field: Field) -> Expression:
    """The expression that is nothing but a column."""
    return Expression(quote_name(field.name), field.type, ("column", field.name), reads=(field.name,))
