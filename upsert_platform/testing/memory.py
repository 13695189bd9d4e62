"""A bound project whose topics and tables are held by the test, under the same sources, inserts and checks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

from upsert_platform.core.capabilities import ComparesRecords, KeepsOlderRows, TellsBefore, WritesByMode
from upsert_platform.core.connector import Writable
from upsert_platform.core.destination import Destination
from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.core.model import Table
from upsert_platform.core.source import Source
from upsert_platform.declarations.pipeline_source import AskedSource
from upsert_platform.kafka.modes import BoundedMode, StartupMode
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.sync.binding import Binding, QuerySource, Target
from upsert_platform.sync.connectors import connector_of
from upsert_platform.sync.faults import Sound, faults_of
from upsert_platform.testing.tables import MemoryDestination, MemoryKeyReader, MemoryTable, MemoryTopicDestination
from upsert_platform.testing.topics import MemoryTopics, MemoryTopicSource

_ASKS_REGISTRY: Final = ("confluent", "registry")
_SERVERS: Final = 'open the project with servers="local"'


@dataclass
class MemorySystems:
    """The in-memory systems of a test.

    Attributes:
        tables: by declared name.
    """

    topics: MemoryTopics = field(default_factory=MemoryTopics)
    tables: dict[str, MemoryTable] = field(default_factory=dict)

    def table(self, declared: Table) -> MemoryTable:
        """The rows of a declared table; none at first."""
        return self.tables.setdefault(declared.name, MemoryTable.of(declared))


def ask_nobody(asked: AskedSource) -> NoReturn:
    """Refuses a pipeline that reads a database.

    Raises:
        DeclarationError: always.
    """
    told = (
        f"a database has no form in memory: declare the tables of {asked.settings.server} as topics for this test, or"
    )
    raise DeclarationError([Problem(f"source: {told} {_SERVERS} and a server of your own", asked.place.location)])


def in_memory(binding: Binding, systems: MemorySystems) -> Binding:
    """The binding with topics and tables that the test holds.

    Raises:
        DeclarationError: a table that is read has no form in memory.
    """
    sources = {name: _source(source, systems) for name, source in binding.sources.items()}
    targets = {name: _target(target, sources, systems) for name, target in binding.targets.items()}
    readers = {name: MemoryKeyReader(systems.table(binding.project.tables[name])) for name in binding.key_readers}
    faults = faults_of(binding.project, binding.errors)
    reads = {insert.target: insert.tables for insert in binding.project.inserts}
    return replace(
        binding,
        sources=Sound(sources, faults),
        targets=Sound(targets, faults, reads),
        key_readers=Sound(readers, faults),
    )


def _source(source: Source, systems: MemorySystems) -> Source:
    if not isinstance(source, TopicSource):
        connector = connector_of(source.table)
        if connector is None or connector.endpoint == "none":
            return source
        raise _refused(source.table, f"connector '{source.table.connector}'")
    kafka = source.kafka
    for side in (kafka.key, kafka.value):
        if side is not None and any(word in side.format for word in _ASKS_REGISTRY):
            raise _refused(source.table, f"format '{side.format}', which asks a schema registry,")
    settings = kafka.settings
    if settings.startup_mode in (StartupMode.TIMESTAMP, StartupMode.GROUP):
        raise _refused(source.table, f"'scan.startup.mode' = '{settings.startup_mode.value}'")
    if settings.bounded_mode in (BoundedMode.TIMESTAMP, BoundedMode.GROUP):
        raise _refused(source.table, f"'scan.bounded.mode' = '{settings.bounded_mode.value}'")
    return MemoryTopicSource(source.table, kafka, source.every_record, systems.topics)


def _target(target: Target, sources: dict[str, Source], systems: MemorySystems) -> Target:
    held = _HeldConnector(target.connector, systems, target.table)
    source = target.source
    if not isinstance(source, QuerySource):
        source = sources[source.table.name]
    return replace(target, connector=held, source=source)


class _HeldConnector(Writable[Any]):
    """The connector of one table whose rows the test holds; rules of declarations stay those of the real one."""

    name = kind = endpoint = "memory"

    def __init__(self, real: Writable[Any], systems: MemorySystems, table: Table) -> None:
        self._real, self._systems, self._table = real, systems, table

    def check(self, table: Table) -> tuple[Any, list[Problem]]:
        """As the real connector does."""
        return self._real.check(table)

    def places(self, checked: Any) -> tuple[str, ...]:
        """As the real connector does."""
        return self._real.places(checked)

    def open(self, checked: Any) -> Destination:
        """The rows that the test holds.

        Raises:
            DeclarationError: the table keeps or loses rows by rules that memory does not have.
        """
        real = self._real.open(checked)
        try:
            rule = _own_rule(real)
        finally:
            real.close()
        if rule is not None:
            raise _refused(self._table, rule)
        held = self._systems.table(self._table)
        if isinstance(checked, KafkaTable):
            return MemoryTopicDestination(checked, held, self._systems.topics.named(checked.settings.topic[0]))
        return MemoryDestination(self._table, held)


def _own_rule(real: Destination) -> str | None:
    """By which rule a destination holds other rows than the last value per key; None where it has none."""
    if isinstance(real, TellsBefore):
        return "a topic of changes"
    if isinstance(real, ComparesRecords):
        return "a table written as the sink for Kafka Connect writes it"
    if isinstance(real, KeepsOlderRows) and real.places:
        return "a partitioned table that keeps a row per partition and key"
    if isinstance(real, WritesByMode) and (real.skips_nulls or real.keeps_deleted):
        return "a write mode that keeps cells or rows"
    return None


def _refused(table: Table, what: str) -> DeclarationError:
    return DeclarationError(
        [Problem(f"table '{table.name}': {what} has no form in memory: {_SERVERS}", table.location)]
    )
