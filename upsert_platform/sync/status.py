"""Status of every topic, changelog and table of a project, queried concurrently. No JVM, nothing written."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Generic, TypeVar

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.pauses import paused
from upsert_platform.changelog.quarantine import nothing_decoded, quarantined_count
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import Positions
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.masking import Mask
from upsert_platform.core.source import Source
from upsert_platform.sync.binding import Binding, Target, changelog_of
from upsert_platform.sync.freshness import Freshness, FreshnessLimits, Waiting, unapplied, unread_of
from upsert_platform.sync.position import check_position

_AT_ONCE = 16
"""Endpoints answer in parallel; each look is a few requests."""
Found = TypeVar("Found")
Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class ChangelogStatus:
    """A table that is read.

    Attributes:
        streams: names of its topics.
        lag: offsets that are not in the changelog yet.
        batch: the last one committed; 0 before the first.
        committed_at: UTC, of that batch; None before the first.
        quarantined: records that wait in quarantine.
        warnings: what its positions have to tell: columns that may differ from a database.
        empty: why its table stays empty, where every record is in quarantine.
        error: why it could not be asked; the other attributes then tell nothing.
    """

    table: str
    streams: tuple[str, ...] = ()
    lag: int = 0
    batch: int = 0
    committed_at: datetime | None = None
    quarantined: int = 0
    warnings: tuple[str, ...] = ()
    empty: str = ""
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
        delay: seconds since the oldest record that is not in it was made; 0 if it holds all, None if nobody can tell.
        late: how that delay breaks the freshness that is declared; empty where it does not.
        stale: whether that is a fault, by ``freshness.max-delay``, and not a warning.
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
    delay: float | None = None
    late: str = ""
    stale: bool = False
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
        """Return whether everything answered, no check failed, no table is older than declared, and some record
        decodes.

        Lag by itself is no fault: it is what the next run reads.
        """
        if self.errors or any(item.empty for item in self.changelogs):
            return False
        return all(item.checked is not False and not item.stale for item in self.tables)

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
    tables = [Look(partial(_table, binding, item, lake), places) for item in binding.targets.values()]
    deadline = started + timeout
    late = f"no answer within {timeout:g} s"
    read = {
        name: look.result(deadline) or _Found(ChangelogStatus(name, error=late))
        for look, name in zip(changelogs, binding.sources, strict=True)
    }
    written = []
    for look, (name, item) in zip(tables, binding.targets.items(), strict=True):
        found = look.result(deadline)
        if found is None:
            written.append(TableStatus(name, item.source.table.name, item.table.connector, error=late))
        else:
            written.append(_with_delay(found, item, [read[source] for source in item.insert.tables]))
    return Status(tuple(found.status for found in read.values()), tuple(written), time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class _Found(Generic[Told]):
    """The result of a look, and what of it is unfinished."""

    status: Told
    waiting: tuple[Waiting, ...] = ()


def _with_delay(found: _Found[TableStatus], target: Target, read: Sequence[_Found[ChangelogStatus]]) -> TableStatus:
    """The status of a table with what it lacks, once what it is made from is known too."""
    if found.status.error or any(item.status.error for item in read):
        return found.status
    waiting = tuple(dict.fromkeys([*(each for item in read for each in item.waiting), *found.waiting]))
    freshness = Freshness(datetime.now(UTC), waiting)
    limits = FreshnessLimits.of(target.table)
    judged = limits.judge(freshness) if limits is not None else None
    told, fails = ("", False) if judged is None else (judged.text, judged.fails)
    return replace(found.status, delay=freshness.delay, late=told, stale=fails)


def new_places() -> threading.Semaphore:
    """Return the semaphore that bounds concurrent looks."""
    # Its modules import each other: two threads that load it at once can end in an error about a deadlock.
    import deltalake  # noqa: F401

    return threading.Semaphore(_AT_ONCE)


class Look(Generic[Found]):
    """One look, in a thread that ends with the process: an endpoint that is away keeps clients trying for a minute."""

    def __init__(self, ask: Callable[[], Found], places: threading.Semaphore) -> None:
        self._found: queue.SimpleQueue[Found | Exception] = queue.SimpleQueue()

        def run() -> None:
            with places:
                try:
                    self._found.put(ask())
                except Exception as error:  # noqa: BLE001 - raised again where the result is asked for
                    self._found.put(error)

        threading.Thread(target=run, name="status", daemon=True).start()

    def result(self, deadline: float) -> Found | None:
        """Return the result, or None if it is not available at the deadline (of `time.monotonic`).

        Raises:
            Exception: what the look raised.
        """
        try:
            found = self._found.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found


def _changelog(source: Source, lake: Lake) -> _Found[ChangelogStatus]:
    def ask() -> _Found[ChangelogStatus]:
        store = changelog_of(source, lake)
        store.begin_look()
        head = store.check_declared()
        nothing = nothing_decoded(store, Mask.of(source.table))
        streams = source.discover()
        backlog = source.backlog(streams, head.positions if head else Positions())
        waiting = unread_of(source, backlog)
        status = ChangelogStatus(
            source.table.name,
            tuple(item.name for item in streams),
            sum(item.offsets for item in backlog),
            head.batch if head else 0,
            store.committed_at(),
            quarantined_count(store),
            tuple(source.warnings(head.positions)) if head else (),
            nothing.told(source.table.name) if nothing else "",
        )
        return _Found(status, () if waiting is None else (waiting,))

    return _or_error(ask, lambda error: _Found(ChangelogStatus(source.table.name, error=error)))


def _table(binding: Binding, target: Target, lake: Lake) -> _Found[TableStatus]:
    name, read = target.table.name, target.source.table.name

    def ask() -> _Found[TableStatus]:
        store = changelog_of(target.source, lake)
        store.begin_look()
        head = store.head()
        with closing(target.open()) as destination:
            state = destination.state()
            check_position(store, head, state, table=name, uri=destination.uri)
            status = TableStatus(
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
        return _Found(status, tuple(unapplied(binding, target, lake, applied=state.applied_batch, store=store)))

    return _or_error(ask, lambda error: _Found(TableStatus(name, read, target.table.connector, error=error)))


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
