"""Every connector of the platform, listed once: a new one is a room, and a line here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from upsert_platform.core.connector import Connector, ControlPlace, Readable, Searchable, Writable
from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Project, Table
from upsert_platform.core.options import nearest
from upsert_platform.core.plan import Query
from upsert_platform.core.source import Source
from upsert_platform.datagen.connector import DatagenConnector, FakerConnector, ValuesConnector
from upsert_platform.kafka.connector import ChangeTopicConnector, KafkaConnector, UpsertKafkaConnector
from upsert_platform.kafka.endpoint import keep_admins
from upsert_platform.kafka.shared import dead_letter_problems, meeting_problems
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.maxcompute.connector import MaxComputeConnector
from upsert_platform.mysql.connector import MySqlCdcConnector
from upsert_platform.postgres.connector import HologresConnector, PostgresConnector
from upsert_platform.sync.connect_connector import ConnectConnector, ConnectTarget
from upsert_platform.sync.filesystem_connector import FilesystemConnector
from upsert_platform.sync.other_connectors import ELSEWHERE
from upsert_platform.tablestore.connector import TablestoreConnector

CONNECTORS: Final[dict[str, Connector]] = {
    connector.name: connector
    for connector in (
        UpsertKafkaConnector(),
        KafkaConnector(),
        ChangeTopicConnector(),
        TablestoreConnector(),
        ConnectConnector(),
        MaxComputeConnector(),
        PostgresConnector(),
        HologresConnector(),
        FakerConnector(),
        DatagenConnector(),
        ValuesConnector(),
        MySqlCdcConnector(),
        FilesystemConnector(),
    )
}


def connector_of(table: Table) -> Connector | None:
    """The connector that a table declares; None if there is none of that name."""
    return CONNECTORS.get(table.connector)


def stored_fraction_digits(table: Table) -> int:
    """Return the fractional digits of a second that a written table stores, if fewer than declared; 0 if all are."""
    connector = connector_of(table)
    return connector.fraction_digits(table) if isinstance(connector, Writable) else 0


def readable() -> Mapping[str, Readable]:
    """Connectors whose tables can be read, by name."""
    return {name: found for name, found in CONNECTORS.items() if isinstance(found, Readable)}


def writable() -> Mapping[str, Writable[Any]]:
    """Connectors whose tables can be written, by name."""
    return {name: found for name, found in CONNECTORS.items() if isinstance(found, Writable)}


def searchable() -> Mapping[str, Searchable]:
    """Connectors in whose tables queries find rows by their keys, by name."""
    return {name: found for name, found in CONNECTORS.items() if isinstance(found, Searchable)}


def by_endpoint(defaults: Mapping[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """Options per endpoint (such as ``kafka``) as options per connector."""
    return {name: defaults[found.endpoint] for name, found in CONNECTORS.items() if found.endpoint in defaults}


def written_systems(project: Project) -> set[str]:
    """Endpoints (such as ``tablestore``) of the tables that inserts write."""
    found = (connector_of(project.tables[insert.target]) for insert in project.inserts)
    return {connector.endpoint for connector in found if connector is not None}


def keep_connections(*, keep: bool = True) -> None:
    """From here on in this thread, connections for short questions serve one hop after the other, or no longer."""
    keep_admins(keep=keep)


def kind_of(table: Table) -> str:
    """The kind of system that holds a table, as Dagster shows it."""
    found = connector_of(table)
    return found.kind if found else table.connector or "table"


def streams_of(table: Table) -> tuple[str, ...]:
    """Names of what a declared table reads (its topics)."""
    found = connector_of(table)
    return found.streams(table) if isinstance(found, Readable) else ()


def is_topic(table: Table) -> bool:
    """Return whether a declared table stands for topics of Kafka."""
    found = connector_of(table)
    return found is not None and found.has_topics


def stream_group(table: Table) -> str:
    """The group of the assets that stand for what a declared table reads."""
    found = connector_of(table)
    return found.stream_group if found else Connector.stream_group


def topic_writers(project: Project) -> Mapping[str, tuple[str, ...]]:
    """Tables that are read to those that write their topics, so that one run carries a row all the way.

    A writer that itself follows from what is read is left out: then the next run carries on.
    """
    reads: dict[str, set[str]] = {insert.target: set(insert.tables) for insert in project.inserts}
    found: dict[str, tuple[str, ...]] = {}
    for source in project.sources():
        for target in reads:
            table = project.tables.get(target)
            if table is None or not _share_a_topic(source, table):
                continue
            if source.name not in _upstream(target, reads, found):
                found[source.name] = (*found.get(source.name, ()), target)
    return found


def _upstream(target: str, reads: Mapping[str, set[str]], writers: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Every table that a target follows from."""
    seen: set[str] = set()
    waiting = list(reads.get(target, ()))
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += [read for writer in writers.get(name, ()) for read in reads.get(writer, ())]
    return seen


