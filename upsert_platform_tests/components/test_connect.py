from __future__ import annotations

import json
from pathlib import Path

import pytest

from upsert_platform.components.located import read_properties
from upsert_platform.errors import Problem
from upsert_platform.model import Project
from upsert_platform.project import load_project

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
BASE = {
    "connector.class": "com.aliyun.tablestore.kafka.connect.TableStoreSinkConnector",
    "topics": "t",
    "key.converter": JSON_CONVERTER,
    "key.converter.schemas.enable": "false",
    "value.converter": JSON_CONVERTER,
    "value.converter.schemas.enable": "false",
    "tablestore.endpoint": "https://i.cn-hangzhou.ots.aliyuncs.com",
    "tablestore.instance.name": "i",
    "tablestore.auth.mode": "aksk",
    "tablestore.access.key.id": "id",
    "tablestore.access.key.secret": "${SECRET}",
    "table.name.format": "kafka_<topic>",
    "auto.create": "true",
}
KEYED = {
    **BASE,
    "primarykey.mode": "record_key",
    "tablestore.kafka_t.primarykey.name": "id, part",
    "tablestore.kafka_t.primarykey.type": "integer,string",
    "tablestore.kafka_t.columns.whitelist.name": "name,score",
    "tablestore.kafka_t.columns.whitelist.type": "string,double",
    "delete.mode": "row",
}
VARIABLES = {"SECRET": "hunter2", "UPSERT_KAFKA_BOOTSTRAP_SERVERS": "localhost:9092"}


def load(folder: Path, config: dict[str, str], name: str = "sink") -> tuple[Project, list[Problem]]:
    lines = [f"name={name}", *(f"{key}={value}" for key, value in config.items())]
    (folder / "sink.properties").write_text("\n".join(lines))
    return load_project(folder, VARIABLES)


def errors(problems: list[Problem]) -> list[str]:
    return [problem.message for problem in problems if problem.severity == "error"]


def columns(project: Project, name: str) -> list[tuple[str, str]]:
    return [(column.name, str(column.type)) for column in project.tables[name].columns]


def test_record_key_with_put_keeps_the_last_record_per_key(tmp_path: Path) -> None:
    project, problems = load(tmp_path, KEYED)
    assert problems == []
    source, target = project.tables["sink.t"], project.tables["sink.kafka_t"]
    expected = [("id", "BIGINT NOT NULL"), ("part", "STRING NOT NULL"), ("name", "STRING"), ("score", "DOUBLE")]
    assert columns(project, "sink.t") == columns(project, "sink.kafka_t") == expected
    assert source.primary_key == target.primary_key == ("id", "part")
    assert dict(source.options) == {
        "connector": "upsert-kafka",
        "topic": "t",
        "properties.bootstrap.servers": "localhost:9092",
        "key.format": "json",
        "value.format": "json",
        "value.fields-include": "EXCEPT_KEY",
        "on-error": "fail",
    }
    assert dict(target.options) == {
        "connector": "tablestore",
        "table.name": "kafka_t",
        "tablestore.endpoint": "https://i.cn-hangzhou.ots.aliyuncs.com",
        "tablestore.instance.name": "i",
        "tablestore.auth.mode": "aksk",
        "tablestore.access.key.id": "id",
        "tablestore.access.key.secret": "hunter2",
        "auto.create": "true",
        "insert.mode": "put",
        "delete.mode": "row",
        "on-error": "fail",
    }
    (insert,) = project.inserts
    assert insert.projections == ("`id`", "`part`", "`name`", "`score`")
    assert "hunter2" not in repr(project)


def test_the_json_that_is_posted_to_connect_gives_the_same(tmp_path: Path) -> None:
    project, _ = load(tmp_path, KEYED)
    (tmp_path / "sink.properties").unlink()
    (tmp_path / "sink.json").write_text(json.dumps({"name": "sink", "config": KEYED}, indent="\t"))
    posted, problems = load_project(tmp_path, VARIABLES)
    assert problems == []
    assert {name: dict(table.options) for name, table in posted.tables.items()} == {
        name: dict(table.options) for name, table in project.tables.items()
    }
    place = posted.tables["sink.kafka_t"].options.location("tablestore.endpoint")
    assert place is not None
    assert place.line == 10


