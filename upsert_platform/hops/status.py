"""How far every topic, changelog and table of a project is, asked of all of them at once. No JVM, nothing written."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Generic, TypeVar

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.pauses import paused
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import Positions
from upsert_platform.errors import UpsertPlatformError
from upsert_platform.hops.binding import Binding, Target, changelog_of
from upsert_platform.source import Source

_AT_ONCE = 16
"""Endpoints answer in parallel; each look is a few requests."""
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ChangelogStatus:
    """A table that is read.

    Attributes:
        streams: names of its topics.
        lag: offsets that are not in the changelog yet.
        batch: the last one committed; 0 before the first.
        committed_at: UTC, of that batch; None before the first.
        quarantined: records that wait in quarantine.
        error: why it could not be asked; the other attributes then tell nothing.
    """

    table: str
    streams: tuple[str, ...] = ()
    lag: int = 0
    batch: int = 0
    committed_at: datetime | None = None
    quarantined: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table that is written.

    Attributes:
        applied: the last batch of the changelog that is wholly in it.
        behind: batches that are committed and not applied.
        checked: whether its last check passed; None if there was none.
        refused: rows that it would not take.
        holder: the run that writes it now.
        paused: since when it is not written by itself, and why; empty if it is.
        error: why it could not be asked; the other attributes then tell nothing.
    """

    table: str
    source: str
    connector: str
    uri: str = ""
    applied: int = 0
    behind: int = 0
    checked: bool | None = None
    checked_at: datetime | None = None
    refused: int = 0
    holder: str | None = None
    paused: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """A project as it stands.

    Attributes:
        seconds: how long it took to ask.
    """

    changelogs: tuple[ChangelogStatus, ...]
    tables: tuple[TableStatus, ...]
    seconds: float

    @property
    def healthy(self) -> bool:
        """Whether everything answered and no check failed. Lag is no fault: it is what the next run reads."""
        return not self.errors and all(item.checked is not False for item in self.tables)

    @property
    def errors(self) -> tuple[tuple[str, str], ...]:
        """Tables that could not be asked, each with the reason."""
        asked: list[ChangelogStatus | TableStatus] = [*self.changelogs, *self.tables]
        return tuple((item.table, item.error) for item in asked if item.error)


def status_of(binding: Binding, lake: Lake, *, timeout: float = 20.0) -> Status:
    """Asks every topic, changelog and table of a project.

    Args:
        timeout: seconds after which what has not answered is told as such.
    """
    started = time.monotonic()
    places = new_places()
    changelogs = [Look(partial(_changelog, item, lake), places) for item in binding.sources.values()]
    tables = [Look(partial(_table, item, lake), places) for item in binding.targets.values()]
    deadline = started + timeout
    late = f"no answer within {timeout:g} s"
    return Status(
        tuple(
            look.result(deadline) or ChangelogStatus(name, error=late)
            for look, name in zip(changelogs, binding.sources, strict=True)
        ),
        tuple(
            look.result(deadline) or TableStatus(name, item.source.table.name, item.table.connector, error=late)
            for look, (name, item) in zip(tables, binding.targets.items(), strict=True)
        ),
        time.monotonic() - started,
    )


def new_places() -> threading.Semaphore:
    """How many looks ask at once."""
    return threading.Semaphore(_AT_ONCE)


class Look(Generic[Found]):
    """One look, in a thread that ends with the process: an endpoint that is away keeps clients trying for a minute."""

    def __init__(self, ask: Callable[[], Found], places: threading.Semaphore) -> None:
        self._found: queue.SimpleQueue[Found] = queue.SimpleQueue()

        def run() -> None:
            with places:
                self._found.put(ask())

        threading.Thread(target=run, name="status", daemon=True).start()

    def result(self, deadline: float) -> Found | None:
        """What was found, or None when it is not there at the deadline (of `time.monotonic`)."""
        try:
            return self._found.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None


def _changelog(source: Source, lake: Lake) -> ChangelogStatus:
    def ask() -> ChangelogStatus:
        store = changelog_of(source, lake)
        head = store.head()
        streams = source.discover()
        backlog = source.backlog(streams, head.positions if head else Positions())
        return ChangelogStatus(
            source.table.name,
            tuple(item.name for item in streams),
            sum(item.offsets for item in backlog),
            head.batch if head else 0,
            store.committed_at(),
            store.quarantined_count(),
        )

    return _or_error(ask, lambda error: ChangelogStatus(source.table.name, error=error))


def _table(target: Target, lake: Lake) -> TableStatus:
    name, read = target.table.name, target.source.table.name

    def ask() -> TableStatus:
        head = changelog_of(target.source, lake).head()
        with closing(target.open()) as destination:
            state = destination.state()
            return TableStatus(
                name,
                read,
                target.table.connector,
                destination.uri,
                state.applied_batch,
                max(0, head.batch - state.applied_batch) if head else 0,
                state.verdict.passed if state.verdict else None,
                state.verdict.at if state.verdict else None,
                RefusedStore(lake.refused(name)).count(),
                state.holder,
                str(paused(lake).get(name, "")),
            )

    return _or_error(ask, lambda error: TableStatus(name, read, target.table.connector, error=error))


def _or_error(ask: Callable[[], Found], failed: Callable[[str], Found]) -> Found:
    try:
        return ask()
    except UpsertPlatformError as error:  # one table that does not answer keeps no other from being told
        return failed(str(error))


def age_of(moment: datetime | None, *, now: datetime | None = None) -> float | None:
    """Seconds since a moment; None without one."""
    return None if moment is None else max(0.0, ((now or datetime.now(UTC)) - moment).total_seconds())


def as_data(status: Status) -> Mapping[str, Sequence[Mapping[str, object]] | float]:
    """The status as JSON holds it: names of attributes to values, times in ISO 8601."""

    def plain(item: ChangelogStatus | TableStatus) -> Mapping[str, object]:
        return {
            name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(item).items()
        }

    return {
        "changelogs": [plain(item) for item in status.changelogs],
        "tables": [plain(item) for item in status.tables],
        "seconds": round(status.seconds, 3),
    }
