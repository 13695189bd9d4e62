"""Dates and times at the ends of their range, in keys and beside them: written, checked, compared and repaired."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Producer

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.graph.test_faults import failures

COLUMNS = "at TIMESTAMP_LTZ(3), id BIGINT, d DATE, t TIME(3), ts TIMESTAMP(6), many ARRAY<TIMESTAMP_LTZ(3)>"
FLAT = "at TIMESTAMP_LTZ(3), id BIGINT, d DATE, t TIME(3), ts TIMESTAMP(6)"
KEY = "PRIMARY KEY (at) NOT ENFORCED"
DDL = f"""
CREATE TABLE events ({COLUMNS}, {KEY}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{{topic}}',
  'properties.bootstrap.servers' = '${{{{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}}}',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE copied ({COLUMNS}, {KEY}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{{topic}}-copy', 'auto.create' = 'true',
  'properties.bootstrap.servers' = '${{{{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}}}',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE serving ({FLAT}, {KEY}) WITH (
  'connector' = 'tablestore', 'table.name' = '{{table}}', 'auto.create' = 'true',
  'tablestore.endpoint' = '${{{{UPSERT_TABLESTORE_ENDPOINT}}}}',
  'tablestore.instance.name' = '${{{{UPSERT_TABLESTORE_INSTANCE}}}}',
  'tablestore.access.key.id' = '${{{{UPSERT_TABLESTORE_ACCESS_KEY_ID}}}}',
  'tablestore.access.key.secret' = '${{{{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}}}');
CREATE TABLE warehouse ({FLAT}, {KEY}) WITH (
  'connector' = 'maxcompute', 'table.name' = '{{table}}', 'auto.create' = 'true', 'sink.operation' = 'upsert',
  'odps.end.point' = '${{{{UPSERT_MAXCOMPUTE_ENDPOINT}}}}', 'odps.project.name' = '${{{{UPSERT_MAXCOMPUTE_PROJECT}}}}',
  'odps.access.id' = '${{{{UPSERT_MAXCOMPUTE_ACCESS_ID}}}}',
  'odps.access.key' = '${{{{UPSERT_MAXCOMPUTE_ACCESS_KEY}}}}', 'commit.min-interval' = '0 s');
INSERT INTO copied SELECT * FROM events;
INSERT INTO serving SELECT at, id, d, t, ts FROM events;
INSERT INTO warehouse SELECT at, id, d, t, ts FROM events;
"""
MOMENTS = (
    ("0001-01-01 00:00:00.000", "0001-01-01", "00:00:00.000"),
    ("1582-10-10 12:00:00.001", "1582-10-10", "12:00:00.001"),
    ("1900-01-01 00:00:00.000", "1900-01-01", "00:00:00.001"),
    ("1969-12-31 23:59:59.999", "1969-12-31", "23:59:59.999"),
    ("9999-12-31 23:59:59.999", "9999-12-31", "23:59:59.999"),
)

HELD = 2
"""Of them MaxCompute holds those that 64 bits of nanoseconds reach, 1677 to 2262; it refuses the others."""


def records(*, name: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [
        ({"at": f"{at}Z"}, {"at": f"{at}Z", "id": name, "d": day, "t": clock, "ts": at, "many": [f"{at}Z", None]})
        for at, day, clock in MOMENTS
    ]


def comparisons(result: dg.ExecuteInProcessResult) -> list[dg.AssetCheckEvaluation]:
    return [item for item in result.get_asset_check_evaluations() if item.check_name == "last_value_per_key"]


def differences(result: dg.ExecuteInProcessResult) -> dict[str, tuple[int, ...]]:
    """Missing, extra and stale rows by table."""
    return {
        check.asset_key.path[-1]: tuple(int(str(check.metadata[name].value)) for name in ("missing", "extra", "stale"))
        for check in comparisons(result)
    }


def spoil(stack: Stack) -> None:
    """Takes the rows out of both tables."""
    from odps import ODPS
    from tablestore import INF_MAX, INF_MIN, Direction, OTSClient, Row

    names = ("ENDPOINT", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "INSTANCE")
    client = OTSClient(*[stack.variables[f"UPSERT_TABLESTORE_{name}"] for name in names])
    _, _, rows, _ = client.get_range(
        stack.table, Direction.FORWARD, [("at", INF_MIN)], [("at", INF_MAX)], columns_to_get=[], max_version=1
    )
    assert len(rows) == len(MOMENTS)
    for row in rows:
        client.delete_row(stack.table, Row(row.primary_key), None)
    named = ("ACCESS_ID", "ACCESS_KEY", "PROJECT", "ENDPOINT")
    odps = ODPS(*[stack.variables[f"UPSERT_MAXCOMPUTE_{name}"] for name in named])
    odps.execute_sql(f"UPDATE {stack.table} SET id = -1 WHERE id = 2")


@pytest.mark.soak
@pytest.mark.usefixtures("spark")
def test_every_destination_takes_and_compares_them(stack: Stack) -> None:
    (stack.project / "users.sql").write_text(DDL.format(topic=stack.topic, table=stack.table), "utf-8")
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for name in (1, 2):
        for key, value in records(name=name):
            producer.produce(stack.topic, key=json.dumps(key), value=json.dumps(value))
        producer.flush()
        result = stack.run()
        assert result.success, failures(result)
        assert differences(result) == dict.fromkeys(("copied", "serving", "warehouse"), (0, 0, 0))
    verified = stack.run("verify")
    assert verified.success, failures(verified)
    assert differences(verified) == dict.fromkeys(("copied", "serving", "warehouse"), (0, 0, 0))
    spoil(stack)
    found = stack.run("verify")
    assert differences(found) == {"copied": (0, 0, 0), "serving": (len(MOMENTS), 0, 0), "warehouse": (0, 0, HELD)}
    samples = {
        check.asset_key.path[-1]: str(check.metadata["sample"].value)
        for check in comparisons(found)
        if not check.passed and "sample" in check.metadata
    }
    assert "0001-01-01 00:00:00" in samples["serving"]
    assert "9999-12-31 23:59:59.999" in samples["serving"]
    assert "1900-01-01 00:00:00" in samples["warehouse"]
    repaired = stack.run("reconcile")
    assert repaired.success, failures(repaired)
    again = stack.run("verify")
    assert again.success, failures(again)
