"""Reading a written topic back at the cost of what was written lately, and by offset before time."""

from __future__ import annotations

import time
from collections.abc import Callable

from upsert_platform.core.capabilities import ReadsRecent
from upsert_platform.kafka.sink.control import MAX_MARKED_OFFSETS, MAX_MARKS, MIN_MARKS, Applied
from upsert_platform.kafka.sink.read_back import last_values, ranges_behind
from upsert_platform_tests.kafka.tables import declare, read
from upsert_platform_tests.kafka.writing import MINUTE, frame, write


def test_a_check_reads_what_was_written_since_and_no_more(spark, destination_of, name, produce, make_topic) -> None:
    make_topic(name=name, partitions=2, config={"cleanup.policy": "compact"})
    produce(name, [(f'{{"id":{key}}}', f'{{"id":{key},"name":"before"}}') for key in range(1000, 1300)])
    destination = destination_of(name)
    assert isinstance(destination, ReadsRecent)
    for batch in (3, 4, 7):  # the writes of batches 1 to 3, 4, and 5 to 7
        rows = [(key, f"batch {batch}", "U", batch) for key in range(batch, batch + 100)]
        write(destination, frame(spark, rows), batch, {3: 0, 4: 3, 7: 4}[batch])

    def offsets(since: int) -> int:
        return sum(item.offsets for item in destination.recent_ranges(since))

    assert list(destination.recent_batches()) == [0, 3, 4, 7]
    assert [offsets(since) for since in (7, 6, 4, 3, 2, 0)] == [0, 100, 100, 200, 300, 300]
    assert sum(item.offsets for item in ranges_behind(destination.table)) == 600
    keys = spark.createDataFrame([(3,), (4,), (106,), (107,), (1000,)], "id INT")
    recent = {row.id: row.name for row in destination.read_recent(spark, keys=keys, since=3).collect()}
    assert recent == {4: "batch 4", 106: "batch 7"}
    whole = {row.id: row.name for row in destination.read(spark, keys=keys).collect()}
    assert whole == {3: "batch 3", 4: "batch 4", 106: "batch 7", 1000: "before"}


def test_marks_stay_small() -> None:
    applied = Applied()
    for batch in range(100):
        applied = Applied(marks=applied.marked(batch, [batch] * 3))
    assert [batch for batch, _ in applied.marks] == list(range(100 - MAX_MARKS, 100))
    assert Applied(marks=((5, (1,)), (6, (2,)))).marked(6, [9]) == ((5, (1,)), (6, (9,)))
    wide = applied.marked(100, [0] * MAX_MARKED_OFFSETS)
    assert len(wide) == MIN_MARKS


def test_an_older_control_record_has_no_marks(spark, destination_of, name) -> None:
    destination = destination_of(name)
    write(destination, frame(spark, [(1, "a", "U", 1)]), 1)
    with destination.lease(owner="older", duration=MINUTE) as lease:
        found = destination._control.read().applied
        value = {name: getattr(found, name) for name in ("batch", "changelog_id", "topic_id", "shares", "partitions")}
        lease.change(state=value)
    assert list(destination.recent_batches()) == []
    keys = spark.createDataFrame([(1,)], "id INT")
    assert [row.name for row in destination.read_recent(spark, keys=keys, since=1).collect()] == ["a"]


def test_in_a_partition_the_offset_decides_and_between_partitions_the_time(
    spark,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    kafka_bootstrap: str,
) -> None:
    topic = make_topic(partitions=2)
    now = int(time.time() * 1000) - 60_000

    def pair(key: str, name: str) -> tuple[str, str]:
        return key, f'{{"id":{key[6:-1]},"name":"{name}"}}'

    # One key in two spellings, so that both records survive the reduction by raw key.
    produce(topic, [pair('{"id":1}', "first")], timestamp=now + 5000)
    produce(topic, [pair('{"id": 1}', "second")], timestamp=now)
    produce(topic, [pair('{"id":2}', "late")], timestamp=now + 5000, partition=0)
    produce(topic, [pair('{"id":2}', "early")], timestamp=now, partition=1)
    table = read(declare(topic=topic, **{"properties.bootstrap.servers": kafka_bootstrap}), writes=True)
    found = last_values(spark, table, ranges_behind(table))
    assert {row.id: row.name for row in found.collect()} == {1: "second", 2: "late"}
    assert (
        ranges_behind(read(declare(topic="no-such-topic", **{"properties.bootstrap.servers": kafka_bootstrap}))) == []
    )
