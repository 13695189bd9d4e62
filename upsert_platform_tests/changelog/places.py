"""Random rows of a changelog with clocks that go back, and what must come of them: a model that looks at offsets."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Placed:
    """A record: where it is, its time, and what it says of a key (None: deleted)."""

    batch: int
    partition: int
    offset: int
    at: datetime | None
    key: int
    value: str | None


def random_records(chance: random.Random, *, keys: int, batches: int, partitions: int, each: int) -> list[Placed]:
    """Records of a topic, read in batches: times go up and down, some are equal, some are missing."""
    found: list[Placed] = []
    ends = [0] * partitions
    for batch in range(1, batches + 1):
        for _ in range(each):
            partition = chance.randrange(partitions)
            at = None if chance.random() < 0.05 else NOON + timedelta(seconds=chance.randrange(6))
            value = None if chance.random() < 0.25 else f"{batch}/{partition}/{ends[partition]}"
            found.append(Placed(batch, partition, ends[partition], at, chance.randrange(keys), value))
            ends[partition] += chance.choice((1, 1, 3))
    return found


def last_values(records: Iterable[Placed]) -> dict[int, str | None]:
    """The value of every key that was met; None where it was deleted last."""
    by_key: dict[int, dict[int, Placed]] = defaultdict(dict)
    for record in records:
        of_partition = by_key[record.key]
        met = of_partition.get(record.partition)
        if met is None or record.offset > met.offset:
            of_partition[record.partition] = record
    return {key: _between(of_partition.values()).value for key, of_partition in by_key.items()}


def _between(last: Iterable[Placed]) -> Placed:
    """Of the last records of partitions: the later batch, then the later time (a missing one is early), then place."""
    candidates = list(last)
    newest = max(record.batch for record in candidates)
    candidates = [record for record in candidates if record.batch == newest]
    timed = [record for record in candidates if record.at is not None]
    latest = max((record.at for record in timed if record.at is not None), default=None)
    winners = [record for record in timed if record.at == latest] or candidates
    return next(record for record in winners if record.partition == max(item.partition for item in winners))


def batches_of(records: Iterable[Placed]) -> Iterator[tuple[int, list[Placed]]]:
    """Batch numbers and their records, ascending."""
    found: dict[int, list[Placed]] = defaultdict(list)
    for record in records:
        found[record.batch].append(record)
    yield from sorted(found.items())
