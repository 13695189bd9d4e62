"""Binds a declared project to its connectors: which table is read from where, which is written where.

Knows no dagster and opens no connection, so `validate`, the graph and tests share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from upsert_platform.changelog import lake
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.declarations.project import load_project
from upsert_platform.destination import Destination
from upsert_platform.errors import DeclarationError, Problem
from upsert_platform.kafka.table import KafkaTable, read_kafka_table
from upsert_platform.model import Insert, Options, Project, Table
from upsert_platform.options import nearest
from upsert_platform.tablestore.shared import sharing_problems

SOURCE_CONNECTORS = ("upsert-kafka", "kafka")
DESTINATION_CONNECTORS = ("tablestore", "tablestore-connect", "maxcompute", "upsert-kafka")


@dataclass(frozen=True)
class Source:
    """A declared table that inserts read: its topics and its changelog."""

    table: Table
    kafka: KafkaTable

    @property
    def mode(self) -> str:
        """``upsert`` keeps the last record per key and batch, ``append`` every record (plain `kafka` tables)."""
        return "upsert" if self.kafka.is_upsert else "append"

    def store(self, root: str) -> ChangelogStore:
        """The changelog of the table below a lake's root."""
        return ChangelogStore(lake.changelog_uri(root, self.table.name), self.table, mode=self.mode)


@dataclass(frozen=True)
class Target:
    """A declared table that an insert writes."""

    table: Table
    insert: Insert
    source: Source


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


def with_defaults(table: Table, defaults: Mapping[str, str]) -> Table:
    """A table whose options are completed by those of a resource; what is declared wins."""
    from dataclasses import replace

    return replace(table, options=table.options.with_defaults(defaults)) if defaults else table


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
    sources: dict[str, Source] = {}
    targets: dict[str, Target] = {}
    declared = {
        name: with_defaults(table, (defaults or {}).get(table.connector, {})) for name, table in project.tables.items()
    }
    read = {insert.source for insert in project.inserts}
    written = {insert.target for insert in project.inserts}
    for name, table in declared.items():
        if name in read:
            source = _source(table, problems)
            if source is not None:
                sources[name] = source
        if name in written:
            problems.extend(destination_problems(table))
        elif name not in read:
            problems.extend(_unused_problems(table))
    problems.extend(sharing_problems(table for name, table in declared.items() if name in written))
    for insert in project.inserts:
        source = sources.get(insert.source)
        if source is not None and insert.target in declared and insert.target not in targets:
            targets[insert.target] = Target(declared[insert.target], insert, source)
            problems.extend(_overwrite_problems(insert, declared[insert.target]))
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
    if table.connector not in SOURCE_CONNECTORS:
        problems.append(
            Problem(
                f"table '{table.name}' is read by an INSERT INTO, but connector '{table.connector}' is not readable;"
                f" readable are: {', '.join(SOURCE_CONNECTORS)}",
                table.options.location("connector") or table.location,
            )
        )
        return None
    kafka, found = read_kafka_table(table)
    problems.extend(found)
    return Source(table, kafka) if kafka is not None else None


def _unused_problems(table: Table) -> list[Problem]:
    """Of a table that no insert names: its options are checked all the same."""
    if table.connector in SOURCE_CONNECTORS:
        return list(read_kafka_table(table)[1])
    return destination_problems(table)


def destination_problems(table: Table) -> list[Problem]:
    """What is wrong with a table that is written, by the rules of its connector. Opens no connection."""
    match table.connector:
        case "tablestore":
            from upsert_platform.tablestore.table import read_tablestore_table

            return list(read_tablestore_table(table)[1])
        case "tablestore-connect":
            from upsert_platform.hops.dead_letters import mail_problems
            from upsert_platform.tablestore.connect.table import read_connect_sink

            return [*read_connect_sink(table)[1], *mail_problems(table)]
        case "maxcompute":
            from upsert_platform.maxcompute.table import read_maxcompute_table

            return list(read_maxcompute_table(table)[1])
        case "upsert-kafka":
            return list(read_kafka_table(table, writes=True)[1])
    return [
        Problem(
            f"table '{table.name}': connector '{table.connector}' is not known"
            f"{nearest(table.connector, (*DESTINATION_CONNECTORS, *SOURCE_CONNECTORS))}; known are: "
            + ", ".join(DESTINATION_CONNECTORS),
            table.options.location("connector") or table.location,
        )
    ]


def _overwrite_problems(insert: Insert, target: Table) -> list[Problem]:
    """INSERT OVERWRITE is for tables that are appended to: it replaces their rows in one commit."""
    operation = target.options.get("sink.operation", "insert").strip().lower()
    if not insert.overwrite:
        return []
    if target.connector == "maxcompute" and operation == "insert":
        if target.options.get("sink.coordinator.enable", "true").strip().lower() in ("true", "yes"):
            return []
        message = f"INSERT OVERWRITE {insert.target}: rows are replaced in one commit, for which the target needs"
        return [Problem(f"{message} 'sink.coordinator.enable' = 'true'", insert.location)]
    return [
        Problem(
            f"INSERT OVERWRITE {insert.target}: needs a table with 'connector' = 'maxcompute' and 'sink.operation' ="
            " 'insert'; a table that is kept equal to the last value per key is followed with INSERT INTO",
            insert.location,
        )
    ]


def open_destination(table: Table) -> Destination:
    """The destination of a declared table.

    Raises:
        DeclarationError: its options do not fit.
    """
    destination: Destination
    match table.connector:
        case "tablestore":
            from upsert_platform.tablestore.destination import TablestoreDestination
            from upsert_platform.tablestore.table import read_tablestore_table

            tablestore, problems = read_tablestore_table(table)
            if tablestore is None:
                raise DeclarationError(problems)
            destination = TablestoreDestination(tablestore)
        case "tablestore-connect":
            from upsert_platform.hops.dead_letters import mail_of
            from upsert_platform.tablestore.connect.destination import ConnectDestination
            from upsert_platform.tablestore.connect.table import read_connect_sink

            sink, problems = read_connect_sink(table)
            if sink is None:
                raise DeclarationError(problems)
            destination = ConnectDestination(sink, mail=mail_of(table))
        case "maxcompute":
            from upsert_platform.maxcompute.destination import MaxComputeDestination
            from upsert_platform.maxcompute.table import read_maxcompute_table

            maxcompute, problems = read_maxcompute_table(table)
            if maxcompute is None:
                raise DeclarationError(problems)
            destination = MaxComputeDestination(maxcompute)
        case "upsert-kafka":
            from upsert_platform.kafka.sink.destination import KafkaDestination

            kafka, problems = read_kafka_table(table, writes=True)
            if kafka is None:
                raise DeclarationError(problems)
            destination = KafkaDestination(kafka)
        case _:
            raise DeclarationError(destination_problems(table))
    return destination


def load(path: Path | None = None, *, root: str | None = None) -> tuple[Project, list[Problem]]:
    """Loads a project folder; ``${NAME}`` falls back to the local stack's environment file."""
    return load_project(path or lake.project_path(), lake.local_variables(root or lake.home()))


__all__ = ["Binding", "Options", "Source", "Target", "bind", "destination_problems", "load", "open_destination"]
