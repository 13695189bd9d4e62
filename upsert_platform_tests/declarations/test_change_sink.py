"""Sink `kafka` of ingestion pipelines: what it declares, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform.core.errors import DeclarationError
from upsert_platform.sync.binding import bind
from upsert_platform_tests.declarations.test_pipeline import load, told

FORMATS = {"properties.bootstrap.servers": "localhost:9092", "key.format": "json", "value.format": "json"}


def test_sink_kafka_is_a_topic_of_changes(tmp_path: Path) -> None:
    """Defaults are those of Flink CDC; the mapping names topics, and tables keep their names in the messages."""
    sink = """
source: {type: upsert-kafka, tables: app.\\.*}
sink:
  type: kafka
  properties.bootstrap.servers: localhost:9092
  sink.tableId-to-topic.mapping: app.u\\.*:people;app.none:nobody
"""
    project, problems = load(
        tmp_path, sink + "route: [{source-table: app.\\.*, sink-table: out.<>, replace-symbol: <>}]\n"
    )
    assert told(problems) == []
    assert [insert.query is not None for insert in project.inserts] == [True, True]
    assert [project.tables[name].options["topic"] for name in ("out.users", "out.orders")] == [
        "out.users",
        "out.orders",
    ]
    project, problems = load(
        tmp_path, (sink + "route: [{source-table: app.\\.*, sink-table: app.<>2, replace-symbol: <>}]\n")
    )
    assert told(problems) == []
    assert {name: project.tables[name].options["topic"] for name in ("app.users2", "app.orders2")} == {
        "app.users2": "people",
        "app.orders2": "app.orders2",
    }
    users = dict(project.tables["app.users2"].options)
    assert users["connector"] == "kafka-changes"
    assert (users["key.format"], users["value.format"]) == ("json", "debezium-json")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("value.format: json", "is one of debezium-json, canal-json, not 'json'"),
        ("key.format: raw", "is one of json, csv, not 'raw'"),
        ("debezium-json.include-schema.enabled: true", "is refused: messages are written without their schema"),
        ("sink.debezium-json.include-schema.enabled: true", "is refused: messages are written without their schema"),
        ("sink.delivery-guarantee: none", "is at-least-once or exactly-once"),
        ("on-error: quarantine", "is fail: changes that are kept aside make sums wrong for ever"),
        ("sink.custom-header: a=b", "takes name1:value1,name2:value2, not 'a=b'"),
        ("partition.strategy: round-robin", "partition.strategy"),
        ("sink.tableId-to-topic.mapping: app", "takes pattern:topic;pattern:topic, not 'app'"),
        ("debezium-json.encode.nothing: true", "debezium-json.encode.nothing"),
    ],
)
def test_what_sink_kafka_refuses(tmp_path: Path, line: str, wanted: str) -> None:
    text = f"""
source: {{type: upsert-kafka, tables: app.users}}
sink:
  type: kafka
  properties.bootstrap.servers: localhost:9092
  {line}
route: [{{source-table: app.users, sink-table: out}}]
"""
    project, problems = load(tmp_path, text)
    found = told(problems)
    if not found:
        with pytest.raises(DeclarationError) as error:
            bind(project, problems, defaults={"upsert-kafka": FORMATS})
        found = [str(error.value)]
    assert any(wanted in item for item in found), found


def test_sink_kafka_takes_its_formats_options_with_the_formats_name_alone(tmp_path: Path) -> None:
    text = """
source: {type: upsert-kafka, tables: app.users}
sink:
  type: kafka
  properties.bootstrap.servers: localhost:9092
  value.format: canal-json
  key.format: csv
  canal-json.timestamp-format.standard: ISO-8601
  debezium-json.include-schema.enabled: false
  sink.custom-header: a:1,b:2
route: [{source-table: app.users, sink-table: out}]
"""
    project, problems = load(tmp_path, text)
    binding = bind(project, problems, defaults={"upsert-kafka": FORMATS})
    checked = binding.targets["out"].checked
    assert dict(checked.value.options) == {"canal-json.timestamp-format.standard": "ISO-8601"}
    assert checked.settings.custom_headers == (("a", "1"), ("b", "2"))
    assert checked.settings.partition_strategy.value == "all-to-zero"
