from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Column, Options, Project, Table
from upsert_platform.core.types import parse_type
from upsert_platform.declarations.pipeline import table_pattern
from upsert_platform.declarations.pipeline_source import AskedSource
from upsert_platform.declarations.project import load_project
from upsert_platform.sync.binding import bind
from upsert_platform.sync.connectors import CONNECTORS

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


def load_described(folder: Path, pipeline: str, *found: Table) -> tuple[Project, list[Problem], list[AskedSource]]:
    """A project without declared tables, on a server that has some."""
    asked: list[AskedSource] = []

    def describe(source: AskedSource) -> tuple[list[Table], list[Problem]]:
        asked.append(source)
        return [replace(table, options=source.options.with_defaults(table.options)) for table in found], []

    (folder / "variables.yaml").write_text(VARIABLES)
    (folder / "pipeline.yaml").write_text(pipeline)
    return *load_project(folder, connectors=CONNECTORS, describe=describe), asked


def server_table(schema: str, name: str, *columns: str) -> Table:
    typed = [column.split(" ", 1) for column in ("id BIGINT NOT NULL", *columns)]
    made = tuple(Column(column, parse_type(kind)) for column, kind in typed)
    options = Options({"database-name": schema, "table-name": name})
    return Table(f"mysql.{schema}.{name}", made, ("id",), options, SourceLocation("pipeline.yaml", 1))


USERS = server_table("app", "users", "name VARCHAR(10)", "age INT")


def test_the_documents_example_reads_the_server(tmp_path: Path) -> None:
    project, problems, (asked,) = load_described(tmp_path, EXAMPLE, USERS)
    assert told(problems) == []
    assert asked.settings.server_ids == range(8601, 8605)
    assert asked.behavior == "lenient"
    source, topic = project.tables["mysql.app.users"], project.tables["users_out"]
    assert source.connector == "mysql-cdc"
    assert source.options["new-columns"] == "fail"
    assert source.primary_key == topic.primary_key == ("id",)
    assert [str(column.type) for column in topic.columns] == ["BIGINT NOT NULL", "VARCHAR(10)", "INT"]
    (insert,) = project.inserts
    assert (insert.source, insert.target) == ("mysql.app.users", "users_out")
    assert set(bind(project, problems).sources) == {"mysql.app.users"}
    assert "hunter2" not in repr(project) + str(problems)


def test_without_a_server_to_ask_the_tables_stay_unknown(tmp_path: Path) -> None:
    _, problems = load(tmp_path, EXAMPLE, tables="CREATE TABLE x (id INT) WITH ('connector' = 'kafka');")
    assert any("are told by the server, which is not asked here" in text for text in told(problems, "warning"))


def test_options_of_a_mysql_source_are_judged(tmp_path: Path) -> None:
    wrong = EXAMPLE.replace("server-id: 8601-8604", "server-id: 9-1\n  scan.startup.mode: later\n  hots: x")
    _, problems = load(tmp_path, wrong, tables="CREATE TABLE x (id INT) WITH ('connector' = 'kafka');")
    found = told(problems)
    assert [text.partition(": ")[0] for text in found] == ["11", "9", "10"]
    assert "unknown option 'hots'" in found[0]
    assert "takes a number from 1 to" in found[1]
    assert "scan.startup.mode" in found[2]
    assert "hunter2" not in str(problems)


MYSQL = """source: {type: mysql, hostname: h, username: u, password: p, tables: 'app.\\.*'}
sink: {type: upsert-kafka, properties.bootstrap.servers: 'localhost:9092'}
"""
ORDERS = server_table("app", "orders_1", "amount DECIMAL(10, 2)", "note VARCHAR(5)")
OTHERS = server_table("app", "orders_2", "amount DECIMAL(10, 2)", "note VARCHAR(9)", "more INT")


