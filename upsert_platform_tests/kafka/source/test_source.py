"""The Spark source against a real broker."""

from __future__ import annotations

import json
import time

import pytest

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import OffsetRange, RangeAccount
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.errors import EndpointError, RecordError, TopicError
from upsert_platform.core.spark_failures import failure_of
from upsert_platform.core.task_runner import LocalTaskRunner
from upsert_platform.kafka.source.fetch import close_consumers, fetch_range
from upsert_platform.kafka.source.offsets import discover, plan_backlog
from upsert_platform.kafka.source.source import read_changes, share_ranges
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.kafka.table import KafkaTable
from upsert_platform_tests.kafka.source.test_offsets import Positions, delete_records
from upsert_platform_tests.kafka.tables import declare, read


def user(key: int, name: str) -> tuple[str, str]:
    return f'{{"id":{key}}}', f'{{"id":{key},"name":"{name}"}}'


@pytest.fixture
def table_of(kafka_bootstrap):
    def table(topic: str, **options: str) -> KafkaTable:
        return read(declare(topic=topic, **{"properties.bootstrap.servers": kafka_bootstrap}, **options))

    yield table
    close_consumers()


def fetched(table: KafkaTable, wanted: OffsetRange, **options) -> list[int]:
    return [record.offset() for records in fetch_range(table.endpoint, wanted, **options) for record in records]


def backlog(table: KafkaTable) -> tuple[OffsetRange, ...]:
    return plan_backlog(table, discover(table), Positions())


class TestFetch:
    def test_a_range_is_a_range(self, table_of, topic, produce):
        produce(topic, [user(index, "a") for index in range(50)])
        assert fetched(table_of(topic), OffsetRange(topic, 0, 10, 20)) == list(range(10, 20))
        assert fetched(table_of(topic), OffsetRange(topic, 0, 20, 20)) == []
        assert fetched(table_of(topic), OffsetRange(topic, 0, 45, 50)) == list(range(45, 50))

    def test_aborted_records_and_markers_are_gaps(self, table_of, topic, produce, produce_in_transaction):
        produce_in_transaction(topic, [user(1, "a"), user(2, "b")], commit=True)
        produce_in_transaction(topic, [user(1, "x"), user(2, "x")], commit=False)
        produce(topic, [user(3, "c")])
        produce_in_transaction(topic, [user(4, "x")], commit=False)
        (wanted,) = backlog(table_of(topic))
        assert wanted.end == 9
        started = time.monotonic()
        assert fetched(table_of(topic), wanted) == [0, 1, 6]
        assert time.monotonic() - started < 10

    def test_compacted_offsets_are_gaps(self, table_of, make_topic, produce):
        config = {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "200",
        }
        topic = make_topic(config=config)
        deadline = time.monotonic() + 60
        found: list[int] = []
        while time.monotonic() < deadline:
            produce(topic, [user(1, "a")] * 20)
            time.sleep(0.5)
            (wanted,) = backlog(table_of(topic))
            found = fetched(table_of(topic), wanted)
            if len(found) < wanted.offsets:
                break
        assert len(found) < wanted.offsets
        assert found[-1] == wanted.end - 1

    def test_deleted_records(self, table_of, topic, produce, kafka_bootstrap):
        produce(topic, [user(index, "a") for index in range(10)])
        delete_records(kafka_bootstrap, topic, 6)
        with pytest.raises(TopicError, match=f"{topic}-0: offsets from 2 .*on-data-loss"):
            fetched(table_of(topic), OffsetRange(topic, 0, 2, 10))
        assert fetched(table_of(topic), OffsetRange(topic, 0, 2, 10), skip_deleted=True) == [6, 7, 8, 9]
        assert fetched(table_of(topic), OffsetRange(topic, 0, 2, 5), skip_deleted=True) == []

    def test_unknown_partition_and_topic(self, table_of, topic):
        with pytest.raises(TopicError):
            fetched(table_of(topic), OffsetRange(topic, 7, 0, 2), stall_seconds=1)
        with pytest.raises(TopicError):
            fetched(table_of(topic), OffsetRange("no-such-topic", 0, 0, 2), stall_seconds=1)

    def test_brokers_that_do_not_answer(self):
        with pytest.raises(EndpointError, match="nothing came of t-0 after offset 0"):
            fetched(read(declare()), OffsetRange("t", 0, 0, 2), stall_seconds=1)

    def test_a_range_beyond_the_end_stalls_and_says_so(self, table_of, topic, produce):
        produce(topic, [user(1, "a")])
        with pytest.raises(EndpointError, match="planned up to 9"):
            fetched(table_of(topic), OffsetRange(topic, 0, 0, 9), stall_seconds=1)

    def test_a_consumer_is_used_again(self, table_of, topic, produce):
        produce(topic, [user(index, "a") for index in range(100)])
        fetched(table_of(topic), OffsetRange(topic, 0, 0, 100))
        started = time.monotonic()
        for start in range(0, 100, 10):
            assert len(fetched(table_of(topic), OffsetRange(topic, 0, start, start + 10))) == 10
        assert time.monotonic() - started < 5


