"""The part of a sync that some tables need: the assets that follow from them, and the checks of those."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import dagster as dg

from upsert_platform.core.model import Project
from upsert_platform.graph import keys
from upsert_platform.graph.keys import AssetKeys
from upsert_platform.sync.connectors import topic_writers
from upsert_platform.sync.freshness import FreshnessLimits


@dataclass(frozen=True)
class Affected:
    """A part of a project.

    Attributes:
        sources: tables that are read.
        queries: names of queries, in order of declaration.
        targets: tables that are written.
    """

    project: Project
    sources: tuple[str, ...]
    queries: tuple[str, ...]
    targets: tuple[str, ...]

    def assets(self, names: AssetKeys) -> list[dg.AssetKey]:
        """Keys of the changelogs, queries and tables."""
        return [
            *(names.changelog_key(name) for name in self.sources),
            *(names.query_key(name) for name in self.queries),
            *(names.destination_key(name) for name in self.targets),
        ]

    def checks(self, names: AssetKeys) -> list[dg.AssetCheckKey]:
        """Keys of the checks that a sync makes of them; those that a project has beside are jobs of their own."""
        found = []
        for name in self.sources:
            key = names.changelog_key(name)
            found += [dg.AssetCheckKey(key, keys.CHECK_ACCOUNTED), dg.AssetCheckKey(key, keys.CHECK_QUARANTINE)]
        for name in self.targets:
            key = names.destination_key(name)
            found.append(dg.AssetCheckKey(key, keys.CHECK_LAST_VALUE))
            if FreshnessLimits.of(self.project.tables[name]) is not None:
                found.append(dg.AssetCheckKey(key, keys.CHECK_FRESHNESS))
        return found


def following(
    project: Project, due: Iterable[str], *, without: Collection[str] = (), unread: Collection[str] = ()
) -> Affected:
    """The tables with new records, and everything that follows from them, through topics that the project writes too.

    Args:
        due: tables that are read.
        without: tables that are not written now.
        unread: tables that are not read now, whatever writes their topics.
    """
    writers = topic_writers(project)
    sources, targets = dict.fromkeys(due), dict[str, None]()
    while True:
        before = len(sources) + len(targets)
        for insert in project.inserts:
            if insert.target in project.tables and insert.target not in without and sources.keys() & set(insert.tables):
                targets[insert.target] = None
        for name, written in writers.items():
            if name not in unread and targets.keys() & set(written):
                sources[name] = None
        if len(sources) + len(targets) == before:
            break
    return _part(project, sources, targets)


def written(project: Project, targets: Iterable[str]) -> Affected:
    """Tables that are written with their queries, from the changelogs as they are."""
    return _part(project, (), dict.fromkeys(targets))


def _part(project: Project, sources: Iterable[str], targets: Collection[str]) -> Affected:
    queries = dict.fromkeys(
        insert.query.name for insert in project.inserts if insert.query is not None and insert.target in targets
    )
    order = [name for name in dict.fromkeys(insert.target for insert in project.inserts) if name in targets]
    return Affected(project, tuple(sources), tuple(queries), tuple(order))
