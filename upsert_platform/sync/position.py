"""Compares the position of a table with its changelog: the same changelog, the same commit, nothing compacted away.

A changelog that was restored from an older copy reads other records into batch numbers that tables have applied. By
number alone such a table would seem to hold them, and their rows would be lost without a word.
"""

from __future__ import annotations

from typing import Final

from upsert_platform.changelog.store import ChangelogStore, Head
from upsert_platform.core.destination import DestinationState
from upsert_platform.core.errors import DestinationError

_AFTER_RESTORE: Final = (
    "Nothing was written: rows that are in neither would be lost. Restore the newer copy of the lake, or let"
    " 'upsert-platform reconcile {table}' make the table equal to this changelog (--dry-run shows what that writes), or"
    " 'upsert-platform reset {table} --drop-target' has it built anew"
)


def check_position(store: ChangelogStore, head: Head | None, state: DestinationState, *, table: str, uri: str) -> None:
    """Refuses a table whose position is none of its changelog's: what is in neither would be lost in silence. No JVM.

    Args:
        head: of the changelog.
        state: what the table's control record says.
        table: its declared name, and `uri` where it is, for messages.

    Raises:
        DestinationError: the changelog is gone, another one, set back, restored from an older copy, or compacted behind
            what the table has applied.
    """
    applied = state.applied_batch
    what = f"table '{table}' ({uri})"
    if head is None:
        if applied:
            raise DestinationError(
                f"{what} has applied batch {applied}, but there is no changelog at {store.uri}: it was moved or"
                " deleted, or the lake is not mounted. Nothing was compared or written. Restore it, or have both built"
                f" anew from the source: 'upsert-platform reset {table} --drop-target'"
            )
        return
    if state.changelog_id and state.changelog_id != head.changelog_id:
        raise DestinationError(
            f"{what} was written from another changelog ({state.changelog_id}) than the one at {store.uri}"
            f" ({head.changelog_id}); rows that are in neither would stay for ever. Restore that changelog, or have the"
            f" table built anew: 'upsert-platform reset {table} --drop-target'"
        )
    restored = restored_from_older(store, head, state)
    if restored:
        raise DestinationError(f"{what} has applied {restored}. {_AFTER_RESTORE.format(table=table)}")
    if 0 < applied < head.needed:
        raise DestinationError(
            f"{what} has applied batch {applied}, but deletes up to batch {head.needed} were removed from the changelog"
            f" at {store.uri} by a compaction or an erasure, while the table was not declared or not reached: its"
            f" deleted rows would stay for ever. Have it built anew: 'upsert-platform reset {table} --drop-target'"
        )


def restored_from_older(store: ChangelogStore, head: Head, state: DestinationState) -> str:
    """Return which batch a table holds that is not in its changelog, which was restored from an older copy; else "".

    No JVM.
    """
    held = [(state.applied_batch, state.commit)]
    if state.begun is not None and state.begun[0] == head.changelog_id:
        held.append(state.begun[1:])
    for batch, commit in held:
        known = store.commit_of(batch) if commit and batch <= head.batch else None
        what = f"batch {batch}{_made_by(commit)}"
        if batch > head.batch:
            return (
                f"{what}, but the changelog at {store.uri} ends with batch {head.batch}{_made_by(head.run)}: it was"
                " restored from an older copy"
            )
        if batch and commit and known is None:
            return (
                f"{what}, but the changelog at {store.uri} does not know any more which commit made that batch: if it"
                " was restored from an older copy, that may be another one"
            )
        if batch and commit and known != commit:
            return (
                f"{what}, but that batch of the changelog at {store.uri} is another one{_made_by(known)}: it was"
                " restored from an older copy, and has read other records into the batches behind it"
            )
    return ""


def _made_by(commit: str | None) -> str:
    """Return the identity of a commit, for messages."""
    return f" of commit '{commit}'" if commit else ""
