"""The end of the topics at which a table is proven: the applied offsets, the latest ones, stated offsets, or a time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from upsert_platform.errors import TopicError
from upsert_platform.hops.replay_start import start_of
from upsert_platform.source import ReplaysFrom, Start

Ends = Mapping[tuple[str, int], int]
"""Topic and partition to the first offset that is not read."""
APPLIED: Final = "applied"
LATEST: Final = "latest"
_OFFSET: Final = re.compile(r"(?:(?P<topic>[\w.-]+)-)?(?P<partition>\d+):(?P<offset>\d+)")
_FORMS: Final = "'applied', 'latest', offsets such as 0:42,1:17 or orders-0:42, or a time such as 2026-11-01T12:00:00Z"


@dataclass(frozen=True, slots=True)
class At:
    """A stated end.

    Attributes:
        word: ``applied`` or ``latest``; empty where offsets or a time are stated.
        offsets: topic (empty where none is named), partition and offset.
        timestamp: milliseconds since 1970: records before it count.
    """

    word: str = ""
    offsets: tuple[tuple[str, int, int], ...] = ()
    timestamp: int | None = None

    @staticmethod
    def parse(text: str) -> At:
        """Return the end that a text states.

        Raises:
            TopicError: it states none.
        """
        stated = text.strip()
        if stated in (APPLIED, LATEST):
            return At(stated)
        items = [_OFFSET.fullmatch(item.strip()) for item in stated.split(",")]
        if all(items):
            found = [(item["topic"] or "", int(item["partition"]), int(item["offset"])) for item in items if item]
            return At(offsets=tuple(found))
        try:
            return At(timestamp=start_of(timestamp=stated).timestamp)
        except Exception as error:
            raise TopicError(f"'{text}' is no end of a topic; give {_FORMS}") from error


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
    return stated_ends(at, latest, table=source.table.name) if at.offsets else latest


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
