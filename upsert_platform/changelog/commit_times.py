"""Commit times of batches, read from the commits of a changelog. Nothing needs a JVM.

A log that is kept short tells of hours; what it told before is noted in a property of the table, an hour or more apart.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.head import HISTORY_DEPTH, commit_record
from upsert_platform.changelog.store import ChangelogStore

if TYPE_CHECKING:
    from deltalake.table import Metadata

TIMES_PROPERTY: Final = "upsert.changelog.times"
LOG_RETENTION: Final = "delta.logRetentionDuration"
_HOUR: Final = 3_600_000
_DAY: Final = 24 * _HOUR
_APART: Final = ((800 * _DAY, 30 * _DAY), (2 * _DAY, _DAY), (0, _HOUR))
"""From which age on, in milliseconds, times that are noted are how far apart; the oldest first.

Rows of a table whose rows or partitions live for so long are judged as gone by these times: by the day, up to two
years, they are some ten thousand bytes of the table's properties."""
_Noted = tuple[int, int]
"""A batch, and when it was committed, milliseconds since 1970."""


def last_batch_before(store: ChangelogStore, moment: datetime, *, as_noted: bool = False) -> int:
    """The last batch that was committed before a moment, 0 if none was.

    Of batches whose commits the table's log has no longer, it is as near as noted times tell, and never above: a batch
    whose time is not known counts as later.

    Args:
        as_noted: where noted times are an hour or a day apart, the moment is that much later: for rows that something
            lets go of at that moment, which are missed otherwise until the next time that is noted.
    """
    return last_batches_before(store, (moment,), as_noted=as_noted)[0]


def last_batches_before(store: ChangelogStore, moments: Sequence[datetime], *, as_noted: bool = False) -> list[int]:
    """Return `last_batch_before` of several moments; the log is read once."""
    if store.head() is None:
        return [0] * len(moments)
    history = store.opened().history()
    known: list[_Noted] = []
    for commit in history:  # the newest first; commits without rows carry the batch of the head on
        record = commit_record(commit.get("userMetadata"))
        if record is not None and "timestamp" in commit:
            known.append((int(record["batch"]), int(commit["timestamp"])))
    whole = not known or history[-1].get("version") == 0
    noted = [] if whole else _noted(store)
    found = []
    for moment in moments:
        at = int(moment.timestamp() * 1000)
        told = next((batch for batch, committed in known if committed < at), None)
        if told is None:
            later = at + (_apart(now=_now(), at=at) if as_noted else 0)
            told = max((batch for batch, committed in noted if committed < later), default=0)
        found.append(told)
    return found


def times_to_note(store: ChangelogStore, *, depths: Sequence[int | None] = (HISTORY_DEPTH,)) -> str | None:
    """Return the new value of the property that keeps commit times before the log is pruned, or None if it is up to
    date.

    Args:
        depths: of the log that are looked at, one after the other, until one reaches back to what was noted last. The
            whole log is, where nothing was noted.
    """
    noted = _noted(store)
    since = noted[-1][1] if noted else 0
    told: dict[int, int] = {}
    delta = store.opened()
    for depth in depths if noted else (None,):
        commits = [
            (int(record["batch"]), int(commit["timestamp"]))
            for commit in delta.history(depth)
            if (record := commit_record(commit.get("userMetadata"))) is not None and "timestamp" in commit
        ]
        told = dict(commits)  # the newest first; the oldest commit of a batch made it
        if not commits or commits[-1][1] <= since:
            break
    found = {batch: at for batch, at in told.items() if batch} | dict(noted)
    thinned = _thinned(sorted(found.items()), now=_now())
    return None if thinned == noted else json.dumps(thinned, separators=(",", ":"))


def are_due(store: ChangelogStore) -> bool:
    """Return whether times were noted so long ago that the log, which Delta Lake cuts by itself, may lose some.

    It keeps thirty days, or two hours of a table that was committed to every second once.
    """
    metadata = store.metadata()
    if metadata is None:
        return False
    noted = _noted_in(metadata)
    every = _HOUR if LOG_RETENTION in metadata.configuration else _DAY
    return _now() - (noted[-1][1] if noted else metadata.created_time or 0) >= every


def _now() -> int:
    return int(time.time() * 1000)


def _noted(store: ChangelogStore) -> list[_Noted]:
    return _noted_in(store.opened().metadata())


def _noted_in(metadata: Metadata) -> list[_Noted]:
    return [(int(batch), int(at)) for batch, at in json.loads(metadata.configuration.get(TIMES_PROPERTY, "[]"))]


def _thinned(times: list[_Noted], *, now: int) -> list[_Noted]:
    """The last time of each hour, of older ones of each day, of those of two years ago of thirty days."""
    kept: dict[tuple[int, int], _Noted] = {}
    for batch, at in times:
        apart = _apart(now=now, at=at)
        kept[apart, at // apart] = (batch, at)
    return list(kept.values())


def _apart(*, now: int, at: int) -> int:
    return next(apart for age, apart in _APART if now - at >= age or not age)


def first_commit_after(store: ChangelogStore, batch: int) -> datetime | None:
    """Return the time (UTC) of the first commit after a batch, or of a later one if the log no longer reaches back;
    None if there is none.
    """
    found: int | None = None
    for commit in store.opened().history() if store.head() is not None else ():
        record = commit_record(commit.get("userMetadata"))
        if record is None or "timestamp" not in commit:
            continue
        if record["batch"] <= batch:
            break
        found = commit["timestamp"]
    return None if found is None else datetime.fromtimestamp(found / 1000, UTC)
