"""Binds a declared project to its connectors: which table is read from where, which is written where.

Knows no dagster and opens no connection, so `validate`, the graph and tests share it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from upsert_platform.changelog.lake import PROJECT_VARIABLE, Lake, home, local_variables, project_path
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.tables import local_path
from upsert_platform.core.connector import KeyReader, Readable, Searchable, Writable
from upsert_platform.core.destination import Destination
from upsert_platform.core.errors import ChangelogError, DeclarationError, Problem
from upsert_platform.core.model import Insert, Project, Table
from upsert_platform.core.packages import missing_package
from upsert_platform.core.plan import Query, scans
from upsert_platform.core.source import MODE_APPEND, MODE_UPSERT, Source
from upsert_platform.declarations.pipeline_source import Describe
from upsert_platform.declarations.project import load_project
from upsert_platform.engine.store import QueryStore, query_table
from upsert_platform.sql.lexer import VARIABLE
from upsert_platform.sql.variables import load_variables, missing
from upsert_platform.sync.connectors import (
    CONNECTORS,
    connector_of,
    not_written,
    readable,
    searchable,
    sharing_problems,
    topic_problems,
    unknown_connector,
)
from upsert_platform.sync.databases import describe
from upsert_platform.sync.endpoints import Endpoints, completing, project_variables
from upsert_platform.sync.faults import Sound, faults_of
from upsert_platform.sync.masks import masked_tables
from upsert_platform.sync.nullable_keys import nullable_key_problems
from upsert_platform.sync.query_hop import QueryHop

_DECLARED: Final = (".sql", ".yaml", ".yml", ".properties", ".json")


@dataclass(frozen=True)
class QuerySource:
    """The result of a query, which inserts read like the changelog of a table.

    Attributes:
        table: the result's columns, with the query's name.
    """

    table: Table
    query: Query

    @property
    def mode(self) -> str:
        """``upsert`` for a result with a key, else ``append``."""
        return MODE_UPSERT if self.query.key else MODE_APPEND


@dataclass(frozen=True)
class Target:
    """A declared table that an insert writes.

    Attributes:
        checked: the connector's own form of the table.
    """

    table: Table
    insert: Insert
    source: Source | QuerySource
    connector: Writable[Any]
    checked: Any

    @property
    def places(self) -> tuple[str, ...]:
        """Columns outside the primary key that identify a row beside it; empty where a key has one row."""
        places: tuple[str, ...] = self.connector.places(self.checked)
        return places

    def open(self) -> Destination:
        """The destination; the caller closes it."""
        return self.connector.open(self.checked)


@dataclass(frozen=True)
class Binding:
    """A project whose declarations fit together.

    Attributes:
        warnings: problems that do not stop it.
        key_readers: of the tables in which queries find rows.
        errors: of tables that are left out; none of a project that was bound as a whole.
    """

    project: Project
    sources: Mapping[str, Source]
    targets: Mapping[str, Target]
    warnings: tuple[Problem, ...] = ()
    queries: Mapping[str, QuerySource] = field(default_factory=dict)
    key_readers: Mapping[str, KeyReader] = field(default_factory=dict)
    errors: tuple[Problem, ...] = ()

    def whole(self) -> Binding:
        """This binding, if nothing is left out.

        Raises:
            DeclarationError: there are errors; it has all of them.
        """
        if self.errors:
            raise DeclarationError(self.errors, hint=_hint(self.errors, self.project))
        return self

    def changelog(self, name: str, lake: Lake) -> ChangelogStore:
        """The changelog of a table that is read, or of a query."""
        return changelog_of(self.queries[name] if name in self.queries else self.sources[name], lake)

    def query_hop(self, name: str, lake: Lake, *, run: str) -> QueryHop:
        """The hop from the changelogs that a query reads to its result.

        Args:
            run: its name, stored in every commit.
        """
        source = self.queries[name]
        inputs = {table: self.changelog(table, lake) for table in source.query.tables}
        lookups = {table: self.key_readers[table] for table in source.query.lookups}
        return QueryHop(query_store(source, lake), inputs, run=run, lookups=lookups)


def with_defaults(table: Table, defaults: Mapping[str, Mapping[str, str]]) -> Table:
    """A table whose options are completed by those of its connector's resource; what is declared wins."""
    own = completing(defaults.get(table.connector, {}), table.options)
    return replace(table, options=table.options.with_defaults(own)) if own else table


