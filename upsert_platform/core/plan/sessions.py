"""Session windows: rows of a partition that follow each other within a gap."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from upsert_platform.core.plan.columns import Closing, Field
from upsert_platform.core.plan.over_one import OverOne
from upsert_platform.core.types import LogicalType, TypeName

if TYPE_CHECKING:
    from upsert_platform.core.plan.operators import Node


@dataclass(frozen=True, slots=True)
class Session(OverOne):
    """Adds ``window_start``, ``window_end`` and ``window_time`` of the session that a row belongs to.

    Attributes:
        partition: columns whose values have sessions of their own.
        time: the column of event time, TIMESTAMP or TIMESTAMP_LTZ; a row without one belongs to no session.
        gap: the longest time between two rows of a session, in microseconds. A session ends a gap after its last row.
        names: of the three columns.
        closing: when they close; None where none ever does, and for rows that change.
    """

    input: Node
    partition: tuple[str, ...]
    time: str
    gap: int
    names: tuple[str, str, str]
    # As that of `Window`.
    closing: Closing | None = field(default=None, repr=False)

    @property
    def edges(self) -> tuple[str, ...]:
        """Names of the columns of its start and its end."""
        return self.names[:2]

    @property
    def fields(self) -> tuple[Field, ...]:
        kind = next(item.type for item in self.input.fields if item.name == self.time)
        start, end, last = self.names
        edge = LogicalType(TypeName.TIMESTAMP, precision=3, nullable=False)
        plain = replace(kind, nullable=False, precision=3)
        return (*self.input.fields, Field(start, edge), Field(end, edge), Field(last, plain))

    @property
    def appends(self) -> bool:
        return False
