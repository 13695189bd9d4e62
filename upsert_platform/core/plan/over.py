"""OVER: aggregates and neighbours of each row among the rows of its partition, in an order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from upsert_platform.core.internal_columns import internal
from upsert_platform.core.plan.columns import Field, Order
from upsert_platform.core.plan.over_one import OverOne
from upsert_platform.core.types import LogicalType, TypeName

if TYPE_CHECKING:
    from upsert_platform.core.plan.operators import Node

ARRIVED: Final = Field(internal("arrived"), LogicalType(TypeName.BIGINT, nullable=False))
"""The batch of the query that brought a row."""


@dataclass(frozen=True, slots=True)
class OverCall:
    """A function of an OVER.

    Attributes:
        function: ``count``, ``sum``, ``avg``, ``min``, ``max``, ``first_value``, ``last_value``, ``lag``, ``lead``,
            ``rank``, ``dense_rank`` or ``row_number``.
        argument: the column; None for ``COUNT(*)`` and numbers of rows.
        offset: of ``lag`` and ``lead``, how many rows away.
        default: of these, the column that is given where there is no such row.
        distinct: of ``count``, ``sum`` and ``avg``, each value of a frame counts once.
    """

    name: str
    function: str
    type: LogicalType
    argument: str | None = None
    offset: int = 1
    default: str | None = None
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Over(OverOne):
    """Each row with what its frame gives: the rows of its partition up to itself.

    Attributes:
        rows: the frame counts rows; otherwise it holds all rows that the order leaves equal to its own too.
        preceding: how many rows, or microseconds of the order's column, a frame reaches back; None for all.
        records: of rows that are only added, as `ArrivedTopN` has them, with `at` and `latest`; the result leaves these
            columns out.
        by_arrival: the order is by processing time, in which no two rows are equal.
        passes: the result has these columns, and `ARRIVED`, for an OVER of the same rows above it.
    """

    input: Node
    partition: tuple[str, ...]
    order: tuple[Order, ...]
    calls: tuple[OverCall, ...]
    rows: bool
    preceding: int | None
    records: tuple[tuple[str, ...], ...] = ()
    at: int = 0
    latest: bool = False
    by_arrival: bool = False
    # Plans of other OVERs are what they were; the one above shows the records that it takes.
    passes: bool = field(default=False, repr=False)

    @property
    def is_given_arrival(self) -> bool:
        """Return whether an OVER of the same rows below it tells when they arrived."""
        return ARRIVED in self.input.fields

    @property
    def fields(self) -> tuple[Field, ...]:
        hidden = {ARRIVED.name, *(name for record in self.records for name in record)}
        own = tuple(Field(call.name, call.type) for call in self.calls)
        if self.passes:
            return (*self.input.fields, *(() if self.is_given_arrival else (ARRIVED,)), *own)
        return (*(item for item in self.input.fields if item.name not in hidden), *own)

    @property
    def appends(self) -> bool:
        """Rows that come in the order of their arrival change none before them."""
        arriving = self.by_arrival and not self.at and not self.latest
        return self.input.appends and arriving and all(call.function != "lead" for call in self.calls)
