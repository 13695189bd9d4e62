"""Properties of Java Kafka clients, as users declare them, translated for librdkafka.

What librdkafka 2.16 takes was tried name by name: it refuses names that it does not know, Java trust stores and
`sasl.jaas.config`. Sets and tables below are the outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pydantic import SecretStr

from upsert_platform.core.model import is_secret_option
from upsert_platform.core.options import nearest
from upsert_platform.core.redaction import remember_secret
from upsert_platform.kafka.jaas import CLIENT_ID, JaasError, client_settings
from upsert_platform.kafka.stores import KINDS, Store, wrapped_pem


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


COMMON: Final = _names(
    """bootstrap.servers client.id client.rack client.dns.lookup connections.max.idle.ms metadata.max.age.ms
    metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms reconnect.backoff.ms reconnect.backoff.max.ms
    retry.backoff.ms retry.backoff.max.ms security.protocol sasl.mechanism sasl.mechanisms sasl.username sasl.password
    sasl.kerberos.service.name sasl.kerberos.keytab sasl.kerberos.principal sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.method
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.scope sasl.oauthbearer.extensions
    sasl.oauthbearer.config sasl.oauthbearer.sub.claim.name socket.timeout.ms socket.keepalive.enable
    socket.connection.setup.timeout.ms socket.send.buffer.bytes socket.receive.buffer.bytes broker.address.family
    ssl.cipher.suites ssl.curves.list ssl.sigalgs.list ssl.key.password ssl.key.location ssl.key.pem ssl.ca.location
    ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.keystore.location ssl.keystore.password
    ssl.endpoint.identification.algorithm enable.ssl.certificate.verification enable.metrics.push
    receive.message.max.bytes"""
)
"""Properties that every client is given under the same name."""
CONSUMER: Final = _names(
    """group.id group.instance.id allow.auto.create.topics check.crcs isolation.level fetch.min.bytes fetch.max.bytes
    fetch.wait.max.ms fetch.message.max.bytes fetch.queue.backoff.ms fetch.error.backoff.ms queued.min.messages
    queued.max.messages.kbytes max.partition.fetch.bytes session.timeout.ms heartbeat.interval.ms
    max.poll.interval.ms"""
)
"""Properties that only readers are given."""
PRODUCER: Final = _names(
    """acks batch.size batch.num.messages compression.type compression.level delivery.timeout.ms enable.idempotence
    linger.ms max.in.flight.requests.per.connection message.max.bytes message.send.max.retries
    queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms retries
    sticky.partitioning.linger.ms transaction.timeout.ms"""
)
"""Properties that only writers are given."""
RENAMED: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
}
"""Java's name to librdkafka's, where the value stays as it is."""
JVM_ONLY: Final = _names(
    """auto.include.jmx.reporter config.providers default.api.timeout.ms exclude.internal.topics group.protocol
    group.remote.assignor interceptor.classes internal.leave.group.on.close max.block.ms max.poll.records
    metadata.max.idle.ms metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partition.assignment.strategy partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
    partitioner.ignore.keys register.consumer.metrics sasl.client.callback.handler.class
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
    sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name security.providers
    socket.connection.setup.timeout.max.ms
    ssl.enabled.protocols ssl.engine.factory.class ssl.keymanager.algorithm ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm transaction.two.phase.commit.enable"""
)
"""Properties that mean something to a Java client alone: accepted with a warning."""
OWNED: Final = {
    "key.deserializer": "formats read bytes",
    "value.deserializer": "formats read bytes",
    "key.serializer": "formats write bytes",
    "value.serializer": "formats write bytes",
    "auto.offset.reset": "a batch names its offsets, and one that is gone is an error",
    "enable.auto.commit": "positions are committed with the data",
    "auto.commit.interval.ms": "positions are committed with the data",
    "partition.discovery.interval.ms": "every batch looks for new partitions when it is planned",
    "transactional.id": "use 'sink.transactional-id-prefix'",
}
"""Properties that the platform decides itself, with the reason: accepted with a warning."""
HANDLED: Final = (
    "sasl.jaas.config", "partitioner", "buffer.memory", "ssl.truststore.location", "ssl.truststore.type",
    "ssl.truststore.password", "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password",
    "commit.offsets.on.checkpoint", "client.id.prefix", "security.kerberos.login.principal",
    "security.kerberos.login.keytab", "security.kerberos.login.use-ticket-cache", "security.kerberos.login.contexts",
    "security.kerberos.login.conf", "sasl.oauthbearer.jwt.retriever.class",
)  # fmt: skip
"""Properties whose value is translated, or refused for a reason."""
RETRIEVERS: Final = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever")
"""Java's classes that get a token as the client does: by client credentials, from the token endpoint."""
KERBEROS: Final = "security.kerberos.login."
"""Begins the names that Flink, and Tencent's Oceanus, give to a job's Kerberos login."""
HADOOP_LOGIN: Final = "fs.hdfs.hadoop.security.authentication"
HADOOP_LOGIN_REASON: Final = (
    "it is the login of a Flink job to HDFS, which no connector reads or writes; the login to Kafka is"
    " 'properties.sasl.mechanism' = 'GSSAPI' with 'security.kerberos.login.*', and a lake on HDFS takes the login of"
    " Spark ('spark.kerberos.keytab', 'spark.kerberos.principal'). Remove it"
)
KERBEROS_CONFIG: Final = ("security.kerberos.login.conf", "security.kerberos.login.krb5-conf.path")
"""The `krb5.conf` of a job."""
PropertyProblem = tuple[str, str, str]
"""Property name, severity, message."""


