"""Offsets of partitions, asked for again while one has no leader: it was just made, or moves to another broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.errors import EndpointError
from upsert_platform.kafka.endpoint import REQUEST_SECONDS, ClusterAdmin
from upsert_platform.kafka.refusals import NO_LEADER

if TYPE_CHECKING:
    from confluent_kafka.admin import OffsetSpec

_PAUSE: Final = 0.1
_NONE_KNOWN: Final = "_NOENT"
"""What the client itself says of partitions of which the brokers name no leader."""
Place = tuple[str, int]
"""Topic and partition."""


def ask_offsets(
    admin: ClusterAdmin, specs: Mapping[Place, OffsetSpec], *, committed: bool
) -> Callable[[], dict[Place, int]]:
    """Sends one request for all partitions.

    Args:
        specs: which offset of each partition.
        committed: ``latest`` is the last stable offset, not the high watermark.

    Returns:
        A function that waits for the answer: an offset per partition, -1 where there is none. It raises EndpointError
        when the brokers refuse, or a partition has no leader for REQUEST_SECONDS, and TopicError when a topic or
        partition is unknown.
    """
    from confluent_kafka import IsolationLevel, TopicPartition

    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    deadline = time.monotonic() + REQUEST_SECONDS

    def send(places: Mapping[Place, OffsetSpec]) -> Mapping[Any, Future[Any]]:
        asked = {TopicPartition(*place): spec for place, spec in places.items()}
        return admin.client.list_offsets(asked, isolation_level=level, request_timeout=REQUEST_SECONDS)

    first = send(specs)

    def answer() -> dict[Place, int]:
        found: dict[Place, int] = {}
        futures = first
        while True:
            left: dict[Place, OffsetSpec] = {}
            for asked, future in futures.items():
                place = (asked.topic, asked.partition)
                try:
                    found[place] = int(admin.result(future, f"listing offsets of {place[0]}-{place[1]}").offset)
                except EndpointError:
                    if not _has_no_leader(future) or time.monotonic() >= deadline:
                        raise
                    left[place] = specs[place]
            if not left:
                return found
            time.sleep(_PAUSE)
            futures = send(left)

    return answer


def _has_no_leader(future: Future[Any]) -> bool:
    """Return whether that is what an answer says; False while there is none."""
    from confluent_kafka import KafkaException

    error = future.exception(timeout=0) if future.done() else None
    return isinstance(error, KafkaException) and error.args[0].name() in {*NO_LEADER, _NONE_KNOWN}
