"""The selection that a table makes of a topic: renamed columns, and rows that meet simple conditions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from upsert_platform.referee.errors import RefereeError

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Condition:
    """A comparison of a column with a constant; as in SQL, null meets none but ``is null``.

    Attributes:
        operator: ``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=``, ``in``, ``is null`` or ``is not null``.
        value: the constant in the form of decoded values; a tuple for ``in``.
    """

    column: str
    operator: str
    value: Any = None

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row meets it."""
        found = row[self.column]
        if self.operator == "is null":
            return found is None
        if found is None:
            return False
        if self.operator == "is not null":
            return True
        if self.operator == "in":
            return found in self.value
        return _COMPARISONS[self.operator](found, self.value)


@dataclass(frozen=True)
class Selection:
    """A projection and a filter.

    Attributes:
        columns: column of the target to column of the topic's table; of a target column without one, None: it is null.
        in_place_of_null: column of the target to the value that it holds where a row has none.
        where: conditions that all have to hold, or a function of a row.
    """

    columns: Mapping[str, str | None]
    where: Sequence[Condition] | Callable[[Mapping[str, Any]], bool] = ()
    in_place_of_null: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not callable(self.where):
            for condition in self.where:
                if condition.operator not in (*_COMPARISONS, "in", "is null", "is not null"):
                    raise RefereeError(f"'{condition.operator}' is beyond the referee")

    def row(self, row: Mapping[str, Any] | None) -> list[Any] | None:
        """The values of the target's columns, or None where it has no such row."""
        if row is None:
            return None
        holds = self.where(row) if callable(self.where) else all(condition.holds(row) for condition in self.where)
        if not holds:
            return None
        values = {target: None if name is None else row[name] for target, name in self.columns.items()}
        return [self.in_place_of_null.get(name) if value is None else value for name, value in values.items()]
