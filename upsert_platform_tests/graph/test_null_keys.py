"""Rows whose key is null, into tables of every connector: set aside once, and no fault of any later run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Producer

from upsert_platform_tests.graph import vendor_statements as vendor
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.graph.test_faults import failures

BESIDE = """
CREATE TABLE copied_serving (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'table.name' = '{table}_s', 'auto.create' = 'true',
  'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',
  'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',
  'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',
  'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}');
CREATE TABLE copied_warehouse (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'maxcompute', 'table.name' = '{table}_w', 'auto.create' = 'true', 'sink.operation' = 'upsert',
  'odps.end.point' = '${{UPSERT_MAXCOMPUTE_ENDPOINT}}', 'odps.project.name' = '${{UPSERT_MAXCOMPUTE_PROJECT}}',
  'odps.access.id' = '${{UPSERT_MAXCOMPUTE_ACCESS_ID}}', 'odps.access.key' = '${{UPSERT_MAXCOMPUTE_ACCESS_KEY}}',
  'commit.min-interval' = '0 s');
INSERT INTO copied_serving SELECT * FROM kafka_json_source_table;
INSERT INTO copied_warehouse SELECT * FROM kafka_json_source_table;
"""
TABLES = ("kafka_upsert_sink_table", "copied_serving", "copied_warehouse", "pageviews_per_region")


def checks(result: dg.ExecuteInProcessResult) -> Mapping[str, dg.AssetCheckEvaluation]:
    """The comparisons of a run by table."""
    return {
        item.asset_key.path[-1]: item
        for item in result.get_asset_check_evaluations()
        if item.check_name == "last_value_per_key"
    }


def numbers(check: dg.AssetCheckEvaluation) -> dict[str, Any]:
    names = ("missing", "extra", "stale", "refused", "refused_rows")
    return {name: check.metadata[name].value for name in names if name in check.metadata}


@pytest.mark.systems
@pytest.mark.usefixtures("spark")
def test_vendors_statements_over_records_with_missing_and_null_fields(
    stack: Stack, make_topic: Callable[..., str]
) -> None:
    values = {
        "topic": stack.topic, "table": stack.table, "brokers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"],
    }  # fmt: skip
    for name in ("pageviews", "per-region", "Data-Input", "copy"):
        make_topic(name=f"{stack.topic}-{name}", partitions=1)
    (stack.project / "users.sql").unlink()
    copy = vendor.COPY.replace("'latest-offset'", "'earliest-offset'").format(**values)
    (stack.project / "copy.sql").write_text(copy + BESIDE.format(**values))
    (stack.project / "pageviews.sql").write_text(vendor.FILES["pageviews.sql"].format(**values))
    producer = Producer({"bootstrap.servers": values["brokers"]})

    def send(*, first: int) -> None:
        views = [(first, "eu"), (first, "us"), (first + 1, None), (None, "eu")]
        for user, region in views:
            row = {"user_id": user, "page_id": 1, "viewtime": "2024-05-01 10:00:00", "user_region": region}
            producer.produce(f"{stack.topic}-pageviews", value=json.dumps(row).encode())
        producer.produce(f"{stack.topic}-pageviews", value=b'{"user_id": 7}')
        for row in ({"id": first, "name": "a"}, {"name": "nobody"}, {"id": None, "name": None}, {"id": first + 1}, {}):
            producer.produce(f"{stack.topic}-Data-Input", value=json.dumps(row).encode())
        producer.flush()

    for turn in range(2):
        send(first=10 * turn)
        for job in ("sync", "sync", "verify"):
            result = stack.run(job)
            assert result.success, (turn, job, failures(result))
            for table, check in checks(result).items():
                found = numbers(check)
                if check.metadata["new"].value:  # what stands from before has no counts of its own
                    assert (found["missing"], found["extra"], found["stale"]) == (0, 0, 0), (turn, job, table, found)
                assert found["refused_rows"] == turn + 1, (turn, job, table)  # one of each batch is kept aside
                assert check.severity is dg.AssetCheckSeverity.WARN
            if job == "verify":
                assert set(checks(result)) == set(TABLES)
                assert {numbers(check)["refused"] for check in checks(result).values()} == {1}
    repaired = stack.run("reconcile")
    assert repaired.success, failures(repaired)
    drained = stack.run("drain_quarantine")
    assert drained.success, failures(drained)
    assert stack.run().success
