"""A topic copied exactly once under kill -9: what a committed reader finds has no record twice and no key missing."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from upsert_platform.kafka.sink.control import LEASE
from upsert_platform.kafka.sink.destination import KafkaDestination
from upsert_platform.kafka.sink.lease import lease_id
from upsert_platform.kafka.sink.transactions import in_transaction, open_transactional
from upsert_platform.referee.stores import topic_rows
from upsert_platform_tests.graph.stack import COLUMNS, KEY, USERS, Stack
from upsert_platform_tests.referee.judging import records_of, told
from upsert_platform_tests.soak.attached import way_to
from upsert_platform_tests.soak.load import Load
from upsert_platform_tests.soak.writers import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = "upsert_platform_tests.soak.copying"
FEW_KILLS = 2
MANY_KILLS = 30
KEYS = 1_000
FIRST = 2_000
BIT = 300
"""Records that are produced whenever a hop begins."""
FEW_BATCH, MANY_BATCH = 4_000, 1_500
LINES = 2
"""A copy is killed in one of its first so many hops: into the changelog, or out of it."""
KILL_SECONDS = 1.0
COPY = """
CREATE TABLE users_copy ({columns}, {key}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}-copy', 'auto.create' = 'true', 'auto.create.partitions' = '3',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'soak-{topic}', 'sink.parallelism' = '3'
);
INSERT INTO users_copy SELECT * FROM users;
"""


@pytest.fixture
def stack(
    kafka_bootstrap: str, make_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Stack:
    """A project that needs no server but the broker."""
    monkeypatch.setenv("UPSERT_KAFKA_BOOTSTRAP_SERVERS", kafka_bootstrap)
    topic = make_topic(name=f"users-{uuid.uuid4().hex[:8]}", partitions=4, config={"cleanup.policy": "compact"})
    return Stack(tmp_path, {"UPSERT_KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap}, topic)


@pytest.mark.systems
@pytest.mark.timeout(200)
def test_copy_under_a_few_kills_has_every_record_once(stack: Stack, seed: int, spark: SparkSession) -> None:
    copy_under_kills(stack, seed, spark, kills=FEW_KILLS, batch=FEW_BATCH)


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_copy_under_many_kills_has_every_record_once(stack: Stack, seed: int, spark: SparkSession) -> None:
    copy_under_kills(stack, seed, spark, kills=MANY_KILLS, batch=MANY_BATCH, alone=3)


def copy_under_kills(stack: Stack, seed: int, spark: SparkSession, *, kills: int, batch: int, alone: int = 0) -> None:
    """Copies a topic that grows, killing the copying process again and again, and compares at the end.

    Args:
        spark: its JVM is that of the processes, and runs no job of a process that is dead.
        batch: most records of a hop.
        alone: one process in so many has a JVM of its own, which dies with it; 0 for none.
    """
    stack.declare(serving=None, warehouse=None, source=f", 'batch.max-records' = '{batch}'")
    (stack.project / "zz_copy.sql").write_text(COPY.format(columns=COLUMNS, key=KEY, topic=stack.topic), "utf-8")
    chance = random.Random(seed)
    load = Load(stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], stack.topic, stack.users, chance, KEYS)
    load.produce(FIRST)
    moments: Counter[str] = Counter()
    shared = {**stack.environment(), **way_to(spark)}
    for number in range(kills):
        environment = stack.environment() if alone and number % alone == 0 else shared
        writer = Writer(MODULE, "forever", log=stack.path / f"{number}.log", environment=environment)
        last = writer.kill_after(chance, lines=LINES, seconds=KILL_SECONDS, at_line=lambda: load.produce(BIT))
        spark.sparkContext.cancelAllJobs()
        moments[last.split()[0]] += 1
        _let_lease_end(stack)
    Writer(MODULE, "once", log=stack.path / "last.log", environment=shared).finish()
    bootstrap = stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    records = [(item.key or b"", item.value) for item in records_of(bootstrap, f"{stack.topic}-copy")]
    held = USERS.last_values(records_of(bootstrap, f"{stack.topic}-copy"))
    verdict = USERS.judge(records_of(bootstrap, stack.topic), topic_rows(held, list(USERS.columns)))
    held.close()
    assert told(verdict) == []
    assert verdict.equal_rows == len(stack.users.rows)
    deletes = Counter(json.loads(key)["user_id"] for key, value in records if value is None)
    # No two produced values of a user are alike, so one that is there twice was written twice.
    twice = [record for record, times in Counter(item for item in records if item[1] is not None).items() if times > 1]
    assert twice == []
    assert {user_id: times for user_id, times in deletes.items() if times > load.deleted[user_id]} == {}
    print(f"killed in {dict(moments)}; {load.records} records in, {len(records)} committed records out")  # noqa: T201


def _let_lease_end(stack: Stack) -> None:
    """Makes the lease of the killed process one that has ended, as time would."""
    destination = stack.platform().destination("users_copy")
    assert isinstance(destination, KafkaDestination)
    control = destination._control
    control.create()
    producer = open_transactional(control.endpoint, lease_id(control))  # ends what the killed process left open
    lease = control.read().lease
    if lease.expires > time.time():
        in_transaction(producer, lambda: control.produce(producer, LEASE, asdict(replace(lease, expires=0.0))))
