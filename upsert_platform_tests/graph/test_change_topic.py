"""Sink `kafka` of a pipeline: a topic of changes that follows its source, and is read back by another table."""

from __future__ import annotations

from typing import Any

import pytest

from upsert_platform_tests.graph.change_events import followed
from upsert_platform_tests.graph.stack import COLUMNS, KEY, SERVING, Stack, checks_of
from upsert_platform_tests.referee.judging import records_of

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]

PIPELINE = """
source: {{type: upsert-kafka, tables: users}}
sink:
  type: kafka
  properties.bootstrap.servers: ${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}
  sink.delivery-guarantee: exactly-once
  sink.custom-header: team:data
  {more}
transform:
  - source-table: users
    projection: \\*
    filter: region <> 'test'
route: [{{source-table: users, sink-table: {topic}-out.users}}]
"""
READ = """
CREATE TABLE users_read ({columns}, {key}) WITH (
  'connector' = 'kafka', 'topic' = '{topic}-out.users', 'value.format' = '{format}',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}', 'scan.startup.mode' = 'earliest-offset'
);
"""


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("debezium-json", ""),
        pytest.param(
            "canal-json",
            "value.format: canal-json\n  partition.strategy: hash-by-key",
            marks=pytest.mark.systems,
        ),
    ],
)
def test_a_topic_of_changes_follows_its_source_and_is_read_back(stack: Stack, name: str, more: str) -> None:
    stack.declare(serving=None, warehouse=None, source=", 'batch.max-records' = '40'")
    (stack.project / "pipeline.yaml").write_text(PIPELINE.format(topic=stack.topic, more=more))
    read = READ.format(columns=COLUMNS, key=KEY, topic=stack.topic, format=name)
    serving = SERVING.format(columns=COLUMNS, key=KEY, table=stack.table, more="").replace(
        "FROM users", "FROM users_read"
    )
    (stack.project / "read.sql").write_text(read + serving)
    target = f"{stack.topic}-out.users"

    def wanted() -> dict[int, tuple[Any, Any]]:
        rows = stack.users.rows.values()
        return {row["user_id"]: (row["name"], row["region"]) for row in rows if row["region"] not in (None, "test")}

    def judged() -> list[str]:
        found = list(records_of(stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], target))
        state, kinds = followed(found, table=target, key="user_id")
        assert {number: (row["name"], row["region"]) for number, row in state.items()} == wanted()
        assert {row[0]: (row[1], row[2]) for row in stack.serving_rows()} == wanted()
        assert name != "debezium-json" or {record.partition for record in found} == {0}
        return kinds

    stack.produce(stack.users.first_wave(60))
    first = stack.run()
    assert first.success
    assert all(checks_of(first).values())
    assert set(judged()) == {"c"}
    stack.produce(stack.users.second_wave(60))
    assert stack.run().success
    kinds = judged()
    assert {"c", "u", "d"} == set(kinds)
    if name == "debezium-json":
        return
    assert stack.run("compact").success
    again = stack.run()
    assert again.success
    assert judged() == kinds
    stack.produce(stack.users.second_wave(30))
    assert stack.run().success
    assert len(judged()) > len(kinds)
    assert stack.run("verify").success