def query_store(source: QuerySource, lake: Lake) -> QueryStore:
    """The table of a query in a lake."""
    return QueryStore(lake.query(source.query.name), source.query)


def changelog_of(source: Source | QuerySource, lake: Lake) -> ChangelogStore:
    """The changelog of a source, or of a query, in a lake."""
    if isinstance(source, QuerySource):
        return query_store(source, lake)
    return ChangelogStore(lake.changelog(source.table.name), source.table, mode=source.mode)


def lake_problems(binding: Binding, lake: Lake, problems: list[Problem]) -> None:
    """Compare the changelogs of a lake on this machine with what is declared; no lake elsewhere is asked.

    Args:
        problems: those found are added.

    Raises:
        DeclarationError: a changelog does not fit.
    """
    found = []
    for source in binding.sources.values() if local_path(lake.root) is not None else ():
        try:
            changelog_of(source, lake).check_declared()
        except ChangelogError as error:
            found.append(Problem(f"table '{source.table.name}': {error}", source.table.location))
    problems += found
    if found:
        raise DeclarationError(found)


def bind(
    project: Project, problems: list[Problem], *, defaults: Mapping[str, Mapping[str, str]] | None = None
) -> Binding:
    """Checks every table against its connector and joins inserts with what they read and write.

    Args:
        problems: those found so far; more are added.
        defaults: connector to options that its tables get where they declare none; those of the environment if left
            out (`endpoints`).

    Raises:
        DeclarationError: with every error found, those of `problems` included.
    """
    return bind_sound(project, problems, defaults=defaults).whole()


def bind_sound(
    project: Project, problems: list[Problem], *, defaults: Mapping[str, Mapping[str, str]] | None = None
) -> Binding:
    """As `bind`, of the tables without errors; to ask the binding for another one raises what is wrong with it."""
    if defaults is None:
        defaults = Endpoints().defaults(project_variables(Path(project.path)))
    tables, masked = masked_tables(project)
    project = replace(project, tables=tables)
    declared = {name: with_defaults(table, defaults) for name, table in tables.items()}
    for name, table in declared.items():
        problems.extend(_unset_defaults(tables[name], table))
    read = {name for insert in project.inserts for name in insert.tables}
    queries = {
        query.name: QuerySource(replace(query_table(query), masked=masked.get(query.name, ())), query)
        for query in project.queries()
    }
    written = {insert.target for insert in project.inserts}
    searched = {name for query in project.queries() for name in query.lookups}
    key_readers: dict[str, KeyReader] = {}
    sources: dict[str, Source] = {}
    checked: dict[str, Any] = {}
    for name, table in declared.items():
        if name not in written:
            problems.extend(_freshness_problems(table))
        if name in read | written | searched:
            problems.extend(_package_problems(table))
        if name in read and (source := _source(table, problems)) is not None:
            sources[name] = source
        if name in written and (found := _checked(table, problems)) is not None:
            checked[name] = found
        if name in searched and (reader := _key_reader(table, problems)) is not None:
            key_readers[name] = reader
        if name not in read | written | searched:
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
        upstream = queries.get(insert.source) or sources.get(insert.source)
        if upstream is not None and insert.target in checked:
            targets[insert.target] = Target(written_table, insert, upstream, connector, checked[insert.target])
    for name, target in targets.items():
        if target.places and isinstance(target.source, Source):
            sources[target.source.table.name] = target.source.keeping_every_record()
            targets[name] = replace(target, source=sources[target.source.table.name])
    for name in {scan.table for query in project.queries() for scan in scans(query.plan) if scan.versions}:
        if name in sources:
            sources[name] = sources[name].keeping_every_record()
            targets = {
                written: replace(target, source=sources[name]) if target.source.table.name == name else target
                for written, target in targets.items()
            }
    problems.extend(nullable_key_problems(project))
    problems.extend(topic_problems(_flows(sources, targets)))
    _drop_echoes(problems)
    problems.sort(key=_place)
    errors = tuple(problem for problem in problems if problem.severity == "error")
    faults, reads = faults_of(project, errors), {insert.target: insert.tables for insert in project.inserts}
    return Binding(
        project,
        Sound(sources, faults),
        Sound(targets, faults, reads),
        tuple(problem for problem in problems if problem.severity != "error"),
        queries,
        Sound(key_readers, faults),
        errors,
    )


