"""UNNEST: a row per element of a collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.core.plan.columns import Field, Keys
from upsert_platform.core.plan.over_one import OverOne
from upsert_platform.core.types import TypeName

if TYPE_CHECKING:
    from upsert_platform.core.plan.operators import Node


@dataclass(frozen=True, slots=True)
class Unnest(OverOne):
    """Each row once per element of an array or multiset, or per entry of a map.

    Attributes:
        column: with the collection.
        elements: the columns of an element: the fields of a ROW, key and value of an entry, or the element itself.
        ordinality: the column with the element's number, from 1; None where it is not asked for.
        padded: a row whose collection is null or empty stays, with nulls.
    """

    input: Node
    column: str
    elements: tuple[Field, ...]
    ordinality: Field | None = None
    padded: bool = False

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.input.fields, *self.added)

    @property
    def added(self) -> tuple[Field, ...]:
        """The columns of an element, and its number."""
        return (*self.elements, *([self.ordinality] if self.ordinality is not None else []))

    @property
    def keys(self) -> Keys:
        own = {self.ordinality.name} if self.ordinality is not None else set()
        kind = next(item.type for item in self.input.fields if item.name == self.column)
        if not own and kind.name is TypeName.MAP:
            own = {self.elements[0].name}
        return tuple(key | own for key in self.input.keys) if own else ()
