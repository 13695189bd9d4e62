"""Repairing a written topic: `verify` finds what another program sent, `reconcile` sends just those keys."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from upsert_platform_tests.graph.stack import COLUMNS, KEY, Stack
from upsert_platform_tests.graph.test_reconcile import EACH, repair

COPY = """
CREATE TABLE users_copy ({columns}, {key}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}-copy', 'auto.create' = 'true',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO users_copy SELECT * FROM users;
"""
pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]


def records(servers: str, topic: str) -> list[tuple[int, dict[str, Any] | None]]:
    """Every record of a topic, partition after partition: key and value."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "isolation.level": "read_committed"})
    found = []
    for partition in sorted(consumer.list_topics(topic, 10).topics[topic].partitions):
        place = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=10)
        if not end:
            continue
        consumer.assign([place])
        while consumer.position([place])[0].offset < end:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            value = message.value()
            key = json.loads(message.key() or b"")["user_id"]
            found.append((int(key), None if value is None else json.loads(value)))
            if message.offset() == end - 1:
                break
    consumer.close()
    return found


def test_a_hundred_spoiled_records_of_each_kind_are_found_and_exactly_those_keys_are_sent(stack: Stack) -> None:
    stack.declare(serving=None, warehouse=None)
    text = COPY.format(columns=COLUMNS, key=KEY, topic=stack.topic)
    (stack.project / "zz_copy.sql").write_text(text, "utf-8")
    servers, topic = stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], f"{stack.topic}-copy"
    stack.produce(stack.users.first_wave(400))
    with dg.DagsterInstance.ephemeral() as instance:
        assert stack.run(instance=instance).success
        right = dict(records(servers, topic))
        keys = sorted(right)
        assert set(keys) == set(stack.users.rows)
        assert len(keys) >= 2 * EACH
        producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
        gone, stale = keys[:EACH], keys[EACH : 2 * EACH]
        strange = range(900_000, 900_000 + EACH)
        values = {**dict.fromkeys(gone), **{key: {**(right[key] or {}), "name": "x"} for key in stale}}
        values |= {key: {"user_id": key, "name": "nobody"} for key in strange}
        for key, value in values.items():
            sent = None if value is None else json.dumps(value).encode()
            producer.produce(topic, key=json.dumps({"user_id": key}, separators=(",", ":")).encode(), value=sent)
        assert producer.flush(30) == 0

        found = {"missing": EACH, "extra": EACH, "stale": EACH}
        verified = stack.run("verify", instance=instance)
        assert not verified.success
        (check,) = verified.get_asset_check_evaluations()
        assert {name: check.metadata[name].value for name in found} == found
        before = len(records(servers, topic))
        done = repair(stack, instance)["users_copy"]
        assert {name: done[name] for name in found} == found
        assert (done["rows_put"], done["rows_deleted"]) == (2 * EACH, EACH)
        after = records(servers, topic)
        assert len(after) == before + 3 * EACH
        assert {key: value for key, value in dict(after).items() if value is not None} == right
        assert stack.run("verify", instance=instance).success
