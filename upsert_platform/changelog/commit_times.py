"""Commit times of batches, read from the commits of a changelog. Nothing needs a JVM.

A log that is kept short tells of hours; what it told before is noted in a property of the table, an hour or more apart.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from upsert_platform.changelog.head import commit_record
from upsert_platform.changelog.store import ChangelogStore

TIMES_PROPERTY: Final = "upsert.changelog.times"
_HOUR: Final = 3_600_000
_DAY: Final = 24 * _HOUR
_APART: Final = ((800 * _DAY, 30 * _DAY), (2 * _DAY, _DAY), (0, _HOUR))
"""From which age on, in milliseconds, times that are noted are how far apart; the oldest first.

Rows of a table whose rows or partitions live for so long are judged as gone by these times: by the day, up to two
years, they are some ten thousand bytes of the table's properties."""
_Noted = tuple[int, int]
"""A batch, and when it was committed, milliseconds since 1970."""


def last_batch_before(store: ChangelogStore, moment: datetime) -> int:
    """The last batch that was committed before a moment, 0 if none was.

    Of batches whose commits the table's log has no longer, it is as near as noted times tell, never below.
    """
    return last_batches_before(store, (moment,))[0]


def last_batches_before(store: ChangelogStore, moments: Sequence[datetime]) -> list[int]:
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
    return [_last_before(int(moment.timestamp() * 1000), known, noted, whole=whole) for moment in moments]


def _last_before(moment: int, known: Sequence[_Noted], noted: Sequence[_Noted], *, whole: bool) -> int:
    found = next((batch for batch, at in known if at < moment), None)
    if found is not None or whole:
        return found or 0
    return min([known[-1][0], *(batch - 1 for batch, at in noted if at >= moment)])


def times_to_note(store: ChangelogStore) -> str | None:
    """Return the new value of the property that keeps commit times before the log is pruned, or None if it is up to
    date.
    """
    noted = _noted(store)
    found = dict(noted)
    head, committed = store.head(), store.committed_at()
    if noted and head is not None and committed is not None:
        found.setdefault(head.batch, int(committed.timestamp() * 1000))
    else:  # the whole log only once: afterwards it is looked at more often than it loses something
        for commit in store.opened().history():  # the newest first; the oldest commit of a batch made it
            record = commit_record(commit.get("userMetadata"))
            if record is not None and record["batch"] and "timestamp" in commit:
                found[int(record["batch"])] = int(commit["timestamp"])
    thinned = _thinned(sorted(found.items()), now=int(time.time() * 1000))
    return None if thinned == noted else json.dumps(thinned, separators=(",", ":"))


def _noted(store: ChangelogStore) -> list[_Noted]:
    text = store.opened().metadata().configuration.get(TIMES_PROPERTY, "[]")
    return [(int(batch), int(at)) for batch, at in json.loads(text)]


def _thinned(times: list[_Noted], *, now: int) -> list[_Noted]:
    """The first time of each hour, of older ones of each day, of those of two years ago of thirty days."""
    kept: dict[tuple[int, int], _Noted] = {}
    for batch, at in times:
        apart = next(apart for age, apart in _APART if now - at >= age or not age)
        kept.setdefault((apart, at // apart), (batch, at))
    return list(kept.values())


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