def looked_up_before(project: Project, query: Query) -> tuple[str, ...]:
    """Tables of the project in which a query finds rows, and which do not follow from it: they are written first."""
    reads = {
        insert.target: {*insert.tables, *(insert.query.lookups if insert.query else ())} for insert in project.inserts
    }
    own = {insert.target for insert in project.inserts if insert.query is not None and insert.query.name == query.name}
    writers = topic_writers(project)
    return tuple(name for name in query.lookups if name in reads and not own & {name, *_upstream(name, reads, writers)})


def _share_a_topic(one: Table, other: Table) -> bool:
    name = "properties.bootstrap.servers"
    return one.options.get(name) == other.options.get(name) and bool(set(streams_of(one)) & set(streams_of(other)))


def unknown_connector(table: Table) -> Problem:
    """Return the problem of a table with an unknown connector."""
    declared = [name for name, found in CONNECTORS.items() if not isinstance(found, ValuesConnector)]
    instead = next((text for name, text in ELSEWHERE.items() if table.connector.lower().startswith(name)), None)
    if instead is not None:
        message = f"Flink's connector '{table.connector}' is not supported: {instead}; see docs/refused.md"
        return Problem(
            f"table '{table.name}': {message}",
            table.options.location("connector") or table.location,
        )
    return Problem(
        f"table '{table.name}': connector '{table.connector}' is not known"
        f"{nearest(table.connector, declared)}; known are: {', '.join(declared)}",
        table.options.location("connector") or table.location,
    )


def not_written(table: Table) -> Problem:
    """Return the problem of a table that is written, of a connector that writes none or is unknown."""
    connector = connector_of(table)
    if connector is None:
        return unknown_connector(table)
    remedy = connector.written_instead or f"those that do: {', '.join(writable())}"
    return Problem(
        f"table '{table.name}': connector '{table.connector}' does not write tables; {remedy}",
        table.options.location("connector") or table.location,
    )


def sharing_problems(checked: Iterable[tuple[Table, Any]]) -> Iterator[Problem]:
    """Yield a problem for each set of tables that would share one position.

    Args:
        checked: declared tables that are written, each with its checked form.
    """
    first: dict[tuple[str, ...], Table] = {}
    for table, found in checked:
        connector = connector_of(table)
        place: ControlPlace | None = connector.control_place(found) if isinstance(connector, Writable) else None
        if place is None:
            continue
        other = first.setdefault(place.control, table)
        if other is not table:
            yield Problem(
                f"table '{table.name}' and table '{other.name}' both write {place.told}. {place.remedy}",
                table.location,
            )


def topic_problems(flows: Iterable[tuple[Source, Table, Any]]) -> Iterator[Problem]:
    """Yield a problem for each topic used for two purposes that exclude each other.

    Args:
        flows: what is read, the declared table that it is written to, and that table's checked form.
    """
    found = [(source.kafka, table, checked) for source, table, checked in flows if isinstance(source, TopicSource)]
    written = [(kafka, checked) for kafka, _, checked in found if isinstance(checked, KafkaTable)]
    yield from meeting_problems([checked for _, checked in written], written)
    sources = [kafka for kafka, _, _ in found]
    for _, table, checked in found:
        if isinstance(checked, ConnectTarget) and checked.reports is not None:
            topics = checked.sink.failures.topics(default_servers=checked.reports.servers)
            for message in dead_letter_problems(table.name, topics, sources):
                yield Problem(message, table.location)