@dataclass(frozen=True, slots=True)
class ClientProperties:
    """Client settings in librdkafka's names, by who may be given them. Secrets are SecretStr.

    Attributes:
        group_id: of `group.id`; None when it is not declared, and no offsets are committed then.
        commit_offsets: whether positions are committed to the group after a batch, for lag monitors.
        commit_offsets_declared: whether that was asked for in so many words.
        trust_store: Java stores, which are opened when a client is.
        kerberos_config: a `krb5.conf`, which counts for the whole process from the first client on.
    """

    common: Mapping[str, str | SecretStr] = field(default_factory=dict)
    consumer: Mapping[str, str | SecretStr] = field(default_factory=dict)
    producer: Mapping[str, str | SecretStr] = field(default_factory=dict)
    group_id: str | None = None
    commit_offsets: bool = True
    commit_offsets_declared: bool = False
    client_id_prefix: str = "upsert-platform"
    trust_store: Store | None = None
    key_store: Store | None = None
    kerberos_config: str | None = None

    def secrets(self) -> Iterator[str]:
        """Values that must never be shown."""
        for settings in (self.common, self.consumer, self.producer):
            yield from (value.get_secret_value() for value in settings.values() if isinstance(value, SecretStr))
        for store in (self.trust_store, self.key_store):
            yield from store.secrets() if store is not None else ()


def read_properties(properties: Mapping[str, str]) -> tuple[ClientProperties, list[PropertyProblem]]:
    """Translates declared client properties.

    Args:
        properties: Java names (librdkafka's own are taken too), without ``properties.``.
    """
    problems: list[PropertyProblem] = []
    native: dict[str, str] = {}
    for name, value in properties.items():
        if name in HANDLED or name.startswith(KERBEROS):
            continue
        if name in OWNED:
            problems.append((name, "warning", f"client property '{name}' has no effect: {OWNED[name]}"))
        elif name in JVM_ONLY:
            problems.append((name, "warning", f"client property '{name}' has no effect: it concerns Java clients only"))
        elif name in RENAMED:
            native[RENAMED[name]] = value
        elif name in COMMON or name in CONSUMER or name in PRODUCER:
            native[name] = value
        else:
            hint = nearest(name, [*COMMON, *CONSUMER, *PRODUCER, *RENAMED, *HANDLED])
            problems.append((name, "error", f"unknown client property '{name}'{hint}"))
    _translate_values(properties, native, problems)
    _translate_kerberos(properties, native, problems)
    trust_store, key_store = _translate_stores(properties, native, problems)
    native.setdefault("isolation.level", "read_committed")
    commit = properties.get("commit.offsets.on.checkpoint", "").strip().lower()
    group = native.get("group.id", "").strip() or None

    def chosen(names: frozenset[str]) -> dict[str, str | SecretStr]:
        return {
            name: _secret(value) if is_secret_option(name) else value for name, value in native.items() if name in names
        }

    client = ClientProperties(
        common=chosen(COMMON),
        consumer=chosen(CONSUMER),
        producer=chosen(PRODUCER),
        group_id=group,
        commit_offsets=group is not None and commit != "false",
        commit_offsets_declared=commit == "true",
        client_id_prefix=properties.get("client.id.prefix", group or "upsert-platform"),
        trust_store=trust_store,
        key_store=key_store,
        kerberos_config=next((properties[name] for name in KERBEROS_CONFIG if name in properties), None),
    )
    return client, problems


def _secret(value: str) -> SecretStr:
    remember_secret(value)
    return SecretStr(value)