def _unset_defaults(own: Table, completed: Table) -> Iterator[Problem]:
    """Options that a resource gives and whose value names a variable that nobody sets."""
    for option, value in completed.options.items():
        if option not in own.options:
            for name in VARIABLE.findall(value):
                yield missing(name, own.location)


def _package_problems(table: Table) -> Iterator[Problem]:
    """Yield the problem of a table whose connector needs a package that is not installed."""
    connector = connector_of(table)
    if connector is not None and (told := missing_package(connector.endpoint)):
        place = table.options.location("connector") or table.location
        yield Problem(f"table '{table.name}': connector '{table.connector}': {told}", place)


def _freshness_problems(table: Table) -> Iterator[Problem]:
    """Warn of freshness limits on a table that nothing writes, where they have no effect."""
    for name in (name for name in table.platform if name.startswith("freshness.")):
        yield Problem(
            f"table '{table.name}': '{name}' has no effect, since no INSERT INTO writes the table; declare it on the"
            " tables that are written from it",
            table.platform.location(name) or table.location,
            "warning",
        )


def _flows(sources: Mapping[str, Source], targets: Mapping[str, Target]) -> Iterator[tuple[Source, Table, Any]]:
    """Yield each source with the declared table that it reaches and that table's checked form."""
    for target in targets.values():
        for name in target.insert.tables:
            if name in sources:
                yield sources[name], target.table, target.checked


def _hint(errors: Sequence[Problem], project: Project) -> str:
    """Return hints at the variables of the local servers and of the project, once for all errors."""
    found = []
    if any(problem.variable.startswith("UPSERT_") for problem in errors):
        found.append(
            "hint: 'upsert-platform local up' starts servers on this machine and sets the UPSERT_... variables"
        )
    if not os.environ.get(PROJECT_VARIABLE) and Path(project.path) == project_path():
        found.append(
            f"hint: this is the demo, for {PROJECT_VARIABLE} is not set: name your folder in it, or by --project"
        )
    return "\n".join(found)


def _place(problem: Problem) -> tuple[str, int]:
    """The order in which a reader meets problems: rooms find them one after the other."""
    return (problem.location.file, problem.location.line) if problem.location else ("", 0)


def _drop_echoes(problems: list[Problem]) -> None:
    """Leaves out what connectors say of a value that a missing variable left unread, and what was said twice."""
    unset = {problem.location for problem in problems if problem.variable}
    problems[:] = [problem for problem in dict.fromkeys(problems) if problem.location not in unset or problem.variable]


def _source(table: Table, problems: list[Problem]) -> Source | None:
    connector = connector_of(table)
    if connector is None:
        problems.append(unknown_connector(table))
        return None
    if not isinstance(connector, Readable):
        remedy = connector.read_instead or f"readable are: {', '.join(readable())}"
        problems.append(
            Problem(
                f"table '{table.name}' is read by an INSERT INTO, but connector '{table.connector}' is not readable;"
                f" {remedy}",
                table.options.location("connector") or table.location,
            )
        )
        return None
    source, found = connector.read(table)
    problems.extend(found)
    return source


