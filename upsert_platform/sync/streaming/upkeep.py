"""The upkeep of a Delta table while a process commits to it every second: few files, and a log of bounded length."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog import compaction
from upsert_platform.changelog.upkeep import prune_log, remove_unused, trim_log
from upsert_platform.core.errors import ChangelogError
from upsert_platform.sync.streaming.beside import Beside

if TYPE_CHECKING:
    from upsert_platform.changelog.store import ChangelogStore

_LOOK_EVERY: Final = 16
"""Batches between two looks at the number of files."""
_NEWEST: Final = 32
"""Batches whose files are not merged: tables that keep up read these, and each would read all that lies beside them."""
KEEP_HOURS: Final = 2
"""Files that a merge has replaced are kept so long: runs that began before still read them."""
_PRUNE_SECONDS: Final = 600.0
LOG_MINUTES: Final = 15
"""Commits are kept so long: three a second make each look at a table slower as they gather."""
_TRIM_SECONDS: Final = 120.0


class Upkeep:
    """Upkeep of one table for whoever commits to it; small files are merged beside the next commits."""

    def __init__(self, store: ChangelogStore) -> None:
        self._store = store
        self._aside = store.beside()
        self._merging = Beside("upkeep")
        self._batches = self._new = 0
        self._pruned_at = self._trimmed_at = time.monotonic()

    def note(self, batches: int) -> None:
        """Is told of batches that were committed."""
        self._new += batches

    def do_due(self) -> None:
        """Does what is due; nothing where nothing was committed since the last time.

        Raises:
            UpsertPlatformError: it failed, or a merge that was begun before did.
        """
        self._merging.look()
        new, self._new = self._new, 0
        if not new:
            return
        self._batches += new
        if self._batches >= _LOOK_EVERY and not self._merging.is_busy:
            self._batches = 0
            self._merging.begin(self._merge)
        if time.monotonic() - self._trimmed_at >= _TRIM_SECONDS:
            self._trimmed_at = time.monotonic()
            trim_log(self._store, minutes=LOG_MINUTES)
        if time.monotonic() - self._pruned_at >= _PRUNE_SECONDS:
            self._pruned_at = time.monotonic()
            prune_log(self._store, hours=KEEP_HOURS)
            # Another run may write for longer before it commits; what killed ones left is deleted by job `compact`.
            remove_unused(self._store, hours=KEEP_HOURS, uncommitted=False)

    def wait(self) -> None:
        """Waits for the end of a merge.

        Raises:
            UpsertPlatformError: it failed.
        """
        self._merging.wait()

    def _merge(self) -> None:
        head = self._aside.head() if self._aside.merges_files else None
        if head is not None:
            try:
                compaction.merge_tier_locally(self._aside, upto=head.batch - _NEWEST)
            except ChangelogError:  # another run rewrote them meanwhile
                return