def test_rows_are_those_of_the_changelog(spark, table_of, make_topic, produce):
    topic = make_topic(partitions=2)
    produce(topic, [user(1, "a"), user(2, "b"), user(1, "c"), ('{"id":2}', None)], partition=0)
    produce(topic, [user(3, "d"), (None, "x"), ('{"id":4}', "xx")], partition=1, headers=[("h", b"1")])
    table = table_of(topic)
    frame = read_changes(spark, table, backlog(table), batch=7, mode="upsert")
    declared = spark.createDataFrame([], rows.spark_schema(table.table)).schema
    assert [(item.name, item.dataType) for item in frame.schema] == [(item.name, item.dataType) for item in declared]
    found = frame.collect()
    assert {row._batch for row in found} == {7}
    changes = {(row.id, row.name, row._kind, row._partition, row._offset) for row in found if row._kind in "+U-D"}
    assert changes == {(1, "c", "+U", 0, 2), (2, None, "-D", 0, 3), (3, "d", "+U", 1, 0)}
    refused = {row._offset: row for row in found if row._kind == rows.KIND_QUARANTINED}
    assert set(refused) == {1, 2}
    assert bytes(refused[2]._raw_value) == b"xx"
    assert refused[2]._raw_headers[0].key == "h"
    accounts = [RangeAccount.from_json(row._accounting) for row in found if row._kind == rows.KIND_ACCOUNTING]
    assert [account.imbalance() for account in accounts] == [None, None]
    assert sum(account.records for account in accounts) == 7


def test_gaps_are_accounted(spark, table_of, topic, produce, produce_in_transaction):
    produce_in_transaction(topic, [user(1, "x")], commit=False)
    produce(topic, [user(1, "a")])
    table = table_of(topic)
    frame = read_changes(spark, table, backlog(table), batch=1, mode="upsert")
    (account,) = (RangeAccount.from_json(row._accounting) for row in frame.where("_kind = '#'").collect())
    assert (account.records, account.gaps, account.kept) == (1, 2, 1)


def test_lost_records_are_counted_when_going_on(spark, table_of, topic, produce, kafka_bootstrap):
    produce(topic, [user(index, "a") for index in range(10)])
    delete_records(kafka_bootstrap, topic, 6)
    table = table_of(topic, **{"on-data-loss": "continue"})
    frame = read_changes(spark, table, [OffsetRange(topic, 0, 2, 10)], batch=1, mode="upsert")
    (account,) = (RangeAccount.from_json(row._accounting) for row in frame.where("_kind = '#'").collect())
    assert (account.records, account.gaps, account.lost, account.imbalance()) == (4, 4, 4, None)


def test_an_empty_range_gives_its_account_alone(spark, table_of, topic, produce):
    produce(topic, [user(1, "a")])
    (row,) = read_changes(spark, table_of(topic), [OffsetRange(topic, 0, 1, 1)], batch=1, mode="upsert").collect()
    assert json.loads(row._accounting)["records"] == 0


def test_a_failed_record_is_named(spark, table_of, topic, produce):
    produce(topic, [user(1, "a"), ('{"id":2}', "xx")])
    table = table_of(topic, **{"on-error": "fail"})
    with pytest.raises(Exception) as caught:
        read_changes(spark, table, backlog(table), batch=1, mode="upsert").collect()
    found = failure_of(caught.value)
    assert isinstance(found, RecordError)
    assert f"{topic}-0 at offset 1" in str(found)
    assert "\n" not in str(found)
    assert failure_of(ValueError("x")) is None


def test_the_plan_of_spark_shows_no_secret(spark, table_of, topic, capsys):
    import base64

    table = table_of(topic, **{"properties.ssl.key.password": "hunter2"})
    frame = read_changes(spark, table, [OffsetRange(topic, 0, 0, 1)], batch=1, mode="upsert")
    frame.explain(extended=True)
    shown = capsys.readouterr().out + frame._jdf.queryExecution().toString()
    assert "hunter2" not in shown
    assert base64.b64encode(b"xxhunter2xx").decode()[4:10] not in shown
    assert len(shown) < 20_000


@pytest.mark.parametrize(
    ("lengths", "tasks", "expected"),
    [
        pytest.param((5, 3), None, [[5], [3]], id="one-each"),
        pytest.param((5, 3, 2), 2, [[5], [3, 2]], id="several-per-task"),
        pytest.param((8,), 4, [[2], [2], [2], [2]], id="48-split"),
        pytest.param((1,), 4, [[1]], id="nothing-to-split"),
        pytest.param((), 4, [], id="none"),
    ],
)
def test_48_scan_parallelism(lengths, tasks, expected):
    ranges = [OffsetRange("t", partition, 10, 10 + length) for partition, length in enumerate(lengths)]
    dealt = share_ranges(ranges, tasks)
    assert [[item.offsets for item in hand] for hand in dealt] == expected
    assert sum(item.offsets for hand in dealt for item in hand) == sum(lengths)


def test_the_number_of_reading_tasks_is_warned_of_once_where_no_task_reads(table_of, topic, produce, tmp_path, caplog):
    produce(topic, [user(index, "a") for index in range(5)])
    source = TopicSource(declare(topic=topic), table_of(topic, **{"scan.parallelism": "3"}))
    ranges = backlog(source.kafka)
    for batch in (1, 2):
        files = source.write_by_one_task(LocalTaskRunner(), ranges, batch=batch, location=TableLocation(str(tmp_path)))
        assert sum(item.rows for item in files) >= 5
    assert caplog.text.count("'scan.parallelism' = '3' has no effect on batches that the driver's process reads") == 1
