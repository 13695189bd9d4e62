from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform.declarations.pipeline import table_pattern
from upsert_platform.declarations.project import load_project
from upsert_platform.errors import Problem
from upsert_platform.hops.connectors import CONNECTORS
from upsert_platform.model import Project

TABLES = """CREATE TABLE `app.users` (
  id BIGINT, name STRING, at TIMESTAMP(3) METADATA FROM 'timestamp', PRIMARY KEY (id) NOT ENFORCED
) WITH ('connector' = 'upsert-kafka', 'topic' = 'app.users');
CREATE TABLE `app.orders` LIKE `app.users`;
"""
# The document's example: a MySQL source, an upsert-kafka sink, one route.
EXAMPLE = """source:
  type: mysql
  name: MySQL Source
  hostname: ${mysql.hostname}
  port: ${mysql.port}
  username: ${mysql.username}
  password: ${mysql.password}
  tables: ${mysql.source.table}
  server-id: 8601-8604

sink:
  type: upsert-kafka
  name: Upsert Kafka Sink
  properties.bootstrap.servers: ${upsert.kafka.bootstraps.server}
  aliyun.kafka.accessKeyId: ${upsert.kafka.aliyun.ak}
  aliyun.kafka.accessKeySecret: ${upsert.kafka.aliyun.sk}
  aliyun.kafka.instanceId: ${upsert.kafka.aliyun.instanceid}
  aliyun.kafka.endpoint: ${upsert.kafka.aliyun.endpoint}
  aliyun.kafka.regionId: ${upsert.kafka.aliyun.regionid}

route:
  - source-table: ${mysql.source.table}
    sink-table: ${upsert.kafka.topic}
"""
VARIABLES = """mysql: {hostname: h, port: 3306, username: u, password: hunter2, source: {table: app.users}}
upsert.kafka:
  bootstraps.server: localhost:9092
  topic: users_out
  aliyun: {ak: id, sk: hunter2, instanceid: i, endpoint: e, regionid: r}
"""


def load(folder: Path, pipeline: str, tables: str = TABLES) -> tuple[Project, list[Problem]]:
    (folder / "tables.sql").write_text(tables)
    (folder / "variables.yaml").write_text(VARIABLES)
    (folder / "pipeline.yaml").write_text(pipeline)
    return load_project(folder, connectors=CONNECTORS)


def told(problems: list[Problem], severity: str = "error") -> list[str]:
    found = [problem for problem in problems if problem.severity == severity]
    return [f"{problem.location.line if problem.location else 0}: {problem.message}" for problem in found]


def test_the_documents_example_copies_the_declared_table(tmp_path: Path) -> None:
    project, problems = load(tmp_path, EXAMPLE)
    assert told(problems) == []
    warnings = [text for text in told(problems, "warning") if "pipeline" in text]
    assert len(warnings) == 1
    assert warnings[0].startswith("1: pipeline: source: rows are read from the topics of app.users as declared")
    table = project.tables["users_out"]
    assert [(column.name, str(column.type)) for column in table.columns] == [
        ("id", "BIGINT NOT NULL"),
        ("name", "STRING"),
    ]
    assert table.primary_key == ("id",)
    assert table.comment == "Upsert Kafka Sink"
    assert dict(table.options) == {
        "connector": "upsert-kafka",
        "topic": "users_out",
        "key.format": "json",
        "value.format": "json",
        "value.fields-include": "ALL",
        "properties.bootstrap.servers": "localhost:9092",
        "aliyun.kafka.accessKeyId": "id",
        "aliyun.kafka.accessKeySecret": "hunter2",
        "aliyun.kafka.instanceId": "i",
        "aliyun.kafka.endpoint": "e",
        "aliyun.kafka.regionId": "r",
    }
    place = table.options.location("aliyun.kafka.endpoint")
    assert place is not None
    assert place.line == 18
    (insert,) = project.inserts
    assert (insert.source, insert.target, insert.projections) == ("app.users", "users_out", ("`id`", "`name`"))
    assert "hunter2" not in repr(project) + str(problems)


def test_an_undeclared_source_table_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    _, problems = load(tmp_path, EXAMPLE, tables="CREATE TABLE x (id INT) WITH ('connector' = 'kafka');")
    (found,) = told(problems)
    assert found.startswith("8: pipeline: source: 'app.users' matches no table that the project declares")
    assert "the platform does not run pipelines from 'mysql' yet. Let its changes arrive in a topic" in found


def test_options_of_a_mysql_source_are_judged_although_it_is_not_run(tmp_path: Path) -> None:
    wrong = EXAMPLE.replace("server-id: 8601-8604", "server-id: 9-1\n  scan.startup.mode: latest-offset\n  hots: x")
    _, problems = load(tmp_path, wrong, tables="CREATE TABLE x (id INT) WITH ('connector' = 'kafka');")
    found = told(problems)
    assert [text.partition(": ")[0] for text in found] == ["11", "9", "10", "8"]
    assert "unknown option 'hots'" in found[0]
    assert "takes a number from 1 to" in found[1]
    assert "every topic begins with a snapshot" in found[2]
    assert "hunter2" not in str(problems)


