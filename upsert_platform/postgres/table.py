"""A declared table of PostgreSQL or Hologres, and the checks of its declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Table
from upsert_platform.core.options import read_settings
from upsert_platform.postgres.options import HologresSettings, PostgresSettings
from upsert_platform.postgres.sql import MOST_BYTES, Name, is_array, is_json, parse_name
from upsert_platform.writing.declared import WrittenTable, column_problems, control_problem, without_effect


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresTable(WrittenTable[PostgresSettings]):
    """A declared table.

    Attributes:
        place: its schema and name.
        primary_key: in declared order.
        absent: columns that the server's table does not have yet; they are read as null.
    """

    place: Name
    primary_key: tuple[str, ...]
    absent: frozenset[str] = frozenset()

    @property
    def control(self) -> Name:
        """The control table."""
        return self.place.beside(self.settings.control_table)


def read_postgres_table(
    table: Table, model: type[PostgresSettings | HologresSettings], ignored: Mapping[str, str]
) -> tuple[PostgresTable | None, list[Problem]]:
    """Reads a declared table: it, or None when a problem is an error, and every problem found.

    Args:
        ignored: options without effect, to the reason.
    """
    declared, problems = read_settings(
        model, table.options, subject=f"table '{table.name}'", location=table.location, ignore=ignored.__contains__
    )
    settings: PostgresSettings | None = None
    try:
        settings = declared.server() if isinstance(declared, HologresSettings) else declared
    except ValidationError as error:
        reason = error.errors(include_input=False)[0]["msg"].removeprefix("Value error, ")
        problems.append(Problem(f"table '{table.name}': the place of the table {reason}", table.location))
    problems += [*without_effect(table, ignored), *_column_problems(table)]
    if settings is not None:
        problems += _name_problems(table, settings)
    if settings is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    place = settings.place(table.name)
    return PostgresTable.of(table, settings, place=place, primary_key=table.primary_key), problems


_LONG = f"PostgreSQL takes names of {MOST_BYTES} bytes"


def _name_problems(table: Table, settings: PostgresSettings) -> Iterator[Problem]:
    subject, control = f"table '{table.name}'", settings.control_table
    where = table.options.location("control.table") or table.location
    try:
        if parse_name(control) != Name("", control):
            rule = "takes a plain name; the table stands in the schema of the written one"
            yield Problem(f"{subject}: option 'control.table' {rule}", where)
    except ValueError as error:
        yield Problem(f"{subject}: option 'control.table' {error}", where)
    if not settings.table_name and len(table.name.encode()) > MOST_BYTES:
        yield Problem(f"{subject}: {_LONG}; set 'table-name'", table.location)
    yield from control_problem(table, control=control, stored=settings.place(table.name).table)


def _column_problems(table: Table) -> Iterator[Problem]:
    return column_problems(
        table,
        system="a PostgreSQL",
        name_problem=lambda name: _LONG if len(name.encode()) > MOST_BYTES else None,
        is_key_type=lambda kind: not (is_json(kind) or is_array(kind)),
        key_types="use a scalar type",
        keyless="a PRIMARY KEY ... NOT ENFORCED is required; rows are put and deleted by it",
    )
