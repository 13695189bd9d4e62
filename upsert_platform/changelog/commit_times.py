"""When batches were committed, as the commits of a changelog tell. Nothing needs a JVM."""

from __future__ import annotations

from datetime import datetime

from upsert_platform.changelog.head import commit_record
from upsert_platform.changelog.store import ChangelogStore


def last_batch_before(store: ChangelogStore, moment: datetime) -> int:
    """The last batch that was committed before a moment, 0 if none was.

    Batches whose commits the table's log has no longer count as committed before it.
    """
    if store.head() is None:
        return 0
    history = store.opened().history()
    oldest: int | None = None
    for commit in history:  # the newest first; commits without rows carry the batch of the head on
        record = commit_record(commit.get("userMetadata"))
        if record is None or "timestamp" not in commit:
            continue
        oldest = int(record["batch"])
        if commit["timestamp"] < moment.timestamp() * 1000:
            return oldest
    return 0 if oldest is None or history[-1].get("version") == 0 else oldest
