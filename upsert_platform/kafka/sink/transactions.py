"""Transactions of Kafka producers, with the client's errors sorted into what a caller can do about them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.core.errors import EndpointError
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.refusals import redact

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException, Producer

TRANSACTION_SECONDS: Final = 60.0
"""How long beginning or committing may take."""
_LOOK_UP_SECONDS: Final = 5.0
_FENCED: Final = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")


class Fenced(Exception):  # noqa: N818 (a state of affairs that callers handle, not an error that users meet)
    """Another producer has taken the transactional id."""


def open_transactional(
    endpoint: KafkaEndpoint, transactional_id: str, *, near: str | None = None, **overrides: Any
) -> Producer:
    """A producer that has taken a transactional id: open transactions under it are ended, other producers are fenced.

    Args:
        near: a topic that exists. Its brokers are looked up first: the client asks for the coordinator as soon as it
            is there, and where no broker is connected by then it waits half a second before it asks again.

    Raises:
        EndpointError: the brokers cannot be reached, or allow this user no transactions.
    """
    from confluent_kafka import KafkaException

    needed: dict[str, Any] = {"acks": "all", "enable.idempotence": "true"}
    producer = endpoint.open_producer(**needed, **{"transactional.id": transactional_id}, **overrides)
    if near is not None:
        with suppress(KafkaException):  # what cannot be reached is told below
            producer.list_topics(near, timeout=_LOOK_UP_SECONDS)
    try:
        producer.init_transactions(TRANSACTION_SECONDS)
    except KafkaException as error:
        raise EndpointError(
            f"Kafka {endpoint.servers}: transactional id '{transactional_id}' cannot be used:"
            f" {redact(error.args[0].str(), tuple(endpoint.properties.secrets()))}; transactions need brokers of"
            " version 0.11 or later and, where access is controlled, the right to write that id"
        ) from None
    return producer


def in_transaction(producer: Producer, work: Callable[[], None]) -> None:
    """Runs one transaction around what `work` produces.

    Raises:
        Fenced: another producer has the transactional id; nothing was written.
        EndpointError: it failed and was given up; nothing was written.
    """
    from confluent_kafka import KafkaException

    try:
        producer.begin_transaction()
        work()
        commit(producer)
    except KafkaException as error:
        raise failure_of_transaction(producer, error) from None
    except BaseException:
        producer.abort_transaction(TRANSACTION_SECONDS)
        raise


def commit(producer: Producer) -> None:
    """Commits, again as long as the client says that trying again may help."""
    from confluent_kafka import KafkaException

    for attempt in range(5):
        try:
            producer.commit_transaction(TRANSACTION_SECONDS)
        except KafkaException as error:
            if not error.args[0].retriable() or attempt == 4:
                raise
        else:
            return


def failure_of_transaction(producer: Producer, error: KafkaException) -> Exception:
    """Ends the transaction that an error broke, and says what it means."""
    from confluent_kafka import KafkaException

    reason = error.args[0]
    if _is_fenced(reason):
        return Fenced(reason.str())
    if reason.txn_requires_abort():
        try:
            producer.abort_transaction(TRANSACTION_SECONDS)
        except KafkaException as other:
            found = other.args[0]
            if _is_fenced(found):  # the newer producer has ended the transaction, and the commit was told that first
                return Fenced(found.str())
            return EndpointError(f"a Kafka transaction failed and could not be ended: {found.str()}")
    return EndpointError(f"a Kafka transaction failed and was given up: {reason.str()}")


def _is_fenced(error: KafkaError) -> bool:
    return error.name() in _FENCED or "fenced" in error.str().lower()
