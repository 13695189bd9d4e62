"""How old the first records of ranges are: of those that a reader would get."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.errors import EndpointError
from upsert_platform.kafka.source.oldest import first_times
from upsert_platform_tests.bench.kafka import users_table

DAY = datetime(2024, 5, 1, 12, tzinfo=UTC)
AT = int(DAY.timestamp() * 1000)


def test_aborted_records_and_markers_are_not_what_waits(kafka_bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=2)
    writer = Producer({"bootstrap.servers": kafka_bootstrap, "transactional.id": topic})
    writer.init_transactions(30)
    writer.begin_transaction()
    for partition in (0, 1):
        writer.produce(topic, b"{}", b"{}", partition=partition, timestamp=AT - 60_000)
    writer.flush(30)
    writer.abort_transaction(30)  # offset 0 is aborted, offset 1 its marker
    writer.begin_transaction()
    for more in (0, 5_000):
        writer.produce(topic, b"{}", b"{}", partition=1, timestamp=AT + more)
    writer.commit_transaction(30)
    table = users_table(kafka_bootstrap, topic)
    both = [OffsetRange(topic, 0, 0, 2), OffsetRange(topic, 1, 0, 5)]
    assert first_times(table, both) == [DAY]
    assert first_times(table, both[:1]) == []
    assert first_times(table, [OffsetRange(topic, 1, 3, 5)]) == [datetime(2024, 5, 1, 12, 0, 5, tzinfo=UTC)]
    assert first_times(table, [OffsetRange(topic, 1, 5, 5)]) == []


def test_brokers_that_are_away_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upsert_platform.kafka.source.oldest.REQUEST_SECONDS", 0.5)
    with pytest.raises(EndpointError, match="did not come within"):
        first_times(users_table("127.0.0.1:9", "users"), [OffsetRange("users", 0, 0, 5)])
