"""The source ``mysql`` of an ingestion pipeline: its tables, as the server has them, as declared tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Options, Table
from upsert_platform.declarations.located import Located
from upsert_platform.mysql.options import REFUSED, REPLACED, MySqlSource, NewColumns, read_source, without
from upsert_platform.sql.declarations import ColumnDeclaration, KeyDeclaration, TableDeclaration

BEHAVIORS: Final = ("lenient", "evolve", "try_evolve", "ignore", "exception")
"""Values of ``schema.change.behavior``, the default first."""


@dataclass(frozen=True, slots=True)
class AskedSource:
    """A request of tables from a server, as declared.

    Attributes:
        options: of the tables that are found; each gets its own names beside them.
        behavior: what becomes of columns that change.
        place: for messages.
    """

    settings: MySqlSource
    options: Options
    behavior: str
    place: Located


Describe = Callable[[AskedSource], tuple[list[Table], list[Problem]]]
"""Tables of a server that a source names, with the columns that they have, and what is wrong with them."""


def read_mysql_source(
    source: Located, *, connector: str, behavior: str, problems: list[Problem], defaults: Mapping[str, str]
) -> AskedSource | None:
    """Reads the options of a MySQL source; None if there are errors.

    Args:
        connector: of the tables that are found.
        defaults: options for those that it does not declare.
    """
    options = {name: value for name, value in source.entries.items() if name not in ("type", "name")}
    for name, value in options.items():
        if value.text is None:
            problems.append(Problem(f"pipeline: source: option '{name}' takes one value", value.location))
    values = {name: value.text for name, value in options.items() if value.text is not None}
    places = {name: value.location for name, value in options.items()}
    given = Options(values, places).with_defaults(defaults)
    settings, found = read_source(given, location=source.location)
    for problem in found:
        problems.append(Problem(f"pipeline: {problem.message}", problem.location or source.location, problem.severity))
    if settings is None:
        return None
    passed = without(given, "tables", "tables.exclude", *REPLACED, *REFUSED)
    new_columns = NewColumns.IGNORE if behavior == "ignore" else NewColumns.FAIL
    kept = passed.with_defaults({"connector": connector, "new-columns": new_columns.value})
    return AskedSource(settings, kept, behavior, source)


def declaration_of(table: Table) -> TableDeclaration:
    """A table that was found, as if it had been declared."""
    place = table.location
    return TableDeclaration(
        name=table.name,
        location=place,
        columns=tuple(ColumnDeclaration(column.name, place, column.type) for column in table.columns),
        key=KeyDeclaration(table.primary_key, place),
        options=table.options,
        comment=table.comment,
    )


def named_in_database(table: Table) -> str:
    """Schema and name of a table that was found, by which patterns name it; of another table its own name."""
    schema, name = table.options.get("database-name"), table.options.get("table-name")
    return f"{schema}.{name}" if schema and name else table.name
