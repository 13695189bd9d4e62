"""Counts of what happened to every offset of a range: nothing is dropped uncounted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of a partition to read: from `start` (inclusive) to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def offsets(self) -> int:
        """Return the number of offsets in the range, including those without a record."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class RangeAccount:
    """The account of one range of offsets: how many records were kept, superseded, quarantined, skipped or lost.

    Attributes:
        offsets: end - start of the range.
        records: records delivered by the broker in the range.
        gaps: offsets without a record: control and aborted records, compacted-away offsets.
        kept: records that gave changes (one record may give several rows, or none: then it counts as skipped).
        superseded: records replaced by a later record of the same raw key in the range.
        quarantined: records that could not be decoded, kept with their raw bytes.
        skipped: records that a named rule passes over, rule to count.
        rows: change rows that the kept records gave.
        tombstones: of the kept records, those without a value.
        bytes: of keys and values of the records.
        lost: of the gaps, offsets that were deleted before they were read (``on-data-loss = continue``).
    """

    topic: str
    partition: int
    start: int
    end: int
    records: int = 0
    gaps: int = 0
    kept: int = 0
    superseded: int = 0
    quarantined: int = 0
    skipped: tuple[tuple[str, int], ...] = ()
    rows: int = 0
    tombstones: int = 0
    bytes: int = 0
    lost: int = 0

    @property
    def offsets(self) -> int:
        """Return the number of offsets in the range."""
        return self.end - self.start

    @property
    def skipped_total(self) -> int:
        """Records passed over by all rules together."""
        return sum(count for _, count in self.skipped)

    def imbalance(self) -> str | None:
        """Return why the counts do not add up, or None if they do (design invariant: every offset is accounted for)."""
        if self.records + self.gaps != self.offsets:
            return f"{self.offsets} offsets are not {self.records} records + {self.gaps} gaps"
        parts = self.kept + self.superseded + self.quarantined + self.skipped_total
        if parts != self.records:
            return (
                f"{self.records} records are not {self.kept} kept + {self.superseded} superseded"
                f" + {self.quarantined} quarantined + {self.skipped_total} skipped"
            )
        return None

    def to_json(self) -> str:
        """The form stored in accounting rows."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> RangeAccount:
        """The inverse of to_json."""
        data = json.loads(text)
        data["skipped"] = tuple((rule, count) for rule, count in data["skipped"])
        return RangeAccount(**data)


def total(accounts: Iterable[RangeAccount]) -> RangeAccount:
    """The sums over ranges, with topic ``*``, partition -1, start 0 and end the number of offsets."""
    result = RangeAccount("*", -1, 0, 0)
    rules: dict[str, int] = {}
    for item in accounts:
        for rule, count in item.skipped:
            rules[rule] = rules.get(rule, 0) + count
        result = replace(
            result,
            end=result.end + item.offsets,
            records=result.records + item.records,
            gaps=result.gaps + item.gaps,
            kept=result.kept + item.kept,
            superseded=result.superseded + item.superseded,
            quarantined=result.quarantined + item.quarantined,
            rows=result.rows + item.rows,
            tombstones=result.tombstones + item.tombstones,
            bytes=result.bytes + item.bytes,
            lost=result.lost + item.lost,
        )
    return replace(result, skipped=tuple(sorted(rules.items())))


def ends_of_batches(accounts: Mapping[int, Iterable[RangeAccount]]) -> dict[int, dict[tuple[str, int], int]]:
    """Return where each batch ends: batch to topic and partition to offset, in the order of batches.

    Args:
        accounts: those of each batch from the changelog's first one on.
    """
    ends: dict[tuple[str, int], int] = {}
    found: dict[int, dict[tuple[str, int], int]] = {}
    for batch, items in sorted(accounts.items()):
        for item in items:
            # What reads no offset is accounted for under a name in parentheses: replays, erasures, batches of queries.
            if item.partition >= 0 and not item.topic.startswith("("):
                # Of a partition that was read in several ranges, these come in any order.
                place = item.topic, item.partition
                ends[place] = max(item.end, ends.get(place, 0))
        found[batch] = dict(ends)
    return found
