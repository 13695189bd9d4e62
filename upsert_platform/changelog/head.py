"""The head of a changelog: its last batch, the positions after it, and the text in which commits carry both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from upsert_platform.core.errors import ChangelogError

if TYPE_CHECKING:
    from deltalake import DeltaTable

ID_PROPERTY: Final = "upsert.changelog.id"
MODE_PROPERTY: Final = "upsert.changelog.mode"
FLOOR_PROPERTY: Final = "upsert.changelog.floor"
ERASED_PROPERTY: Final = "upsert.changelog.erased"
"""The batch of the last erasure, whose delete is gone. Earlier versions kept it as the floor."""
HISTORY_PROPERTY: Final = "upsert.changelog.history"
"""The batch up to which history was reduced to the last row per key: what a key was before it is not known any more."""
KEY_PROPERTY: Final = "upsert.changelog.key"
"""JSON list of the primary key's columns, in order. Changelogs of earlier versions get it with their next batch."""
HISTORY_DEPTH: Final = 200
"""How far back a commit with our metadata is looked for; only the VACUUM of other programs makes commits without it."""
_BETWEEN: Final = 3
"""Commits without a batch that are expected behind the commit of the last one: notes, merges."""


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions per topic at which reading continues.

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


BEGUN: Final = ":begun"
"""Ends the name under which a write notes the commit that it begins with; see `Destination.commits_in_parts`."""


def applied_name(consumer: str) -> str:
    """Return the name of the transactions that note up to which batch a consumer has applied the changelog."""
    return f"applied:{consumer}"


class Applied(NamedTuple):
    """A batch that a consumer holds.

    Attributes:
        commit: identity of the batch's commit (`Head.run`); empty if a version of the platform noted it that kept none.
    """

    batch: int
    commit: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """State of a changelog after its last commit.

    Attributes:
        changelog_id: made when the changelog is created.
        batch: number of the last batch, 0 before the first.
        run: name of the attempt that committed it, which no other commit has: the identity of the batch.
        floor: tombstones up to this batch may be gone, by a compaction; a destination that applied some batches, but
            not this one, cannot read on.
        held: the commit that each consumer noted last (`upkeep.note_applied`). Every later commit carries it on, so the
            identity of a batch is known after the log has lost the batch's own commit.
        erased: the batch by which the last erasure deleted its key; that delete may be gone, and no other one.
    """

    changelog_id: str
    batch: int
    positions: Positions
    run: str = ""
    floor: int = 0
    held: Mapping[str, Applied] = field(default_factory=dict)
    erased: int = 0

    @property
    def needed(self) -> int:
        """Return the batch that a consumer must have applied if it has applied any: deletes up to it may be gone."""
        return max(self.floor, self.erased)


def commit_text(record: Mapping[str, Any]) -> str:
    """A commit's userMetadata."""
    return json.dumps({"upsert_platform": record}, separators=(",", ":"))


def commit_record(text: str | None) -> dict[str, Any] | None:
    """Return the record that the platform wrote into a commit, or None for a commit of another writer."""
    if not text:
        return None
    try:
        record = json.loads(text).get("upsert_platform")
    except (ValueError, AttributeError):
        return None
    return record if isinstance(record, dict) else None


def head_of_record(record: Mapping[str, Any], *, changelog_id: str, floor: int, erased: int = 0) -> Head:
    """The state after a commit that tells this of itself."""
    offsets = {
        topic: {int(partition): end for partition, end in partitions.items()}
        for topic, partitions in record["offsets"].items()
    }
    held = {name: Applied(*noted) for name, noted in record.get("held", {}).items()}
    positions = Positions(offsets, record["topic_ids"])
    return Head(changelog_id, record["batch"], positions, record["run"], floor, held, erased)


def record_of_head(head: Head) -> dict[str, Any]:
    """Return what a commit that adds no batch says of the state: the inverse of `head_of_record`."""
    positions = head.positions
    record = {"batch": head.batch, "run": head.run, "offsets": positions.offsets, "topic_ids": positions.topic_ids}
    return {**record, **({"held": head.held} if head.held else {})}


def commit_of_batch(delta: DeltaTable, head: Head, batch: int) -> str | None:
    """Return the identity of a batch's commit; None where the log has lost it and no consumer noted it.

    Args:
        delta: the table whose state `head` is.
    """
    if batch >= head.batch:
        return head.run if batch == head.batch else None
    noted = (item.commit for item in head.held.values() if item.batch == batch)
    if known := next(filter(None, noted), None):
        return known
    # Each commit is a file to read, and a consumer is mostly few batches behind.
    for depth in (_BETWEEN + 2 * (head.batch - batch), None):
        for commit in delta.history(depth):
            record = commit_record(commit.get("userMetadata"))
            if record is not None and record["batch"] <= batch:
                return record["run"] if record["batch"] == batch else None
    return None


def read_head(delta: DeltaTable, *, name: str, uri: str, mode: str) -> Head:
    """The state after the last commit of an opened table.

    Args:
        name: of the declared table, and `uri` of its changelog, for messages.
        mode: that is needed.

    Raises:
        ChangelogError: the table is not a changelog of the platform, has another mode, or its position is lost.
    """
    properties = delta.metadata().configuration
    changelog_id = properties.get(ID_PROPERTY)
    if changelog_id is None:
        raise ChangelogError(f"{uri} is a Delta table, but not a changelog: it lacks the property {ID_PROPERTY}")
    declared = properties.get(MODE_PROPERTY, "upsert")
    if declared != mode:
        raise ChangelogError(
            f"the changelog of '{name}' at {uri} was made in mode '{declared}', and its consumers now need mode"
            f" '{mode}'; to have it built anew from the topic: 'upsert-platform reset {name} --drop-target'"
        )
    batch = delta.transaction_version(changelog_id) or 0
    floor, erased = (int(properties.get(name, 0)) for name in (FLOOR_PROPERTY, ERASED_PROPERTY))
    if batch == 0:
        return Head(changelog_id, 0, Positions())
    # Each commit of a history is a file to read, and the last one nearly always tells.
    for commit in chain.from_iterable(delta.history(depth) for depth in (1, HISTORY_DEPTH)):
        record = commit_record(commit.get("userMetadata"))
        if record is not None and record["batch"] == batch:
            return head_of_record(record, changelog_id=changelog_id, floor=floor, erased=erased)
    raise ChangelogError(
        f"batch {batch} of the changelog at {uri} is committed, but none of its last {HISTORY_DEPTH} commits tells the"
        " offsets after it; restore the table's log, or move it away to have it built anew"
    )
