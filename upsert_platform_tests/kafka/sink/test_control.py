"""Control topics when writers die: what one destination's task leaves open holds up nobody else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from upsert_platform.core.errors import LeaseHeldError
from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.kafka.sink.control import Applied, ControlTopic, Share
from upsert_platform.kafka.sink.lease import lease_id
from upsert_platform.kafka.sink.transactions import open_transactional
from upsert_platform.kafka.topics import create_topic, describe_topic
from upsert_platform_tests.kafka.writing import MINUTE, frame, span, write, written

pytestmark = pytest.mark.whole_runs

EXACTLY_ONCE = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "p"}


@contextmanager
def dying_task(destination, share: int, *, shares: int) -> Iterator[None]:
    """A task that sent its rows and its share's record and never commits, of a run whose lease was given back."""
    found = describe_topic(destination.table.endpoint, destination.topic)
    assert found is not None
    with destination.lease(owner="dying", duration=MINUTE) as lease:
        lease.record_applied(Applied(shares=shares, topic_id=found.topic_id))
    prefix = destination.settings.transactional_id_prefix
    settings = {"transaction.timeout.ms": 600_000, "delivery.timeout.ms": 30_000}
    producer = open_transactional(destination.table.endpoint, f"{prefix}-{share}", **settings)
    producer.begin_transaction()
    producer.produce(destination.topic, key='{"id":1}', value='{"id":1,"name":"zombie"}')
    destination._control.produce_share(producer, share, Share("changelog-1", found.topic_id, 1, shares))
    assert producer.flush(10) == 0
    yield
    del producer


def test_a_dying_exactly_once_task_hides_nothing_of_other_destinations(spark, destination_of, name):
    """They share a control topic here, as all did once."""
    together = {"sink.control-topic": f"control-{name}"}
    dying = destination_of(name, **EXACTLY_ONCE, **together)
    other = destination_of(f"{name}-other", **together)
    dying.prepare()
    write(other, frame(spark, [(1, "a", "U", 1)]), 3)
    with dying_task(dying, 0, shares=2):
        started = time.monotonic()
        write(other, frame(spark, [(1, "b", "U", 2)]), 4, 3)
        assert other.state().applied_batch == 4
        with (
            other.lease(owner="one", duration=MINUTE),
            pytest.raises(LeaseHeldError, match="'one'"),
            other.lease(owner="two", duration=MINUTE),
        ):
            pass
        assert time.monotonic() - started < 60  # the open transaction lives for ten minutes


def test_a_write_fences_every_share_before_its_tasks_start(spark, destination_of, name, kafka_bootstrap):
    """Four shares on fewer cores: the last one's open transaction must not stop the first one."""
    destination = destination_of(name, **EXACTLY_ONCE, **{"sink.parallelism": "4"})
    destination.prepare()
    with dying_task(destination, 3, shares=4):
        started = time.monotonic()
        write(destination, frame(spark, [(1, "a", "U", 1), (2, "b", "U", 1)]), 1)
        assert time.monotonic() - started < 60  # the open transaction lives for ten minutes
    assert destination.state().applied_batch == 1
    assert sorted(written(kafka_bootstrap, name)) == [
        ('{"id":1}', '{"id":1,"name":"a"}'),
        ('{"id":2}', '{"id":2,"name":"b"}'),
    ]
    assert {row.id: row.name for row in destination.read(spark).collect()} == {1: "a", 2: "b"}


def test_a_prefix_that_changed_does_not_let_the_old_ones_commit(spark, destination_of, name, kafka_bootstrap):
    old = destination_of(name, **EXACTLY_ONCE, **{"sink.parallelism": "1"})
    old.prepare()
    found = describe_topic(old.table.endpoint, name)
    assert found is not None
    with old.lease(owner="dying", duration=MINUTE) as lease:
        lease.record_applied(Applied(shares=1, topic_id=found.topic_id, prefix=old.settings.transactional_id_prefix))
    zombie = open_transactional(old.table.endpoint, f"{old.settings.transactional_id_prefix}-0")
    zombie.begin_transaction()
    zombie.produce(name, key='{"id":1}', value="zombie")
    zombie.flush(10)
    write(destination_of(name), frame(spark, [(1, "a", "U", 1)]), 1)  # at-least-once by now
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        zombie.commit_transaction(10)
    assert written(kafka_bootstrap, name) == [('{"id":1}', '{"id":1,"name":"a"}')]


def test_a_holder_that_died_within_its_own_record_is_fenced_by_the_next(destination_of, name):
    destination = destination_of(name)
    destination.prepare()
    control = destination._control
    with destination.lease(owner="dying", duration=timedelta(seconds=1)) as lease:
        lease._ended.set()
        stuck = open_transactional(control.endpoint, lease_id(control))
        stuck.begin_transaction()
        control.produce(stuck, "state", {"batch": 9})
        assert stuck.flush(10) == 0
        time.sleep(1.1)
        with destination.lease(owner="next", duration=MINUTE) as held:
            held.check()
            assert destination.state().applied_batch == 0
            assert destination.state().holder == "next"
        del stuck


