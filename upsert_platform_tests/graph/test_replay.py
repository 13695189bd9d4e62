"""Replaying quarantined records: nothing newer is overwritten, places are kept, nothing is replayed twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from upsert_platform.changelog import rows
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.quarantine import quarantined_records
from upsert_platform.sync.binding import changelog_of
from upsert_platform.sync.replay import Replay, replay
from upsert_platform_tests.graph.stack import COLUMNS, Stack, checks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs


@pytest.fixture
def serving(stack: Stack) -> Stack:
    stack.declare(warehouse=None)
    return stack


def send(stack: Stack, *records: tuple[bytes | None, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for key, value in records:
        producer.produce(stack.topic, key=key, value=value, partition=0)
    producer.flush()


def replay_all(stack: Stack, spark: SparkSession) -> Replay:
    source = stack.platform().binding().sources["users"]
    return replay(spark, source, changelog_of(source, Lake(str(stack.lake))), run="replay")


def names(stack: Stack) -> dict[int, str | None]:
    return {row[0]: row[1] for row in stack.serving_rows()}


def test_mended_declaration_brings_records_back(serving: Stack, spark: SparkSession) -> None:
    """A column was declared as a date that the values do not hold; declared as text they decode."""
    strict = COLUMNS.replace("region STRING", "region DATE")
    serving.declare(warehouse=None, columns=strict)
    send(
        serving,
        (b'{"user_id":1}', b'{"user_id":1,"name":"one","region":"2026-11-01"}'),
        (b'{"user_id":2}', b'{"user_id":2,"name":"two","region":"nowhere"}'),
        (b'{"user_id":3}', b'{"user_id":3,"name":"thr'),
    )
    assert serving.run().success
    assert names(serving) == {1: "one"}
    # The lake keeps its DATE column: only the reading of the format is mended.
    serving.declare(warehouse=None, columns=strict, source=", 'value.json.ignore-parse-errors' = 'true'")
    done = replay_all(serving, spark)
    assert (done.replayed, done.superseded, len(done.refused)) == (1, 0, 1)
    result = serving.run()
    assert result.success
    assert names(serving) == {1: "one", 2: "two"}
    assert [name for name, passed in checks_of(result).items() if not passed] == ["quarantine_below:users"]
    assert replay_all(serving, spark) == Replay(0, 0, done.refused, None)


def test_overtaken_record_changes_nothing(serving: Stack, spark: SparkSession) -> None:
    strict = ", 'value.json.fail-on-missing-field' = 'true'"
    serving.declare(warehouse=None, source=strict)
    full = b'"region":"r","balance":1,"updated_at":"2026-11-01 00:00:00"}'
    send(serving, (b'{"user_id":1}', b'{"user_id":1,"name":"old"}'), (b'{"user_id":2}', b'{"user_id":2,"name":"old"}'))
    assert not serving.run().success, "no record of the topic was read"
    send(serving, (b'{"user_id":1}', b'{"user_id":1,"name":"new",' + full), (b'{"user_id":2}', None))
    assert serving.run().success
    serving.declare(warehouse=None)
    done = replay_all(serving, spark)
    assert (done.replayed, done.superseded, dict(done.refused)) == (0, 2, {})
    assert serving.run().success
    assert names(serving) == {1: "new"}


def test_replay_keeps_the_place_of_a_record(serving: Stack, spark: SparkSession) -> None:
    serving.declare(warehouse=None, source=", 'value.json.fail-on-missing-field' = 'true'")
    send(serving, (b'{"user_id":7}', b'{"user_id":7,"name":"seven"}'))
    assert not serving.run().success, "no record of the topic was read"
    serving.declare(warehouse=None)
    assert replay_all(serving, spark).replayed == 1
    store = changelog_of(serving.platform().binding().sources["users"], Lake(str(serving.lake)))
    head = store.head()
    assert head is not None
    row = store.read(spark, after=0, upto=head.batch).collect()[0]
    assert (row[rows.PARTITION], row[rows.OFFSET], row[rows.BATCH], row["name"]) == (0, 0, 2, "seven")
    assert head.positions.offsets[serving.topic][0] == 1
    assert quarantined_records(store).num_rows == 0
