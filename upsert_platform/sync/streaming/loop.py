"""Continuous mode: a worker per changelog, query and table, each of which wakes those that read what it committed.

Tables are written side by side, and one that fails backs off alone. The loop itself only starts and ends workers.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.pauses import watched
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.errors import DeclarationError, Problem
from upsert_platform.core.options import nearest
from upsert_platform.sync.binding import Binding, changelog_of
from upsert_platform.sync.changelog_hop import ChangelogHop
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.freshness import Judgement
from upsert_platform.sync.on_demand import OnDemand, stream_local_rows
from upsert_platform.sync.standing import quarantine_stop
from upsert_platform.sync.streaming.freshness import judgements
from upsert_platform.sync.streaming.measures import Numbers
from upsert_platform.sync.streaming.steps import ChangelogStep, DestinationStep, QueryStep, Step
from upsert_platform.sync.streaming.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from upsert_platform.core.source import Source

_POLLS_PER_DELAY: Final = 3
"""How often topics are looked at in the time that a record may take."""
_DRAIN_SECONDS: Final = 120.0
Place = tuple[str, str]
"""Kind and name of a worker."""


@dataclass(frozen=True)
class StreamSettings:
    """Settings of continuous mode.

    Attributes:
        tables: names of destination tables; all of them if empty.
        max_delay: seconds that a record should take at most to its tables; topics are looked at more often than that.
        check_seconds: between two checks of a table.
        local_rows: up to which this process does the work, and above which Spark does.
    """

    tables: tuple[str, ...] = ()
    max_delay: float = 1.0
    check_seconds: float = 60.0
    local_rows: int = field(default_factory=stream_local_rows)


@dataclass
class _Running:
    """A worker, and what it was made from: another declaration makes another worker."""

    worker: Worker
    made_from: Any
    reads: tuple[Place, ...] = field(default=())


class StreamLoop:
    """Keeps the tables of a project equal to their topics until it is stopped.

    Args:
        open_session: gives Spark's session; called for work above the local bound, by one thread at a time.
        tell: is given lines for people.
    """

    def __init__(
        self,
        lake: Lake,
        settings: StreamSettings,
        *,
        open_session: Callable[[], SparkSession],
        tell: Callable[[str], None],
    ) -> None:
        self.run = f"stream-{uuid.uuid4()}"
        self._lake = lake
        self._settings = settings
        self._tell = tell
        self._opening = threading.Lock()
        self._open_session = open_session
        self._spark = OnDemand(self._session, rows=settings.local_rows)
        self._binding: Binding | None = None
        self._running: dict[Place, _Running] = {}
        self._ended: dict[str, Numbers] = {}

    def _session(self) -> SparkSession:
        with self._opening:
            return self._open_session()

    def declare(self, binding: Binding) -> None:
        """Starts a worker for everything that is declared and has none; ends those of what is not declared any more.

        Raises:
            DeclarationError: a table of the settings is not among those that are written.
        """
        wanted = self._wanted(binding)
        self._binding = binding
        gone = [
            place
            for place, found in self._running.items()
            if place not in wanted or wanted[place][0] != found.made_from
        ]
        self._end(gone)
        for place, (made_from, make, reads) in wanted.items():
            if place in self._running:
                continue
            polls = self._settings.max_delay / _POLLS_PER_DELAY if place[0] == "changelog" else None
            self._running[place] = _Running(Worker(make(), poll=polls, tell=self._tell), made_from, reads)
        for running in self._running.values():
            running.worker.followers = [
                other.worker for other in self._running.values() if _place(running.worker) in other.reads
            ]
        for running in self._running.values():
            if running.worker.ident is None:
                running.worker.start()

    def numbers(self) -> Mapping[str, Numbers]:
        """Return the counts so far by kind and name of changelog, query or table."""
        running = {" ".join(place): found.worker.step.measures.read() for place, found in list(self._running.items())}
        return {**self._ended, **running}

    def judgements(self) -> Mapping[str, Judgement]:
        """Return the freshness of tables that declare limits, by name; queries them and their topics for a few seconds
        at most.
        """
        names = [name for kind, name in self._running if kind == "table"]
        return judgements(self._binding, names, self._lake) if self._binding is not None else {}

    def takes_stale(self) -> bool:
        """Return whether a step has failed since the last call because its table is not as it was declared any more."""
        stale = [found.worker for found in list(self._running.values()) if found.worker.is_stale]
        for worker in stale:
            worker.is_stale = False
        return bool(stale)

    def raise_if_died(self) -> None:
        """Raises what ended a worker that nobody ended: a defect."""
        for running in self._running.values():
            if running.worker.died is not None:
                raise running.worker.died

    def stop(self) -> None:
        """Reads nothing more, brings what was read to its tables, gives leases back. Idempotent."""
        running = dict(self._running)
        self._end(list(running))
        self._ended |= {" ".join(place): found.worker.step.measures.read() for place, found in running.items()}

    def _end(self, places: Collection[Place]) -> None:
        for kind in ("changelog", "query", "table"):
            ending = [self._running[place].worker for place in places if place[0] == kind]
            for worker in ending:
                worker.drain()
            for worker in ending:
                worker.join(_DRAIN_SECONDS)
        for place in places:
            worker = self._running.pop(place).worker
            if worker.is_alive():
                self._tell(f"{worker.name} did not come to an end in {_DRAIN_SECONDS:.0f} s; the next run carries on")
            elif worker.died is not None:
                raise worker.died

    def _wanted(self, binding: Binding) -> dict[Place, tuple[Any, Callable[[], Step], tuple[Place, ...]]]:
        """Every worker that there should be: what it is made from, how, and whom it follows."""
        targets = {name: binding.targets[name] for name in self._names(binding)}
        queries = {name: found for name in targets if (found := binding.queries.get(targets[name].insert.source))}
        tables = {name for target in targets.values() for name in target.insert.tables}
        wanted: dict[Place, tuple[Any, Callable[[], Step], tuple[Place, ...]]] = {}
        for name in sorted(tables):
            source = binding.sources[name]
            store = changelog_of(source, self._lake)
            hop = ChangelogHop(source, store, run=self.run)
            wanted["changelog", name] = (source, partial(ChangelogStep, hop, self._spark), ())
        for query in queries.values():
            made = binding.query_hop(query.query.name, self._lake, run=self.run)
            reads = tuple(("changelog", name) for name in query.query.tables)
            wanted["query", query.query.name] = (query, partial(QueryStep, made, self._spark), reads)
        for name, target in targets.items():
            follows = ("query" if name in queries else "changelog", target.insert.source)
            wanted["table", name] = (target, partial(self._destination, binding, name), (follows,))
        return wanted

    def _names(self, binding: Binding) -> list[str]:
        """The tables that are written: those of the settings, without what only a whole run can replace."""
        for name in self._settings.tables:
            if name not in binding.targets:
                hint = nearest(name, binding.targets)
                raise DeclarationError([Problem(f"--tables: no INSERT INTO writes a table '{name}'{hint}", None)])
        found = []
        for name in self._settings.tables or binding.targets:
            if binding.targets[name].insert.overwrite:
                self._tell(f"table {name} is replaced as a whole (INSERT OVERWRITE): left to job 'sync'")
            else:
                found.append(name)
        return found

    def _destination(self, binding: Binding, name: str) -> DestinationStep:
        target = binding.targets[name]
        sources = [binding.sources[read] for read in target.insert.tables]

        def make() -> DestinationHop:
            refused = RefusedStore(self._lake.refused(name))
            store = changelog_of(target.source, self._lake)
            return DestinationHop(target, store, target.open(), refused=refused, run=self.run)

        return DestinationStep(
            name,
            make,
            self._spark,
            run=self.run,
            check_seconds=self._settings.check_seconds,
            paused=watched(self._lake, name),
            stopped=partial(_stopped, sources, self._lake),
            tell=self._tell,
        )


def _place(worker: Worker) -> Place:
    measures = worker.step.measures
    return measures.read().kind, measures.name


def _stopped(sources: Sequence[Source], lake: Lake) -> str | None:
    """Return why nothing is written from changelogs: a check that blocks, which a sync evaluates before its tables."""
    told = (quarantine_stop(source, changelog_of(source, lake)) for source in sources)
    return next((text for text in told if text is not None), None)