def test_a_renewal_behind_an_open_transaction_is_not_overlooked(destination_of, name):
    """A stranger's open transaction in the control topic: nobody may take the lease for over, and readers wait."""
    destination = destination_of(name)
    destination.prepare()
    control = destination._control
    with destination.lease(owner="first", duration=timedelta(seconds=4)) as lease:
        stranger = open_transactional(control.endpoint, f"stranger-{name}", **{"transaction.timeout.ms": 600_000})
        stranger.begin_transaction()
        control.produce(stranger, "other", {})
        assert stranger.flush(10) == 0
        until = lease.deadline
        while lease.deadline <= until + timedelta(seconds=3):
            time.sleep(0.05)
        assert control.read(waits=False).lease.expires < time.time() + 4  # what can be seen is old
        stranger.abort_transaction(10)
        with pytest.raises(LeaseHeldError, match="'first'"), destination.lease(owner="second", duration=MINUTE):
            pass
        lease.check()


def test_records_of_the_shared_control_topic_count_until_a_topic_has_its_own(spark, destination_of, name):
    """What an earlier version wrote, as its bytes lie in the one control topic that it had."""
    endpoint = KafkaEndpoint(destination_of(name).settings.bootstrap_servers)
    destination = destination_of(name, **{"sink.control-topic": None})
    destination.table.endpoint.open_producer()
    create_topic(endpoint, name, partitions=1, replication=None, config={"cleanup.policy": "compact"})
    create_topic(endpoint, "upsert-platform-control", partitions=1, replication=None, config={})
    found = describe_topic(endpoint, name)
    assert found is not None
    producer = endpoint.open_producer()
    key = f'{{"record": "state", "topic": "{name}"}}'
    value = (
        f'{{"batch": 7, "changelog_id": "changelog-1", "topic_id": "{found.topic_id}", "shares": 0, "partitions": 1,'
        ' "marks": [[7, [0]]]}'
    )
    producer.produce("upsert-platform-control", key=key, value=value, partition=0)
    assert producer.flush(10) == 0
    assert destination.state().applied_batch == 7
    write(destination, frame(spark, [(1, "a", "U", 8)]), 8, 7)
    assert destination.state().applied_batch == 8
    assert destination_of(name, **{"sink.control-topic": f"upsert-platform-control-{name}"}).state().applied_batch == 8


def test_a_control_topic_of_one_partition_is_given_a_second(destination_of, name, kafka_bootstrap):
    endpoint = KafkaEndpoint(kafka_bootstrap)
    create_topic(endpoint, f"control-{name}", partitions=1, replication=None, config={"cleanup.policy": "compact"})
    destination_of(name, **EXACTLY_ONCE).prepare()
    found = describe_topic(endpoint, f"control-{name}")
    assert found is not None
    assert found.partitions == 2


def test_a_guard_reads_the_control_topic_once_in_a_lease_not_once_per_block(spark, destination_of, name, monkeypatch):
    """40 blocks of rows under the product's lease of 30 s."""
    from upsert_platform.sync.leased import LEASE
    from upsert_platform.writing.lease import LeaseGuard

    reads = []
    monkeypatch.setattr(ControlTopic, "read", _counted(ControlTopic.read, reads))
    destination = destination_of(name)
    destination.prepare()
    with destination.lease(owner="run", duration=LEASE) as lease:
        reads.clear()
        guard = LeaseGuard(lease.terms, lambda: destination._control.read().lease)
        for _ in range(400_000 // 10_000):
            guard.check()
        assert len(reads) == 0
        destination.write(frame(spark, [(1, "a", "U", 1)]), span=span(1), lease=lease)


def _counted(read, reads):
    def counting(self, **options):
        reads.append(1)
        return read(self, **options)

    return counting


def test_records_of_an_earlier_version_are_read_and_taken_over(destination_of, name):
    """As their bytes lie in the control topic: position and verdict, and the lease of one who died."""
    destination = destination_of(name)
    destination.prepare()
    control = destination._control
    found = describe_topic(destination.table.endpoint, name)
    producer = destination.table.endpoint.open_producer()

    def put(record: str, value: str) -> None:
        producer.produce(control.name, key=f'{{"record": "{record}", "topic": "{name}"}}', value=value, partition=0)
        assert producer.flush(10) == 0

    state = f'{{"batch": 4, "changelog_id": "c", "topic_id": "{found.topic_id}", "shares": 0, "partitions": 1'
    put("state", f'{state}, "marks": [[3, [10]], [4, [12]]], "prefix": ""}}')
    verdict = '{"batch": 4, "passed": true, "complete": true, "at": "2026-11-21T10:00:00+00:00", "detail": ""}'
    put("verdict", verdict)
    put("lease", f'{{"holder": "old", "token": "t", "epoch": 7, "expires": {time.time() + 600}}}')
    state = destination.state()
    assert (state.applied_batch, state.changelog_id, state.holder) == (4, "c", "old")
    assert state.last_verdict is not None
    assert (state.last_verdict.batch, state.last_verdict.complete) == (4, True)
    assert state.verdict is None, "it may be of another topic of this name"
    assert list(destination.recent_batches()) == [3, 4]
    with pytest.raises(LeaseHeldError, match="'old'"), destination.lease(owner="new", duration=MINUTE):
        pass
    put("lease", f'{{"holder": "old", "token": "t", "epoch": 7, "expires": {time.time() - 1}}}')
    with destination.lease(owner="new", duration=MINUTE) as lease:
        assert lease.epoch == 8
        assert destination.state().applied_batch == 4
