"""A declared PostgreSQL table, and the checks of its declaration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from upsert_platform.errors import Problem
from upsert_platform.masking import NO_MASK, Mask
from upsert_platform.model import Column, Table
from upsert_platform.options import nearest, read_settings
from upsert_platform.postgres.names import MOST_BYTES, Name, parse_name
from upsert_platform.postgres.options import WITHOUT_EFFECT, PostgresSettings
from upsert_platform.postgres.types import is_array, is_json
from upsert_platform.types import LogicalType


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A declared PostgreSQL table.

    Attributes:
        name: as declared.
        place: schema and name in the database.
        columns: in declared order, as change frames carry them.
        primary_key: names, in the order of the PRIMARY KEY clause.
        mask: what messages do not show.
    """

    name: str
    place: Name
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    settings: PostgresSettings
    mask: Mask = NO_MASK

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def types(self) -> tuple[LogicalType, ...]:
        """Types of the columns."""
        return tuple(column.type for column in self.columns if column.type is not None)

    @property
    def key_types(self) -> tuple[LogicalType, ...]:
        """Types of the key's columns, in its order."""
        types = dict(zip(self.names, self.types, strict=True))
        return tuple(types[name] for name in self.primary_key)

    @property
    def control(self) -> Name:
        """The control table."""
        return self.place.beside(self.settings.control_table)


def read_postgres_table(table: Table) -> tuple[PostgresTable | None, list[Problem]]:
    """Reads a declared table of this connector.

    Returns:
        The table, or None when a problem is an error, and every problem found.
    """
    subject = f"table '{table.name}'"
    settings, problems = read_settings(
        PostgresSettings,
        table.options,
        subject=subject,
        location=table.location,
        ignore=lambda name: name in WITHOUT_EFFECT,
    )
    problems += [
        Problem(
            f"{subject}: '{name}' has no effect: {reason}", table.options.location(name) or table.location, "warning"
        )
        for name, reason in WITHOUT_EFFECT.items()
        if name in table.options
    ]
    problems += _check(table, settings)
    if settings is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    place = settings.place(table.name)
    return (
        PostgresTable(table.name, place, table.physical_columns, table.primary_key, settings, Mask.of(table)),
        problems,
    )


def _check(table: Table, settings: PostgresSettings | None) -> Iterator[Problem]:
    subject, names = f"table '{table.name}'", [column.name for column in table.physical_columns]
    if settings is not None:
        yield from _check_names(table, settings)
    for column in table.columns:
        place = column.location or table.location
        if column.name not in names:
            told = f"column '{column.name}' is a {column.kind} column; a PostgreSQL table has physical columns only"
            yield Problem(f"{subject}: {told}. Compute it in the INSERT", place)
        elif len(column.name.encode()) > MOST_BYTES:
            told = f"column '{column.name}': PostgreSQL takes names of {MOST_BYTES} bytes; rename the column"
            yield Problem(f"{subject}: {told}", place)
    if not table.primary_key:
        told = "a PRIMARY KEY ... NOT ENFORCED is required; rows are put and deleted by it"
        yield Problem(f"{subject}: {told}", table.location)
    for name in table.primary_key:
        if name not in names:
            told = f"primary key column '{name}' is not a physical column{nearest(name, names)}"
            yield Problem(f"{subject}: {told}", table.location)
            continue
        column = table.column(name)
        if column.type is not None and (is_json(column.type) or is_array(column.type)):
            told = f"primary key column '{name}' is of type {column.type}; use a scalar type"
            yield Problem(f"{subject}: {told}", column.location or table.location)


def _check_names(table: Table, settings: PostgresSettings) -> Iterator[Problem]:
    if not settings.table_name and len(table.name.encode()) > MOST_BYTES:
        told = f"table '{table.name}': PostgreSQL takes names of {MOST_BYTES} bytes; set 'table-name'"
        yield Problem(told, table.location)
    place = table.options.location("control.table") or table.location
    try:
        control = parse_name(settings.control_table)
    except ValueError as error:
        yield Problem(f"table '{table.name}': option 'control.table' {error}", place)
        return
    if control.schema or control.table != settings.control_table:
        yield Problem(
            f"table '{table.name}': option 'control.table' takes a plain name; the table stands in the schema of the"
            " written one",
            place,
        )
    if settings.place(table.name).table == settings.control_table:
        yield Problem(
            f"table '{table.name}': 'control.table' = '{settings.control_table}' is the table itself, which would lose"
            " its rows to positions and leases; name another table",
            place,
        )
