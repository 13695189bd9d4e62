"""Plans what to read: discovers partitions and their ends, compares them with the committed position, bounds a batch.

Needs no Spark. The end of a partition is the last stable offset (`isolation.level` = read_committed), so a batch never
waits for an open transaction.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.errors import EndpointError, TopicError
from upsert_platform.kafka.endpoint import REQUEST_SECONDS, TOO_OLD, ClusterAdmin
from upsert_platform.kafka.leaders import Place, ask_offsets
from upsert_platform.kafka.modes import BoundedMode, OnDataLoss, StartupMode
from upsert_platform.kafka.options import CONTROL_TOPIC
from upsert_platform.kafka.source.time_cut import cut_by_time, shared
from upsert_platform.kafka.table import KafkaTable

ASSUMED_RECORD_BYTES: Final = 1024.0
"""Size of a record while no batch has told it, for `batch.max-bytes`."""
_INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_MOVING_STARTS: Final = (StartupMode.LATEST, StartupMode.GROUP)
_PUBLISHES: Final = "upsert_platform, found at {}"
"""Metadata of an offset that the platform publishes to a group, with the one that it found there; -1 for none."""
_PUBLISHED: Final = re.compile(_PUBLISHES.format(r"(-?\d+)"))
_REBUILD: Final = "to have all built anew: 'upsert-platform reset {} --drop-target'"
_log = logging.getLogger(__name__)


class CommittedPositions(Protocol):
    """The positions at which reading continues, from a changelog.

    Attributes:
        offsets: topic to partition to the first offset not read yet.
        topic_ids: topic to the id that the broker gave it.
    """

    @property
    def offsets(self) -> Mapping[str, Mapping[int, int]]: ...

    @property
    def topic_ids(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Offsets of a partition that can be read: from `low` (inclusive) to `end` (exclusive)."""

    partition: int
    low: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """A topic as the brokers describe it.

    Attributes:
        topic_id: given by the broker when the topic was created; empty on brokers before 2.8.
    """

    name: str
    topic_id: str
    partitions: tuple[PartitionOffsets, ...]


def discover(table: KafkaTable) -> tuple[TopicOffsets, ...]:
    """Return the readable offsets of a table's topics, by name and partition.

    Raises:
        TopicError: a topic does not exist, or none matches the pattern.
        EndpointError: the brokers cannot be reached, or refuse the login or the request.
    """
    with table.endpoint.admin() as admin:
        return _discover(admin, table)


def _discover(admin: ClusterAdmin, table: KafkaTable) -> tuple[TopicOffsets, ...]:
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import OffsetSpec

    names = _topic_names(admin, table)
    described = admin.client.describe_topics(TopicCollection(names), request_timeout=REQUEST_SECONDS)
    topics = {name: admin.result(future, f"describing topic '{name}'") for name, future in described.items()}
    places = [(name, info.id) for name in sorted(names) for info in topics[name].partitions]
    both = [
        ask_offsets(admin, dict.fromkeys(places, spec), committed=_reads_committed(table))
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    ]
    starts, ends = (answer() for answer in both)
    if any(offset < 0 for offset in (*starts.values(), *ends.values())):
        raise EndpointError(
            f"Kafka {table.settings.bootstrap_servers}: the brokers do not tell where topics end; {TOO_OLD}"
        )
    return tuple(
        TopicOffsets(
            name,
            str(topics[name].topic_id or ""),
            tuple(
                PartitionOffsets(info.id, starts[name, info.id], ends[name, info.id])
                for info in sorted(topics[name].partitions, key=lambda item: item.id)
            ),
        )
        for name in sorted(names)
    )


def _topic_names(admin: ClusterAdmin, table: KafkaTable) -> list[str]:
    settings = table.settings
    if settings.topic_pattern is None:
        wanted = list(dict.fromkeys(settings.topic))
        for name in wanted:
            if not admin.has_topic(name):
                raise TopicError(
                    f"table '{table.name}': topic '{name}' does not exist on {table.settings.bootstrap_servers}; create"
                    " it, or correct 'topic': 'upsert-platform discover' lists the topics that are there"
                )
        return wanted
    pattern = re.compile(settings.topic_pattern)
    found = [name for name in admin.topics().topics if pattern.fullmatch(name) and not _is_internal(name)]
    if not found:
        raise TopicError(
            f"table '{table.name}': no topic on {table.settings.bootstrap_servers} matches 'topic-pattern' ="
            f" '{settings.topic_pattern}' as a whole"
        )
    return found