SINK = "sink:\n  type: {}\n  {}\n"
SOURCE = "source:\n  type: upsert-kafka\n  tables: {}\n"


def test_patterns_routes_and_replaced_symbols(tmp_path: Path) -> None:
    route = "route:\n  - {source-table: app.\\.*, sink-table: ods_<>, replace-symbol: <>}\n"
    project, problems = load(
        tmp_path, SOURCE.format(r"app.\.*") + SINK.format("tablestore", "auto.create: true") + route
    )
    assert told(problems) == []
    assert [insert.target for insert in project.inserts] == ["ods_users", "ods_orders"]
    assert dict(project.tables["ods_users"].options) == {
        "connector": "tablestore",
        "table.name": "ods_users",
        "auto.create": "true",
    }


def test_filter_and_projection(tmp_path: Path) -> None:
    rest = """route: [{source-table: app.users, sink-table: out}]
transform:
  - source-table: app.users
    projection: id
    filter: name <> 'test' AND id > 5
"""
    project, problems = load(
        tmp_path, SOURCE.format("app.users") + SINK.format("tablestore", "auto.create: true") + rest
    )
    assert told(problems) == []
    assert [column.name for column in project.tables["out"].columns] == ["id"]
    assert project.inserts[0].predicate == "(`name` <> 'test') AND (`id` > 5)"


GOOD_SINK = SINK.format("tablestore", "auto.create: true")
ROUTE = "route: [{source-table: app.users, sink-table: out}]\n"
CASES = [
    (SOURCE.format("app.users"), "section 'sink' is missing"),
    (GOOD_SINK, "section 'source' is missing"),
    (SOURCE.format("app.users") + GOOD_SINK + "rute: []\n", "unknown section 'rute'; did you mean 'route'?"),
    (SOURCE.format("app.users") + SINK.format("kafka", "x: y"), "'type' is one of upsert-kafka, tablestore"),
    (SOURCE.format("app.users") + GOOD_SINK, "route 'app.users' to another sink-table"),
    (SOURCE.format("app.users") + GOOD_SINK + "route: [{source-table: app.users}]\n", "route: 'sink-table' is missing"),
    (SOURCE.format("app.users") + GOOD_SINK + ROUTE.replace("app.users", "other"), "'other' is not a table of"),
    (SOURCE.format("nothing") + GOOD_SINK + ROUTE, "'nothing' matches no table"),
    (SOURCE.format("'('") + GOOD_SINK + ROUTE, "'(' is not a pattern of table names"),
    ("source: {type: kafka, tables: app.users}\n" + GOOD_SINK + ROUTE, "has the connector 'upsert-kafka', not 'kafka'"),
    ("source: {type: upsert-kafka, tables: app.users, x: y}\n" + GOOD_SINK + ROUTE, "option 'x' belongs into the WITH"),
    ("source: {tables: app.users}\n" + GOOD_SINK + ROUTE, "source: 'type' is missing"),
    ("source: {type: kafka}\n" + GOOD_SINK + ROUTE, "source: 'tables' is missing"),
    (SOURCE.format("app.users") + GOOD_SINK + ROUTE + "transform: [{source-table: app.users, projection: nam}]\n",
     "takes columns of 'app.users', not 'nam'; did you mean 'name'?"),
    (SOURCE.format("app.users") + GOOD_SINK + ROUTE + "transform: [{source-table: app.users, filter: nam = 1}]\n",
     "unknown column 'nam'"),
    (SOURCE.format("app.users") + SINK.format("tablestore", "a: [1]") + ROUTE, "option 'a' takes one value"),
]  # fmt: skip


@pytest.mark.parametrize(("pipeline", "message"), CASES, ids=[message for _, message in CASES])
def test_faults(tmp_path: Path, pipeline: str, message: str) -> None:
    _, problems = load(tmp_path, pipeline)
    assert any(message in text for text in told(problems)), told(problems)


def test_settings_of_the_pipeline_itself_have_no_effect(tmp_path: Path) -> None:
    text = SOURCE.format("app.users") + GOOD_SINK + ROUTE + "pipeline: {name: p, parallelism: 4}\n"
    _, problems = load(tmp_path, text)
    assert told(problems) == []
    assert any("'parallelism' has no effect" in found for found in told(problems, "warning"))


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("app.users", "app.users", True),
        ("app.users", "appxusers", False),
        (r"app.\.*", "app.anything", True),
        (r"app\d.order_[0-9]+", "app1.order_22", True),
        ("app.users", "app.users2", False),
    ],
)
def test_table_patterns(pattern: str, name: str, matches: bool) -> None:
    assert (table_pattern(pattern).fullmatch(name) is not None) is matches
