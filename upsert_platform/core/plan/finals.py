"""Finals rows: those of windows that are closed, which nothing changes any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.core.plan.over_one import OverOne

if TYPE_CHECKING:
    from upsert_platform.core.plan.operators import Node


@dataclass(frozen=True, slots=True)
class Finals(OverOne):
    """Gives each row once, when its window is closed; until then the row waits, and changes as its input does.

    Attributes:
        end: the column with the end of the window that a row belongs to.
        windows: names of the ends of windows, as `Window.names` has them, that this column comes from: a row is given
            when all of these are closed.
    """

    input: Node
    end: str
    windows: tuple[str, ...]

    @property
    def appends(self) -> bool:
        return True
