"""The end of the topics at which a table is proven: applied, latest or stated offsets, those of a group, or a time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from upsert_platform.core.errors import ChangelogError, TopicError
from upsert_platform.core.source import ReplaysFrom, Start
from upsert_platform.kafka.source.offsets import group_offsets
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.sync.replay_start import start_of

Ends = Mapping[tuple[str, int], int]
"""Topic and partition to the first offset that is not read."""
APPLIED: Final = "applied"
LATEST: Final = "latest"
_OFFSET: Final = re.compile(r"(?:(?P<topic>[\w.-]+)-)?(?P<partition>\d+):(?P<offset>\d+)")
_GROUP: Final = "group:"
_FORMS: Final = (
    "'applied', 'latest', 'group:NAME', offsets such as 0:42,1:17 or orders-0:42, or a time such as"
    " 2026-11-01T12:00:00Z"
)


@dataclass(frozen=True, slots=True)
class At:
    """A stated end.

    Attributes:
        word: ``applied`` or ``latest``; empty where offsets or a time are stated.
        offsets: topic (empty where none is named), partition and offset.
        timestamp: milliseconds since 1970: records before it count.
        group: a consumer group, whose committed offsets count.
    """

    word: str = ""
    offsets: tuple[tuple[str, int, int], ...] = ()
    timestamp: int | None = None
    group: str = ""

    @property
    def form(self) -> str:
        """Return the form of the stated end: ``applied``, ``latest``, ``group``, ``offsets`` or ``time``."""
        return self.word or ("group" if self.group else "offsets" if self.offsets else "time")

    @staticmethod
    def parse(text: str) -> At:
        """Return the end that a text states.

        Raises:
            TopicError: it states none.
        """
        stated = text.strip()
        if stated in (APPLIED, LATEST):
            return At(stated)
        if stated.startswith(_GROUP) and stated != _GROUP:
            return At(group=stated.removeprefix(_GROUP).strip())
        items = [_OFFSET.fullmatch(item.strip()) for item in stated.split(",")]
        if all(items):
            found = [(item["topic"] or "", int(item["partition"]), int(item["offset"])) for item in items if item]
            return At(offsets=tuple(found))
        try:
            return At(timestamp=start_of(timestamp=stated).timestamp)
        except ChangelogError as error:
            raise TopicError(f"'{text}' is no end of a topic; give {_FORMS}") from error


def ends_of_sources(at: At, sources: Mapping[str, ReplaysFrom]) -> dict[str, Ends]:
    """Return where reading each source ends, by declared name.

    Args:
        at: anything but ``applied``.

    Raises:
        TopicError: the offsets leave a partition out, lie behind its end, or may be of several topics.
        EndpointError: the brokers do not answer.
    """
    unnamed = next((f"{partition}:{offset}" for topic, partition, offset in at.offsets if not topic), None)
    if unnamed is not None and len(sources) > 1:
        raise TopicError(
            f"{unnamed} may be of {len(sources)} tables that are read, {', '.join(sources)}: name the topic of each"
            f" offset, such as TOPIC-{unnamed}"
        )
    return {name: ends_at(at, source, source.discover()) for name, source in sources.items()}


def ends_at(at: At, source: ReplaysFrom, streams: Sequence[Any]) -> Ends:
    """Return where reading a source ends.

    Args:
        at: offsets, a time, or the latest end.
        streams: as `Source.discover` gave them.

    Raises:
        TopicError: the offsets leave a partition out, or lie behind its end.
        EndpointError: the brokers do not answer.
    """
    latest = {(stream.name, lane.partition): lane.end for stream in streams for lane in stream.partitions}
    if at.timestamp is not None:
        from upsert_platform.changelog.head import Positions

        behind = source.starting(Start(timestamp=at.timestamp)).backlog(streams, Positions())
        return {**latest, **{(item.topic, item.partition): item.start for item in behind}}
    if at.group:
        return _group_ends(at.group, source, latest)
    return stated_ends(at, latest, table=source.table.name) if at.offsets else latest


def _group_ends(group: str, source: ReplaysFrom, latest: Ends) -> Ends:
    """Return the offsets that a consumer group has committed for every partition of a source.

    Raises:
        TopicError: it has none for a partition that has records.
    """
    assert isinstance(source, TopicSource)
    found = group_offsets(source.kafka, latest, group=group)
    for (topic, partition), end in latest.items():
        if (topic, partition) not in found and end:
            raise TopicError(
                f"table '{source.table.name}': consumer group '{group}' has committed no offset for"
                f" {topic}-{partition}, which ends at {end}: state the offsets themselves"
            )
    return {place: found.get(place, end) for place, end in latest.items()}


def stated_ends(at: At, latest: Ends, *, table: str) -> Ends:
    """Return the offsets that are stated for the partitions of a source.

    Args:
        latest: the ends of all its partitions.

    Raises:
        TopicError: a partition is left out, or its offset lies behind its end.
    """
    topics = {topic for topic, _ in latest}
    ends: dict[tuple[str, int], int] = {}
    for topic, partition, offset in at.offsets:
        if not topic and len(topics) > 1:
            raise TopicError(
                f"table '{table}' reads {len(topics)} topics: name the topic of each offset, such as"
                f" {min(topics)}-{partition}:{offset}"
            )
        place = (topic or min(topics), partition)
        if place in latest and offset > latest[place]:
            raise TopicError(
                f"table '{table}': {place[0]}-{partition} ends at offset {latest[place]}, before the stated {offset}"
            )
        ends[place] = offset
    left_out = sorted(set(latest) - set(ends))
    if left_out:
        topic, partition = left_out[0]
        raise TopicError(
            f"table '{table}': no offset is stated for {topic}-{partition}, which ends at {latest[left_out[0]]}: state"
            f" one for each partition, such as {','.join(f'{number}:{end}' for (_, number), end in latest.items())}"
        )
    return {place: ends[place] for place in latest}
