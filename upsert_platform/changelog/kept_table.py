"""A table that somebody looks at every second: brought up to date instead of opened anew.

Opening replays the log since the last checkpoint, and lists a folder that holds hours of commits.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.tables import TableLocation, open_table

if TYPE_CHECKING:
    from deltalake import DeltaTable

_UPDATES: Final = 500
"""After so many the handle is opened anew: what it gathers ends with it."""


class KeptTable:
    """One handle for reading alone: a commit needs a handle that nobody moves on meanwhile.

    Args:
        in_looks: the table is brought up to date after `begin_look` alone: many reads of one look see one version.
    """

    def __init__(self, location: TableLocation, *, in_looks: bool = False) -> None:
        self._location = location
        self._lock = Lock()
        self.in_looks, self._is_looked_at = in_looks, False
        self._table: DeltaTable | None = None
        self._mark: tuple[int, int] | None = None
        self._updates = 0

    def begin_look(self) -> None:
        """Bring the table up to date when it is read next."""
        self._is_looked_at = False

    def table(self) -> DeltaTable | None:
        """The table as it is now, or as it was when the look's first read began; None where there is none.

        A folder that was put in the place of the table is noticed: the commit that the handle ended with is not there,
        or is another file. Behind a URI nobody can tell that at little cost, so the table is opened there each time.
        """
        with self._lock:
            if self._table is None or not self._is_looked_at:
                self._bring_up_to_date()
                self._is_looked_at = self.in_looks
            return self._table

    def _bring_up_to_date(self) -> None:
        if self._table is None or self._updates >= _UPDATES or self._mark is None or self._mark != self._mark_now():
            self._table = open_table(self._location)
            self._updates = 0
        else:
            self._table.update_incremental()
            self._updates += 1
        self._mark = self._mark_now()

    def _mark_now(self) -> tuple[int, int] | None:
        """Return an identity of the file of the handle's last commit, or None if the file does not exist."""
        local = self._location.path
        if local is None or self._table is None:
            return None
        try:
            found = Path(local, "_delta_log", f"{self._table.version():020}.json").stat()
        except FileNotFoundError:  # pruned behind a checkpoint, or the table is gone
            return None
        return found.st_ino, found.st_mtime_ns
