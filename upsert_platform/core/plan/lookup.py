"""The lookup join: rows of a table in another system, found by their key when a row arrives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from upsert_platform.core.plan.columns import Field, Keys
from upsert_platform.core.plan.over_one import OverOne

if TYPE_CHECKING:
    from upsert_platform.core.plan.operators import Node


@dataclass(frozen=True, slots=True)
class Lookup(OverOne):
    """Every row with the row of a table that has its key: as that was when the row arrived, and never again.

    A key has at most one row, so the rows are told apart as those of the input are; `LookupRows` is of tables that may
    have several.

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


@dataclass(frozen=True, slots=True)
class LookupRows(Lookup):
    """Every row with all rows of a table that have its key, of a table that may have several.

    `on` has the columns of the table that the statement sets equal to others. Nothing tells the rows apart: one row of
    the input may stand there as often as the table has its key.
    """

    @property
    def keys(self) -> Keys:
        return ()