def _translate_values(properties: Mapping[str, str], native: dict[str, str], problems: list[PropertyProblem]) -> None:
    """Values that are spelled differently, and properties that become several."""
    if "sasl.jaas.config" in properties:
        try:
            native.update(client_settings(properties["sasl.jaas.config"], properties))
        except JaasError as error:
            problems.append(("sasl.jaas.config", "error", f"client property 'sasl.jaas.config' {error}"))
    if any(name in properties for name in CLIENT_ID):
        native.setdefault("sasl.oauthbearer.method", "oidc")
    retriever = properties.get("sasl.oauthbearer.jwt.retriever.class", RETRIEVERS[0]).strip()
    if retriever.rsplit(".", 1)[-1] not in RETRIEVERS:
        name = "sasl.oauthbearer.jwt.retriever.class"
        message = f"client property '{name}' names a class that the client has no counterpart of; it has one of"
        problems.append((name, "error", f"{message} {' and '.join(RETRIEVERS)}"))
    if properties.get("ssl.endpoint.identification.algorithm", "https").strip() == "":
        native["ssl.endpoint.identification.algorithm"] = "none"
    if "security.protocol" in native:
        native["security.protocol"] = native["security.protocol"].strip().lower()
    if "isolation.level" in native and native["isolation.level"] not in ("read_committed", "read_uncommitted"):
        problems.append(
            ("isolation.level", "error", "client property 'isolation.level' is read_committed or read_uncommitted")
        )
    if properties.get("acks") == "-1":
        native["acks"] = "all"
    if "buffer.memory" in properties:
        try:
            native["queue.buffering.max.kbytes"] = str(max(1, int(properties["buffer.memory"]) // 1024))
        except ValueError:
            problems.append(("buffer.memory", "error", "client property 'buffer.memory' takes a number of bytes"))
    if "partitioner" in properties:
        problems.append(
            (
                "partitioner",
                "error",
                "client property 'partitioner' is refused: records are partitioned by Kafka's murmur2 of the key, like"
                " every Java producer does by default; remove it",
            )
        )
    commit = properties.get("commit.offsets.on.checkpoint", "true").strip().lower()
    if commit not in ("true", "false"):
        problems.append(
            ("commit.offsets.on.checkpoint", "error", "property 'commit.offsets.on.checkpoint' takes true or false")
        )


def _translate_kerberos(properties: Mapping[str, str], native: dict[str, str], problems: list[PropertyProblem]) -> None:
    """A job's Kerberos login (Flink's `security.kerberos.login.*`) as the client's; what is declared for it wins."""
    renamed = {"principal": "sasl.kerberos.principal", "keytab": "sasl.kerberos.keytab"}
    for name, value in properties.items():
        short = name.removeprefix(KERBEROS)
        if short == name:
            continue
        if short in renamed:
            native.setdefault(renamed[short], value)
        elif short == "use-ticket-cache":
            if value.strip().lower() == "true" and "sasl.kerberos.keytab" not in native:
                native.setdefault("sasl.kerberos.min.time.before.relogin", "0")  # somebody else's cache: no kinit
        elif short == "contexts":
            if "KafkaClient" not in [context.strip() for context in value.split(",")]:
                problems.append(
                    (name, "error", f"'{name}' = '{value}' leaves out KafkaClient, which this login is for")
                )
        elif short in ("conf", "krb5-conf.path"):
            continue  # see `ClientProperties.kerberos_config`
        else:
            hint = nearest(short, [*renamed, "use-ticket-cache", "contexts", "conf"])
            problems.append((name, "error", f"unknown option '{name}'{hint}"))


def _translate_stores(
    properties: Mapping[str, str], native: dict[str, str], problems: list[PropertyProblem]
) -> tuple[Store | None, Store | None]:
    """Trust store and key store of Java. PEM is the client's own; JKS and PKCS#12 are opened when a client is."""
    for name in ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"):
        if name in native:
            native[name] = wrapped_pem(native[name])
    stores: list[Store | None] = []
    for side in ("truststore", "keystore"):
        path, kind = (properties.get(f"ssl.{side}.{name}") for name in ("location", "type"))
        kind = (kind or "JKS").strip().upper()
        stores.append(None)
        if kind not in KINDS:
            name = f"ssl.{side}.type"
            problems.append((name, "error", f"client property '{name}' is one of {', '.join(KINDS)}, not '{kind}'"))
        elif path is not None and kind == "PEM":
            names = ("ssl.ca.location",) if side == "truststore" else ("ssl.certificate.location", "ssl.key.location")
            native.update(dict.fromkeys(names, path))
        elif path is not None and kind == "PKCS12" and side == "keystore":
            native["ssl.keystore.location"] = path
            if "ssl.keystore.password" in properties:
                native["ssl.keystore.password"] = properties["ssl.keystore.password"]
        elif path is not None:
            password = properties.get(f"ssl.{side}.password")
            key_password = properties.get("ssl.key.password") if side == "keystore" else None
            stores[-1] = Store(
                path,
                f"ssl.{side}.location",
                None if password is None else SecretStr(password),
                None if key_password is None else SecretStr(key_password),
            )
    trust, key = stores
    return trust, key
