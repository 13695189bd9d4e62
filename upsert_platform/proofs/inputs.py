"""The topics behind a table, read anew into changelogs that last as long as the proof.

The platform's own steps read them (`ChangelogHop`, `QueryHop`), so every format, mode and query counts as in a sync.
They read from the declared start and publish no position. Their files lie in a folder of the lake that `close` removes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.quarantine import quarantined_count
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.plan import Node
from upsert_platform.core.source import ReplaysFrom, Start
from upsert_platform.kafka.modes import StartupMode
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.proofs.ends import Ends
from upsert_platform.sync.binding import Binding, QuerySource, Target, changelog_of
from upsert_platform.sync.changelog_hop import ChangelogHop
from upsert_platform.sync.on_demand import OnDemand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NotProvableError(DestinationError):
    """The rows of a table follow from more than its topics; the message says from what."""


@dataclass(frozen=True)
class ReadTopic:
    """A topic as it was read.

    Attributes:
        first: partition to the first offset that the topic still has.
        end: partition to the first offset that was not read.
    """

    first: Mapping[int, int]
    end: Mapping[int, int]


def topics_of(target: Target, binding: Binding) -> dict[str, ReplaysFrom]:
    """Return the sources behind a table, by declared name, as they are read for a proof.

    Raises:
        NotProvableError: the rows of the table follow from more than its topics.
    """
    name = target.table.name
    if isinstance(target.source, QuerySource):
        _refuse_unprovable(target.source, name)
        sources = {table: binding.sources[table] for table in tables_of(target, binding)}
    else:
        sources = {target.source.table.name: target.source}
    found = {}
    for table, source in sources.items():
        if not isinstance(source, ReplaysFrom):
            raise NotProvableError(
                f"table '{name}' is written from '{table}', which is no topic: 'upsert-platform verify {name}' compares"
                " it with its changelog"
            )
        found[table] = _from_its_start(source)
    return found


def tables_of(target: Target, binding: Binding) -> list[str]:
    """Return the declared tables behind a table, each once.

    Raises:
        NotProvableError: a query between them depends on when rows came.
    """
    if isinstance(target.source, QuerySource):
        return list(dict.fromkeys(_tables(target.source, binding)))
    return [target.source.table.name]


def queries_of(target: Target, binding: Binding) -> list[str]:
    """Return the queries behind a table, those that are read before those that read them."""
    found: list[str] = []

    def add(name: str) -> None:
        for before in binding.queries[name].query.tables:
            if before in binding.queries:
                add(before)
        if name not in found:
            found.append(name)

    if isinstance(target.source, QuerySource):
        add(target.source.query.name)
    return found


def _tables(source: QuerySource, binding: Binding) -> Iterator[str]:
    """Return the declared tables that a query reads, those of queries before it among them."""
    for name in source.query.tables:
        if name in binding.queries:
            before = binding.queries[name]
            _refuse_unprovable(before, name)
            yield from _tables(before, binding)
        else:
            yield name


def _refuse_unprovable(source: QuerySource, name: str) -> None:
    query = source.query
    if query.lookups:
        raise NotProvableError(
            f"table '{name}': FOR SYSTEM_TIME AS OF joins each row with what '{query.lookups[0]}' held when it came,"
            " which nobody can read again; 'upsert-platform verify' compares the table with its changelog"
        )
    if any(getattr(node, "closing", None) is not None for node in _nodes(query.plan)):
        raise NotProvableError(
            f"table '{name}': its windows close, and which rows came too late follows from when each was read;"
            " 'upsert-platform verify' compares the table with its changelog"
        )


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for item in node.inputs:
        yield from _nodes(item)


def _from_its_start(source: ReplaysFrom) -> ReplaysFrom:
    """Return a source that begins where it is declared to begin, and publishes no positions."""
    if not isinstance(source, TopicSource):
        return source.starting(Start())
    settings = source.kafka.settings
    if settings.startup_mode in (StartupMode.LATEST, StartupMode.GROUP):
        raise NotProvableError(
            f"table '{source.table.name}' starts at 'scan.startup.mode' = '{settings.startup_mode.value}', which is"
            " another offset each time: declare 'timestamp' or 'specific-offsets' with the start of the table's writer"
        )
    return source.starting(
        Start(
            timestamp=settings.startup_timestamp if settings.startup_mode is StartupMode.TIMESTAMP else None,
            offsets=settings.startup_offsets if settings.startup_mode is StartupMode.SPECIFIC else (),
        )
    )


def starts_late(source: ReplaysFrom) -> bool:
    """Return whether a source is declared to begin behind the first record of its topics."""
    return isinstance(source, TopicSource) and source.kafka.settings.startup_mode is not StartupMode.EARLIEST


class ProofInputs:
    """Changelogs of the topics behind a table, and of the query over them.

    Args:
        sources: of `topics_of`.
        lake: the proof's own.
        run: name of the proof, stored in its commits.
    """

    def __init__(
        self, target: Target, binding: Binding, sources: Mapping[str, ReplaysFrom], lake: Lake, *, run: str
    ) -> None:
        self.target = target
        self.sources = sources
        self.read: dict[str, ReadTopic] = {}
        self._lake = lake
        self._run = run
        self._binding = replace(binding, sources={**binding.sources, **sources})

    @property
    def store(self) -> ChangelogStore:
        """Return the input of the table's insert: the changelog of its topic, or the result of its query."""
        if isinstance(self.target.source, QuerySource):
            return changelog_of(self.target.source, self._lake)
        return changelog_of(self.sources[self.target.source.table.name], self._lake)

    @property
    def quarantined(self) -> int:
        """Records that could not be decoded as the tables are declared."""
        return sum(quarantined_count(changelog_of(source, self._lake)) for source in self.sources.values())

    @property
    def incomplete(self) -> bool:
        """Return whether records before the first available one may have filled rows of the table."""
        late = any(map(starts_late, self.sources.values()))
        return late or any(offset > 0 for topic in self.read.values() for offset in topic.first.values())

    def read_to(
        self, spark: SparkSession, ends: Mapping[str, Ends] | None = None, *, tell: Callable[[str], None]
    ) -> int:
        """Read the topics on, and compute the query over them.

        Args:
            ends: where each source ends; the ends that its topics have now if left out.
            tell: is given a line per batch.

        Returns:
            The last batch of `store`.

        Raises:
            TopicError, EndpointError, RecordError: as a sync.
        """
        for name, source in self.sources.items():
            hop = ChangelogHop(source, changelog_of(source, self._lake), run=self._run)
            plan = hop.plan()
            backlog = plan.backlog
            if ends is not None:
                # A partition that no end is stated of came up later: all of it lies behind the stated end.
                stated = (ends[name].get((item.topic, item.partition), item.start) for item in backlog)
                cut = (replace(item, end=min(item.end, end)) for item, end in zip(backlog, stated, strict=True))
                backlog = tuple(item for item in cut if item.start < item.end)
            reached = {(item.topic, item.partition): item.end for item in backlog}
            self._note(plan.topics, reached)
            if backlog:
                hop.execute(
                    OnDemand.dividing(spark),
                    replace(plan, backlog=backlog),
                    progress=lambda done: tell(f"read {sum(account.records for account in done.accounts):,} records"),
                )
            else:
                hop.store.create()
        for query in queries_of(self.target, self._binding):
            self._binding.query_hop(query, self._lake, run=self._run).execute(OnDemand.dividing(spark))
        return self.store.create().batch

    def _note(self, streams: tuple[Any, ...], reached: Ends) -> None:
        for stream in streams:
            before = self.read.get(stream.name)
            ends = {} if before is None else before.end
            self.read[stream.name] = ReadTopic(
                {lane.partition: lane.low for lane in stream.partitions} if before is None else before.first,
                {
                    lane.partition: reached.get((stream.name, lane.partition), ends.get(lane.partition, lane.low))
                    for lane in stream.partitions
                },
            )

    def close(self) -> None:
        """Remove the proof's changelogs. Idempotent."""
        from upsert_platform.changelog.data_files import file_system
        from upsert_platform.changelog.tables import TableLocation

        system, folder = file_system(TableLocation(self._lake.root, self._lake.options))
        with suppress(FileNotFoundError):
            system.delete_dir(folder.rstrip("/"))
