"""Declared tables of databases: the parts that all have alike, and the checks that every database makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from upsert_platform.core.errors import Problem
from upsert_platform.core.masking import NO_MASK, Mask
from upsert_platform.core.model import Column, Table
from upsert_platform.core.options import nearest
from upsert_platform.core.types import LogicalType, arrow_type
from upsert_platform.writing.options import WrittenSettings

if TYPE_CHECKING:
    import pyarrow as pa

S = TypeVar("S", bound=WrittenSettings)
NameProblem = Callable[[str], str | None]
"""The rule that a name of a column breaks, as the end of a sentence; None where it breaks none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable(Generic[S]):
    """A declared table that passed its checks.

    Attributes:
        name: as declared.
        columns: physical, in declared order, as change frames carry them.
        mask: what messages do not show.
    """

    name: str
    columns: tuple[Column, ...]
    settings: S
    mask: Mask = NO_MASK

    @classmethod
    def of(cls, table: Table, settings: S, **own: Any) -> Self:
        """The checked form of a declared table, with what its system knows beside these fields."""
        return cls(name=table.name, columns=table.physical_columns, settings=settings, mask=Mask.of(table), **own)

    @property
    def types(self) -> dict[str, LogicalType]:
        """Column to type."""
        return {column.name: column.type for column in self.columns if column.type is not None}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.types)

    @property
    def schema(self) -> pa.Schema:
        """The columns in Arrow."""
        import pyarrow as pa

        return pa.schema([pa.field(name, arrow_type(logical)) for name, logical in self.types.items()])


def without_effect(table: Table, reasons: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a warning for each declared option that has no effect.

    Args:
        reasons: such options to the reason.
    """
    for name, reason in reasons.items():
        if name in table.options:
            place = table.options.location(name) or table.location
            yield Problem(f"table '{table.name}': '{name}' has no effect: {reason}", place, "warning")


def column_problems(
    table: Table,
    *,
    system: str,
    name_problem: NameProblem = lambda name: None,
    is_key_type: Callable[[LogicalType], bool] = lambda kind: True,
    key_types: str = "",
    keyless: str = "",
) -> Iterator[Problem]:
    """Yield what is wrong with the columns of a table, and with its primary key.

    Columns have to be physical, with names that the system takes; those of the key are among them, once each, and of
    types that keys can have.

    Args:
        system: with its article: ``a Tablestore``.
        key_types: which types are taken, as the end of a sentence.
        keyless: the rule that a table without a key breaks, with its reason; empty where it may have none.
    """
    physical = {column.name for column in table.physical_columns}
    for column in table.columns:
        what = f"table '{table.name}': column '{column.name}'"
        place = column.location or table.location
        if column.name not in physical:
            rule = f"is a {column.kind} column; {system} table has physical columns only. Compute it in the INSERT"
            yield Problem(f"{what} {rule}", place)
        elif rule_of_name := name_problem(column.name):
            yield Problem(f"{what}: {rule_of_name}; rename the column", place)
    subject, names = f"table '{table.name}'", [column.name for column in table.physical_columns]
    if keyless and not table.primary_key:
        yield Problem(f"{subject}: {keyless}", table.location)
    if len(set(table.primary_key)) != len(table.primary_key):
        yield Problem(f"{subject}: a column stands twice in the PRIMARY KEY clause; keep one", table.location)
    for name in table.primary_key:
        what = f"{subject}: primary key column '{name}' is"
        if name not in names:
            yield Problem(f"{what} not a physical column{nearest(name, names)}", table.location)
            continue
        key = table.column(name)
        if key.type is not None and not is_key_type(key.type):
            yield Problem(f"{what} of type {key.type}; {key_types}", key.location or table.location)


def control_problem(table: Table, *, control: str, stored: str) -> Iterator[Problem]:
    """Yield the problem of a control table that is the written table itself.

    Args:
        stored: name of the table in its system.
    """
    if control == stored:
        yield Problem(
            f"table '{table.name}': 'control.table' = '{control}' is the table itself, which would lose its rows to"
            " positions and leases; name another table",
            table.options.location("control.table") or table.location,
        )
