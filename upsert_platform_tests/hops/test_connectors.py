"""One object per connector: what resources give to tables reaches every connector of their system."""

from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform.connector import Readable, Writable
from upsert_platform.graph.project_component import UpsertProjectComponent
from upsert_platform.graph.resources import KafkaResource, MaxComputeResource, PlatformResource, TablestoreResource
from upsert_platform.hops.binding import load
from upsert_platform.hops.connectors import CONNECTORS, topic_writers

EVENTS = """
CREATE TABLE events (id INT, v STRING) WITH ('connector' = 'kafka', 'topic' = 'events', 'format' = 'json');
CREATE TABLE latest (id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
INSERT INTO latest SELECT id, v FROM events;
"""
SINK = """
name=sink
connector.class=com.aliyun.tablestore.kafka.connect.TableStoreSinkConnector
topics=users
table.name.format=kafka_<topic>
auto.create=true
"""
TABLESTORE = {
    "tablestore.endpoint": "http://127.0.0.1:1",
    "tablestore.instance.name": "shop",
    "tablestore.access.key.id": "id",
    "tablestore.access.key.secret": "secret",
}


def platform(folder: Path) -> PlatformResource:
    return PlatformResource(
        project=str(folder),
        home=str(folder / "lake"),
        kafka=KafkaResource(bootstrap_servers="127.0.0.1:1"),
        tablestore=TablestoreResource(options=TABLESTORE),
        maxcompute=MaxComputeResource(),
    )


def test_a_kafka_resource_completes_plain_kafka_tables(tmp_path: Path) -> None:
    (tmp_path / "events.sql").write_text(EVENTS)
    source = platform(tmp_path).binding().sources["events"]
    assert source.table.options["properties.bootstrap.servers"] == "127.0.0.1:1"
    assert source.mode == "append"


def test_a_tablestore_resource_completes_connect_configurations_in_resource_and_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSERT_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    (tmp_path / "sink.properties").write_text(SINK)
    assert platform(tmp_path).binding().targets
    component = UpsertProjectComponent(tablestore=TABLESTORE)
    assert component.definitions_of(tmp_path).assets


@pytest.mark.parametrize("name", CONNECTORS)
def test_every_connector_says_what_it_is(name: str) -> None:
    connector = CONNECTORS[name]
    assert connector.name == name
    assert connector.endpoint in ("kafka", "tablestore", "maxcompute", "none")
    assert isinstance(connector, Readable | Writable)


def _table(name: str, topic: str, servers: str = "b:1") -> str:
    return (
        f"CREATE TABLE {name} (id INT PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = '{topic}'"
        f", 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'value.format' = 'json');"
    )


@pytest.mark.parametrize(
    ("tables", "inserts", "writers"),
    [
        # a is copied to topic y, which b reads: y is written first.
        ([("a", "x"), ("w", "y"), ("b", "y"), ("c", "z")], ["w a", "c b"], {"b": ("w",)}),
        ([("a", "x"), ("w", "y"), ("b", "y", "other:1"), ("c", "z")], ["w a", "c b"], {}),
        # A circle of topics: one of the two waits for the next run.
        ([("a", "x"), ("w", "y"), ("b", "y"), ("v", "x")], ["w a", "v b"], {"a": ("v",)}),
    ],
)
def test_topics_are_written_before_they_are_read(
    tables: list[tuple[str, ...]], inserts: list[str], writers: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    statements = [_table(*table) for table in tables]
    statements += [f"INSERT INTO {pair.split()[0]} SELECT * FROM {pair.split()[1]};" for pair in inserts]
    (tmp_path / "t.sql").write_text("\n".join(statements))
    project, _ = load(tmp_path)
    assert topic_writers(project) == writers
