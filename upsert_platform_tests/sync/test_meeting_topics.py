"""Declared tables that are right alone and wrong together: one topic, or one transactional id, for two purposes."""

from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform.core.errors import DeclarationError
from upsert_platform.declarations.project import load_project
from upsert_platform.sync.binding import bind
from upsert_platform.sync.connectors import CONNECTORS

EXACTLY_ONCE = {"sink.delivery-guarantee": "exactly-once"}
CONNECT = """
name=sink
connector.class=com.aliyun.tablestore.kafka.connect.TableStoreSinkConnector
topics=users
tablestore.endpoint=http://127.0.0.1:1
tablestore.instance.name=shop
tablestore.access.key.id=id
tablestore.access.key.secret=secret
table.name.format=<topic>
errors.tolerance=all
runtime.error.tolerance=all
"""


def table(name: str, topic: str, **options: str) -> str:
    """An upsert-kafka table with `id` and `region`."""
    given = {
        "connector": "upsert-kafka",
        "topic": topic,
        "properties.bootstrap.servers": "127.0.0.1:1",
        "key.format": "json",
        "value.format": "json",
        **options,
    }
    listed = ", ".join(f"'{option}' = '{value}'" for option, value in given.items() if value)
    return f"CREATE TABLE {name} (id INT, region STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ({listed});\n"


def flow(target: str, where: str = "", source: str = "users") -> str:
    return f"INSERT INTO {target} SELECT id, region FROM {source} {where};\n"


def problems(folder: Path, statements: str, **files: str) -> list[str]:
    """Messages of errors; none when the project can be used."""
    (folder / "tables.sql").write_text(statements)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    project, found = load_project(folder, {"UPSERT_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}, connectors=CONNECTORS)
    try:
        bind(project, found)
    except DeclarationError as error:
        return [problem.message for problem in error.problems]
    return []


USERS = table("users", "users")


def test_two_tables_on_one_topic_are_refused_however_the_brokers_are_spelled(tmp_path: Path) -> None:
    both = flow("eu", "WHERE region = 'eu'") + flow("us", "WHERE region = 'us'")
    apart = table("eu", "eu") + table("us", "us")
    assert problems(tmp_path, USERS + apart + both) == []
    other = {"properties.bootstrap.servers": "B:2, a:1", "sink.control-topic": "mine"}
    one = {"properties.bootstrap.servers": "a:1,b:2"}
    for declared in (table("eu", "t") + table("us", "t"), table("eu", "t", **one) + table("us", "t", **other)):
        (message,) = problems(tmp_path, USERS + declared + both)
        assert "'us' and table 'eu' both write topic 't'" in message
        assert "one INSERT" in message


def test_a_transactional_id_prefix_belongs_to_one_sink(tmp_path: Path) -> None:
    prefix = {**EXACTLY_ONCE, "sink.transactional-id-prefix": "p"}
    both = flow("a") + flow("b")
    (message,) = problems(tmp_path, USERS + table("a", "a", **prefix) + table("b", "b", **prefix) + both)
    assert "'sink.transactional-id-prefix' = 'p' is that of table 'a' too" in message
    own = {**prefix, "sink.transactional-id-prefix": "q"}
    assert problems(tmp_path, USERS + table("a", "a", **prefix) + table("b", "b", **own) + both) == []
    no_transactions = {"sink.transactional-id-prefix": "p"}
    assert problems(tmp_path, USERS + table("a", "a", **prefix) + table("b", "b", **no_transactions) + both) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [("a", "upsert-platform-control-a"), ("upsert-platform-control", "b"), ("a", "mine")],
)
def test_a_control_topic_is_nobodys_target(tmp_path: Path, first: str, second: str) -> None:
    options = {"sink.control-topic": "mine"} if second == "mine" else {}
    declared = table("a", first, **options) + table("b", second)
    (message,) = problems(tmp_path, USERS + declared + flow("a") + flow("b"))
    assert "write another topic" in message


@pytest.mark.parametrize("source", [{"topic": "users"}, {"topic": "", "topic-pattern": "us.*"}])
def test_a_topic_is_not_written_from_itself(tmp_path: Path, source: dict[str, str]) -> None:
    declared = table("users", **{"topic": "users", **source}) + table("copy", "users")
    (message,) = problems(tmp_path, declared + flow("copy"))
    assert "is read by table 'users', from which it is written" in message
    elsewhere = table("copy", "users", **{"properties.bootstrap.servers": "127.0.0.1:2"})
    assert problems(tmp_path, table("users", **{"topic": "users", **source}) + elsewhere + flow("copy")) == []


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ("errors.deadletterqueue.topic.name=users", "errors.deadletterqueue.topic.name"),
        ("runtime.error.mode=kafka\nruntime.error.bootstrap.servers=127.0.0.1:1\nruntime.error.topic.name=users",
         "runtime.error.topic.name"),
        ("runtime.error.mode=tablestore\nruntime.error.table.name=users", "runtime.error.table.name"),
        ("control.table=users", "control.table"),
    ],
)  # fmt: skip
def test_reports_about_failed_records_go_where_no_records_are(tmp_path: Path, config: str, option: str) -> None:
    found = problems(tmp_path, "", sink_properties=f"{CONNECT}{config}\n")
    assert any(option in message and "name another" in message for message in found), found
    other = config.replace("=users", "=failed")
    assert problems(tmp_path, "", sink_properties=f"{CONNECT}{other}\n") == []


def test_a_control_table_is_not_the_table_itself(tmp_path: Path) -> None:
    options = {
        "connector": "tablestore", "tablestore.endpoint": "http://127.0.0.1:1", "tablestore.instance.name": "shop",
        "tablestore.access.key.id": "id", "tablestore.access.key.secret": "s", "table.name": "stored",
        "topic": "", "properties.bootstrap.servers": "", "key.format": "", "value.format": "",
    }  # fmt: skip
    declared = table("copy", **{**options, "control.table": "stored"})
    (message,) = problems(tmp_path, USERS + declared + flow("copy"))
    assert "'control.table' = 'stored' is the table itself" in message
    assert problems(tmp_path, USERS + table("copy", **options) + flow("copy")) == []
