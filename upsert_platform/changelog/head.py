"""Where a changelog stands: its last batch and the positions after it, and the text in which commits carry both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Positions:
    """Where reading goes on, per topic.

    Attributes:
        offsets: topic to partition to the first offset not read yet.
        topic_ids: topic to the id that the broker gave it; a new id means that the topic was recreated.
    """

    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def advanced(self, ends: Mapping[tuple[str, int], int], topic_ids: Mapping[str, str]) -> Positions:
        """These positions with the given ends (topic, partition) put in their place."""
        offsets = {topic: dict(partitions) for topic, partitions in self.offsets.items()}
        for (topic, partition), end in ends.items():
            offsets.setdefault(topic, {})[partition] = end
        return Positions(offsets, {**self.topic_ids, **topic_ids})


@dataclass(frozen=True, slots=True)
class Head:
    """State of a changelog after its last commit.

    Attributes:
        changelog_id: made when the changelog is created.
        batch: number of the last batch, 0 before the first.
        run: name of the run that committed it.
        floor: tombstones up to this batch may be gone; a destination that applied some batches, but not this one,
            cannot read on.
    """

    changelog_id: str
    batch: int
    positions: Positions
    run: str = ""
    floor: int = 0


def commit_text(record: Mapping[str, Any]) -> str:
    """A commit's userMetadata."""
    return json.dumps({"upsert_platform": record}, separators=(",", ":"))


def commit_record(text: str | None) -> dict[str, Any] | None:
    """What a commit tells of itself; None for a commit of others."""
    if not text:
        return None
    try:
        record = json.loads(text).get("upsert_platform")
    except (ValueError, AttributeError):
        return None
    return record if isinstance(record, dict) else None
