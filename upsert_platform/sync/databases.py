"""Tables of databases that pipelines read: asked of the server whenever a project is loaded, and kept beside the lake.

What was told last stands in for a server that is away, and is what changes of columns are judged by.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.tables import TableLocation, file_system
from upsert_platform.core.errors import EndpointError, Problem
from upsert_platform.core.model import Options, Table
from upsert_platform.core.packages import missing_package
from upsert_platform.core.types import TypeName
from upsert_platform.declarations.pipeline_source import AskedSource
from upsert_platform.mysql.catalog import key_problem, list_tables, read_table, versioned_problem
from upsert_platform.mysql.columns import (
    MySqlColumn,
    MySqlTable,
    TypeRules,
    declared_type,
    table_from_data,
    table_to_data,
)
from upsert_platform.mysql.connection import Connection
from upsert_platform.mysql.declared import declared_columns
from upsert_platform.mysql.options import MySqlSource

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXACT = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT, TypeName.DECIMAL)
_NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal")


def describe(asked: AskedSource, *, lake: Lake, kept: bool = False) -> tuple[list[Table], list[Problem]]:
    """The tables that a source names, with the columns that they have now, and what is wrong with them.

    Args:
        lake: beside which the last answer is kept.
        kept: whether the last answer will do; the server is asked where there is none.
    """
    place = asked.place.location
    if told := missing_package("mysql"):
        return [], [Problem(f"source: {told}", place)]
    store = _Kept(asked.settings, lake)
    before = store.read()
    problems: list[Problem] = []
    try:
        found, versioned = (list(before.values()), {}) if kept and before else _tables(asked.settings)
    except EndpointError as error:
        if not before:
            return [], [Problem(f"source: {error}", place)]
        told = f"source: {error}; its tables are taken to be as they were when it answered last"
        problems.append(Problem(told, place, "warning"))
        found, versioned = list(before.values()), {}
    gone = sorted(before.keys() - {table.full_name for table in found})
    if gone:
        told = f"source: {', '.join(gone)} of {asked.settings.server} are not there any more"
        told += "; their topics stay as they are"
        problems.append(Problem(told, place, "warning"))
    if not found:
        told = f"source: 'tables' = '{asked.settings.tables}' matches no table of {asked.settings.server}"
        told += " that the user may read"
        return [], [*problems, Problem(told, asked.options.location("tables") or place)]
    tables, remembered = [], {}
    for table in found:
        try:
            known = before.get(table.full_name)
            carried = evolved(known, table, asked.behavior)
            carried = with_stored_types(known, carried, asked.settings.type_rules)
        except ValueError as error:
            problems.append(Problem(f"source: table {table.full_name}: {error}", place))
            continue
        remembered[table.full_name] = carried
        problems += [Problem(f"source: {text}", place, "warning") for text in _other_types(carried, table)]
        columns, unread = declared_columns(carried, asked.settings.type_rules, location=place)
        without_key = key_problem(table)
        faults = [problem for problem in (without_key, versioned.get(table.full_name)) if problem is not None]
        faults += [f"table {table.full_name}: {text}" for text in unread]
        problems += [Problem(f"source: {text}", place) for text in faults]
        if not faults:
            # A topic of the same name is a table of the project too.
            name = f"mysql.{table.full_name}"
            tables.append(Table(name, columns, table.primary_key, _options(asked, table), place))
    if not any(problem.severity == "error" for problem in problems):
        store.write({**before, **remembered}, before)
    return tables, problems


def _options(asked: AskedSource, table: MySqlTable) -> Options:
    own = {"database-name": table.schema, "table-name": table.name}
    values = {**asked.options, **own}
    places = {name: found for name in values if (found := asked.options.location(name)) is not None}
    return Options(values, places)


def _tables(settings: MySqlSource) -> tuple[list[MySqlTable], dict[str, str]]:
    """The tables, and what is wrong with some, by their full names."""
    with Connection(settings.server) as connection:
        found = [read_table(connection, *names) for names in list_tables(connection, settings.selection)]
        tables = [table for table in found if table is not None]
        problems = {table.full_name: versioned_problem(connection, table.schema, table.name) for table in tables}
    return tables, {name: problem for name, problem in problems.items() if problem is not None}


def evolved(before: MySqlTable | None, now: MySqlTable, behavior: str) -> MySqlTable:
    """The columns that are carried, of those that a table had when they were last asked for and those that it has.

    ``ignore`` keeps those that it had; ``exception`` accepts no difference; ``evolve`` takes those that it has; and
    ``lenient`` and ``try_evolve`` keep dropped ones, as nullable, behind those that it has.

    Raises:
        ValueError: they differ, and may not; names every difference.
    """
    if before is None or behavior == "evolve":
        return now
    own, known = {column.name: column for column in now.columns}, {column.name: column for column in before.columns}
    if behavior == "exception":
        told = [f"column '{name}' is new" for name in own if name not in known]
        told += [f"column '{name}' is gone" for name in known if name not in own]
        told += [
            f"column '{name}' is {own[name].declared} and was {known[name].declared}"
            for name in own
            if name in known and replace(own[name], nullable=True) != replace(known[name], nullable=True)
        ]
        if told:
            raise ValueError(
                f"{'; '.join(told)}; 'schema.change.behavior' = 'exception' stops the pipeline here. Another value"
                " carries the change on"
            )
        return now
    if behavior == "ignore":
        return replace(now, columns=before.columns)
    dropped = [replace(column, nullable=True) for name, column in known.items() if name not in own]
    return replace(now, columns=(*now.columns, *dropped))


def with_stored_types(before: MySqlTable | None, now: MySqlTable, rules: TypeRules) -> MySqlTable:
    """Columns whose numbers became wider, or narrower, with the types that they had: a changelog's types stay.

    Values that the older type does not hold stop the run that meets them. Other changes of a type are left as they are.
    """
    if before is None:
        return now
    known = {column.name: column for column in before.columns}
    columns = tuple(
        replace(known[column.name], nullable=column.nullable)
        if column.name in known and _holds_most(known[column.name], column, rules, key=column.name in now.primary_key)
        else column
        for column in now.columns
    )
    return replace(now, columns=columns)


def _holds_most(old: MySqlColumn, new: MySqlColumn, rules: TypeRules, *, key: bool) -> bool:
    """Return whether both are exact numbers of other types that have as many digits behind the point."""
    one, other = declared_type(old, rules, key=key), declared_type(new, rules, key=key)
    if one is None or other is None or replace(one, nullable=True) == replace(other, nullable=True):
        return False
    return all(kind.name in _EXACT for kind in (one, other)) and (one.scale or 0) == (other.scale or 0)


def _other_types(carried: MySqlTable, found: MySqlTable) -> list[str]:
    """Return warnings about columns whose declared type differs from the server's."""
    own = {column.name: column for column in found.columns}
    return [
        f"table {found.full_name}: column '{column.name}' is {own[column.name].declared} and is carried as"
        f" {column.declared}, the type that its changelog began with; a value that this does not hold stops the run"
        for column in carried.columns
        if column.name in own and own[column.name].kind in _NUMBERS and column.declared != own[column.name].declared
    ]


