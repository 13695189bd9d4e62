"""The part of a long backlog that a batch reads: all partitions up to about the same time.

A key that moved when its topic was widened has records in two partitions, and a later batch counts. Were the partitions
of a long backlog cut by numbers of records, the old partition's tail would come behind the newer value in the new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.kafka.leaders import Place

_ENOUGH: Final = 0.9
"""Share of the most that a batch may read from which no better time is looked for."""
_AIM: Final = 0.95
_MINUTE_MS: Final = 60_000
_FURTHER: Final = 8
"""Each look back goes so many times as far as the one before, until a time is old enough."""

OffsetsAt = Callable[[int], Mapping[Place, int]]


def cut_by_time(backlog: Sequence[OffsetRange], *, most: int, offsets_at: OffsetsAt) -> tuple[OffsetRange, ...]:
    """Return the first part of each range: records older than a time, and a part of those of that very time.

    Args:
        backlog: more offsets than `most`.
        most: offsets that are read; at least one for each range.
        offsets_at: for a time (ms since 1970) the first offset of each partition whose record is not older; a number
            below 0 where there is none.
    """
    before = {_place(item): item.start for item in backlog}
    after = {_place(item): item.end for item in backlog}
    low, high = 0, int(time.time() * 1000) + _MINUTE_MS
    below, above = 0, sum(item.offsets for item in backlog)
    step, evenly = _MINUTE_MS, True
    # A record may be older than one before it, so what is found for a later time is never less.
    while high - low > 1:
        if low == 0:
            middle, step = max(high - step, 1), step * _FURTHER
        else:  # where records come evenly the first guess is right; half of the time is left after every second one
            share = (most * _AIM - below) / (above - below) if evenly else 0.5
            middle, evenly = min(max(low + int((high - low) * share), low + 1), high - 1), not evenly
        found = offsets_at(middle)
        cut = {}
        for item in backlog:
            at = found[_place(item)]
            cut[_place(item)] = min(max(at if at >= 0 else item.end, before[_place(item)]), after[_place(item)])
        count = sum(cut[_place(item)] - item.start for item in backlog)
        if count > most:
            high, after, above = middle, cut, count
            continue
        low, before, below = middle, cut, count
        if count >= most * _ENOUGH:
            return tuple(OffsetRange(*_place(item), item.start, cut[_place(item)]) for item in backlog)
    # The records between are of one millisecond, or have no time.
    left = most - sum(before[_place(item)] - item.start for item in backlog)
    within = [OffsetRange(*_place(item), before[_place(item)], after[_place(item)]) for item in backlog]
    more = shared(within, left)
    return tuple(OffsetRange(*_place(item), item.start, before[_place(item)] + more[_place(item)]) for item in backlog)


def shared(ranges: Sequence[OffsetRange], left: int) -> dict[Place, int]:
    """Divide a number of offsets evenly among ranges: a short one leaves its share to the others."""
    shares: dict[Place, int] = {}
    by_length = sorted(ranges, key=lambda item: item.offsets)
    for index, item in enumerate(by_length):
        share = min(item.offsets, left // (len(by_length) - index))
        shares[_place(item)] = share
        left -= share
    return shares


def _place(item: OffsetRange) -> Place:
    return item.topic, item.partition
