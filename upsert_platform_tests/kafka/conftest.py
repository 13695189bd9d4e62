"""Writing to topics of the session's broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.sink.destination import KafkaDestination
from upsert_platform_tests.kafka.tables import declare, read

Pair = tuple[str | None, str | None]


@pytest.fixture
def produce(kafka_bootstrap: str) -> Callable[..., None]:
    """Writes pairs of key and value in order: ``produce(topic, pairs, partition=0, timestamp=1000)``."""

    def write(topic: str, pairs: Sequence[Pair], *, partition: int = 0, timestamp: int = 0, headers=None) -> None:
        # Without idempotence: a producer that has it asks for its id half a second after it was opened.
        producer = KafkaEndpoint(kafka_bootstrap).open_producer(**{"enable.idempotence": "false"})
        failures: list[object] = []
        for key, value in pairs:
            producer.produce(
                topic,
                key=key,
                value=value,
                partition=partition,
                timestamp=timestamp,
                headers=headers,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(30) == 0
        assert failures == []

    return write


@pytest.fixture
def produce_in_transaction(kafka_bootstrap: str) -> Callable[..., None]:
    """Writes pairs in one transaction, which ends in a control record; commits or aborts it."""

    def write(topic: str, pairs: Sequence[Pair], *, commit: bool) -> None:
        producer = KafkaEndpoint(kafka_bootstrap).open_producer(**{"transactional.id": f"test-{topic}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for key, value in pairs:
            producer.produce(topic, key=key, value=value, partition=0)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    return write


@pytest.fixture
def destination_of(kafka_bootstrap: str) -> Callable[..., KafkaDestination]:
    """A destination with a control topic of its own: ``destination_of(topic, columns, key=("id",), **options)``."""

    def build(topic: str, columns=None, *, key=("id",), metadata=None, **options: str) -> KafkaDestination:
        if "sink.transactional-id-prefix" in options:
            options["sink.transactional-id-prefix"] = f"prefix-{topic}"
        options = {"properties.bootstrap.servers": kafka_bootstrap, "sink.parallelism": "2", **options}
        options = {"sink.control-topic": f"control-{topic}", **options}
        declared = declare(columns, key=key, metadata=metadata, topic=topic, **options)
        return KafkaDestination(read(declared, writes=True))

    return build


@pytest.fixture
def name(topic: str) -> str:
    """A name that no topic has yet."""
    return f"written-{topic}"