def test_update_needs_every_record(tmp_path: Path) -> None:
    project, problems = load(tmp_path, {**KEYED, "insert.mode": "UPDATE", "delete.mode": "row_and_column"})
    assert problems == []
    source = project.tables["sink.t"]
    assert (source.connector, source.primary_key) == ("kafka", ())
    assert source.options["key.fields"] == "id;part"
    assert source.options["scan.startup.mode"] == "earliest-offset"
    assert project.tables["sink.kafka_t"].options["insert.mode"] == "update"


def test_kafka_mode_keys_rows_by_their_coordinates(tmp_path: Path) -> None:
    config = {**BASE, "key.converter": STRING_CONVERTER, "value.converter": STRING_CONVERTER}
    project, problems = load(tmp_path, config)
    assert problems == []
    assert project.tables["sink.t"].options["value.format"] == "raw"
    assert project.tables["sink.t"].options["key.fields"] == "key"
    assert columns(project, "sink.kafka_t") == [
        ("topic_partition", "STRING NOT NULL"),
        ("offset", "BIGINT NOT NULL"),
        ("value", "STRING"),
        ("key", "STRING"),
    ]
    (insert,) = project.inserts
    assert insert.projections == (
        "(`connect_topic` || '_') || CAST(`connect_partition` AS STRING)",
        "`connect_offset`",
        "`value`",
        "`key`",
    )


def test_record_value_takes_the_key_from_the_value(tmp_path: Path) -> None:
    project, problems = load(tmp_path, {**KEYED, "primarykey.mode": "record_value", "delete.mode": "none"})
    assert problems == []
    source = project.tables["sink.t"]
    assert (source.connector, source.options["value.fields-include"]) == ("kafka", "ALL")
    assert "key.format" not in source.options
    assert project.tables["sink.kafka_t"].primary_key == ("id", "part")


def test_topics_tables_tolerance_tasks_and_consumer_overrides(tmp_path: Path) -> None:
    config = {
        key.replace("kafka_t.", "users."): value for key, value in KEYED.items()
    } | {
        "topics": "a,b",
        "topics.assign.tables": "b:users",
        "tablestore.kafka_a.primarykey.name": "k",
        "tablestore.kafka_a.primarykey.type": "binary",
        "tablestore.kafka_a.columns.whitelist.name": "x",
        "tablestore.kafka_a.columns.whitelist.type": "boolean",
        "errors.tolerance": "all",
        "runtime.error.tolerance": "all",
        "tasks.max": "3",
        "consumer.override.bootstrap.servers": "other:9092",
        "consumer.override.security.protocol": "SASL_SSL",
    }  # fmt: skip
    project, problems = load(tmp_path, config)
    assert problems == []
    assert [(insert.source, insert.target) for insert in project.inserts] == [
        ("sink.a", "sink.kafka_a"),
        ("sink.b", "sink.users"),
    ]
    assert columns(project, "sink.kafka_a") == [("k", "BYTES NOT NULL"), ("x", "BOOLEAN")]
    source, target = project.tables["sink.b"], project.tables["sink.users"]
    assert source.options["properties.bootstrap.servers"] == "other:9092"
    assert source.options["properties.security.protocol"] == "SASL_SSL"
    assert (source.options["on-error"], target.options["on-error"]) == ("quarantine", "quarantine")
    assert target.options["sink.parallelism"] == "3"
    assert target.options["table.name"] == "users"


def test_a_table_named_as_its_topic_gets_a_name_of_its_own(tmp_path: Path) -> None:
    config = {key.replace("kafka_t.", "t."): value for key, value in KEYED.items() if key != "table.name.format"}
    project, problems = load(tmp_path, config)
    assert problems == []
    assert list(project.tables) == ["sink.t", "sink.t.table"]
    assert project.tables["sink.t.table"].options["table.name"] == "t"


