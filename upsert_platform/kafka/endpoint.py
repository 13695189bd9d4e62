"""A Kafka cluster to talk to: clients opened from declared properties, errors told clearly and in bounded time."""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import SecretStr

from upsert_platform.core.errors import EndpointError, TopicError
from upsert_platform.core.unreachable import reaching
from upsert_platform.kafka.properties import ClientProperties
from upsert_platform.kafka.refusals import raise_if_refused, redact, remedy
from upsert_platform.kafka.stores import store_settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

REQUEST_SECONDS: Final = 10.0
"""How long a question to the cluster may take before it counts as unreachable."""
TOO_OLD: Final = "brokers of Kafka 0.11 or later are needed"
"""Transactions, and telling offsets of committed records, came with it."""
KRB5_CONFIG: Final = "KRB5_CONFIG"
NO_KERBEROS: Final = (
    "; the installed confluent-kafka has no Kerberos. Build it against a librdkafka that has: librdkafka of the version"
    " that the client names (`confluent_kafka.libversion()`), configured with libsasl2 (Debian: libsasl2-dev;"
    " `./configure --enable-gssapi`), and at run time the GSSAPI plugin of Cyrus SASL (libsasl2-modules-gssapi-mit,"
    " krb5-user), then `pip install --no-binary confluent-kafka confluent-kafka`; deploy/Dockerfile.kerberos does so"
)
NO_MECHANISM: Final = (
    "; 'properties.sasl.mechanism' is not set, which means GSSAPI (Kerberos): set it to the listener's, such as PLAIN"
)
_T = TypeVar("_T")
_LOG: Final = logging.getLogger("upsert_platform.kafka.client")
_DEFAULTS: Final[dict[str, str | int]] = {
    "socket.connection.setup.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 1_000,
    "log_level": 4,
}
# Measured on loopback: the client's default of 1 s between fetches of a full queue halves the throughput of a reader.
# Only records that are there are fetched, so what an earlier fetch would wait for just holds up the next one.
_CONSUMER_DEFAULTS: Final[dict[str, str | int]] = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 10,
    "fetch.message.max.bytes": 4 << 20,
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 64 << 10,
}


class _Redact(logging.Filter):
    """Takes secret values out of log lines of the client library, and makes them debug lines.

    The client reports every failed attempt to connect, some per second; the platform raises one error instead.
    """

    def __init__(self, secrets: tuple[str, ...]) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = redact(record.getMessage(), self._secrets)
        record.args = ()
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)  # asked before for the level that it had


