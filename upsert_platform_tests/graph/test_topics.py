"""Topic to topic, and tables without a key: the other two shapes of a pipeline, on real servers."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from upsert_platform_tests.graph.stack import COLUMNS, KEY, Stack, checks_of, metadata_of
from upsert_platform_tests.referee.judging import records_of

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]

COPY = """
CREATE TABLE users_copy ({columns}, {key}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}-copy', 'auto.create' = 'true',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO users_copy SELECT * FROM users WHERE region <> 'test';
"""
EVENTS = """
CREATE TABLE events (device STRING, reading DOUBLE, at BIGINT METADATA FROM 'offset' VIRTUAL) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}'
);
CREATE TABLE events_warehouse (device STRING, reading DOUBLE, at BIGINT) WITH (
  'connector' = 'maxcompute', 'table.name' = '{table}', 'sink.operation' = 'insert', 'auto.create' = 'true',
  'odps.end.point' = '${{UPSERT_MAXCOMPUTE_ENDPOINT}}', 'odps.project.name' = '${{UPSERT_MAXCOMPUTE_PROJECT}}',
  'odps.access.id' = '${{UPSERT_MAXCOMPUTE_ACCESS_ID}}', 'odps.access.key' = '${{UPSERT_MAXCOMPUTE_ACCESS_KEY}}'
);
INSERT INTO events_warehouse SELECT device, reading, at FROM events WHERE reading IS NOT NULL;
CREATE TABLE events_whole (device STRING, reading DOUBLE, at BIGINT) WITH (
  'connector' = 'maxcompute', 'table.name' = '{table}_whole', 'sink.operation' = 'insert', 'auto.create' = 'true',
  'odps.end.point' = '${{UPSERT_MAXCOMPUTE_ENDPOINT}}', 'odps.project.name' = '${{UPSERT_MAXCOMPUTE_PROJECT}}',
  'odps.access.id' = '${{UPSERT_MAXCOMPUTE_ACCESS_ID}}', 'odps.access.key' = '${{UPSERT_MAXCOMPUTE_ACCESS_KEY}}'
);
INSERT OVERWRITE events_whole SELECT device, reading, at FROM events WHERE reading IS NOT NULL;
"""


def last_values(stack: Stack, topic: str) -> dict[int, dict[str, object]]:
    """Last value per key of a topic."""
    found: dict[int, dict[str, object]] = {}
    for record in records_of(stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], topic):
        key = json.loads(record.key or b"")["user_id"]
        if record.value is None:
            found.pop(key, None)
        else:
            found[key] = json.loads(record.value)
    return found


def test_topic_is_kept_equal_in_another_topic(stack: Stack) -> None:
    stack.declare(serving=None, warehouse=None)
    copy = COPY.format(columns=COLUMNS, key=KEY, topic=stack.topic)
    (stack.project / "zz_copy.sql").write_text(copy)
    stack.produce(stack.users.first_wave(80))
    first = stack.run()
    assert first.success
    stack.produce(stack.users.second_wave(80))
    second = stack.run()
    assert second.success
    assert all(checks_of(second).values())
    expected = {key: row for key, row in stack.users.rows.items() if row["region"] != "test"}
    found = last_values(stack, f"{stack.topic}-copy")
    assert found.keys() == expected.keys()
    assert all(found[key]["name"] == row["name"] for key, row in expected.items())
    idle = stack.run()
    assert idle.success
    assert metadata_of(idle, "tables", "users_copy")["batches"] == 0
    assert stack.run("verify").success


def test_every_record_of_a_table_without_key_is_appended_once_and_overwriting_gives_the_same_rows(
    stack: Stack, make_topic: Callable[..., str]
) -> None:
    from odps import ODPS

    stack.topic = make_topic(partitions=4)  # not compacted: brokers refuse records without a key on compacted ones

    (stack.project / "users.sql").write_text(EVENTS.format(topic=stack.topic, table=stack.table))
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for wave in range(2):
        for index in range(40):
            value = {"device": f"d{index % 5}", "reading": None if index % 10 == 9 else index + wave / 10}
            producer.produce(stack.topic, value=json.dumps(value), partition=index % 4)
        producer.flush()
        result = stack.run()
        assert result.success
        assert metadata_of(result, "changelogs", "events")["rows"] == 40
    client = ODPS(
        stack.variables["UPSERT_MAXCOMPUTE_ACCESS_ID"],
        stack.variables["UPSERT_MAXCOMPUTE_ACCESS_KEY"],
        stack.variables["UPSERT_MAXCOMPUTE_PROJECT"],
        endpoint=stack.variables["UPSERT_MAXCOMPUTE_ENDPOINT"],
    )
    expected = sorted(i + wave / 10 for wave in range(2) for i in range(40) if i % 10 != 9)
    for table in (stack.table, f"{stack.table}_whole"):
        with client.execute_sql(f"SELECT device, reading FROM {table}").open_reader(tunnel=True) as reader:
            assert sorted(record["reading"] for record in reader) == pytest.approx(expected)
    verified = {
        item.asset_key.path[-1]: (item.passed, *(item.metadata[name].value for name in ("compared", "missing", "rows")))
        for item in stack.run("verify").get_asset_check_evaluations()
    }
    assert verified == dict.fromkeys(("events_warehouse", "events_whole"), (True, 72, 0, 72))
