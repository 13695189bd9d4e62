"""Topics that the platform writes: creating them, and what it must know of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from upsert_platform.core.errors import EndpointError, TopicError
from upsert_platform.kafka.apsara import APPEAR_SECONDS, ApsaraInstance
from upsert_platform.kafka.endpoint import REQUEST_SECONDS, ClusterAdmin, KafkaEndpoint
from upsert_platform.kafka.leaders import ask_offsets


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the brokers describe it.

    Attributes:
        compacted: whether `cleanup.policy` keeps the last record per key.
    """

    name: str
    topic_id: str
    partitions: int
    compacted: bool


def describe_topic(endpoint: KafkaEndpoint, name: str) -> TopicInfo | None:
    """The topic, or None when it does not exist.

    Raises:
        EndpointError: the brokers cannot be reached, or refuse the request.
    """
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import ConfigResource, ResourceType

    with endpoint.admin() as admin:
        if not admin.has_topic(name):
            return None
        described = admin.client.describe_topics(TopicCollection([name]), request_timeout=REQUEST_SECONDS)
        found = admin.result(described[name], f"describing topic '{name}'")
        resource = ConfigResource(ResourceType.TOPIC, name)
        (future,) = admin.client.describe_configs([resource], request_timeout=REQUEST_SECONDS).values()
        config = admin.result(future, f"describing the configuration of topic '{name}'")
        policy = config["cleanup.policy"].value or ""
        return TopicInfo(name, str(found.topic_id or ""), len(found.partitions), "compact" in policy)


def create_topic(
    endpoint: KafkaEndpoint,
    name: str,
    *,
    partitions: int | None,
    replication: int | None,
    config: Mapping[str, str],
    apsara: ApsaraInstance | None = None,
) -> None:
    """Creates a topic and waits until the brokers know it; nothing is asked for where they know it already.

    Args:
        partitions: the broker's default if None; the same for replication.
        apsara: the instance to ask for it, which decides the rest; `config` is not used then.

    Raises:
        EndpointError: the brokers cannot be reached, or refuse to create it.
    """
    from confluent_kafka.admin import NewTopic

    with endpoint.admin() as admin:
        if apsara is not None:
            if admin.has_topic(name):
                return
            try:
                apsara.create_topic(name, partitions=partitions, replication=replication)
            except EndpointError:
                if not admin.has_topic(name):
                    raise
        else:
            new = NewTopic(name, partitions or -1, replication_factor=replication or -1, config=dict(config))
            future = admin.client.create_topics([new], request_timeout=REQUEST_SECONDS)[name]
            try:
                admin.result(future, f"creating topic '{name}'")
            except (EndpointError, TopicError) as error:
                if "TOPIC_ALREADY_EXISTS" not in str(error):
                    raise
        deadline = time.monotonic() + (REQUEST_SECONDS if apsara is None else APPEAR_SECONDS)
        while not admin.has_topic(name):
            if time.monotonic() > deadline:
                raise EndpointError(f"Kafka {endpoint.servers}: topic '{name}' was created, but does not appear")
            time.sleep(0.05)


def delete_topic(endpoint: KafkaEndpoint, name: str) -> None:
    """Deletes a topic and waits until the brokers know it no more; no error where there is none.

    Raises:
        EndpointError: the brokers cannot be reached, or do not let this user do so.
    """
    with endpoint.admin() as admin:
        if not admin.has_topic(name):
            return
        future = admin.client.delete_topics([name], request_timeout=REQUEST_SECONDS)[name]
        admin.result(future, f"deleting topic '{name}'")
        deadline = time.monotonic() + REQUEST_SECONDS
        while admin.has_topic(name):
            if time.monotonic() > deadline:
                raise EndpointError(f"Kafka {endpoint.servers}: topic '{name}' is still there; run the command again")
            time.sleep(0.05)


def add_partitions(endpoint: KafkaEndpoint, name: str, total: int) -> None:
    """Gives a topic more partitions; no error when it has them by now.

    Args:
        total: how many it has then.

    Raises:
        EndpointError: the brokers cannot be reached, or refuse it.
    """
    from confluent_kafka.admin import NewPartitions

    with endpoint.admin() as admin:
        future = admin.client.create_partitions([NewPartitions(name, total)], request_timeout=REQUEST_SECONDS)[name]
        try:
            admin.result(future, f"giving topic '{name}' {total} partitions, which it needs")
        except (EndpointError, TopicError):
            if admin.partitions(name) < total:
                raise
        deadline = time.monotonic() + REQUEST_SECONDS
        while admin.partitions(name) < total:
            if time.monotonic() > deadline:
                raise EndpointError(f"Kafka {endpoint.servers}: topic '{name}' did not get its partitions in time")
            time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """The end of a topic.

    Attributes:
        offsets: of each partition, the first one that was not given to a record; by partition.
        stable: False when somebody else's open transaction hides a part of what lies before from committed readers.
    """

    offsets: tuple[int, ...]
    stable: bool


def wait_until_stable(endpoint: KafkaEndpoint, name: str, *, seconds: float = 5.0) -> TopicEnds:
    """Waits until what was committed to a topic by now can be read.

    A commit returns when the coordinator has decided; the markers that let read_committed consumers pass follow.
    Without the wait, whoever reads next could miss what was just written. It ends after `seconds` in every case.
    """
    from confluent_kafka.admin import OffsetSpec

    def ends(admin: ClusterAdmin, *, committed: bool) -> dict[int, int]:
        asked = {(name, item): OffsetSpec.latest() for item in partitions}
        found = ask_offsets(admin, asked, committed=committed)()
        return {partition: offset for (_, partition), offset in found.items()}

    with endpoint.admin() as admin:
        partitions = list(admin.topics(name).topics[name].partitions)
        wanted = ends(admin, committed=False)
        deadline = time.monotonic() + seconds
        while True:
            stable = ends(admin, committed=True)
            done = all(stable[item] >= end for item, end in wanted.items())
            if done or time.monotonic() > deadline:
                return TopicEnds(tuple(end for _, end in sorted(wanted.items())), done)
            time.sleep(0.01)
