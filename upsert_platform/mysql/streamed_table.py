"""A table of a MySQL or MariaDB server as its batches see it: its options, its name as a stream, and its progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.core.source import MODE_UPSERT, TakesSnapshots
from upsert_platform.mysql.options import MySqlCdcSettings
from upsert_platform.mysql.progress import Progress

if TYPE_CHECKING:
    from upsert_platform.changelog.head import Positions


@dataclass(frozen=True)
class StreamedTable(TakesSnapshots):
    """The part of a source that its batches use."""

    settings: MySqlCdcSettings

    @property
    def mode(self) -> str:
        """``upsert``: a row has a key."""
        return MODE_UPSERT

    @property
    def stream(self) -> str:
        """Name of the stream, as rows and positions show it: schema and table."""
        return self.settings.full_name

    def progress(self, positions: Positions) -> Progress | None:
        """Return the progress after the last batch, or None before the first."""
        found = positions.topic_ids.get(self.stream)
        return None if found is None else Progress.from_json(found)
