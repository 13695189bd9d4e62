"""Planning against a real broker: discovery, positions, lost and recreated topics, bounds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.errors import EndpointError, TopicError
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.source.offsets import bound_batch, commit_to_group, discover, plan_backlog
from upsert_platform.kafka.source.time_cut import cut_by_time
from upsert_platform.kafka.table import KafkaTable
from upsert_platform_tests.kafka.tables import declare, read

LATELY = int(time.time() * 1000) - 60_000
"""Record times are recent, or retention would delete the records while a test runs."""
ONE = [('{"id":1}', '{"name":"a"}')]


@dataclass
class Positions:
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def table_of(kafka_bootstrap):
    def table(topic: str, **options: str) -> KafkaTable:
        return read(declare(topic=topic, **{"properties.bootstrap.servers": kafka_bootstrap}, **options))

    return table


def plan(table: KafkaTable, positions: Positions | None = None) -> list[tuple[int, int, int]]:
    """Partition, start and end of the backlog."""
    ranges = plan_backlog(table, discover(table), positions or Positions())
    return [(item.partition, item.start, item.end) for item in ranges]


def delete_records(bootstrap: str, topic: str, before: int) -> None:
    from confluent_kafka import TopicPartition

    with KafkaEndpoint(bootstrap).admin() as admin:
        futures = admin.client.delete_records([TopicPartition(topic, 0, before)])
        for future in futures.values():
            admin.result(future, "deleting records")


def test_first_plan_starts_at_the_first_offset_of_every_partition(table_of, make_topic, produce):
    topic = make_topic(partitions=3)
    produce(topic, ONE * 4, partition=0)
    produce(topic, ONE * 2, partition=2)
    table = table_of(topic)
    (found,) = discover(table)
    assert found.name == topic
    assert len(found.topic_id) > 10
    assert [(item.partition, item.low, item.end) for item in found.partitions] == [(0, 0, 4), (1, 0, 0), (2, 0, 2)]
    assert plan(table) == [(0, 0, 4), (2, 0, 2)]


def test_goes_on_at_the_position_and_takes_new_partitions_from_their_start(
    table_of, make_topic, produce, kafka_bootstrap
):
    from confluent_kafka.admin import NewPartitions

    topic = make_topic()
    produce(topic, ONE * 4)
    with KafkaEndpoint(kafka_bootstrap).admin() as admin:
        admin.result(admin.client.create_partitions([NewPartitions(topic, 2)])[topic], "widening")
    deadline = time.monotonic() + 10
    while len(discover(table_of(topic))[0].partitions) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    produce(topic, ONE, partition=1)
    assert plan(table_of(topic), Positions({topic: {0: 3}})) == [(0, 3, 4), (1, 0, 1)]
    assert plan(table_of(topic), Positions({topic: {0: 4, 1: 1}})) == []


def test_an_open_transaction_ends_the_range(table_of, topic, produce, kafka_bootstrap):
    produce(topic, ONE * 2)
    producer = KafkaEndpoint(kafka_bootstrap).open_producer(**{"transactional.id": f"open-{topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, key="k", value="v")
    producer.flush(30)
    produce(topic, ONE)
    assert plan(table_of(topic)) == [(0, 0, 2)]
    uncommitted = table_of(topic, **{"properties.isolation.level": "read_uncommitted"})
    assert plan(uncommitted) == [(0, 0, 4)]
    assert plan(table_of(topic), Positions({topic: {0: 4}})) == []
    producer.abort_transaction(30)


def test_records_deleted_before_they_were_read(table_of, topic, produce, kafka_bootstrap):
    produce(topic, ONE * 10)
    delete_records(kafka_bootstrap, topic, 6)
    with pytest.raises(TopicError, match=rf"{topic}-0: offsets 2 to 5 \(4 offsets\).*on-data-loss"):
        plan(table_of(topic), Positions({topic: {0: 2}}))
    assert plan(table_of(topic), Positions({topic: {0: 6}})) == [(0, 6, 10)]
    assert plan(table_of(topic)) == [(0, 6, 10)]
    assert plan(table_of(topic, **{"on-data-loss": "continue"}), Positions({topic: {0: 2}})) == [(0, 2, 10)]


def test_recreated_topic(table_of, make_topic, produce, kafka_bootstrap):
    topic = make_topic()
    produce(topic, ONE * 3)
    (before,) = discover(table_of(topic))
    with KafkaEndpoint(kafka_bootstrap).admin() as admin:
        admin.result(admin.client.delete_topics([topic])[topic], "deleting")
        deadline = time.monotonic() + 20
        while admin.topics(topic).topics[topic].error is None and time.monotonic() < deadline:
            time.sleep(0.1)
    make_topic(name=topic)
    produce(topic, ONE * 5)
    with pytest.raises(TopicError, match=f"'{topic}' was deleted and created anew"):
        plan(table_of(topic), Positions({topic: {0: 3}}, {topic: before.topic_id}))
    with pytest.raises(TopicError, match="read up to 9"):
        plan(table_of(topic), Positions({topic: {0: 9}}))
    with pytest.raises(TopicError, match="partition 4 was read before"):
        plan(table_of(topic), Positions({topic: {0: 1, 4: 1}}))


def test_unknown_topic(table_of, kafka_bootstrap):
    with pytest.raises(TopicError, match="'no-such-topic' does not exist"):
        discover(table_of("no-such-topic"))
    pattern = declare(topic=None, **{"topic-pattern": "no-such-.*", "properties.bootstrap.servers": kafka_bootstrap})
    with pytest.raises(TopicError, match="no-such-"):
        discover(read(pattern))


def test_a_pattern_means_no_control_topic(make_topic, kafka_bootstrap):
    name = f"users-{time.time_ns()}"
    for topic in (name, f"upsert-platform-control-{name}"):
        make_topic(name=topic)
    pattern = {"topic-pattern": f".*{name}", "properties.bootstrap.servers": kafka_bootstrap}
    assert [topic.name for topic in discover(read(declare(topic=None, **pattern)))] == [name]


def test_pattern_matches_whole_names(make_topic, kafka_bootstrap):
    name = make_topic(name=f"pattern-{time.time_ns()}")
    make_topic(name=f"{name}-other")
    table = declare(topic=None, **{"topic-pattern": name, "properties.bootstrap.servers": kafka_bootstrap})
    assert [topic.name for topic in discover(read(table))] == [name]


def test_unreachable_broker_and_unknown_host_are_told_in_bounded_time(monkeypatch):
    monkeypatch.setattr("upsert_platform.kafka.endpoint.REQUEST_SECONDS", 1.0)
    started = time.monotonic()
    with pytest.raises(EndpointError, match=r"127\.0\.0\.1:1: not reachable within 1 s"):
        discover(read(declare()))
    with pytest.raises(EndpointError, match="not known"):
        discover(read(declare(**{"properties.bootstrap.servers": "no-such-host.invalid:9092"})))
    assert time.monotonic() - started < 10


def test_refused_login_is_told_at_once_and_shows_no_password(kafka_bootstrap):
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
    table = declare(
        **{"properties.bootstrap.servers": kafka_bootstrap, "properties.security.protocol": "SASL_PLAINTEXT"},
        **{"properties.sasl.mechanism": "PLAIN", "properties.sasl.jaas.config": jaas},
    )
    with pytest.raises(EndpointError, match="refuse the login") as caught:
        discover(read(table))
    assert "hunter2" not in str(caught.value)


def commit(table, topic, offsets):
    """Commit offsets as a consumer of the table's group does."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": table.settings.bootstrap_servers, "group.id": table.properties.group_id})
    places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def shown(table, topic):
    """Offsets of the table's group, as lag monitors see them."""
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    group = table.properties.group_id
    client = AdminClient({"bootstrap.servers": table.settings.bootstrap_servers})
    answer = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    return {item.partition: item.offset for item in answer.topic_partitions if item.topic == topic}


