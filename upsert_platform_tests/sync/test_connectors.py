"""One object per connector: what resources give to tables reaches every connector of their system."""

from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform.core.connector import Readable, Searchable, Writable
from upsert_platform.core.errors import DeclarationError
from upsert_platform.graph.project_component import UpsertProjectComponent
from upsert_platform.graph.resources import KafkaResource, MaxComputeResource, PlatformResource, TablestoreResource
from upsert_platform.sync.binding import load
from upsert_platform.sync.connectors import CONNECTORS, looked_up_before, topic_writers

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
    assert connector.endpoint in ("kafka", "tablestore", "maxcompute", "mysql", "postgres", "none")
    assert isinstance(connector, Readable | Writable | Searchable)


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


LOOKUPS = """
CREATE TABLE events (id INT, v STRING, proc AS PROCTIME()) WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE names (id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
CREATE TABLE elsewhere (id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
CREATE TABLE named (id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
INSERT INTO names {names};
INSERT INTO named SELECT e.id, n.v FROM events e JOIN {table} FOR SYSTEM_TIME AS OF e.proc AS n ON e.id = n.id;
"""


@pytest.mark.parametrize(
    ("names", "table", "before"),
    [
        ("SELECT id, v FROM events", "names", ("names",)),
        ("SELECT id, v FROM events", "elsewhere", ()),
        ("SELECT id, v FROM events", "named", ()),
        (
            "SELECT e.id, n.v FROM events e JOIN named FOR SYSTEM_TIME AS OF e.proc AS n ON e.id = n.id",
            "names",
            (),
        ),
    ],
)
def test_tables_in_which_rows_are_found_are_written_first_unless_they_follow(
    names: str, table: str, before: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "lookups.sql").write_text(LOOKUPS.format(names=names, table=table))
    project, problems = load(tmp_path, root=str(tmp_path / "lake"))
    assert not [item for item in problems if item.severity == "error" or table in item.message]
    (query,) = [item for item in project.queries() if item.name == "named$query"]
    assert looked_up_before(project, query) == before


def test_rows_are_found_in_tables_of_systems_that_find_them(tmp_path: Path) -> None:
    text = LOOKUPS.format(names="SELECT id, v FROM events", table="topic_of_names")
    topic = "CREATE TABLE topic_of_names (id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH"
    options = "'connector' = 'upsert-kafka', 'topic' = 'n', 'key.format' = 'json', 'value.format' = 'json'"
    (tmp_path / "lookups.sql").write_text(f"{topic} ({options});{text}")
    with pytest.raises(
        DeclarationError, match=r"connector 'upsert-kafka' has no look-up by key.*tablestore, maxcompute"
    ):
        platform(tmp_path).binding()


def test_rows_of_a_server_are_found_by_its_primary_key(tmp_path: Path) -> None:
    text = LOOKUPS.format(names="SELECT id, v FROM events", table="elsewhere")
    (tmp_path / "lookups.sql").write_text(
        text.replace("elsewhere (id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED)", "elsewhere (id INT, v STRING)")
    )
    with pytest.raises(DeclarationError, match="rows of 'elsewhere' are found by its PRIMARY KEY: declare one"):
        platform(tmp_path).binding()


SOURCE_AND_TARGET = """
CREATE TABLE a (id INT, v STRING) WITH ('connector' = '{read}', 'topic' = 'a', 'format' = 'json',
  'properties.bootstrap.servers' = 'b:1');
CREATE TABLE b (id INT, v STRING) WITH ('connector' = '{written}');
INSERT INTO b SELECT id, v FROM a;
"""


@pytest.mark.parametrize(
    ("read", "written", "message"),
    [
        (
            "kafka",
            "kafka",
            "table 'b': connector 'kafka' does not write tables; nothing distinguishes a record that is written twice"
            " from two: declare it as 'upsert-kafka' with a PRIMARY KEY, or give it a change data format",
        ),
        (
            "kafka",
            "datagen",
            "table 'b': connector 'datagen' does not write tables; those that do: upsert-kafka, kafka-changes,"
            " tablestore, tablestore-connect, maxcompute, postgres, hologres",
        ),
        ("kafka", "kafak", "table 'b': connector 'kafak' is not known; did you mean 'kafka'?"),
        ("kafak", "tablestore", "table 'a': connector 'kafak' is not known; did you mean 'kafka'?"),
        ("maxcompute", "tablestore", "table 'a' is read by an INSERT INTO, but connector 'maxcompute' is not readable"),
    ],
)
def test_a_connector_that_cannot_do_what_an_insert_needs_is_refused_with_its_reason(
    tmp_path: Path, read: str, written: str, message: str
) -> None:
    (tmp_path / "events.sql").write_text(SOURCE_AND_TARGET.format(read=read, written=written))
    with pytest.raises(DeclarationError) as raised:
        platform(tmp_path).binding()
    messages = [item.message for item in raised.value.problems]
    assert [item for item in messages if item.startswith(message)], messages
    assert not [item for item in messages if "'kafka' is not known" in item]