CASES = [
    ({"primarykey.mode": "search"}, "option 'primarykey.mode' takes one of kafka, record_key, record_value"),
    ({"primarykey.mode": "record_value"}, "option 'delete.mode' needs 'primarykey.mode' = 'record_key'"),
    ({"tablestore.kafka_t.primarykey.name": ""}, "'tablestore.kafka_t.primarykey.name' has 0 items"),
    ({"tablestore.kafka_t.primarykey.type": "integer,auto_increment"}, "takes string, integer, binary, not"),
    ({"tablestore.kafka_t.primarykey.name": "id,id"}, "has an empty item, or one twice"),
    ({"tablestore.kafka_t.primarykey.name": "a,b,c,d,e",
      "tablestore.kafka_t.primarykey.type": "string,string,string,string,string"}, "a Tablestore key has 4 at most"),
    ({"tablestore.kafka_t.columns.whitelist.name": "id,score"}, "id is both primary key and whitelist column"),
    ({"tablestore.kafka_t.columns.whitelist.name": "", "tablestore.kafka_t.columns.whitelist.type": ""},
     "the fields of JSON values become columns when they are named"),
    ({"key.converter": STRING_CONVERTER}, "a key read by StringConverter is one column of type string"),
    ({"key.converter": "io.confluent.connect.avro.AvroConverter"}, "takes JsonConverter or StringConverter"),
    ({"value.converter.schemas.enable": "true"}, "JSON with an envelope of schema and payload is not read"),
    ({"topics": ""}, "option 'topics' is missing"),
    ({"topics.assign.tables": "t"}, "takes <topic>:<table>,..."),
    ({"topics.regex": "a.*"}, "option 'topics.regex' is not supported: name the topics"),
    ({"transforms": "a", "transforms.a.type": "X"}, "write the transformation as SQL"),
    ({"tablestore.mode": "timeseries"}, "only 'normal' is read"),
    ({"insert.mod": "put"}, "unknown option 'insert.mod'; did you mean 'insert.mode'?"),
    ({"role.name": "r"}, "no role is assumed"),
    ({"tablestore.timeseries.mapAll": "true"}, "belongs to 'tablestore.mode' = 'timeseries'"),
    ({"auto.create": "${NOWHERE}"}, "variable ${NOWHERE} is not set"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), CASES, ids=[message[:60] for _, message in CASES])
def test_faults(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    _, problems = load(tmp_path, {**KEYED, **changes})
    assert any(message in text for text in errors(problems)), problems
    place = next(problem.location for problem in problems if message in problem.message)
    assert place is not None
    assert place.file.endswith("sink.properties")


def test_options_without_effect_are_warned_of_with_what_takes_their_place(tmp_path: Path) -> None:
    config = {**KEYED, "buffer.size": "1024", "errors.deadletterqueue.topic.name": "dlq", "runtime.error.mode": "kafka"}
    _, problems = load(tmp_path, config)
    assert errors(problems) == []
    assert [problem.message.split("'")[3] for problem in problems] == [
        "buffer.size",
        "errors.deadletterqueue.topic.name",
        "runtime.error.mode",
    ]


def test_without_brokers_the_variable_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UPSERT_KAFKA_BOOTSTRAP_SERVERS", raising=False)
    load(tmp_path, KEYED)
    _, problems = load_project(tmp_path, {"SECRET": "x"})
    assert ["${UPSERT_KAFKA_BOOTSTRAP_SERVERS} is not set" in text for text in errors(problems)] == [True]


def test_other_properties_are_passed_over_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "log4j.properties").write_text("rootLogger.level = info\n")
    _, problems = load_project(tmp_path)
    assert [(problem.severity, "this file is not read" in problem.message) for problem in problems] == [
        ("warning", True)
    ]


def test_java_properties() -> None:
    problems: list[Problem] = []
    text = r"""# comment
! comment
 a = 1
b: two words
c   3
long = first, \
       second
path = C:\\x\tz
uni\u0063ode = \u00e4
key\ with\ blank = v
empty
a = again
"""
    found = read_properties(text, "f", problems)
    assert {name: item.text for name, item in found.items()} == {
        "a": "1",
        "b": "two words",
        "c": "3",
        "long": "first, second",
        "path": "C:\\x\tz",
        "unicode": "ä",
        "key with blank": "v",
        "empty": "",
    }
    assert [(name, item.location.line) for name, item in found.items()][3:5] == [("long", 6), ("path", 8)]
    assert [problem.message for problem in problems] == ["'a' is given twice; keep one"]
