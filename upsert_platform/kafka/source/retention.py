"""Records that a topic may delete before they are read: the age of what is unread against the retention.

Kafka deletes whole segments, by their newest record, so a record stays at least as long as is reckoned with here. What
a limit of bytes (``retention.bytes``) deletes cannot be foreseen; it is told once it is gone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from upsert_platform.core.source import Unread
from upsert_platform.kafka.endpoint import REQUEST_SECONDS, ClusterAdmin
from upsert_platform.kafka.leaders import Place, ask_offsets
from upsert_platform.kafka.source.offsets import CommittedPositions, PartitionOffsets, discover
from upsert_platform.kafka.table import KafkaTable

_WARN_SHARE: Final = 2
_FAIL_SHARE: Final = 10


def unread_records(
    table: KafkaTable, positions: CommittedPositions, *, warn: timedelta | None, fail: timedelta | None
) -> list[Unread]:
    """See `upsert_platform.core.source.ForeseesLoss.unread`."""
    waiting: dict[Place, tuple[int, PartitionOffsets]] = {}
    for topic in discover(table):
        for item in topic.partitions:
            start = positions.offsets.get(topic.name, {}).get(item.partition, item.low)
            if start < item.end:
                waiting[topic.name, item.partition] = (start, item)
    if not waiting:
        return []
    with table.endpoint.admin() as admin:
        allowed = {name: kept_for(admin, name) for name in {topic for topic, _ in waiting}}
        timed = {place: limit for place in waiting if (limit := allowed[place[0]]) is not None}
        warned = _first_younger(admin, {place: limit - (warn or limit / _WARN_SHARE) for place, limit in timed.items()})
        failing = _first_younger(
            admin, {place: limit - (fail or limit / _FAIL_SHARE) for place, limit in timed.items()}
        )
    found = []
    for place, (start, item) in waiting.items():
        first = max(start, item.low)
        soon = _between(first, failing.get(place, first), item.end)
        later = _between(first, warned.get(place, first), item.end)
        found.append(
            Unread(*place, item.low - start if item.low > start else 0, soon, max(0, later - soon), allowed[place[0]])
        )
    return found


def kept_for(admin: ClusterAdmin, topic: str) -> timedelta | None:
    """Return the minimum retention of a topic's records, tombstones included; None if it is unlimited.

    Raises:
        EndpointError: the brokers do not answer, or do not tell.
    """
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)
    (future,) = admin.client.describe_configs([resource], request_timeout=REQUEST_SECONDS).values()
    config = admin.result(future, f"describing the configuration of topic '{topic}'")
    policy = config["cleanup.policy"].value or ""
    limits = []
    if "delete" in policy:
        limits.append(int(config["retention.ms"].value or -1))
    if "compact" in policy:
        # A tombstone that goes unread is a delete that nobody sees.
        limits.append(int(config["delete.retention.ms"].value or -1))
    found = [limit for limit in limits if limit >= 0]
    return timedelta(milliseconds=min(found)) if found else None


def _first_younger(admin: ClusterAdmin, ages: Mapping[Place, timedelta]) -> dict[Place, int]:
    """The first offset of each partition whose record is younger; the greatest number where all are older."""
    from confluent_kafka.admin import OffsetSpec

    if not ages:
        return {}
    now = time.time() * 1000
    specs = {
        place: OffsetSpec.for_timestamp(int(max(0.0, now - age / timedelta(milliseconds=1))))
        for place, age in ages.items()
    }
    found = ask_offsets(admin, specs, committed=False)()
    return {place: offset if offset >= 0 else 2**63 - 1 for place, offset in found.items()}


def _between(first: int, upto: int, end: int) -> int:
    return max(0, min(upto, end) - first)
