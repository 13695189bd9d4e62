"""Sends reports about failed records to topics, for Tablestore tables that are written by Connect's rules.

They arrive at least once: a write that fails after they were sent sends them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.errors import DestinationError, EndpointError, Problem, TopicError
from upsert_platform.core.model import Table
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.properties import ClientProperties, PropertyProblem, read_properties
from upsert_platform.kafka.topics import create_topic, describe_topic
from upsert_platform.tablestore.connect.reports import ReportMessage
from upsert_platform.tablestore.connect.table import CLIENT_PREFIX

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_SERVERS: Final = "bootstrap.servers"
_SECONDS: Final = 30
_LARGEST: Final = 52_428_800
"""Bytes of a message, as the connector's own producer takes them."""


@dataclass(frozen=True, slots=True)
class KafkaReports:
    """Implements `upsert_platform.tablestore.connect.reports.ReportTopics`.

    Attributes:
        servers: used where a topic names none.
    """

    servers: str
    properties: ClientProperties

    def prepare(self, topic: str, *, servers: str | None, create: bool, replication: int | None) -> None:
        """Creates a topic where it is missing and may be created.

        Raises:
            DestinationError: it is missing, and may not be created or cannot be.
        """

        endpoint = self._endpoint(servers)
        if describe_topic(endpoint, topic) is not None:
            return
        if not create:
            raise DestinationError(
                f"topic '{topic}' for failed records does not exist on {endpoint.servers}; create it, or set"
                " 'auto.create' = 'true'"
            )
        try:
            create_topic(endpoint, topic, partitions=1, replication=replication, config={})
        except (EndpointError, TopicError) as error:
            raise DestinationError(
                f"topic '{topic}' for failed records cannot be created: {error}. Create it, or lower"
                " 'errors.deadletterqueue.topic.replication.factor' to the number of brokers"
            ) from error

    def send(self, topic: str, messages: Sequence[ReportMessage], *, servers: str | None) -> None:
        """Sends messages and waits until the brokers have them all.

        Raises:
            DestinationError: one was not taken.
        """
        endpoint = self._endpoint(servers)
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)

        overrides: dict[str, str | int] = {"delivery.timeout.ms": _SECONDS * 1000, "message.max.bytes": _LARGEST}
        producer = endpoint.open_producer(**overrides)
        for message in messages:
            more: dict[str, Any] = {} if message.timestamp is None else {"timestamp": max(0, message.timestamp)}
            while True:
                try:
                    producer.produce(
                        topic, message.value, message.key, headers=list(message.headers), on_delivery=delivered, **more
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(_SECONDS + 5)
        if failures or left:
            reason = failures[0].str() if failures else f"{left} had no answer in time"
            raise DestinationError(
                f"topic '{topic}' on {endpoint.servers}: a report about a failed record was not taken: {reason};"
                " nothing was recorded as applied"
            )

    def _endpoint(self, servers: str | None) -> KafkaEndpoint:
        return KafkaEndpoint(servers or self.servers, self.properties)


def reports_of(table: Table) -> KafkaReports | None:
    """The client that a declared table's properties name; None where it needs none."""
    servers = table.options.get(f"{CLIENT_PREFIX}{_SERVERS}")
    return None if servers is None else KafkaReports(servers, _properties(table)[0])


def report_problems(table: Table) -> list[Problem]:
    """Return the problems of the reporting properties."""
    return [
        Problem(
            f"table '{table.name}': {message}",
            table.options.location(f"{CLIENT_PREFIX}{name}") or table.location,
            severity,
        )
        for name, severity, message in _properties(table)[1]
    ]


def _properties(table: Table) -> tuple[ClientProperties, list[PropertyProblem]]:
    given = {
        name.removeprefix(CLIENT_PREFIX): value
        for name, value in table.options.items()
        if name.startswith(CLIENT_PREFIX) and name != f"{CLIENT_PREFIX}{_SERVERS}"
    }
    return read_properties(given)