def _is_internal(name: str) -> bool:
    """Return whether a topic is Kafka's or the platform's own, which a pattern does not mean."""
    return name in _INTERNAL_TOPICS or f"{name}-".startswith(CONTROL_TOPIC)


def _reads_committed(table: KafkaTable) -> bool:
    """Return whether the end of a partition is its last stable offset for the table."""
    return table.properties.consumer.get("isolation.level") == "read_committed"


def plan_backlog(
    table: KafkaTable, topics: Sequence[TopicOffsets], positions: CommittedPositions
) -> tuple[OffsetRange, ...]:
    """Every offset after the committed position, up to the end (or the declared bound), by topic and partition.

    Partitions that are new since the last batch are read from their start (or from the declared timestamp or offset). A
    range is empty (start = end) only where a first plan finds the start at the end, and it is another one tomorrow
    (`scan.startup.mode` = latest-offset, group-offsets): committing it fixes the position.

    Raises:
        TopicError: a topic was recreated or truncated, or records were deleted before they were read and
            ``on-data-loss`` is ``fail``.
        EndpointError: the brokers cannot be reached.
    """
    first = not any(positions.offsets.values())
    _check_same_topics(table, topics, positions)
    unknown = any(
        item.partition not in positions.offsets.get(topic.name, {}) for topic in topics for item in topic.partitions
    )
    starts = _start_offsets(table, topics, first=first) if unknown else {}
    bounds = _bounds(table, topics)
    ranges = []
    for topic in topics:
        known = positions.offsets.get(topic.name, {})
        for item in topic.partitions:
            start = known.get(item.partition, starts.get((topic.name, item.partition), item.low))
            if start > item.end:
                _check_not_truncated(table, topic, item, start)
                continue
            if start < item.low:
                _report_loss(table, topic, item, start)
            end = min(item.end, bounds.get((topic.name, item.partition), item.end))
            if start < end or (first and start == end == item.end and table.settings.startup_mode in _MOVING_STARTS):
                ranges.append(OffsetRange(topic.name, item.partition, start, end))
    return tuple(ranges)


def _check_same_topics(table: KafkaTable, topics: Sequence[TopicOffsets], positions: CommittedPositions) -> None:
    before_all = sorted(name for name, offsets in positions.offsets.items() if offsets)
    declared = table.settings.topic
    if declared and before_all and not set(before_all) & set(declared):
        raise TopicError(
            f"table '{table.name}' reads {', '.join(map(repr, declared))}, and its changelog is of"
            f" {', '.join(map(repr, before_all))}: another project has a table of this name in the lake (give one of"
            f" them a lake of its own, or rename the table), or the topic was changed; {_REBUILD.format(table.name)}"
        )
    for topic in topics:
        before = positions.topic_ids.get(topic.name, "")
        if before and topic.topic_id and before != topic.topic_id:
            raise TopicError(
                f"table '{table.name}': topic '{topic.name}' was deleted and created anew (its id was {before}, now"
                f" {topic.topic_id}), so the committed offsets mean nothing in it; {_REBUILD.format(table.name)}"
            )
        partitions = {item.partition for item in topic.partitions}
        gone = sorted(set(positions.offsets.get(topic.name, {})) - partitions)
        if gone:
            raise TopicError(
                f"table '{table.name}': topic '{topic.name}' has {len(partitions)} partitions, but partition {gone[0]}"
                f" was read before: it was recreated; {_REBUILD.format(table.name)}"
            )


def _check_not_truncated(table: KafkaTable, topic: TopicOffsets, item: PartitionOffsets, start: int) -> None:
    """Distinguish a truncated log from a last stable offset that moved back because isolation.level was declared
    otherwise.
    """
    from confluent_kafka.admin import OffsetSpec

    with table.endpoint.admin() as admin:
        place = (topic.name, item.partition)
        high = ask_offsets(admin, {place: OffsetSpec.latest()}, committed=False)()[place]
    if high < start:
        raise TopicError(
            f"table '{table.name}': {topic.name}-{item.partition} ends at offset {high}, but was read up to {start}:"
            f" the topic was truncated or recreated; {_REBUILD.format(table.name)}"
        )


