"""Kafka: what the client library can do, whether clusters answer, and what the user may do with each topic."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.errors import EndpointError, TopicError
from upsert_platform.core.wording import counted
from upsert_platform.kafka.endpoint import NO_KERBEROS, REQUEST_SECONDS, ClusterAdmin, KafkaEndpoint
from upsert_platform.kafka.options import UpsertKafkaSettings
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.kafka.table import KafkaTable
from upsert_platform.sync.binding import Binding
from upsert_platform.sync.checkups.finding import Check, Finding, State

if TYPE_CHECKING:
    from confluent_kafka.admin import TopicDescription

_AREA: Final = "kafka"
_READS: Final = ("DESCRIBE", "READ")
_WRITES: Final = ("DESCRIBE", "READ", "WRITE")
"""What is written is read back by the checks of a run."""
_KERBEROS: Final = "SASL GSSAPI (Kerberos)"
_FEATURES: Final[Mapping[str, Mapping[str, str]]] = {
    "zstd": {"compression.codec": "zstd"},
    "TLS": {"security.protocol": "SSL"},
    "SASL SCRAM": {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "SCRAM-SHA-256", "sasl.username": "u",
        "sasl.password": "p",
    },
    _KERBEROS: {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "GSSAPI"},
}  # fmt: skip
"""Features that librdkafka may be built without, and settings that it then refuses."""


@dataclass(slots=True)
class _Cluster:
    """A cluster with one login, and the topics that the project reads and writes there, by table."""

    endpoint: KafkaEndpoint
    read: dict[str, KafkaTable]
    written: dict[str, KafkaTable]


def client_check(binding: Binding | None) -> Check:
    """Return the diagnostic of the installed client library; it needs no cluster.

    Args:
        binding: of the project whose clusters may need what it cannot do; None where there is none.
    """
    clusters = [] if binding is None else list(_clusters(binding).values())
    by_kerberos = any(_logs_in_by_kerberos(item.endpoint) for item in clusters)
    return Check(_AREA, "client", partial(_features, () if by_kerberos else (_KERBEROS,)))


def _logs_in_by_kerberos(endpoint: KafkaEndpoint) -> bool:
    common = endpoint.properties.common
    named = {str(common[name]) for name in ("sasl.mechanism", "sasl.mechanisms") if name in common}
    return str(common.get("security.protocol", "")).lower().startswith("sasl") and named <= {"GSSAPI"}


def kafka_checks(binding: Binding) -> list[Check]:
    """One check per cluster and login."""
    remedy = "check 'properties.bootstrap.servers', the network, and the login of the table's 'properties.*' options"
    found = _clusters(binding).values()
    return [Check(_AREA, cluster.endpoint.servers, partial(_cluster, cluster), remedy) for cluster in found]


def _clusters(binding: Binding) -> Mapping[bytes, _Cluster]:
    found: dict[bytes, _Cluster] = {}

    def of(table: KafkaTable) -> _Cluster:
        return found.setdefault(pickle.dumps(table.endpoint), _Cluster(table.endpoint, {}, {}))

    for name, source in binding.sources.items():
        if isinstance(source, TopicSource):
            of(source.kafka).read[name] = source.kafka
    for name, target in binding.targets.items():
        if isinstance(target.checked, KafkaTable):
            of(target.checked).written[name] = target.checked
    return found


def _features(unneeded: Sequence[str]) -> Iterator[Finding]:
    """Yield the features of the client; a feature that no cluster of the project needs is information only."""
    from confluent_kafka import KafkaException, Producer, libversion, version

    missing = []
    for name, settings in _FEATURES.items():
        try:
            Producer({"log_level": 3, **settings})  # never connects: it is given no address
        except KafkaException:
            missing.append(name)
    told = f"confluent-kafka {version()[0]}, librdkafka {libversion()[0]}"
    if set(missing) <= set(unneeded):
        there = ", ".join(name for name in _FEATURES if name not in missing)
        without = f"; without {', '.join(missing)}, which no cluster of the project needs" if missing else ""
        yield Finding(_AREA, "client", State.OK, f"{told}, with {there}{without}")
        return
    remedy = NO_KERBEROS.lstrip("; ") if _KERBEROS in missing else "install confluent-kafka's own wheel"
    yield Finding(
        _AREA, "client", State.WARNING, f"{told}, without {', '.join(missing)}; that matters where a cluster needs it",
        remedy,
    )  # fmt: skip


def _cluster(cluster: _Cluster) -> Iterator[Finding]:
    servers = cluster.endpoint.servers
    with cluster.endpoint.admin() as admin:
        brokers = len(admin.topics().brokers)
        yield Finding(_AREA, servers, State.OK, f"answers and takes the login; {counted(brokers, 'broker')}")
        for name, table in cluster.read.items():
            yield from _topics(admin, name, table, _READS)
        for name, table in cluster.written.items():
            yield from _topics(admin, name, table, _WRITES)


def _topics(admin: ClusterAdmin, name: str, table: KafkaTable, wanted: tuple[str, ...]) -> Iterator[Finding]:
    from confluent_kafka import TopicCollection

    written = "WRITE" in wanted
    for topic in dict.fromkeys(table.settings.topic):
        subject = f"topic {topic} (table {name})"
        try:
            futures = admin.client.describe_topics(
                TopicCollection([topic]), include_authorized_operations=True, request_timeout=REQUEST_SECONDS
            )
            found = admin.result(futures[topic], f"describing topic '{topic}'")
        except TopicError:
            yield _missing(subject, table, written=written)
        except EndpointError as error:
            remedy = f"grant DESCRIBE on topic {topic} to the user"
            yield Finding(_AREA, subject, State.FAULT, str(error), remedy)
        else:
            yield _rights(subject, topic, found, wanted)


def _missing(subject: str, table: KafkaTable, *, written: bool) -> Finding:
    settings = table.settings
    if written and isinstance(settings, UpsertKafkaSettings) and settings.auto_create:
        return Finding(_AREA, subject, State.OK, "does not exist yet; the first run creates it ('auto.create')")
    remedy = "create the topic, compacted, or correct 'topic'"
    if written:
        remedy += ", or set 'auto.create' = 'true'"
    return Finding(_AREA, subject, State.FAULT, "does not exist, or the user may not see it", remedy)


def _rights(subject: str, topic: str, found: TopicDescription, wanted: tuple[str, ...]) -> Finding:
    allowed: Any = {operation.name for operation in found.authorized_operations or ()}
    partitions = counted(len(found.partitions), "partition")
    if not allowed:
        return Finding(_AREA, subject, State.OK, f"{partitions}; the brokers do not tell what the user may do")
    denied = [name for name in wanted if name not in allowed]
    if denied:
        told = f"the user may not {' and '.join(denied)}"
        return Finding(_AREA, subject, State.FAULT, told, f"grant {', '.join(denied)} on topic {topic} to the user")
    return Finding(_AREA, subject, State.OK, f"{partitions}; the user may {', '.join(wanted)}")
