"""What is noted in a changelog beside its batches, and the files that compactions leave behind. Nothing needs a JVM."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.commit_times import TIMES_PROPERTY, times_to_note
from upsert_platform.changelog.head import FLOOR_PROPERTY
from upsert_platform.changelog.store import ChangelogStore

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LOG_RETENTION: Final = "delta.logRetentionDuration"
_COMMIT: Final = re.compile(r"(\d{20})\.(json|crc|checkpoint\.parquet)$")
"""Name of a commit in a log, or of a checkpoint; the number is the version."""


def raise_floor(store: ChangelogStore, batch: int) -> None:
    """Notes that tombstones up to a batch may be dropped; never lowers what was noted."""
    from deltalake import CommitProperties

    head = store.head()
    if head is None or batch <= head.floor:
        return
    store.opened().alter.set_table_properties(
        {FLOOR_PROPERTY: str(batch)},
        raise_if_not_exists=False,
        commit_properties=CommitProperties(custom_metadata={"userMetadata": store.commit_metadata()}),
    )


def note_applied(store: ChangelogStore, table: str, batch: int) -> None:
    """Notes that a table has applied a batch, in an empty commit. What counts is the position in the destination."""
    from deltalake import CommitProperties, Transaction

    if applied_before(store, table) == batch:
        return
    delta = store.opened()
    properties = CommitProperties(
        custom_metadata={"userMetadata": store.commit_metadata()},
        app_transactions=[Transaction(_applied(table), batch)],
    )
    delta.create_write_transaction([], mode="append", schema=delta.schema(), commit_properties=properties)


def applied_before(store: ChangelogStore, table: str) -> int:
    """The batch that was last noted of a table, 0 if none was: what it held once, whatever it tells of itself now."""
    return store.transaction_version(_applied(table))


def _applied(table: str) -> str:
    return f"applied:{table}"


def reduced_upto(store: ChangelogStore) -> int:
    """The batch up to which history was last reduced, as far as the latest commits tell; else 0."""
    return max((record.get("reduced", 0) for record in store.commit_records()), default=0)


def prune_log(store: ChangelogStore, *, hours: int) -> None:
    """Deletes what the table's log tells of versions older than so many hours, behind a checkpoint.

    When batches were committed is noted first (`commit_times`).
    """
    if store.head() is not None:
        table = _with_times(store, {_LOG_RETENTION: f"interval {hours} hours"})
        table.create_checkpoint()
        table.cleanup_metadata()


def _with_times(store: ChangelogStore, properties: dict[str, str]) -> DeltaTable:
    """The table, once it has properties and the times of batches whose commits it is about to lose."""
    from deltalake import CommitProperties

    table = store.opened()
    times = times_to_note(store)
    wanted = {**properties, **({} if times is None else {TIMES_PROPERTY: times})}
    if wanted.items() <= table.metadata().configuration.items():
        return table
    table.alter.set_table_properties(
        wanted,
        raise_if_not_exists=False,
        commit_properties=CommitProperties(custom_metadata={"userMetadata": store.commit_metadata()}),
    )
    return store.opened()


def trim_log(store: ChangelogStore, *, minutes: int) -> int:
    """As `prune_log`, by minutes, of a lake below a path alone; how many files it deleted.

    Whoever opens the table, or commits to it, lists the folder of its log, each time.
    """
    local = store.location.path
    if local is None or store.head() is None:
        return 0
    table = _with_times(store, {})
    table.create_checkpoint()
    version, before, found = table.version(), time.time() - minutes * 60, 0
    for file in Path(local, "_delta_log").iterdir():
        number = _COMMIT.match(file.name)
        if number is not None and int(number[1]) < version and file.stat().st_mtime < before:
            file.unlink(missing_ok=True)
            found += 1
    return found


def remove_unused(store: ChangelogStore, *, hours: int, uncommitted: bool = True) -> int:
    """Deletes files that the table has not needed for so many hours; how many.

    A run that began before that may still read them, and time travel ends there.

    Args:
        uncommitted: also files that no commit has named for so long: killed runs left them, or a run that takes longer
            still writes them, whose commit would then name what is gone.
    """
    from deltalake import CommitProperties

    if store.head() is None:
        return 0
    table = store.opened()
    if not table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=uncommitted):
        return 0  # a vacuum that finds nothing makes a commit all the same
    properties = CommitProperties(custom_metadata={"userMetadata": store.commit_metadata()})
    removed = table.vacuum(
        hours, dry_run=False, enforce_retention_duration=False, full=uncommitted, commit_properties=properties
    )
    return len(removed)
