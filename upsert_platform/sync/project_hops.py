"""The hops of a project's tables, whose changelogs are opened once for all who look at them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.source import Source
from upsert_platform.sync.binding import Binding, QuerySource, changelog_of
from upsert_platform.sync.changelog_hop import ChangelogHop
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.query_hop import QueryHop

if TYPE_CHECKING:
    from upsert_platform.changelog.lake import Lake
    from upsert_platform.changelog.store import ChangelogStore

_CHANGELOGS: Final = 100
"""Handles of changelogs that are kept: each holds the list of the changelog's files."""


class ProjectHops:
    """A bound project on its lake.

    Args:
        keeps: whether handles of changelogs are kept, and brought up to date at each look instead of being opened anew.
    """

    def __init__(self, binding: Binding, lake: Lake, *, keeps: bool = False) -> None:
        self.binding = binding
        self.lake = lake
        self._changelogs: OrderedDict[str, ChangelogStore] | None = OrderedDict() if keeps else None

    def changelog(self, source: Source | QuerySource) -> ChangelogStore:
        """Return the changelog of a source, or of a query."""
        store = changelog_of(source, self.lake)
        if self._changelogs is None:
            return store
        kept = self._changelogs.get(store.uri)
        if kept is None:
            store.keep_open()
            kept = self._changelogs[store.uri] = store
            if len(self._changelogs) > _CHANGELOGS:
                self._changelogs.popitem(last=False)
        self._changelogs.move_to_end(store.uri)
        return kept

    def changelog_hop(self, name: str, *, run: str) -> ChangelogHop:
        """Return the hop from the topics of a declared table to its changelog."""
        source = self.binding.sources[name]
        return ChangelogHop(source, self.changelog(source), run=run)

    def query_hop(self, name: str, *, run: str) -> QueryHop:
        """Return the hop from the changelogs that a query reads to its result."""
        return self.binding.query_hop(name, self.lake, run=run)

    def destination_hop(self, name: str, *, run: str) -> DestinationHop:
        """Return the hop to a declared destination table; the caller closes its destination."""
        bound = self.binding.targets[name]
        refused = RefusedStore(self.lake.refused(name))
        return DestinationHop(bound, self.changelog(bound.source), bound.open(), refused=refused, run=run)
