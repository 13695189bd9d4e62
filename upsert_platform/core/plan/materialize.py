"""Upsert-materialize: rows under a key that does not tell them apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.core.plan.columns import Keys
from upsert_platform.core.plan.over_one import OverOne

if TYPE_CHECKING:
    from upsert_platform.core.plan.operators import Node


@dataclass(frozen=True, slots=True)
class Materialize(OverOne):
    """Keeps, of the rows that share a key, the one that arrived last; when it is retracted, the one before it.

    Attributes:
        key: of the table that the rows are written to, as columns of the input.
    """

    input: Node
    key: tuple[str, ...]

    @property
    def keys(self) -> Keys:
        return (frozenset(self.key),)

    @property
    def appends(self) -> bool:
        return False
