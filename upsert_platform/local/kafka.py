"""An Apache Kafka broker of one node: controller and broker in one process (KRaft), for local use and tests."""

from __future__ import annotations

import base64
import logging
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from upsert_platform.local.process import Server, ServerError, accepts, free_port, start, stop
from upsert_platform.spark import jars

_HOST = "127.0.0.1"
_CONTROLLER = "CONTROLLER"
_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_FORMAT_JVM = ("-Xmx128m", *_JVM[2:])
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
)
# One node holds every replica, few threads and little memory suffice, and what a cluster does in the background after
# seconds or minutes (compaction, retention, deletion of segments) is done at once.
_SMALL_AND_QUICK: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}


@dataclass(frozen=True, slots=True)
class Listener:
    """A port that clients connect to.

    Attributes:
        port: of 127.0.0.1.
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        name: for ``listener.name.<name>.`` properties; unique in a broker.
    """

    port: int
    protocol: str = "PLAINTEXT"
    name: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker; ends with the `with` block.

    Attributes:
        listeners: the first one is also the broker's own.
        server: the process behind.
    """

    listeners: tuple[Listener, ...]
    server: Server

    @property
    def bootstrap_servers(self) -> str:
        """The address of the first listener."""
        return f"{_HOST}:{self.listeners[0].port}"

    def stop(self) -> None:
        """Ends the broker in good order; its data stay."""
        stop(self.server)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def start_broker(
    data: Path,
    *,
    port: int | None = None,
    version: str = jars.KAFKA_VERSION,
    listeners: Sequence[Listener] = (),
    properties: Mapping[str, str] | None = None,
    client: Mapping[str, str] | None = None,
    format_arguments: Sequence[str] = (),
    timeout: float = 120.0,
    die_with_parent: bool = False,
) -> Broker:
    """Starts a broker on a data directory and returns when it answers.

    Args:
        data: made when absent; topics, records and committed offsets in it survive a restart, on any port.
        port: of a plaintext listener on 127.0.0.1; a free one when left out.
        version: a pinned broker version, see `jars`.
        listeners: in place of the plaintext listener.
        properties: broker properties (``server.properties``) that go before the ones chosen here.
        client: client properties with which the first listener lets one in (it is asked for its topics until it
            answers); none are needed for plaintext.
        format_arguments: more arguments for the first format of the directory, for example ``--add-scram``.

    Raises:
        ServerError: the directory cannot be formatted, or the broker ended or did not answer.
    """
    attempts = 1 if port is not None or listeners else 3  # another process may take a free port before the broker does
    while True:
        attempts -= 1
        chosen = tuple(listeners) or (Listener(port or free_port()),)
        server = broker_server(
            data,
            listeners=chosen,
            version=version,
            properties=properties,
            client=client,
            format_arguments=format_arguments,
        )
        try:
            start(server, timeout=timeout, die_with_parent=die_with_parent)
        except ServerError as error:
            if attempts == 0 or "already in use" not in str(error):
                raise
        else:
            return Broker(chosen, server)


def broker_server(
    data: Path,
    *,
    listeners: Sequence[Listener],
    version: str = jars.KAFKA_VERSION,
    properties: Mapping[str, str] | None = None,
    client: Mapping[str, str] | None = None,
    format_arguments: Sequence[str] = (),
) -> Server:
    """Writes the configuration, formats a new data directory, and gives what to run; see `start_broker`."""
    data = data.absolute()
    logs = data / "logs"
    data.mkdir(parents=True, exist_ok=True)
    configuration = data / "server.properties"
    configured = _broker_properties(logs, tuple(listeners)) | dict(properties or {})
    _write_private(configuration, "".join(f"{name}={_escaped(value)}\n" for name, value in configured.items()))
    class_path = ":".join(str(jar) for jar in jars.kafka_broker_jars(version))
    java = str(jars.java())
    if not (logs / "meta.properties").exists():
        _format(java, class_path, configuration, format_arguments)
    port = listeners[0].port
    return Server(
        name="the Kafka broker",
        command=(java, *_JVM, *_LOGGING, "-cp", class_path, "kafka.Kafka", str(configuration)),
        home=data,
        port=port,
        answers=lambda: answers_kafka(port, client),
    )


def _broker_properties(logs: Path, listeners: tuple[Listener, ...]) -> dict[str, str]:
    controller_port = free_port()
    clients = ",".join(f"{item.name}://{_HOST}:{item.port}" for item in listeners)
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{_HOST}:{controller_port}",
        "controller.listener.names": _CONTROLLER,
        "listeners": f"{clients},{_CONTROLLER}://{_HOST}:{controller_port}",
        "advertised.listeners": clients,
        "inter.broker.listener.name": listeners[0].name,
        "listener.security.protocol.map": ",".join(
            [f"{_CONTROLLER}:PLAINTEXT", *(f"{item.name}:{item.protocol}" for item in listeners)]
        ),
        "log.dirs": str(logs),
        **_SMALL_AND_QUICK,
    }


def _format(java: str, class_path: str, configuration: Path, arguments: Sequence[str]) -> None:
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    if cluster.startswith("-"):  # would read as an option
        cluster = f"A{cluster[1:]}"
    done = subprocess.run(
        [
            *(java, *_FORMAT_JVM, *_LOGGING, "-cp", class_path, "kafka.tools.StorageTool", "format"),
            *("--config", str(configuration), "--cluster-id", cluster, *arguments),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines()]
        reason = next((line for line in lines if "Exception" in line), lines[-1] if lines else "no reason given")
        raise ServerError(f"the Kafka data directory {configuration.parent} could not be formatted: {reason}")


def answers_kafka(port: int, client: Mapping[str, str] | None = None) -> bool:
    """Return whether a broker on the port of 127.0.0.1 lists its topics to a client with the given properties."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    if not accepts(port):
        return False
    silent = logging.getLogger(f"{__name__}.waiting")
    silent.disabled = True  # refused connections are what is being waited out
    connection = {"bootstrap.servers": f"{_HOST}:{port}", **(client or {}), "error_cb": _ignore}
    try:
        AdminClient(connection, logger=silent).list_topics(timeout=2.0)
    except KafkaException:
        return False
    return True


def _ignore(error: object) -> None:
    """librdkafka prints connection errors when nobody takes them."""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600, exist_ok=True)
    path.write_text(text, "utf-8")