def _report_loss(table: KafkaTable, topic: TopicOffsets, item: PartitionOffsets, start: int) -> None:
    lost = (
        f"table '{table.name}': {topic.name}-{item.partition}: offsets {start} to {item.low - 1}"
        f" ({item.low - start} offsets) were deleted before they were read (retention, or records deleted by hand)"
    )
    if table.settings.on_data_loss is OnDataLoss.FAIL:
        raise TopicError(
            f"{lost}; {_REBUILD.format(table.name)}, or set 'on-data-loss' = 'continue' to go on at offset {item.low},"
            " the gap counted"
        )
    _log.warning("%s; going on, as 'on-data-loss' is 'continue'", lost)


def _start_offsets(table: KafkaTable, topics: Sequence[TopicOffsets], *, first: bool) -> dict[Place, int]:
    """Return the start offsets of partitions without a position that do not start at their first offset.

    Args:
        first: nothing was committed yet; a partition that appears later cannot start at its end, or where others who
            go by the name of the group have read it, without losing records.
    """
    settings = table.settings
    places = {(topic.name, item.partition): item for topic in topics for item in topic.partitions}
    match settings.startup_mode:
        case StartupMode.LATEST:
            return {place: item.end for place, item in places.items()} if first else {}
        case StartupMode.TIMESTAMP:
            assert settings.startup_timestamp is not None
            return _offsets_at(table, places, settings.startup_timestamp)
        case StartupMode.SPECIFIC:
            declared = dict(settings.startup_offsets)
            return {place: _within(item, declared[place[1]]) for place, item in places.items() if place[1] in declared}
        case StartupMode.GROUP:
            group = table.properties.group_id
            committed = group_offsets(table, places, group=group) if group and first else {}
            return {place: _within(places[place], offset) for place, offset in committed.items()}
    return {}


def _within(item: PartitionOffsets, offset: int) -> int:
    return min(max(offset, item.low), item.end)


def _bounds(table: KafkaTable, topics: Sequence[TopicOffsets]) -> dict[Place, int]:
    """Return the final end offsets; a partition without an entry has no bound."""
    settings = table.settings
    places = {(topic.name, item.partition): item for topic in topics for item in topic.partitions}
    match settings.bounded_mode:
        case BoundedMode.TIMESTAMP:
            assert settings.bounded_timestamp is not None
            return _offsets_at(table, places, settings.bounded_timestamp)
        case BoundedMode.SPECIFIC:
            declared = dict(settings.bounded_offsets)
            return {place: declared.get(place[1], 0) for place in places}
        case BoundedMode.GROUP:
            assert table.properties.group_id is not None
            committed = group_offsets(table, places, group=table.properties.group_id)
            missing = sorted(set(places) - set(committed))
            if missing:
                topic, partition = missing[0]
                raise TopicError(
                    f"table '{table.name}': 'scan.bounded.mode' = 'group-offsets', but group"
                    f" '{table.properties.group_id}' has committed no offset for {topic}-{partition}"
                )
            return committed
    return {}


def _offsets_at(table: KafkaTable, places: Mapping[Place, PartitionOffsets], timestamp: int) -> dict[Place, int]:
    """First offset whose record is not older than a time in ms; the end where there is none."""
    from confluent_kafka.admin import OffsetSpec

    with table.endpoint.admin() as admin:
        specs = dict.fromkeys(places, OffsetSpec.for_timestamp(timestamp))
        found = ask_offsets(admin, specs, committed=_reads_committed(table))()
    return {place: found[place] if found[place] >= 0 else item.end for place, item in places.items()}


def group_offsets(table: KafkaTable, places: Iterable[Place], *, group: str) -> dict[Place, int]:
    """Return the offsets that a consumer group has committed; partitions without one are left out.

    What the platform publishes there is for lag monitors: where it has, the offset that it found there counts.

    Raises:
        EndpointError: the brokers do not answer, or refuse the request.
    """
    with table.endpoint.admin() as admin:
        return {place: offset for place, offset in _found_in(admin, places, group).items() if offset >= 0}