class TestStart:
    def test_latest_fixes_the_position_by_an_empty_range(self, table_of, topic, produce):
        produce(topic, ONE * 3)
        assert plan(table_of(topic, **{"scan.startup.mode": "latest-offset"})) == [(0, 3, 3)]

    def test_timestamp(self, table_of, topic, produce):
        produce(topic, ONE * 2, timestamp=LATELY)
        produce(topic, ONE * 2, timestamp=LATELY + 1000)
        options = {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": str(LATELY + 500)}
        assert plan(table_of(topic, **options)) == [(0, 2, 4)]

    def test_specific(self, table_of, topic, produce):
        produce(topic, ONE * 5)
        options = {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "partition:0,offset:4"}
        assert plan(table_of(topic, **options)) == [(0, 4, 5)]

    def test_a_partition_that_was_empty_at_first_starts_where_it_is_declared(self, table_of, make_topic, produce):
        topic = make_topic(partitions=2)
        produce(topic, ONE * 5, partition=1)
        options = {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "partition:1,offset:5"}
        produce(topic, ONE, partition=0)
        table = table_of(topic, **options)
        assert plan(table) == [(0, 0, 1)]
        produce(topic, ONE * 2, partition=1)
        assert plan(table, Positions({topic: {0: 1}})) == [(1, 5, 7)]

    def test_group_goes_on_where_the_group_stands(self, table_of, topic, produce):
        produce(topic, ONE * 5)
        table = table_of(topic, **{"scan.startup.mode": "group-offsets", "properties.group.id": f"g-{topic}"})
        assert plan(table) == [(0, 0, 5)]
        commit(table, topic, {0: 4})
        assert plan(table) == [(0, 4, 5)]

    def test_a_table_does_not_begin_where_another_one_of_its_group_is(self, table_of, make_topic, produce):
        topic = make_topic(partitions=3)
        for partition in range(3):
            produce(topic, ONE * 5, partition=partition)
        options = {"scan.startup.mode": "group-offsets", "properties.group.id": f"g-{topic}"}
        first, second = table_of(topic, **options), table_of(topic, **options)
        commit(first, topic, {0: 2, 1: 5})
        begun = [(0, 2, 5), (1, 5, 5), (2, 0, 5)]
        assert plan(first) == begun
        for ends in ({0: 3, 1: 5, 2: 1}, {0: 5, 1: 5, 2: 5}):
            assert commit_to_group(first, {topic: ends})
            assert shown(first, topic) == ends
            assert plan(second) == begun
        commit(first, topic, {0: 4})  # a job that goes by the name of the group as well
        assert plan(second) == [(0, 4, 5), (1, 5, 5), (2, 0, 5)]

    def test_where_the_group_stood_at_first_is_fixed(self, table_of, make_topic, produce):
        topic = make_topic(partitions=2)
        produce(topic, ONE * 5, partition=1)
        table = table_of(topic, **{"scan.startup.mode": "group-offsets", "properties.group.id": f"g-{topic}"})
        commit(table, topic, {1: 5})
        assert plan(table) == [(0, 0, 0), (1, 5, 5)]
        for partition in (0, 1):
            produce(topic, ONE * 2, partition=partition)
        commit(table, topic, {0: 1, 1: 6})
        assert plan(table, Positions({topic: {0: 0, 1: 5}})) == [(0, 0, 2), (1, 5, 7)]
        assert plan(table, Positions({topic: {0: 0}})) == [(0, 0, 2), (1, 0, 7)], "a partition that is new"

    def test_only_the_first_batch(self, table_of, topic, produce):
        produce(topic, ONE * 5)
        table = table_of(topic, **{"scan.startup.mode": "latest-offset"})
        assert plan(table, Positions({topic: {0: 2}})) == [(0, 2, 5)]

    def test_a_partition_added_later_is_read_from_its_start(self, table_of, make_topic, produce):
        topic = make_topic(partitions=2)
        produce(topic, ONE * 5, partition=1)
        table = table_of(topic, **{"scan.startup.mode": "latest-offset"})
        assert plan(table, Positions({topic: {0: 0}})) == [(1, 0, 5)]


class TestBound:
    def test_34_specific_is_exclusive_and_R9_reads_nothing_of_other_partitions(self, table_of, make_topic, produce):
        topic = make_topic(partitions=2)
        produce(topic, ONE * 4, partition=0)
        produce(topic, ONE * 4, partition=1)
        options = {"scan.bounded.mode": "specific-offsets", "scan.bounded.specific-offsets": "partition:0,offset:2"}
        assert plan(table_of(topic, **options)) == [(0, 0, 2)]
        assert plan(table_of(topic, **options), Positions({topic: {0: 2}})) == []

    @pytest.mark.parametrize(("bound", "expected"), [(500, [(0, 0, 2)]), (-500, []), (9000, [(0, 0, 4)])])
    def test_35_36_timestamp(self, table_of, topic, produce, bound, expected):
        produce(topic, ONE * 2, timestamp=LATELY)
        produce(topic, ONE * 2, timestamp=LATELY + 1000)
        options = {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": str(LATELY + bound)}
        assert plan(table_of(topic, **options)) == expected

    def test_37_latest(self, table_of, topic, produce):
        produce(topic, ONE * 3)
        assert plan(table_of(topic, **{"scan.bounded.mode": "latest-offset"})) == [(0, 0, 3)]

    def test_38_group(self, table_of, topic, produce):
        produce(topic, ONE * 3)
        table = table_of(topic, **{"scan.bounded.mode": "group-offsets", "properties.group.id": f"b-{topic}"})
        with pytest.raises(TopicError, match=f"committed no offset for {topic}-0"):
            plan(table)
        commit(table, topic, {0: 1})
        assert plan(table) == [(0, 0, 1)]
        assert commit_to_group(table, {topic: {0: 3}})
        assert plan(table) == [(0, 0, 1)], "what the platform publishes is no bound"


def test_a_changelog_of_another_topic_is_refused(table_of, make_topic, produce):
    """As of a table of the same name in another project, whose rows would be mixed with these."""
    topic, other = make_topic(), make_topic()
    produce(topic, ONE)
    with pytest.raises(TopicError, match=f"reads '{topic}', and its changelog is of '{other}': another project"):
        plan(table_of(topic), Positions({other: {0: 3}}))
    assert plan(table_of(topic), Positions({other: {}})) == [(0, 0, 1)]
    both = table_of(f"{topic};{other}")
    assert plan(both, Positions({other: {0: 0}})) == [(0, 0, 1)]


def test_group_is_not_told_when_that_is_switched_off(table_of, topic):
    assert not commit_to_group(table_of(topic), {topic: {0: 4}})
    off = {"properties.group.id": "g", "properties.commit.offsets.on.checkpoint": "false"}
    assert not commit_to_group(table_of(topic, **off), {topic: {0: 4}})


@pytest.mark.parametrize(
    ("lengths", "options", "size", "expected"),
    [
        pytest.param((10, 10), {"batch.max-records": "100"}, None, (10, 10), id="fits"),
        pytest.param((1000,), {"batch.max-records": "100"}, None, (100,), id="records"),
        pytest.param((1000, 0), {"batch.max-records": "100"}, None, (100, 0), id="one-has-some"),
        pytest.param((1000,), {"batch.max-bytes": "10 kb"}, None, (10,), id="bytes-by-1-KiB"),
        pytest.param((1000,), {"batch.max-bytes": "10 kb"}, 100.0, (102,), id="bytes-by-measure"),
        pytest.param((1000,), {"batch.max-bytes": "1 kb"}, 1e9, (1,), id="always-goes-on"),
    ],
)
def test_batches_are_bounded(lengths, options, size, expected):
    backlog = [OffsetRange("t", partition, 5, 5 + length) for partition, length in enumerate(lengths)]
    ranges = bound_batch(read(declare(**options)), backlog, record_bytes=size)
    assert tuple(item.offsets for item in ranges) == expected
    assert all(item.start == 5 for item in ranges)


@pytest.mark.parametrize(
    ("lengths", "most", "expected"),
    [((1000, 1000), 100, [50, 50]), ((10, 1000, 1000), 100, [10, 45, 45]), ((1000, 1000), 2, [1, 1])],
)
@pytest.mark.parametrize("time_of_all", [None, 1_790_000_000_000])
def test_records_of_one_time_are_shared_evenly(lengths, most, expected, time_of_all):
    """A short partition leaves its share to the others; so do records without a time."""
    backlog = [OffsetRange("t", partition, 5, 5 + length) for partition, length in enumerate(lengths)]

    def offsets_at(asked):
        first = -1 if time_of_all is None or asked > time_of_all else 0
        return {("t", partition): first for partition in range(len(lengths))}

    ranges = cut_by_time(backlog, most=most, offsets_at=offsets_at)
    assert [item.offsets for item in ranges] == expected
    assert all(item.start == 5 for item in ranges)


@pytest.mark.parametrize("days", [0.0001, 1.0, 400.0])
def test_the_time_of_an_even_backlog_is_found_in_a_few_looks(days: float):
    """However long ago it began: each look asks the brokers, and a topic is cut once for each batch."""
    count, looks = 100_000, 0
    now = int(time.time() * 1000)
    first = now - int(days * 86_400_000)
    backlog = [OffsetRange("t", partition, 0, count) for partition in range(2)]

    def offsets_at(asked: int) -> dict[tuple[str, int], int]:
        nonlocal looks
        looks += 1
        before = sum(1 for n in range(0, count, 100) if first + (now - first) * n / count < asked) * 100
        return {("t", partition): before if before < count else -1 for partition in range(2)}

    ranges = cut_by_time(backlog, most=50_000, offsets_at=offsets_at)
    assert 45_000 <= sum(item.offsets for item in ranges) <= 50_000
    assert looks <= 16


def test_a_topic_that_was_widened_before_it_is_read_gives_newer_values_in_later_batches(
    table_of, make_topic, produce, kafka_bootstrap
):
    """Of a long old partition and a short new one: no batch has a record that is older than one of a batch before."""
    from confluent_kafka import Producer

    topic = make_topic(partitions=2)
    times = {0: [LATELY + 20 * number for number in range(900)], 1: [LATELY + 12_000 + 60 * n for n in range(100)]}
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for partition, stamps in times.items():
        for stamp in stamps:
            producer.produce(topic, key="k", value="v", partition=partition, timestamp=stamp)
    assert producer.flush(20) == 0
    table = table_of(topic, **{"batch.max-records": "200"})
    positions, newest, batches = Positions({topic: {}}), 0, 0
    while ranges := bound_batch(table, plan_backlog(table, discover(table), positions)):
        found = [stamp for item in ranges for stamp in times[item.partition][item.start : item.end]]
        assert 0 < len(found) <= 200
        assert min(found) >= newest
        newest, batches = max(found), batches + 1
        positions.offsets[topic].update({item.partition: item.end for item in ranges})
    assert positions.offsets[topic] == {0: 900, 1: 100}
    assert 5 <= batches <= 8


def test_a_cluster_widens_the_default_bounds_and_no_declared_one():
    backlog = [OffsetRange("t", 0, 0, 50_000_000)]

    def offsets(**options):
        (one,) = bound_batch(read(declare(**options)), backlog, record_bytes=1.0, widened=4)
        return one.offsets

    assert offsets() == 8_000_000
    assert offsets(**{"batch.max-records": "1000"}) == 1000
    assert offsets(**{"batch.max-bytes": "1000"}) == 1000
