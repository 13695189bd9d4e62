"""Rules about a project as a whole, whatever its connectors are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from upsert_platform.changelog.path_segment import same_folder
from upsert_platform.changelog.rows import SYSTEM_COLUMNS
from upsert_platform.core.connector import Connector
from upsert_platform.core.destination import OPERATION, SEQUENCE
from upsert_platform.core.errors import Problem
from upsert_platform.core.internal_columns import PREFIX, is_internal
from upsert_platform.core.model import ColumnKind, Options, Project, Table, asset_part
from upsert_platform.core.platform_options import platform_problems, split_options
from upsert_platform.core.types import LogicalType, TypeName

TRUNCATE_TIMESTAMPS: Final = "truncate-timestamps"
"""Option of any source table: ``true`` allows TIMESTAMP(7) to (9), whose last digits are cut."""
RESERVED_COLUMNS: Final = frozenset({*SYSTEM_COLUMNS, OPERATION, SEQUENCE})
"""Names that lakes and change frames keep beside declared columns; all others begin with `internal_columns.PREFIX`."""
_MICROSECONDS: Final = 6
_UNFIT: Final = re.compile(r"[ ,;{}()\n\t=]")


def project_problems(
    project: Project, connectors: Mapping[str, Connector], *, written: Iterable[str] = (), keyed: Iterable[str] = ()
) -> list[Problem]:
    """Return the problems of a project's tables and inserts that a single statement does not show.

    Options of connectors are not looked at: each connector reads its own.

    Args:
        connectors: by name.
        written: tables of inserts that are not in the project because of errors of their own.
        keyed: tables that declare a primary key which is not in the project because of an error of its own.
    """
    problems: list[Problem] = []
    sources = {name for insert in project.inserts for name in insert.tables}
    targets = {insert.target for insert in project.inserts}
    # Rows that queries find in a table are kept as those of a source are.
    sources |= {name for query in project.queries() for name in query.lookups}
    for table in project.tables.values():
        used = table.name in sources or table.name in targets
        connector = connectors.get(table.connector)
        observed = connector is not None and connector.is_observed(table)
        used = used or table.name in written or observed
        problems += _table_problems(table, connectors, source=table.name in sources, used=used)
        if connector is not None and connector.keyed and not table.primary_key and table.name not in keyed:
            # Worded as the Kafka connector does, so that it is told once.
            problems.append(_problem(table, "a PRIMARY KEY ... NOT ENFORCED is required; it is the key of the records"))
    problems += _folder_problems(project)
    problems += _asset_problems(project, sources)
    problems += _asset_problems(project, targets)
    problems += _graph_problems(project)
    return problems


def _folder_problems(project: Project) -> list[Problem]:
    """Tables whose names the lake can keep apart nowhere, or not everywhere."""
    problems = []
    for first, second, alike in same_folder(project.tables):
        place = project.tables[second].location
        if alike:
            message = f"its name looks as that of another table, '{first}', and differs in its Unicode form alone"
            problems.append(Problem(f"table '{second}': {message}; rename one of the two", place))
        else:
            message = (
                f"its name and that of table '{first}' differ in case alone: on a file system that does not distinguish"
                " case their runs stop, for both would be kept in one folder of the lake"
            )
            problems.append(Problem(f"table '{second}': {message}", place, "warning"))
    return problems


def _asset_problems(project: Project, names: Iterable[str]) -> list[Problem]:
    """Tables that are read, or tables that are written, whose assets have one key."""
    found: dict[str, str] = {}
    problems = []
    for name in (name for name in project.tables if name in set(names)):
        other = found.setdefault(asset_part(name), name)
        if other != name:
            message = f"its asset and that of table '{other}' have one key, '{asset_part(name)}': rename one of the two"
            problems.append(Problem(f"table '{name}': {message}", project.tables[name].location))
    return problems


def _table_problems(table: Table, connectors: Mapping[str, Connector], *, source: bool, used: bool) -> list[Problem]:
    problems: list[Problem] = []
    if not table.connector:
        known = ", ".join(f"'{name}'" for name in connectors)
        problems.append(_problem(table, f"required option 'connector' is missing; it is one of {known}"))
    for column in table.columns:
        if column.name.lower() in RESERVED_COLUMNS:
            message = (
                f"column '{column.name}' has the name of a column of the platform itself; rename it (reserved are"
                f" {', '.join(sorted(RESERVED_COLUMNS))}, and names that begin with {PREFIX})"
            )
            problems.append(Problem(f"table '{table.name}': {message}", column.location or table.location))
        if is_internal(column.name):
            message = f"column '{column.name}' begins with {PREFIX}, as columns of the platform itself do; rename it"
            problems.append(Problem(f"table '{table.name}': {message}", column.location or table.location))
        stored = column.type if column.kind is not ColumnKind.COMPUTED else None
        if source and stored is not None and (name := _unfit_name(column.name, stored)):
            message = f"the lake stores no name with a blank or one of , ; {{ }} ( ) = in it; rename '{name}'"
            problems.append(Problem(f"table '{table.name}': {message}", column.location or table.location))
        if source and stored is not None and not _truncates(table) and (precision := _too_fine(stored)):
            message = (
                f"column '{column.name}' has {precision} fraction digits, but changes are kept in microseconds:"
                f" declare 6 at most, or set '{TRUNCATE_TIMESTAMPS}' = 'true' to cut them"
            )
            problems.append(Problem(f"table '{table.name}': {message}", column.location or table.location))
    problems += platform_problems(table)
    if not used:
        message = f"table '{table.name}' is neither read nor written by an INSERT; nothing happens with it"
        problems.append(Problem(message, table.location, "warning"))
    value = table.options.get(TRUNCATE_TIMESTAMPS)
    if value is not None and value.strip().lower() not in ("true", "false"):
        place = table.options.location(TRUNCATE_TIMESTAMPS) or table.location
        problems.append(Problem(f"table '{table.name}': option '{TRUNCATE_TIMESTAMPS}' takes true or false", place))
    return problems


def _problem(table: Table, message: str) -> Problem:
    return Problem(f"table '{table.name}': {message}", table.location)


def _truncates(table: Table) -> bool:
    return table.options.get(TRUNCATE_TIMESTAMPS, "").strip().lower() == "true"


def _unfit_name(name: str, logical: LogicalType) -> str | None:
    """The name of a column, or of a field at any depth, that Delta Lake refuses."""
    if _UNFIT.search(name):
        return name
    inner = [("", logical.key), ("", logical.element), *((field.name, field.type) for field in logical.fields)]
    return next((found for name, part in inner if part is not None and (found := _unfit_name(name, part))), None)


def _too_fine(logical: LogicalType) -> int | None:
    """Fraction digits of a timestamp, at any depth, that microseconds do not hold."""
    stamps = (part for part in logical.parts() if part.name in (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ))
    return next((part.precision for part in stamps if (part.precision or 0) > _MICROSECONDS), None)


def _graph_problems(project: Project) -> list[Problem]:
    problems: list[Problem] = []
    sources = {name for insert in project.inserts for name in insert.tables}
    for insert in project.inserts:
        if insert.target in insert.tables:
            problems.append(Problem(f"table '{insert.target}' is written from itself", insert.location))
        elif insert.target in sources:
            message = (
                f"table '{insert.target}' is written by this insert and read by another: declare the same topic once"
                " more under another name, and read that"
            )
            problems.append(Problem(message, insert.location))
    return problems


def without_platform_options(table: Table) -> Table:
    """The table with the options that connectors see; those of the platform have been applied."""
    own, others = split_options(table.options)
    if not own and TRUNCATE_TIMESTAMPS not in others:
        return table
    values = {name: value for name, value in others.items() if name != TRUNCATE_TIMESTAMPS}
    places = {name: place for name in values if (place := others.location(name)) is not None}
    return replace(table, options=Options(values, places), platform=own)
