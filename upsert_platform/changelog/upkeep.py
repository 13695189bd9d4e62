"""Notes kept in a changelog beside its batches, and the removal of files that compactions leave behind. Nothing needs a
JVM.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.commit_times import LOG_RETENTION, TIMES_PROPERTY, are_due, times_to_note
from upsert_platform.changelog.exchanges import FOLDER, remove_left
from upsert_platform.changelog.head import (
    ERASED_PROPERTY,
    FLOOR_PROPERTY,
    HISTORY_DEPTH,
    HISTORY_PROPERTY,
    Applied,
    applied_name,
)
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.tables import file_system

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_COMMIT: Final = re.compile(r"(\d{20})\.(json|crc|checkpoint\.parquet)$")
"""Name of a commit in a log, or of a checkpoint; the number is the version."""


def raise_floor(store: ChangelogStore, batch: int, *, reduced: int = 0) -> None:
    """Notes that tombstones up to a batch may be dropped; never lowers what was noted.

    Args:
        reduced: the batch up to which history may be reduced to the last row per key.
    """
    _raise(store, {FLOOR_PROPERTY: batch, HISTORY_PROPERTY: reduced})


def note_erased(store: ChangelogStore, batch: int) -> None:
    """Notes that the delete of one key, which an erasure committed as a batch, may be dropped.

    The floor stays: the deletes of other keys are there, and records in quarantine may need them.
    """
    _raise(store, {ERASED_PROPERTY: batch})


def _raise(store: ChangelogStore, values: Mapping[str, int]) -> None:
    """Raises numbers among the table's properties, and never lowers them."""

    def change(delta: DeltaTable, properties: CommitProperties) -> None:
        known = delta.metadata().configuration
        raised = {name: str(value) for name, value in values.items() if value > int(known.get(name, 0))}
        if raised:
            delta.alter.set_table_properties(raised, raise_if_not_exists=False, commit_properties=properties)

    if store.head() is not None:
        store.commit_beside(change)


def history_from(store: ChangelogStore) -> int:
    """Return the first batch of which the last row per key is known, 0 of no changelog. No JVM."""
    if store.head() is None:
        return 0
    noted = int(store.opened().metadata().configuration.get(HISTORY_PROPERTY, 0))
    return max(1, noted, reduced_upto(store))


def note_applied(store: ChangelogStore, consumer: str, batch: int, *, commit: str = "") -> None:
    """Notes that a table or a query has applied a batch, in an empty commit.

    What counts is the position that the consumer keeps itself. The note tells that it held something once, and carries
    the identity of the batch on, behind the log that is pruned.

    Args:
        commit: identity of the batch's commit; looked up if empty.
    """
    head = store.head()
    applied = Applied(batch, commit or store.commit_of(batch) or "")
    if head is None or (applied_before(store, consumer) == batch and head.held.get(consumer) == applied):
        return

    def change(delta: DeltaTable, properties: CommitProperties) -> None:
        delta.create_write_transaction([], mode="append", schema=delta.schema(), commit_properties=properties)

    store.commit_beside(change, noted={consumer: applied})


def applied_before(store: ChangelogStore, table: str) -> int:
    """The batch that was last noted of a table, 0 if none was: what it held once, whatever it tells of itself now."""
    return store.transaction_version(applied_name(table))


def reduced_upto(store: ChangelogStore) -> int:
    """The batch up to which history was last reduced, as far as the latest commits tell; else 0."""
    return max((record.get("reduced", 0) for record in store.commit_records()), default=0)


def note_times(store: ChangelogStore) -> None:
    """Notes when batches were committed (`commit_times`), about once a day: Delta Lake cuts the log by itself."""
    if are_due(store):
        _with_times(store, {}, depths=(HISTORY_DEPTH, HISTORY_DEPTH * 10, None))


def prune_log(store: ChangelogStore, *, hours: int) -> None:
    """Deletes what the table's log tells of versions older than so many hours, behind a checkpoint.

    When batches were committed is noted first (`commit_times`).
    """
    if store.head() is not None:
        table = _with_times(store, {LOG_RETENTION: f"interval {hours} hours"})
        table.create_checkpoint()
        table.cleanup_metadata()


def _with_times(
    store: ChangelogStore, properties: dict[str, str], *, depths: Sequence[int | None] = (HISTORY_DEPTH,)
) -> DeltaTable:
    """The table, once it has properties and the times of batches whose commits it is about to lose."""
    times = times_to_note(store, depths=depths)
    wanted = {**properties, **({} if times is None else {TIMES_PROPERTY: times})}

    def change(delta: DeltaTable, commit: CommitProperties) -> None:
        if not wanted.items() <= delta.metadata().configuration.items():
            delta.alter.set_table_properties(wanted, raise_if_not_exists=False, commit_properties=commit)

    store.commit_beside(change)
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
    """Deletes files that the table has not needed for so many hours, and what killed runs left of exchanges; how many.

    A run that began before that may still read them, and time travel ends there.

    Args:
        uncommitted: also files that no commit has named for so long: killed runs left them, or a run that takes longer
            still writes them, whose commit would then name what is gone.
    """
    if store.head() is None:
        return 0
    # VACUUM itself makes two commits, which delta-rs rebases behind batches that come meanwhile: the last commit would
    # have the positions before them. Nothing needs these commits, so the files are deleted without any.
    found = store.opened().vacuum(hours, dry_run=True, enforce_retention_duration=False, full=uncommitted)
    system, folder = file_system(store.location)
    for path in found:
        with suppress(FileNotFoundError):
            system.delete_file(f"{folder}{path}")
    return len(found) + (remove_left(store.location, FOLDER, hours=hours) if uncommitted else 0)
