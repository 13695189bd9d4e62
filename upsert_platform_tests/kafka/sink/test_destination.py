"""Writing a topic: records, guarantees, replays, lease and state, against a real broker."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from upsert_platform.core.destination import BatchSpan, RefusedRow, Verdict
from upsert_platform.core.errors import DestinationError, EndpointError, LeaseHeldError, RecordError
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.sink.control import Applied, ControlTopic, Share, unfinished_share
from upsert_platform.kafka.sink.destination import KafkaDestination
from upsert_platform.kafka.sink.lease import lease_id
from upsert_platform.kafka.sink.sink import SHARE, WritingTask
from upsert_platform.kafka.sink.transactions import open_transactional
from upsert_platform.kafka.sink.written_metadata import table_id_headers
from upsert_platform.kafka.topics import describe_topic
from upsert_platform.writing.outcomes import run_tasks
from upsert_platform_tests.kafka.tables import declare, problems_of, read
from upsert_platform_tests.kafka.writing import MINUTE, frame, span, write, written
from upsert_platform_tests.writing.leases import die

pytestmark = pytest.mark.whole_runs

EXACTLY_ONCE = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "p"}


@pytest.mark.parametrize("guarantee", ["none", "at-least-once", "exactly-once"])
def test_49_51_records_state_and_reading_back(spark, destination_of, name, kafka_bootstrap, guarantee):
    options = {"sink.delivery-guarantee": guarantee}
    destination = destination_of(
        name, **options, **({"sink.transactional-id-prefix": "p"} if guarantee[0] == "e" else {})
    )
    assert destination.state().applied_batch == 0
    assert destination.read(spark).collect() == []
    report = write(destination, frame(spark, [(1, "a", "U", 1), (2, "b", "U", 1), (3, None, "D", 1)]), 1)
    assert (report.upserts, report.deletes, report.refused_count) == (2, 1, 0)
    assert sorted(written(kafka_bootstrap, name), key=str) == [
        ('{"id":1}', '{"id":1,"name":"a"}'),
        ('{"id":2}', '{"id":2,"name":"b"}'),
        ('{"id":3}', None),
    ]
    state = destination.state()
    assert (state.applied_batch, state.changelog_id, state.holder) == (1, "changelog-1", None)
    write(destination, frame(spark, [(1, "c", "U", 2), (2, None, "D", 2)]), 2, 1)
    assert [tuple(row) for row in destination.read(spark).collect()] == [(1, "c")]
    keys = spark.createDataFrame([(2,), (7,)], "id INT")
    assert destination.read(spark, keys=keys).collect() == []
    assert destination.state().applied_batch == 2


def test_key_order_prefix_and_except_key(spark, destination_of, name, kafka_bootstrap):
    destination = destination_of(
        name,
        {"k_user": "BIGINT", "name": "STRING", "k_event": "BIGINT", "user": "INT"},
        key=("k_event", "k_user"),
        **{"key.fields-prefix": "k_", "value.fields-include": "EXCEPT_KEY"},
    )
    ddl = "k_user BIGINT, name STRING, k_event BIGINT, user INT, _op STRING, _seq BIGINT"
    write(destination, frame(spark, [(1, "n1", 100, 41, "U", 1)], ddl), 1)
    assert written(kafka_bootstrap, name) == [('{"event":100,"user":1}', '{"name":"n1","user":41}')]
    assert [tuple(row) for row in destination.read(spark).collect()] == [(1, "n1", 100, 41)]


def test_58_table_of_keys_alone(spark, destination_of, name, kafka_bootstrap):
    destination = destination_of(name, {"id": "INT"}, **{"value.fields-include": "EXCEPT_KEY"})
    write(destination, frame(spark, [(1, "U", 1)], "id INT, _op STRING, _seq BIGINT"), 1)
    assert written(kafka_bootstrap, name) == [('{"id":1}', "{}")]
    assert [tuple(row) for row in destination.read(spark).collect()] == [(1,)]


def test_created_topic_is_compacted_and_auto_create_can_be_off(destination_of, name, kafka_bootstrap):
    with pytest.raises(DestinationError, match=r"auto\.create"):
        destination_of(name, **{"auto.create": "false"}).prepare()
    with pytest.raises(DestinationError, match=r"'properties\.allow\.auto\.create\.topics' = 'true'"):
        destination_of(name, **{"properties.allow.auto.create.topics": "false"}).prepare()
    destination = destination_of(name, **{"auto.create.partitions": "3"})
    for _ in range(2):  # looking creates none
        assert destination.unprepared() == f"topic '{name}' does not exist"
    destination.prepare()
    destination.prepare()
    assert destination.unprepared() == ""
    found = describe_topic(KafkaEndpoint(kafka_bootstrap), name)
    assert found is not None
    assert (found.partitions, found.compacted) == (3, True)


def test_topic_that_is_not_compacted_gives_a_warning(destination_of, topic, caplog):
    destination = destination_of(topic)
    assert destination.unprepared().startswith("control topic '")
    destination.prepare()
    assert "not compacted" in caplog.text
    assert destination.unprepared() == "", "it is used as it is"


def test_refused_rows_are_kept_or_fail(spark, destination_of, name, kafka_bootstrap):
    kept: list[RefusedRow] = []
    rows = [(1, "a", "U", 1), (None, "b", "U", 1), (2, "x" * 2_000_000, "U", 1)]
    report = write(destination_of(name), frame(spark, rows), 1, keep_refused=kept.extend)
    assert (report.upserts, report.refused_count) == (1, 2)
    by_key = {row.key: row for row in kept}
    assert "'id' is null" in by_key['{"id": null}'].reason
    assert json.loads(by_key['{"id": null}'].row) == {"id": None, "name": "b", "_op": "U"}
    assert "max.request.size" in by_key['{"id": 2}'].reason
    with pytest.raises(RecordError, match="on-error"):
        write(destination_of(name, **{"on-error": "fail"}), frame(spark, rows), 2, 1)
    assert destination_of(name).state().applied_batch == 1


def test_nulls_of_not_null_columns_are_refused_in_every_format(spark, destination_of, name, kafka_bootstrap):
    columns = {"id": "INT NOT NULL", "name": "STRING NOT NULL", "tags": "ARRAY<STRING NOT NULL>"}
    ddl = "id INT, name STRING, tags ARRAY<STRING>, _op STRING, _seq BIGINT"
    rows = [(1, None, ["a"], "U", 1), (2, "b", None, "U", 1), (3, "c", ["x", None], "U", 1), (4, None, None, "D", 1)]
    for value_format in ("json", "csv", "avro"):
        kept: list[RefusedRow] = []
        topic = f"{name}-{value_format}"
        destination = destination_of(topic, columns, **{"value.format": value_format})
        report = write(destination, frame(spark, rows, ddl), 1, keep_refused=kept.extend)
        assert (report.upserts, report.deletes, report.refused_count) == (1, 1, 2)
        assert {row.key: row.reason.split(",")[0] for row in kept} == {
            '{"id": 1}': "column 'name' is null",
            '{"id": 3}': "column 'tags' is null",
        }
        assert sorted(key for key, _ in written(kafka_bootstrap, topic)) == ['{"id":2}', '{"id":4}']


@pytest.mark.parametrize("declared", ["STRING", "STRING NOT NULL"])
def test_a_null_of_format_raw_is_refused_and_deletes_no_key(spark, destination_of, name, kafka_bootstrap, declared):
    columns = {"id": "STRING NOT NULL", "name": declared}
    options = {"key.format": "raw", "value.format": "raw", "value.fields-include": "EXCEPT_KEY"}
    destination = destination_of(name, columns, **options)
    ddl = "id STRING, name STRING, _op STRING, _seq BIGINT"
    write(destination, frame(spark, [("k", "a", "U", 1), ("l", "b", "U", 1)], ddl), 1)
    kept: list[RefusedRow] = []
    changes = frame(spark, [("k", None, "U", 2), ("l", None, "D", 2)], ddl)
    report = write(destination, changes, 2, 1, keep_refused=kept.extend)
    assert (report.upserts, report.deletes, report.refused_count) == (0, 1, 1)
    assert kept[0].key == '{"id": "k"}'
    assert [tuple(row) for row in destination.read(spark).collect()] == [("k", "a")]
    assert ("k", None) not in written(kafka_bootstrap, name)


def test_a_time_column_that_is_not_null_takes_no_null(spark, destination_of, name):
    metadata = {"at": ("TIMESTAMP_LTZ(3) NOT NULL", "timestamp")}
    changes = frame(spark, [(1, "a", None, "U", 1)], "id INT, name STRING, at TIMESTAMP, _op STRING, _seq BIGINT")
    kept: list[RefusedRow] = []
    report = write(destination_of(name, metadata=metadata), changes, 1, keep_refused=kept.extend)
    assert report.refused_count == 1
    assert "'at' is null" in kept[0].reason


def test_delivery_guarantee_none_counts_what_the_brokers_refuse(spark, destination_of, make_topic, caplog):
    topic = make_topic(config={"max.message.bytes": "200", "cleanup.policy": "compact"})
    destination = destination_of(topic, **{"sink.delivery-guarantee": "none", "sink.parallelism": "1"})
    long = "".join(chr(33 + (index * index * 7) % 90) for index in range(2_000))  # does not compress below the limit
    report = write(destination, frame(spark, [(1, "a", "U", 1), (2, None, "D", 1)]), 1)
    assert (report.upserts, report.deletes, report.metrics["undelivered"]) == (1, 1, 0)
    report = write(destination, frame(spark, [(3, long, "U", 2)]), 2, 1)
    assert (report.upserts, report.deletes, report.metrics["undelivered"]) == (0, 0, 1)
    assert "1 of the rows were not delivered" in caplog.text
    assert '{"id":3}' in caplog.text
    assert destination.state().applied_batch == 2


def test_declared_delivery_settings_are_those_of_the_producer(destination_of, name, monkeypatch):
    """Nothing that is declared is overwritten in silence; what a guarantee forbids is refused when declared."""
    opened: list[dict] = []
    build = KafkaEndpoint.producer_config

    def seen(self, **overrides):
        opened.append(build(self, **overrides))
        return opened[-1]

    monkeypatch.setattr(KafkaEndpoint, "producer_config", seen)
    options = {"properties.delivery.timeout.ms": "45000", "properties.acks": "1", "sink.parallelism": "1"}
    for guarantee in ("none", "at-least-once"):
        destination = destination_of(f"{name}-{guarantee}", **options, **{"sink.delivery-guarantee": guarantee})
        destination.prepare()
        with destination.lease(owner="run", duration=MINUTE) as lease:
            task = WritingTask(destination.table, span(1), "", 1, lease.terms)
            opened.clear()
            list(task(iter(_blocks())))
        assert (opened[0]["acks"], opened[0]["delivery.timeout.ms"]) == ("1", "45000")
    for name_of, value in (("properties.acks", "1"), ("properties.enable.idempotence", "false")):
        assert any(
            name_of in message and "exactly-once" in message
            for message in problems_of(declare(**EXACTLY_ONCE, **{name_of: value}), writes=True)
        )
    assert problems_of(declare(**EXACTLY_ONCE, **{"properties.acks": "-1"}), writes=True) == []


def _blocks():
    import pyarrow as pa

    columns = {"id": [1], "name": ["a"], "_op": ["U"], "_seq": [1], SHARE: [0]}
    schema = pa.schema(
        [("id", pa.int32()), ("name", pa.string()), ("_op", pa.string()), ("_seq", pa.int64()), (SHARE, pa.int32())]
    )
    yield pa.RecordBatch.from_pydict(columns, schema)


def test_a_write_that_fails_leaves_no_trace_in_a_transaction(spark, destination_of, name, kafka_bootstrap):
    destination = destination_of(name, **EXACTLY_ONCE, **{"on-error": "fail", "sink.parallelism": "1"})
    with pytest.raises(RecordError):
        write(destination, frame(spark, [(1, "a", "U", 1), (2, "x" * 2_000_000, "U", 1)]), 1)
    assert written(kafka_bootstrap, name) == []
    write(destination, frame(spark, [(1, "a", "U", 1)]), 1)
    assert written(kafka_bootstrap, name) == [('{"id":1}', '{"id":1,"name":"a"}')]


def test_a_replay_after_a_partial_commit_writes_nothing_twice(spark, destination_of, name, kafka_bootstrap):
    """One of two tasks committed, then the run died: the span is written again, with a later batch added."""
    destination = destination_of(name, **EXACTLY_ONCE)
    destination.prepare()
    rows = [(key, "a", "U", 1) for key in range(20)]
    changes = destination._dealt(frame(spark, rows), 2)
    first = changes.where(f"{SHARE} = 0")
    mine = {row.id for row in first.collect()}
    assert 0 < len(mine) < 20
    found = describe_topic(KafkaEndpoint(kafka_bootstrap), name)
    with destination.lease(owner="run-1", duration=MINUTE) as lease:
        begun = ("changelog-1", 1, "commit-1")
        lease.record_applied(Applied(shares=2, topic_id=found.topic_id, begun=begun, write="w"))
        task = WritingTask(destination.table, span(1), found.topic_id, 2, lease.terms, "w")
        first.mapInArrow(task, "stats STRING, key STRING, row STRING, reason STRING").collect()
    assert destination.state().applied_batch == 0
    assert len(written(kafka_bootstrap, name)) == len(mine)

    changed = min(mine)
    again = [(key, "b", "U", 2) if key == changed else (key, "a", "U", 1) for key in range(20)]
    other = destination_of(name, **EXACTLY_ONCE, **{"sink.parallelism": "3"})
    report = write(other, frame(spark, again), 2)
    assert report.metrics["replayed"] == len(mine) - 1
    assert report.metrics["tasks"] == 2
    records = written(kafka_bootstrap, name)
    assert len(records) == 21
    assert {row.id: row.name for row in other.read(spark).collect()} == {
        key: "b" if key == changed else "a" for key in range(20)
    }
    assert other.state().applied_batch == 2


def names(destination, spark) -> dict[int, str]:
    return {row.id: row.name for row in destination.read(spark).collect()}


def test_a_reset_has_every_row_written_again(spark, destination_of, name, kafka_bootstrap):
    """Exactly once: what the tasks of the finished write committed says nothing to the write after a reset."""
    destination = destination_of(name, **EXACTLY_ONCE)
    write(destination, frame(spark, [(1, "a", "U", 1), (2, "b", "U", 1), (3, "c", "U", 2)]), 2)
    producer = destination.table.endpoint.open_producer()
    producer.produce(name, key='{"id":2}', value='{"id":2,"name":"spoiled"}')
    assert producer.flush(10) == 0
    with destination.lease(owner="reset", duration=MINUTE) as lease:
        destination.forget_applied(lease)
    rows = [(1, "a", "U", 1), (2, "b", "U", 1), (3, "c", "U", 2), (4, "d", "U", 3)]
    report = write(destination, frame(spark, rows), 3)
    assert (report.upserts, report.metrics["replayed"]) == (4, 0)
    assert names(destination, spark) == {1: "a", 2: "b", 3: "c", 4: "d"}


def test_rows_behind_a_lake_that_was_restored_are_written(spark, destination_of, name):
    """Batches up to 12 were written, the lake came back with 8, `reconcile` wrote a row of one share."""
    destination = destination_of(name, **EXACTLY_ONCE, **{"sink.parallelism": "2"})
    keys = range(20)
    write(destination, frame(spark, [(key, "a", "U", 12) for key in keys]), 12)
    repair = BatchSpan(8, 8, "changelog-1", "reconcile", repeats=True, commit="commit-8")
    with destination.lease(owner="reconcile", duration=MINUTE) as lease:
        destination.write(frame(spark, [(0, "restored", "U", 8)]), span=repair, lease=lease)
    report = write(destination, frame(spark, [(key, "new", "U", 9) for key in keys]), 9, 8)
    assert (report.upserts, report.metrics["replayed"]) == (20, 0)
    assert names(destination, spark) == dict.fromkeys(keys, "new")


@pytest.mark.parametrize(
    ("broken", "then"),
    [
        (BatchSpan(0, 1, "frames of assets", "r"), BatchSpan(0, 1, "frames of assets", "r")),
        (BatchSpan(0, 1, "c", "r", commit="x", repeats=True), BatchSpan(0, 1, "c", "r", commit="x")),
        (BatchSpan(0, 9, "c", "r", commit="x"), BatchSpan(0, 3, "c", "r", commit="z")),
        (BatchSpan(0, 1, "c", "r", commit="x"), BatchSpan(0, 1, "other", "r", commit="x")),
    ],
    ids=["another frame", "a repair", "a lake that was set back", "another changelog"],
)
def test_no_other_write_goes_on_with_one_that_broke_off(
    spark, destination_of, name, kafka_bootstrap, monkeypatch, broken, then
):
    """Its tasks have committed all of their rows, and it died before it recorded that: the rows of this one count."""
    destination = destination_of(name, **EXACTLY_ONCE, **{"sink.parallelism": "2"})
    destination.prepare()
    with destination.lease(owner="broken", duration=MINUTE) as lease, monkeypatch.context() as patch:
        patch.setattr("upsert_platform.kafka.sink.destination.run_tasks", _run_and_die)
        with pytest.raises(DestinationError, match="died"):
            destination.write(frame(spark, [(key, "old", "U", 1) for key in range(20)]), span=broken, lease=lease)
    assert len(written(kafka_bootstrap, name)) == 20
    with destination.lease(owner="then", duration=MINUTE) as lease:
        report = destination.write(frame(spark, [(key, "new", "U", 1) for key in range(20)]), span=then, lease=lease)
    assert report.metrics["replayed"] == 0
    assert names(destination, spark) == dict.fromkeys(range(20), "new")


def test_the_same_write_goes_on_behind_its_tasks_commits(spark, destination_of, name, kafka_bootstrap, monkeypatch):
    """Killed twice before it recorded anything: each row is in the topic once, whatever `sink.parallelism` says."""
    for parallelism in ("2", "3"):
        destination = destination_of(name, **EXACTLY_ONCE, **{"sink.parallelism": parallelism})
        destination.prepare()
        with monkeypatch.context() as patch:
            patch.setattr("upsert_platform.kafka.sink.destination.run_tasks", _run_and_die)
            with pytest.raises(DestinationError, match="died"):
                write(destination, frame(spark, [(key, "a", "U", 1) for key in range(20)]), 1)
    report = write(destination, frame(spark, [(key, "a", "U", 1) for key in range(20)]), 1)
    assert (report.metrics["replayed"], report.metrics["tasks"]) == (20, 2)
    assert len(written(kafka_bootstrap, name)) == 20


def _run_and_die(*arguments, **options):
    run_tasks(*arguments, **options)
    raise DestinationError("died")


def test_commits_of_tasks_of_an_earlier_version_excuse_no_row(spark, destination_of, name, kafka_bootstrap):
    """Records without an identity, as their bytes lie in the control topic, of a write that broke off or ended."""
    destination = destination_of(name, **EXACTLY_ONCE, **{"sink.parallelism": "1"})
    destination.prepare()
    found = describe_topic(KafkaEndpoint(kafka_bootstrap), name)
    control = destination._control
    producer = destination.table.endpoint.open_producer()

    def put(record: str, partition: int, value: dict) -> None:
        key = json.dumps({"topic": name, "record": record}, sort_keys=True)
        producer.produce(control.name, key=key, value=json.dumps(value), partition=partition)
        assert producer.flush(10) == 0

    ids = {"changelog_id": "changelog-1", "topic_id": found.topic_id}
    put("state", 0, {"batch": 0, **ids, "shares": 1, "partitions": 1, "begun": ["changelog-1", 1, "commit-1"]})
    put("share/0", 1, {**ids, "upto": 1, "shares": 1})
    assert control.shares() == {0: Share("changelog-1", found.topic_id, 1, 1)}
    report = write(destination, frame(spark, [(1, "a", "U", 1)]), 1)
    assert (report.upserts, report.metrics["replayed"]) == (1, 0)
    assert names(destination, spark) == {1: "a"}


def test_a_recreated_topic_starts_anew(spark, destination_of, name, kafka_bootstrap):
    destination = destination_of(name, **EXACTLY_ONCE)
    write(destination, frame(spark, [(1, "a", "U", 1)]), 1)
    with KafkaEndpoint(kafka_bootstrap).admin() as admin:
        admin.result(admin.client.delete_topics([name])[name], "deleting")
        deadline = time.monotonic() + 20
        while admin.topics(name).topics[name].error is None and time.monotonic() < deadline:
            time.sleep(0.1)
    assert destination.state().applied_batch == 0
    report = write(destination, frame(spark, [(1, "a", "U", 1)]), 1)
    assert (report.upserts, report.metrics["replayed"]) == (1, 0)
    assert written(kafka_bootstrap, name) == [('{"id":1}', '{"id":1,"name":"a"}')]


def test_a_reset_forgets_the_position_and_deletes_the_topic(spark, destination_of, name, kafka_bootstrap):
    destination = destination_of(name)
    write(destination, frame(spark, [(1, "a", "U", 1)]), 1)
    with destination.lease(owner="reset", duration=MINUTE) as lease:
        destination.forget_applied(lease)
    assert (destination.state().applied_batch, destination.state().verdict) == (0, None)
    assert describe_topic(destination.table.endpoint, name) is not None, "rows stay"
    assert destination.drop_refusal() is None
    for _ in range(2):  # one that is gone is no error
        destination.drop_table()
    assert describe_topic(destination.table.endpoint, name) is None
    assert "nothing would create topic" in destination_of(name, **{"auto.create": "false"}).drop_refusal()


def test_a_writer_whose_place_was_taken_commits_nothing(spark, destination_of, name, kafka_bootstrap):
    destination = destination_of(name, **EXACTLY_ONCE, **{"sink.parallelism": "1"})
    destination.prepare()
    found = describe_topic(KafkaEndpoint(kafka_bootstrap), name)
    prefix = destination.settings.transactional_id_prefix
    with destination.lease(owner="run-1", duration=MINUTE) as lease:
        zombie = open_transactional(destination.table.endpoint, f"{prefix}-0")
        zombie.begin_transaction()
        zombie.produce(name, key='{"id":1}', value="zombie")
        zombie.flush(10)
        destination.write(frame(spark, [(1, "a", "U", 1)]), span=span(1), lease=lease)
        with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
            zombie.commit_transaction(10)
    assert found is not None
    assert written(kafka_bootstrap, name) == [('{"id":1}', '{"id":1,"name":"a"}')]


def test_a_write_is_over_when_committed_readers_see_all_of_it(spark, destination_of, name):
    """Brokers mark a commit partition by partition, busy ones after many seconds; a check reads right behind."""
    destination = destination_of(name, **EXACTLY_ONCE)
    destination.prepare()
    other = open_transactional(destination.table.endpoint, f"other-{name}")
    other.begin_transaction()
    other.produce(name, key='{"id":99}', value='{"id":99,"name":"other"}')
    other.flush(10)
    late = threading.Timer(8, other.commit_transaction)
    late.start()
    report = write(destination, frame(spark, [(key, "a", "U", 1) for key in range(20)]), 1)
    seen = {row.id for row in destination.read(spark).collect()}
    late.join()
    assert seen == {*range(20), 99}
    assert "note" not in report.metrics


def test_buffer_flush_empties_the_producer_on_the_way(spark, destination_of, name):
    options = {"sink.buffer-flush.max-rows": "10", "sink.buffer-flush.interval": "1 h", "sink.parallelism": "1"}
    report = write(destination_of(name, **options), frame(spark, [(key, "a", "U", 1) for key in range(30)]), 1)
    assert report.metrics["flushes"] == 1  # a block of rows is the smallest unit


def test_table_id_headers(spark, destination_of, name, kafka_bootstrap):
    assert table_id_headers("db.s.t") == (("namespace", b"db"), ("schemaName", b"s"), ("tableName", b"t"))
    assert table_id_headers("t")[:2] == (("namespace", b""), ("schemaName", b""))
    from confluent_kafka import TopicPartition

    write(destination_of(name, **{"sink.add-tableId-to-header-enabled": "true"}), frame(spark, [(1, "a", "U", 1)]), 1)
    consumer = KafkaEndpoint(kafka_bootstrap).open_consumer()
    consumer.assign([TopicPartition(name, 0, 0)])
    (message,) = consumer.consume(1, timeout=10)
    assert message.headers() == [("namespace", b""), ("schemaName", b""), ("tableName", b"users")]
    consumer.close()


class TestLease:
    def test_a_second_writer_is_told_who_holds_it(self, destination_of, name):
        destination = destination_of(name)
        destination.prepare()
        with destination.lease(owner="first", duration=MINUTE) as lease:
            assert destination.state().holder == "first"
            with pytest.raises(LeaseHeldError, match="'first'"), destination.lease(owner="second", duration=MINUTE):
                pass
            lease.check()
        assert destination.state().holder is None
        with destination.lease(owner="second", duration=MINUTE) as other:
            assert other.epoch == lease.epoch + 1

    def test_a_dead_holders_lease_expires(self, destination_of, name):
        destination = destination_of(name)
        destination.prepare()
        with destination.lease(owner="dead", duration=MINUTE) as lease:
            with pytest.raises(LeaseHeldError), destination.lease(owner="next", duration=MINUTE):
                pass
            die(lease, left=1)
            time.sleep(1.1)
            with pytest.raises(LeaseHeldError, match="ended"):
                lease.check()
            with destination.lease(owner="next", duration=MINUTE) as other:
                assert other.epoch == 2
                with pytest.raises(LeaseHeldError, match="'next' holds it"):
                    lease._prolong({"state": {}})
                other.check()

    def test_it_is_renewed(self, destination_of, name):
        destination = destination_of(name)
        destination.prepare()
        with destination.lease(owner="first", duration=timedelta(seconds=3)) as lease:
            first, until = lease.deadline, time.monotonic() + 2.9
            while lease.deadline == first and time.monotonic() < until:
                time.sleep(0.02)
            assert lease.deadline > first
            lease.check()

    def test_one_who_came_too_late_does_not_push_the_holder_out(self, destination_of, name):
        destination = destination_of(name)
        destination.prepare()
        with destination.lease(owner="first", duration=MINUTE) as lease:
            open_transactional(destination.table.endpoint, lease_id(destination._control))
            lease._renew()
            lease.check()


def test_verdict_is_kept(destination_of, name, spark):
    destination = destination_of(name)
    write(destination, frame(spark, [(1, "a", "U", 1)]), 1)
    about = destination.state()
    at = datetime(2024, 5, 1, tzinfo=UTC)
    verdict = Verdict(1, False, True, at, "missing 1", about.changelog_id, about.table_id)
    destination.record_verdict(verdict)
    assert destination.state().verdict == verdict


def test_unreachable_brokers(monkeypatch):
    monkeypatch.setattr("upsert_platform.kafka.endpoint.REQUEST_SECONDS", 1.0)
    with pytest.raises(EndpointError, match="not reachable"):
        KafkaDestination(read(declare(), writes=True)).state()


def test_a_share_counts_only_for_its_own_write_changelog_and_topic(kafka_bootstrap, name):
    control = ControlTopic(KafkaEndpoint(kafka_bootstrap), f"control-{name}", topic=name)
    assert control.shares() == {}
    control.create()
    producer = KafkaEndpoint(kafka_bootstrap).open_producer(**{"enable.idempotence": "false"})
    control.produce_share(producer, 0, Share("c", "t", 5, 2, "w"))
    producer.flush(10)
    found = control.shares()
    assert unfinished_share(found, write="w", changelog_id="c", topic_id="t") == Share("c", "t", 5, 2, "w")
    assert unfinished_share(found, write="another", changelog_id="c", topic_id="t") is None
    assert unfinished_share(found, write="w", changelog_id="c", topic_id="other") is None
    assert unfinished_share(found, write="w", changelog_id="other", topic_id="t") is None


def test_65_partitions_are_those_of_java_producers(make_topic, kafka_bootstrap):
    """The vectors are what Kafka's own partitioner gave; records are really written, for three partition counts."""
    import base64

    vectors = [json.loads(line) for line in (Path(__file__).parent / "kafka_partition.jsonl").read_text().splitlines()]
    producer = KafkaEndpoint(kafka_bootstrap).open_producer(**{"enable.idempotence": "false"})
    wrong: list[tuple] = []
    compared = 0
    for count in (3, 7, 12):
        topic = make_topic(partitions=count)
        for vector in vectors:
            if vector["partitions"] != count:
                continue
            compared += 1

            def delivered(error, message, wanted=vector["partition"]) -> None:
                if error is not None or message.partition() != wanted:
                    wrong.append((error, message.key(), message.partition(), wanted))

            producer.produce(topic, b"v", base64.b64decode(vector["key"]), on_delivery=delivered)
        assert producer.flush(30) == 0
    assert compared > 200
    assert wrong == []