def _key_reader(table: Table, problems: list[Problem]) -> KeyReader | None:
    connector = connector_of(table)
    if not isinstance(connector, Searchable):
        problems.append(
            Problem(
                f"FOR SYSTEM_TIME AS OF finds rows of table '{table.name}', but connector '{table.connector}' has no"
                f" look-up by key; those that have one: {', '.join(searchable())}. A plain JOIN with a topic follows"
                " the changes of both sides",
                table.options.location("connector") or table.location,
            )
        )
        return None
    if not table.primary_key and not connector.finds_by_any:
        message = f"rows of '{table.name}' are found by its PRIMARY KEY: declare one"
        problems.append(Problem(message, table.location))
        return None
    reader, found = connector.key_reader(table)
    problems.extend(found)
    return reader


def _checked(table: Table, problems: list[Problem]) -> Any:
    connector = connector_of(table)
    if not isinstance(connector, Writable):
        problems.append(not_written(table))
        return None
    checked, found = connector.check(table)
    problems.extend(found)
    return checked


def open_unbound(project: Project, name: str, defaults: Mapping[str, Mapping[str, str]]) -> Destination:
    """The destination of a declared table that no insert writes; the caller closes it.

    Args:
        defaults: connector to options that its tables get where they declare none.

    Raises:
        DeclarationError: no table of that name is declared, its connector only reads, or its options do not fit.
    """
    declared = project.tables.get(name)
    if declared is None:
        known = ", ".join(sorted(project.tables)) or "none"
        raise DeclarationError([Problem(f"table '{name}' is not declared; declared are: {known}", None)])
    connector = connector_of(declared)
    if not isinstance(connector, Writable):
        raise DeclarationError([not_written(declared)])
    destination: Destination = connector.open(connector.checked(with_defaults(declared, defaults)))
    return destination


def load(
    path: Path | None = None,
    *,
    root: str | None = None,
    endpoints: Endpoints | None = None,
    lake: Lake | None = None,
    unset: Callable[[str], str] | None = None,
    ask: Describe | None = None,
    discovered: Mapping[str, str] | None = None,
) -> tuple[Project, list[Problem]]:
    """Loads a project folder; ``${NAME}`` falls back to the local stack's environment file.

    Servers of databases that its pipelines read are asked for their tables.

    Args:
        root: of the lake; that of the environment if left out.
        endpoints: what resources are given.
        lake: at `root`, where its storage is not as the environment describes it.
        unset: gives the value of a variable that nobody sets; such a variable is a problem without it.
        ask: returns the tables of a pipeline's database; the server is asked if left out.
        discovered: further declarations, as `load_project` takes them.
    """
    folder, place, given = path or project_path(), root or home(), endpoints or Endpoints()
    variables = given.variables()
    return load_project(
        folder,
        local_variables(place),
        connectors=CONNECTORS,
        describe=ask or (lambda asked: describe(asked, lake=lake or Lake.at(place))),
        given=variables,
        defaults=given.defaults(project_variables(folder, root=place, given=variables)),
        unset=unset,
        discovered=discovered,
    )


def local_variables_named(path: Path, *, root: str) -> set[str]:
    """Variables of the local stack that a project folder names, and that nobody has set to another place.

    Args:
        root: of the lake, beside which the local stack's own variables lie.
    """
    texts = [file.read_text("utf-8", "replace") for file in sorted(path.iterdir()) if file.suffix in _DECLARED]
    named = set(re.findall(r"\$\{(UPSERT_\w+)\}", "\n".join(texts)))
    values, _ = load_variables(path, {})
    local = local_variables(root)
    return {name for name in named if values.get(name) in (None, local.get(name))}
