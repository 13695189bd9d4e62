"""Binds a declared project to its connectors: which table is read from where, which is written where.

Knows no dagster and opens no connection, so `validate`, the graph and tests share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from upsert_platform.changelog import lake
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.connector import Readable, Writable
from upsert_platform.declarations.project import load_project
from upsert_platform.destination import Destination
from upsert_platform.errors import DeclarationError, Problem
from upsert_platform.hops.connectors import (
    CONNECTORS,
    connector_of,
    readable,
    sharing_problems,
    topic_problems,
    unknown_connector,
)
from upsert_platform.model import Insert, Project, Table
from upsert_platform.source import Source


@dataclass(frozen=True)
class Target:
    """A declared table that an insert writes.

    Attributes:
        checked: the connector's own form of the table.
    """

    table: Table
    insert: Insert
    source: Source
    connector: Writable[Any]
    checked: Any

    def open(self) -> Destination:
        """The destination; the caller closes it."""
        return self.connector.open(self.checked)


@dataclass(frozen=True)
class Binding:
    """A project whose declarations fit together.

    Attributes:
        warnings: problems that do not stop it.
    """

    project: Project
    sources: Mapping[str, Source]
    targets: Mapping[str, Target]
    warnings: tuple[Problem, ...] = ()


def with_defaults(table: Table, defaults: Mapping[str, Mapping[str, str]]) -> Table:
    """A table whose options are completed by those of its connector's resource; what is declared wins."""
    own = defaults.get(table.connector)
    return replace(table, options=table.options.with_defaults(own)) if own else table


def changelog_of(source: Source, root: str) -> ChangelogStore:
    """The changelog of a source below a lake's root."""
    return ChangelogStore(lake.changelog_uri(root, source.table.name), source.table, mode=source.mode)


def bind(
    project: Project, problems: list[Problem], *, defaults: Mapping[str, Mapping[str, str]] | None = None
) -> Binding:
    """Checks every table against its connector and joins inserts with what they read and write.

    Args:
        problems: those found so far; more are added.
        defaults: connector to options that its tables get where they declare none.

    Raises:
        DeclarationError: with every error found, those of `problems` included.
    """
    declared = {name: with_defaults(table, defaults or {}) for name, table in project.tables.items()}
    read = {insert.source for insert in project.inserts}
    written = {insert.target for insert in project.inserts}
    sources: dict[str, Source] = {}
    checked: dict[str, Any] = {}
    for name, table in declared.items():
        if name in read and (source := _source(table, problems)) is not None:
            sources[name] = source
        if name in written and (found := _checked(table, problems)) is not None:
            checked[name] = found
        if name not in read | written:
            connector = connector_of(table)
            problems.extend(connector.unused_problems(table) if connector else [unknown_connector(table)])
    problems.extend(sharing_problems((declared[name], found) for name, found in checked.items()))
    targets: dict[str, Target] = {}
    for insert in project.inserts:
        if insert.target not in declared or insert.target in targets:
            continue
        written_table = declared[insert.target]
        connector = connector_of(written_table)
        if not isinstance(connector, Writable):
            continue
        if insert.overwrite:
            problems.extend(connector.overwrite_problems(insert, written_table))
        if insert.source in sources and insert.target in checked:
            targets[insert.target] = Target(
                written_table, insert, sources[insert.source], connector, checked[insert.target]
            )
    problems.extend(topic_problems((target.source, target.table, target.checked) for target in targets.values()))
    _drop_echoes(problems)
    problems.sort(key=_place)
    if any(problem.severity == "error" for problem in problems):
        errors = [problem for problem in problems if problem.severity == "error"]
        raise DeclarationError(errors, hint=_hint(errors))
    return Binding(project, sources, targets, tuple(problems))


def _hint(errors: list[Problem]) -> str:
    """Where values of the local servers' variables come from, told once for all of them."""
    if any("variable ${UPSERT_" in problem.message for problem in errors):
        return "hint: 'upsert-platform local up' starts servers on this machine and sets the UPSERT_... variables"
    return ""


def _place(problem: Problem) -> tuple[str, int]:
    """The order in which a reader meets problems: rooms find them one after the other."""
    return (problem.location.file, problem.location.line) if problem.location else ("", 0)


def _drop_echoes(problems: list[Problem]) -> None:
    """Leaves out what connectors say of a value that a missing variable left unread, and what was said twice."""
    unset = {problem.location for problem in problems if "variable ${" in problem.message}
    problems[:] = [
        problem
        for problem in dict.fromkeys(problems)
        if problem.location not in unset or "variable ${" in problem.message
    ]


def _source(table: Table, problems: list[Problem]) -> Source | None:
    connector = connector_of(table)
    if not isinstance(connector, Readable):
        problems.append(
            Problem(
                f"table '{table.name}' is read by an INSERT INTO, but connector '{table.connector}' is not readable;"
                f" readable are: {', '.join(readable())}",
                table.options.location("connector") or table.location,
            )
        )
        return None
    source, found = connector.read(table)
    problems.extend(found)
    return source


def _checked(table: Table, problems: list[Problem]) -> Any:
    connector = connector_of(table)
    if not isinstance(connector, Writable):
        problems.append(unknown_connector(table))
        return None
    checked, found = connector.check(table)
    problems.extend(found)
    return checked


def load(path: Path | None = None, *, root: str | None = None) -> tuple[Project, list[Problem]]:
    """Loads a project folder; ``${NAME}`` falls back to the local stack's environment file."""
    return load_project(path or lake.project_path(), lake.local_variables(root or lake.home()), connectors=CONNECTORS)