class _Kept:
    """The last answers of a server, cached in a file beside the lake's tables."""

    def __init__(self, settings: MySqlSource, lake: Lake) -> None:
        named = f"{settings.server} {settings.tables} {settings.excluded}"
        self.name = f"{hashlib.sha256(named.encode()).hexdigest()[:16]}.json"
        self.location: TableLocation = lake.databases()

    def read(self) -> Mapping[str, MySqlTable]:
        """Tables by full name; none before the first answer."""
        from pyarrow.fs import FileType

        system, folder = file_system(self.location)
        path = f"{folder}{self.name}"
        if system.get_file_info(path).type is not FileType.File:
            return {}
        with system.open_input_stream(path) as stream:
            data: list[Any] = json.loads(stream.readall())
        return {table.full_name: table for table in map(table_from_data, data)}

    def write(self, tables: Mapping[str, MySqlTable], before: Mapping[str, MySqlTable]) -> None:
        """Keeps tables, where they are not those that were kept."""
        if tables == before:
            return
        system, folder = file_system(self.location)
        text = json.dumps([table_to_data(table) for table in tables.values()])
        path = f"{folder}{self.name}"
        # In a store an object is there whole or not at all; a file is so under a name that it gets when it is written.
        written = path if self.location.path is None else f"{path}.{uuid.uuid4().hex}"
        if self.location.path is not None:
            system.create_dir(self.location.path, recursive=True)
        with system.open_output_stream(written) as stream:
            stream.write(text.encode())
        if written != path:
            system.move(written, path)