@dataclass(frozen=True, slots=True)
class KafkaEndpoint:
    """A cluster and how to log in to it. Picklable; prints no secret.

    Attributes:
        servers: ``host:port`` joined by commas.
    """

    servers: str
    properties: ClientProperties = field(default_factory=ClientProperties)

    def _config(self, defaults: Mapping[str, str | int], *parts: Mapping[str, Any]) -> dict[str, Any]:
        config: dict[str, Any] = {**_DEFAULTS, **defaults, "bootstrap.servers": self.servers}
        config["client.id"] = self.properties.client_id_prefix
        for part in parts:
            config.update({name: _plain(value) for name, value in part.items()})
        return config

    def consumer_config(self, **overrides: str | int) -> dict[str, Any]:
        """Settings of a consumer that is assigned partitions by hand; secrets in clear, for the client alone."""
        config = self._config(_CONSUMER_DEFAULTS, self.properties.common, self.properties.consumer, overrides)
        # Required by the client, which asks for the group's coordinator; nothing is joined or committed under it.
        config.setdefault("group.id", "upsert-platform")
        # Both decide whether an offset is read or lost, so they are not open to be declared.
        return config | {"auto.offset.reset": "error", "enable.auto.commit": "false", "enable.partition.eof": "true"}

    def producer_config(self, **overrides: Any) -> dict[str, Any]:
        """Settings of a producer; partitions follow Kafka's murmur2 like those of Java producers."""
        defaults: dict[str, Any] = {"enable.idempotence": "true", "linger.ms": 20, "compression.type": "lz4"}
        if {"acks", "max.in.flight.requests.per.connection"} & set(self.properties.producer):
            defaults.pop("enable.idempotence")
        return self._config(
            defaults, self.properties.common, self.properties.producer, {"partitioner": "murmur2_random"}, overrides
        )

    def admin_config(self) -> dict[str, Any]:
        """Settings of an administration client."""
        return self._config({"socket.timeout.ms": int(REQUEST_SECONDS * 1000)}, self.properties.common)

    def logger(self) -> logging.Logger:
        """Return the logger of the client library, which masks secrets."""
        logger = logging.Logger(_LOG.name)
        logger.parent = _LOG
        logger.addFilter(_Redact(tuple(self.properties.secrets())))
        return logger

    def open_consumer(
        self, on_error: Callable[[KafkaError], None] | None = None, /, **overrides: str | int
    ) -> Consumer:
        """A consumer; its owner closes it.

        Args:
            on_error: is called, while the consumer is polled, with what befalls its connections.

        Raises:
            EndpointError: a property is refused, or the login mechanism is not built into the client.
        """
        from confluent_kafka import Consumer

        events = {} if on_error is None else {"error_cb": on_error}
        return self._open(Consumer, self.consumer_config(**overrides) | events)

    def open_producer(self, **overrides: Any) -> Producer:
        """A producer, with properties of the client or its `on_delivery`; see open_consumer."""
        from confluent_kafka import Producer

        return self._open(Producer, self.producer_config(**overrides))

    def _open(self, build: Callable[..., _T], config: dict[str, Any]) -> _T:
        from confluent_kafka import KafkaException

        if self.properties.kerberos_config is not None:
            use_kerberos_config(self.properties.kerberos_config)
        try:
            with store_settings(self.properties.trust_store, self.properties.key_store) as stores:
                return build(config | stores, logger=self.logger())
        except KafkaException as error:
            reason = redact(str(error.args[0].str()), tuple(self.properties.secrets()))
            hint = ""
            if "No provider for SASL mechanism GSSAPI" in reason or "sasl_gssapi" in reason.lower():
                declared = {"sasl.mechanism", "sasl.mechanisms"} & set(self.properties.common)
                hint = NO_KERBEROS if declared else NO_MECHANISM
            raise EndpointError(f"Kafka {self.servers}: the client refuses its settings: {reason}{hint}") from None

    @contextmanager
    def admin(self) -> Iterator[ClusterAdmin]:
        """A connected administration client; within `keeping_admins` the one of the last use, if that ended well.

        Raises:
            EndpointError: not reachable within REQUEST_SECONDS, or the login is refused.
        """
        kept = _kept_admins.get()
        name = b"" if kept is None else pickle.dumps(self)
        free = [] if kept is None else kept.setdefault(name, [])
        found: ClusterAdmin | None = None
        with suppress(IndexError):  # another thread may have taken the last one
            found = free.pop()
        admin = self._open_admin() if found is None else found
        admin.errors.clear()  # of connections that were closed since, as brokers do when they are not used
        yield admin
        free.append(admin)

    def _open_admin(self) -> ClusterAdmin:
        from confluent_kafka.admin import AdminClient

        errors: list[KafkaError] = []
        config = self.admin_config() | {"error_cb": errors.append}
        return ClusterAdmin(self, self._open(AdminClient, config), errors)


_kept_admins: ContextVar[dict[bytes, list[ClusterAdmin]] | None] = ContextVar(
    "kept administration clients", default=None
)
"""Settings to the clients that nobody uses just now: threads with copies of one context take them in turn."""


@contextmanager
def keeping_admins() -> Iterator[None]:
    """Within the block, administration clients of this thread stay connected from one use to the next.

    Connecting and learning of the cluster takes most of the time of a short question.
    """
    before = _kept_admins.set({})
    try:
        yield
    finally:
        _kept_admins.reset(before)


def keep_admins(*, keep: bool = True) -> None:
    """From here on in this thread, administration clients stay connected as within `keeping_admins`, or no longer."""
    _kept_admins.set({} if keep else None)


@cache
def client_has_kerberos() -> bool:
    """Return whether the installed client was built with the GSSAPI provider. Opens no connection."""
    from confluent_kafka import KafkaException, Producer

    try:
        Producer({"builtin.features": "sasl_gssapi", "log_level": 0})  # the client refuses features that it lacks
    except KafkaException:
        return False
    return True


