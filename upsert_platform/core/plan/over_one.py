"""Common parts of operators with one input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from upsert_platform.core.plan.columns import Field, Keys

if TYPE_CHECKING:
    from upsert_platform.core.plan.operators import Node


class OverOne:
    """An operator over one input; its rows are those of the input, unless it says otherwise."""

    __slots__ = ()
    input: Node

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of its rows."""
        return self.input.fields

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The operators that it reads."""
        return (self.input,)

    @property
    def keys(self) -> Keys:
        """Sets of columns that tell its rows apart."""
        return self.input.keys

    @property
    def appends(self) -> bool:
        """Return whether rows are only ever added."""
        return self.input.appends
