"""The statements of the vendors' documents run as they stand there: from files, by ``dagster job execute``."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from upsert_platform.sync.binding import bind, load
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform_tests.graph import vendor_statements as vendor
from upsert_platform_tests.graph.stack import Stack, metadata_of
from upsert_platform_tests.referee.judging import maxcompute_table

VALUES = {
    "topic": "t", "table": "mf", "brokers": "127.0.0.1:1", "odps": "http://127.0.0.1:1/api", "project": "p",
    "odps_id": "id", "odps_key": "key",
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [vendor.METADATA, vendor.SASL_PLAIN, vendor.PAGEVIEWS, vendor.PAGEVIEWS_PER_REGION, *vendor.FILES.values()],
    ids=["metadata", "sasl", "pageviews", "per region", *vendor.FILES],
)
def test_statements_are_declared_without_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "vendor.sql").write_text(text.format(**VALUES))
    project, problems = load(tmp_path)
    assert not [problem for problem in problems if problem.severity == "error"], problems
    assert len(bind(project, problems).targets) == len({insert.target for insert in project.inserts})


@pytest.mark.parametrize("statement", vendor.NOT_HERE)
def test_statements_of_maxcompute_are_told_apart(statement: str, tmp_path: Path) -> None:
    (tmp_path / "vendor.sql").write_text(statement)
    _, problems = load(tmp_path)
    assert any(vendor.NOT_HERE[statement] in problem.message for problem in problems), problems


def _records(stack: Stack, topic: str) -> list[tuple[bytes, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], "group.id": "test"})
    found: list[tuple[bytes, bytes | None]] = []
    for partition in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        consumer.assign([TopicPartition(topic, partition, low)])
        while low < high:
            message = consumer.poll(1)
            if message is not None:
                found.append((message.key(), message.value()))
                low = message.offset() + 1
            else:
                low = consumer.position([TopicPartition(topic, partition)])[0].offset
    consumer.close()
    return found


def _avro(data: bytes, name: str, type_: str) -> Any:
    schema = {
        "type": "record", "name": "r",
        "fields": [{"name": "user_region", "type": "string"},
                   *([{"name": n, "type": ["null", "long"]} for n in ("pv", "uv")] if type_ == "value" else [])],
    }  # fmt: skip
    return fastavro.schemaless_reader(io.BytesIO(data), schema)[name]


@pytest.mark.systems
def test_all_run_together(stack: Stack, make_topic: Callable[..., str], spark: SparkSession) -> None:
    from odps import ODPS

    named = stack.variables
    client = ODPS(
        named["UPSERT_MAXCOMPUTE_ACCESS_ID"], named["UPSERT_MAXCOMPUTE_ACCESS_KEY"], named["UPSERT_MAXCOMPUTE_PROJECT"],
        endpoint=named["UPSERT_MAXCOMPUTE_ENDPOINT"],
    )  # fmt: skip
    values = {
        "topic": stack.topic, "table": stack.table, "brokers": named["UPSERT_KAFKA_BOOTSTRAP_SERVERS"],
        "odps": named["UPSERT_MAXCOMPUTE_ENDPOINT"], "project": named["UPSERT_MAXCOMPUTE_PROJECT"],
        "odps_id": named["UPSERT_MAXCOMPUTE_ACCESS_ID"], "odps_key": named["UPSERT_MAXCOMPUTE_ACCESS_KEY"],
    }  # fmt: skip
    for statement in vendor.ON_MAXCOMPUTE:
        client.execute_sql(statement.format(**values))
    for name in ("pageviews", "per-region", "Data-Input", "copy"):
        make_topic(name=f"{stack.topic}-{name}", partitions=1)
    (stack.project / "users.sql").unlink()
    for name, text in vendor.FILES.items():
        (stack.project / name).write_text(text.format(**values))
    producer = Producer({"bootstrap.servers": values["brokers"]})
    producer.produce(f"{stack.topic}-Data-Input", value=b'{"id": 1, "name": "before the job began"}')
    producer.flush()
    hop = stack.platform().changelog_hop("kafka_json_source_table", run="first")
    assert hop.execute(OnDemand.dividing(spark), hop.plan()).account.records == 0

    views = [(user, region) for user in range(20) for region in ("eu", "us", "eu")[: 1 + user % 3]]
    for user, region in views:
        row = {"user_id": user, "page_id": 1, "viewtime": "2024-05-01 10:00:00", "user_region": region}
        producer.produce(f"{stack.topic}-pageviews", value=json.dumps(row).encode())
    for value in (b'{"id": 1, "name": "a"}', b'{"id": 2, "name": "b"}', b"{broken", b'{"id": 1, "name": "c"}'):
        producer.produce(f"{stack.topic}-Data-Input", value=value)
    producer.flush()
    done = stack.execute()
    assert done.returncode == 0, done.stderr[-3000:]

    shown = {
        _avro(key, "user_region", "key"): (_avro(value, "pv", "value"), _avro(value, "uv", "value"))
        for key, value in _records(stack, f"{stack.topic}-per-region")
        if value is not None
    }
    assert shown == {
        region: (sum(r == region for _, r in views), len({user for user, r in views if r == region}))
        for region in ("eu", "us")
    }
    copied = {
        json.loads(key)["id"]: json.loads(value or b"null") for key, value in _records(stack, f"{stack.topic}-copy")
    }
    assert copied == {1: {"id": 1, "name": "c"}, 2: {"id": 2, "name": "b"}}
    columns = {"id": "BIGINT", "name": "STRING", "age": "INT", "status": "BOOLEAN"}
    assert list(maxcompute_table(named, f"{stack.table}_tt", columns)) == [[1, "Danny", 28, False]]
    columns |= {"dd": "STRING", "hh": "STRING"}
    assert list(maxcompute_table(named, f"{stack.table}_tt_part", columns)) == [[1, "Danny", 30, False, "01", "01"]]
    columns = {"c1": "INT", "c2": "STRING", "gt": "TIMESTAMP(3)", "ds": "STRING"}
    made = list(maxcompute_table(named, f"{stack.table}_upsert", columns))
    assert 80 < len(made) <= 100  # of the numbers below 1000, a hundred are drawn
    assert len({row[0] for row in made}) == len(made)
    assert {row[3] for row in made} == {
        datetime.fromtimestamp(row[2] // 1_000_000_000, UTC).strftime("%Y%m%d%H") for row in made
    }
    assert all(0 <= row[0] < 1000 for row in made)


def test_batch_that_only_tells_where_reading_begins_is_applied(stack: Stack, make_topic: Callable[..., str]) -> None:
    for name in ("Data-Input", "copy"):
        make_topic(name=f"{stack.topic}-{name}", partitions=1)
    (stack.project / "users.sql").unlink()
    values = VALUES | {"topic": stack.topic, "brokers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]}
    (stack.project / "copy.sql").write_text(vendor.COPY.format(**values))
    done = stack.run()
    assert done.success
    shown = metadata_of(done, "tables", "kafka_upsert_sink_table")
    assert (shown["batches"], shown["upserts"], shown["multi_partition_keys"]) == (1, 0, 0)