def _found_in(admin: ClusterAdmin, places: Iterable[Place], group: str) -> dict[Place, int]:
    """Return the offsets that others have committed to a group, below 0 where they have none."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    deadline = time.monotonic() + REQUEST_SECONDS
    while True:
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(*place) for place in places])
        futures = admin.client.list_consumer_group_offsets([request], request_timeout=REQUEST_SECONDS)
        try:
            answer = admin.result(futures[group], f"listing offsets of group '{group}'")
            break
        except EndpointError as error:
            # A broker that was just started still reads its groups; it says so and is ready soon.
            if "COORDINATOR_LOAD_IN_PROGRESS" not in str(error) or time.monotonic() >= deadline:
                raise
            time.sleep(0.2)
    found = {}
    for item in answer.topic_partitions:
        noted = _PUBLISHED.fullmatch(item.metadata or "") if item.offset >= 0 else None
        found[item.topic, item.partition] = int(noted[1]) if noted else item.offset
    return found


def bound_batch(
    table: KafkaTable, backlog: Sequence[OffsetRange], *, record_bytes: float | None = None, widened: int = 1
) -> tuple[OffsetRange, ...]:
    """The first part of a backlog that fits a batch: of several partitions up to the same time.

    Args:
        record_bytes: mean size of a record of the batch before, for `batch.max-bytes`.
        widened: how many times the default bounds; those that are declared stay.
    """
    size = max(record_bytes or ASSUMED_RECORD_BYTES, 1.0)
    settings = table.settings
    most_records, most_bytes = (
        value if name in settings.model_fields_set else value * widened
        for name, value in (("max_records", settings.max_records), ("max_bytes", settings.max_bytes))
    )
    most = max(len(backlog), min(most_records, int(most_bytes / size)))
    longer = [item for item in backlog if item.offsets]
    if sum(item.offsets for item in longer) <= most:
        return tuple(backlog)
    if len(longer) > 1:
        with table.endpoint.admin() as admin:
            return cut_by_time(backlog, most=most, offsets_at=partial(_first_at, table, admin, backlog))
    shares = shared(backlog, most)
    return tuple(replace(item, end=item.start + shares[item.topic, item.partition]) for item in backlog)


def _first_at(
    table: KafkaTable, admin: ClusterAdmin, ranges: Sequence[OffsetRange], timestamp: int
) -> Mapping[Place, int]:
    """Return the first offset of each partition whose record is not older than a time in ms, -1 where none is."""
    from confluent_kafka.admin import OffsetSpec

    specs = {(item.topic, item.partition): OffsetSpec.for_timestamp(timestamp) for item in ranges}
    return ask_offsets(admin, specs, committed=_reads_committed(table))()


def commit_to_group(table: KafkaTable, offsets: Mapping[str, Mapping[int, int]]) -> bool:
    """Commits positions to the declared consumer group, for lag monitors; the platform never reads them back.

    The offset that others had committed before is kept in the metadata of each: another table that reads the same topic
    under the name of the group begins there, and not where this one is.

    Returns:
        Whether they were committed. Without `properties.group.id` nothing is; a failure is logged and does not fail the
        batch, whose position is already safe in the changelog.
    """
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    group = table.properties.group_id
    if group is None or not table.properties.commit_offsets:
        return False
    wanted = {(topic, number): offset for topic, numbers in offsets.items() for number, offset in numbers.items()}
    if not wanted:
        return False
    try:
        with table.endpoint.admin() as admin:
            before = _found_in(admin, wanted, group)
            places = [
                TopicPartition(*place, offset, _PUBLISHES.format(max(before.get(place, -1), -1)))
                for place, offset in wanted.items()
            ]
            request = ConsumerGroupTopicPartitions(group, places)
            futures = admin.client.alter_consumer_group_offsets([request], request_timeout=REQUEST_SECONDS)
            admin.result(futures[group], f"committing offsets of group '{group}'")
    except (EndpointError, TopicError) as error:
        _log.warning("offsets were not published to group '%s': %s", group, error)
        return False
    return True