def test_tables_of_one_topic_are_united_and_a_table_goes_to_every_topic_that_routes_name(tmp_path: Path) -> None:
    route = """route:
  - {source-table: 'app.orders_\\.*', sink-table: orders}
  - {source-table: app.orders_1, sink-table: 'copy_of_<>', replace-symbol: <>}
"""
    project, problems, _ = load_described(tmp_path, MYSQL + route, USERS, ORDERS, OTHERS)
    assert told(problems) == []
    assert sorted(insert.target for insert in project.inserts) == ["app.users", "copy_of_orders_1", "orders"]
    united = {column.name: str(column.type) for column in project.tables["orders"].columns}
    assert united == {"id": "BIGINT NOT NULL", "amount": "DECIMAL(10, 2)", "note": "STRING", "more": "INT"}
    (orders,) = [insert for insert in project.inserts if insert.target == "orders"]
    assert orders.query is not None
    assert set(orders.tables) == {"mysql.app.orders_1", "mysql.app.orders_2"}
    first, problems, _ = load_described(tmp_path, MYSQL + route + "pipeline: {route-mode: first-match}", ORDERS)
    assert told(problems) == []
    assert [insert.target for insert in first.inserts] == ["orders"]


def test_tables_that_do_not_fit_into_one_topic_are_told(tmp_path: Path) -> None:
    route = "route: [{source-table: 'app.\\.*', sink-table: all}]\n"
    other = server_table("app", "b", "name INT")
    _, problems, _ = load_described(tmp_path, MYSQL + route, USERS, other)
    assert any("column 'name' is INT in 'mysql.app.b' and VARCHAR(10) in another" in text for text in told(problems))
    _, problems, _ = load_described(
        tmp_path, MYSQL + route, USERS, replace(server_table("app", "b", "name STRING"), primary_key=("name",))
    )
    assert any("tables of one topic have one key" in text for text in told(problems))


def test_projections_have_expressions_and_the_names_of_tables(tmp_path: Path) -> None:
    rest = """transform:
  - source-table: app.users
    projection: \\*, UPPER(name) AS loud, age + 1 AS older, __schema_name__ || '.' || __table_name__ AS origin
    filter: age > 17 AND __table_name__ <> 'x'
    primary-keys: id
    table-options: sink.parallelism=2
"""
    project, problems, _ = load_described(tmp_path, MYSQL + rest, USERS)
    assert told(problems) == []
    topic = project.tables["app.users"]
    assert {column.name: str(column.type) for column in topic.columns} == {
        "id": "BIGINT NOT NULL", "name": "VARCHAR(10)", "age": "INT", "loud": "STRING", "older": "INT",
        "origin": "STRING",
    }  # fmt: skip
    assert topic.options["sink.parallelism"] == "2"
    (insert,) = project.inserts
    assert "'app'" in insert.projections[-1]
    assert insert.predicate is not None
    assert "`age` > 17" in insert.predicate


BAD_TRANSFORMS = [
    ("projection: age + 1", "needs a name"),
    ("projection: id, agee", "takes columns of 'mysql.app.users', not 'agee'; did you mean 'age'?"),
    ("projection: id, __data_event_type__ AS t", "does not tell inserts from updates"),
    ("projection: name", "key column 'id' of 'mysql.app.users' is not among the columns"),
    ("table-options: x", "'x' is not name=value"),
]


@pytest.mark.parametrize(("entry", "message"), BAD_TRANSFORMS)
def test_what_is_wrong_in_a_transform(tmp_path: Path, entry: str, message: str) -> None:
    rest = f"transform:\n  - source-table: app.users\n    {entry}\n"
    _, problems, _ = load_described(tmp_path, MYSQL + rest, USERS)
    assert any(message in text for text in told(problems)), told(problems)


@pytest.mark.parametrize(
    ("section", "message"),
    [("schema.change.behavior: always", "is one of lenient"), ("route-mode: x", "is one of all_match")],
)
def test_settings_of_a_pipeline_are_judged(tmp_path: Path, section: str, message: str) -> None:
    _, problems, _ = load_described(tmp_path, MYSQL + f"pipeline: {{{section}}}", USERS)
    assert any(message in text for text in told(problems))


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
    (SOURCE.format("app.users") + SINK.format("doris", "x: y"), "'type' is one of upsert-kafka, kafka, tablestore"),
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
