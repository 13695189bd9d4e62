"""The batches of streaming queries in a table, kept in its control record in place of a changelog's id.

Spark writes the last batch of a query again after a crash, with the number that it had. Numbers are the query's own, so
those of another query, of a query started anew, or of frames without a number say nothing about them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from upsert_platform.core.errors import DestinationError

_PREFIX: Final = "pipeline "
MOST_QUERIES: Final = 200
"""Queries that are remembered; the one that was written longest ago goes first."""


@dataclass(frozen=True, slots=True)
class StreamBatches:
    """The last batch of each query, in the order in which they were written."""

    last: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(changelog_id: str) -> StreamBatches:
        """Return the batches of a control record; none if another writer wrote the table last."""
        return StreamBatches(json.loads(changelog_id.removeprefix(_PREFIX)) if changelog_id.startswith(_PREFIX) else {})

    def to_text(self) -> str:
        """The form that is kept."""
        return _PREFIX + json.dumps(dict(self.last), separators=(",", ":"))

    def holds(self, query: str, batch: int) -> bool:
        """Return whether the batch is in the table.

        Raises:
            DestinationError: an earlier one than the last that was written: Spark repeats none but the last.
        """
        last = self.last.get(query)
        if last is not None and batch < last:
            named = f"query '{query}'" if query else "a stream without a query id"
            raise DestinationError(
                f"batch {batch} of {named} comes after batch {last}, which is in the table: its checkpoint was set back"
                " or another query has its id. Nothing was written; give the query an id of its own by 'query'"
            )
        return batch == last

    def with_batch(self, query: str, batch: int) -> StreamBatches:
        """With one more batch written."""
        others = {name: number for name, number in self.last.items() if name != query}
        kept = list(others.items())[-(MOST_QUERIES - 1) :]
        return StreamBatches({**dict(kept), query: batch})
