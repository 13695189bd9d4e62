"""ROW_NUMBER with a limit: the first rows of each partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.core.plan.columns import Field, Keys, Order
from upsert_platform.core.plan.over_one import OverOne

if TYPE_CHECKING:
    from upsert_platform.core.plan.operators import Node


ALL_ROWS: Final = 1 << 62
"""The limit of a `TopN` that numbers all rows."""


@dataclass(frozen=True, slots=True)
class TopN(OverOne):
    """The first rows of each partition: ``ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) <= limit``.

    Attributes:
        rank: name of the row number's column, or None when it is not shown.
    """

    input: Node
    partition: tuple[str, ...]
    order: tuple[Order, ...]
    limit: int
    rank: Field | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.input.fields, *([self.rank] if self.rank else []))

    @property
    def keys(self) -> Keys:
        own = [frozenset(self.partition)] if self.limit == 1 else []
        if self.rank is not None and self.limit > 1:
            own.append(frozenset((*self.partition, self.rank.name)))
        return (*own, *self.input.keys)

    @property
    def appends(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class ArrivedTopN(TopN):
    """The first rows of each partition, of rows that are only added: what the order leaves equal is in arrival order.

    Attributes:
        records: per record that a row is made of its batch, time, topic, partition, offset and row number there, as
            names of columns, which the result leaves out. The first record decides, between rows of one such record
            the next.
        at: the place of the arrival order among the columns of `order`: those before it decide first.
        latest: the row that arrived last comes first.
    """

    records: tuple[tuple[str, ...], ...] = ()
    at: int = 0
    latest: bool = False

    @property
    def fields(self) -> tuple[Field, ...]:
        hidden = {name for record in self.records for name in record}
        shown = tuple(item for item in self.input.fields if item.name not in hidden)
        return (*shown, *([self.rank] if self.rank else []))