def use_kerberos_config(path: str) -> None:
    """Lets Kerberos read a `krb5.conf`: it finds the file by an environment variable, which a process has once.

    Raises:
        EndpointError: the process uses another one, or the file cannot be read.
    """
    used = os.environ.get(KRB5_CONFIG)
    if used not in (None, "", path):
        raise EndpointError(
            f"'security.kerberos.login.conf' = '{path}', but this process reads {used} ({KRB5_CONFIG}): name one file"
            " for all tables of a project"
        )
    if not os.access(path, os.R_OK):
        raise EndpointError(f"'security.kerberos.login.conf' = '{path}': the file is not there, or cannot be read")
    os.environ[KRB5_CONFIG] = path


def _plain(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


@dataclass(slots=True)
class ClusterAdmin:
    """Questions to a cluster. Every one ends within REQUEST_SECONDS, in a result or an error of the platform."""

    endpoint: KafkaEndpoint
    client: AdminClient
    errors: list[KafkaError]

    def topics(self, name: str | None = None) -> Any:
        """Cluster metadata of a topic, or of all. Metadata of one topic is asked for without creating it.

        Raises:
            EndpointError: the cluster cannot be reached or refuses the login.
        """
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + REQUEST_SECONDS
        # Its own client.id does not make a table's cluster another one.
        settings = {option: value for option, value in self.endpoint.admin_config().items() if option != "client.id"}
        with reaching(tuple(sorted(settings.items()))):
            while True:
                try:
                    return self.client.list_topics(*(() if name is None else (name,)), timeout=0.5)
                except KafkaException as error:
                    self._raise_if_fatal()
                    if time.monotonic() >= deadline:
                        raise self._unreachable(error.args[0]) from None

    def has_topic(self, name: str) -> bool:
        """Return whether a topic exists; see `partitions`."""
        return self.partitions(name) > 0

    def partitions(self, name: str) -> int:
        """Return the number of partitions of a topic; 0 if it does not exist.

        Raises:
            EndpointError: the cluster cannot be reached, refuses the login, or hides the topic from the user.
        """
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            found = self.topics(name).topics[name]
            error = found.error
            if error is None:
                return len(found.partitions)
            if error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
                return 0
            if not error.retriable() or time.monotonic() >= deadline:
                text = f"Kafka {self.endpoint.servers}: topic '{name}' cannot be used: {self._text(error)}"
                raise EndpointError(text + remedy(error.name()))
            time.sleep(0.05)  # its partitions have no leader yet

    def result(self, future: Future[_T], doing: str) -> _T:
        """Waits for an answer.

        Args:
            doing: what was asked, for messages: ``listing offsets of topic 'users'``.

        Raises:
            EndpointError: refused, or no answer in time.
            TopicError: the topic or partition is unknown.
        """
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                return future.result(timeout=0.5)
            except FutureTimeout:
                self._raise_if_fatal()
                if time.monotonic() >= deadline:
                    raise EndpointError(
                        f"Kafka {self.endpoint.servers}: no answer to {doing} within {REQUEST_SECONDS:.0f} s; look"
                        " at the brokers, the network and this machine's clock, and run it again"
                    ) from None
            except KafkaException as error:
                code = error.args[0].name()
                text = f"Kafka {self.endpoint.servers}: {doing} failed: {self._text(error.args[0])}"
                if code in ("_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"):
                    raise EndpointError(f"{text}; {TOO_OLD}") from None
                if code in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"):
                    raise TopicError(text) from None
                raise EndpointError(text + remedy(code)) from None

    def _raise_if_fatal(self) -> None:
        """Ends the wait at once for what no retry mends: a refused login, a broken certificate, an unknown host."""
        self.client.poll(0)
        secrets = tuple(self.endpoint.properties.secrets())
        raise_if_refused(self.errors, servers=self.endpoint.servers, secrets=secrets)

    def _unreachable(self, error: KafkaError) -> EndpointError:
        telling = [seen for seen in self.errors if seen.name() != "_ALL_BROKERS_DOWN"]
        seen = (telling or self.errors or [error])[-1]
        return EndpointError(
            f"Kafka {self.endpoint.servers}: not reachable within {REQUEST_SECONDS:.0f} s: {self._text(seen)}; check"
            f" 'properties.bootstrap.servers', and that 'properties.security.protocol' is the listener's; {TOO_OLD}"
        )

    def _text(self, error: KafkaError) -> str:
        return redact(f"{error.name()}: {error.str()}", tuple(self.endpoint.properties.secrets()))
