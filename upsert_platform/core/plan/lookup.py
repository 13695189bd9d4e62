"""The lookup join: rows of a table in another system, found by their key when a row arrives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from upsert_platform.core.plan.columns import Field
from upsert_platform.core.plan.over_one import OverOne

if TYPE_CHECKING:
    from upsert_platform.core.plan.operators import Node


@dataclass(frozen=True, slots=True)
class Lookup(OverOne):
    """Every row with the row of a table that has its key: as that was when the row arrived, and never again.

    A key has at most one row, so the rows are told apart as those of the input are.

    Attributes:
        table: that rows are found in; its changes are not followed.
        columns: those of the table that are used, by their names in the result.
        on: per column of the table's primary key the column of the input that is equal to it; nulls find nothing.
        padded: whether a row that finds nothing stays, with nulls.
    """

    input: Node
    table: str
    columns: tuple[tuple[str, Field], ...]
    on: tuple[tuple[str, str], ...]
    padded: bool

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.input.fields, *self.found)

    @property
    def found(self) -> tuple[Field, ...]:
        """The columns that come from the table."""
        return tuple(
            Field(name, replace(item.type, nullable=item.type.nullable or self.padded)) for name, item in self.columns
        )
