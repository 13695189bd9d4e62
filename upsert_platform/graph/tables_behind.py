"""Finds tables that are behind their changelogs though their topics bring nothing, whatever has left them so.

A run that was killed or ended by hand between a changelog and its table, one of the changelog alone, a command that
commits a batch: nothing of these is a new offset. A look of the sensor costs a project of idle tables no question more:
what a table has applied is noted in its changelog, whose head is read anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from upsert_platform.core.error_catalogue import shown
from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.sync.looks import Asked, Kind, Look, Looks

if TYPE_CHECKING:
    from upsert_platform.changelog.store import Head
    from upsert_platform.core.model import Insert, Project
    from upsert_platform.graph.resources import PlatformResource
    from upsert_platform.graph.sensor_state import SensorState

ASKED_ANEW_SECONDS: Final = 600.0
"""So long after its last answer a table is asked again without any reason: it may have been dropped, or reset."""
AT_A_LOOK: Final = 20
"""Tables that one look asks at most; those whose answer is the oldest come first."""
_ASKING_SECONDS: Final = 15.0
"""Within which requests to tables have to end: what is away must not take the time of a tick, which Dagster ends after
a minute."""

_TURN_SECONDS: Final = 0.001


@dataclass(frozen=True)
class Answers:
    """Answers of the tables that a look asked.

    Attributes:
        behind: tables that a run would bring further.
        unread: what kept tables from being asked, to their names.
    """

    behind: Sequence[str] = ()
    unread: Mapping[str, list[str]] = field(default_factory=dict)


class TablesBehind:
    """Asks tables of a project, as `sync` does before it starts a run, where there is a reason.

    Args:
        targets: tables that may be asked.
    """

    def __init__(self, project: Project, targets: Sequence[str]) -> None:
        self._inserts = {insert.target: insert for insert in project.inserts if insert.target in targets}

    def ask(
        self,
        platform: PlatformResource,
        heads: Mapping[str, Head | None],
        state: SensorState,
        *,
        now: float,
        without: Collection[str] = (),
        again: Collection[str] = (),
    ) -> Answers:
        """Ask tables that have a reason to be asked, and note that in the state.

        Reasons are a changelog with a batch that the table, or its query, has not noted there; a run that was no
        success since the table's last answer; an answer that is old.

        Args:
            heads: table that is read to the head of its changelog, of those that could be read.
            without: tables that are not asked.
            again: tables that were behind, and are asked without any other reason.
        """
        batches = {name: _batches(insert, heads) for name, insert in self._inserts.items() if name not in without}
        unnoted = {name for name in batches if _has_unnoted(self._inserts[name], heads)}
        wanted = state.to_ask(batches, unnoted, since=now - ASKED_ANEW_SECONDS, again=again)[:AT_A_LOOK]
        if not wanted:
            return Answers()
        try:
            hops = platform.hops()
        except UpsertPlatformError as error:  # nothing of the project can be read
            return Answers(unread={shown(error): wanted})
        items = {name: _asked(self._inserts[name]) for name in wanted}
        every = list(dict.fromkeys(item for found in items.values() for item in found))
        looks = Looks(hops).of(every, seconds=_ASKING_SECONDS)
        behind, unread = [], dict[str, list[str]]()
        for place, (name, asked) in enumerate(items.items()):
            state.asked[name] = now, batches[name]
            found = [looks[item] for item in asked]
            failed = next((look.work for look in found if look.failed), "")
            if failed:
                # Behind those that answered, and the last first: whom the time of this look was too short for comes
                # before whoever used it up.
                state.asked[name] = now + (len(items) - place) * _TURN_SECONDS, batches[name]
                unread.setdefault(failed, []).append(name)
            elif any(look.work for look in found) and not _is_paused(found):
                behind.append(name)
            else:
                state.tried.pop(name, None)
        return Answers(behind, unread)


def _is_paused(looks: Sequence[Look]) -> bool:
    return any(look.note for look in looks)


def _asked(insert: Insert) -> list[Asked]:
    table = Asked(Kind.TABLE, insert.target)
    return [table] if insert.query is None else [Asked(Kind.QUERY, insert.query.name), table]


def _batches(insert: Insert, heads: Mapping[str, Head | None]) -> int:
    """Return how many batches the changelogs have that a table is made of."""
    return sum(head.batch for name in insert.tables if (head := heads.get(name)) is not None)


def _has_unnoted(insert: Insert, heads: Mapping[str, Head | None]) -> bool:
    consumer = insert.target if insert.query is None else insert.query.name
    found = [head for name in insert.tables if (head := heads.get(name)) is not None]
    return any(consumer not in head.held or head.held[consumer].batch < head.batch for head in found if head.batch)
