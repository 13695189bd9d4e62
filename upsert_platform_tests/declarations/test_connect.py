"""Kafka Connect configurations of a project folder: what is declared for them, and what is wrong with them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from upsert_platform.declarations.located import read_properties
from upsert_platform.declarations.project import load_project
from upsert_platform.errors import DeclarationError, Problem
from upsert_platform.hops.binding import Binding, bind
from upsert_platform.hops.connectors import CONNECTORS
from upsert_platform.model import Project
from upsert_platform.tablestore.connect.options import KeyMode
from upsert_platform.tablestore.connect.record import Envelope, MessageFormat
from upsert_platform.tablestore.connect.table import ConnectSink, read_connect_sink
from upsert_platform.tablestore.options import TablestoreSettings

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
BASE = {
    "connector.class": "com.aliyun.tablestore.kafka.connect.TableStoreSinkConnector",
    "topics": "t",
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
SERIES = {
    **BASE,
    "tablestore.mode": "timeseries",
    "tablestore.timeseries.kafka_t.measurement": "<topic>",
    "tablestore.timeseries.kafka_t.time": "ts",
    "tablestore.timeseries.kafka_t.time.unit": "SECONDS",
}
VARIABLES = {"SECRET": "hunter2", "UPSERT_KAFKA_BOOTSTRAP_SERVERS": "localhost:9092"}


def load(folder: Path, config: dict[str, str], name: str = "sink") -> tuple[Project, list[Problem]]:
    lines = [f"name={name}", *(f"{key}={value}" for key, value in config.items())]
    (folder / "sink.properties").write_text("\n".join(lines))
    return load_project(folder, VARIABLES, connectors=CONNECTORS)


def bound(folder: Path, config: dict[str, str]) -> Binding:
    return bind(*load(folder, config))


def sink_of(binding: Binding, name: str) -> ConnectSink:
    sink, problems = read_connect_sink(binding.targets[name].table)
    assert sink is not None, problems
    return sink


def problems_of(folder: Path, config: dict[str, str]) -> list[Problem]:
    try:
        return list(bound(folder, config).warnings)
    except DeclarationError as error:
        return list(error.problems)


def columns(project: Project, name: str) -> list[tuple[str, str]]:
    return [(column.name, str(column.type)) for column in project.tables[name].columns]


RECORD = [
    ("topic", "STRING"), ("partition", "INT"), ("offset", "BIGINT"), ("timestamp", "TIMESTAMP_LTZ(3)"),
    ("key", "BYTES"), ("value", "BYTES"),
]  # fmt: skip


def test_a_table_of_records_a_table_of_rows_and_the_insert_between_them(tmp_path: Path) -> None:
    project, problems = load(tmp_path, KEYED)
    assert problems == []
    assert columns(project, "sink.kafka_t.records") == columns(project, "sink.kafka_t") == RECORD
    assert dict(project.tables["sink.kafka_t.records"].options) == {
        "connector": "kafka",
        "topic": "t",
        "properties.bootstrap.servers": "localhost:9092",
        "properties.group.id": "connect-sink",
        "scan.startup.mode": "earliest-offset",
        "key.format": "raw",
        "key.fields": "key",
        "value.format": "raw",
        "value.fields-include": "EXCEPT_KEY",
    }
    target = project.tables["sink.kafka_t"]
    assert target.options["connector"] == "tablestore-connect"
    assert target.options["tablestore.access.key.secret"] == "hunter2"
    (insert,) = project.inserts
    assert insert.projections == ("`topic`", "`partition`", "`offset`", "`timestamp`", "`key`", "`value`")
    assert "hunter2" not in repr(project)


def test_rules_and_connection_of_the_sink(tmp_path: Path) -> None:
    binding = bound(tmp_path, KEYED)
    assert binding.warnings == ()
    assert binding.sources["sink.kafka_t.records"].mode == "append"
    sink = sink_of(binding, "sink.kafka_t")
    assert (sink.table_name, sink.connector, sink.points) == ("kafka_t", "sink", None)
    assert sink.settings.auto_create
    assert sink.wide.primary_key == (("id", "integer"), ("part", "string"))
    assert sink.wide.whitelist == (("name", "string"), ("score", "double"))
    assert "hunter2" not in repr(sink)


def test_the_connectors_own_defaults(tmp_path: Path) -> None:
    sink = sink_of(bound(tmp_path, {**BASE, "auto.create": "false"}), "sink.kafka_t")
    table = sink.wide
    assert table.key_mode is KeyMode.KAFKA
    assert table.primary_key == (("topic_partition", "string"), ("offset", "integer"))
    assert (table.insert_mode, table.delete_mode, table.identify_types) == ("put", "none", False)
    assert (sink.failures.undecodable, sink.failures.dirty, sink.failures.mode) == ("none", "none", "ignore")
    assert table.value_side.format is MessageFormat.JSON
    assert table.value_side.envelope is Envelope.DETECTED


@pytest.mark.parametrize(
    ("given", "expected"), [("true", Envelope.REQUIRED), ("FALSE", Envelope.NEVER), (None, Envelope.DETECTED)]
)
def test_schemas_enable(tmp_path: Path, given: str | None, expected: Envelope) -> None:
    more = {} if given is None else {"value.converter.schemas.enable": given}
    table = sink_of(bound(tmp_path, {**BASE, "value.converter": JSON_CONVERTER, **more}), "sink.kafka_t").wide
    assert table.value_side.envelope is expected


def test_the_json_that_is_posted_to_connect_gives_the_same(tmp_path: Path) -> None:
    project, _ = load(tmp_path, KEYED)
    (tmp_path / "sink.properties").unlink()
    (tmp_path / "sink.json").write_text(json.dumps({"name": "sink", "config": KEYED}, indent="\t"))
    posted, problems = load_project(tmp_path, VARIABLES, connectors=CONNECTORS)
    assert problems == []
    assert {name: dict(table.options) for name, table in posted.tables.items()} == {
        name: dict(table.options) for name, table in project.tables.items()
    }
    place = posted.tables["sink.kafka_t"].options.location("tablestore.endpoint")
    assert place is not None
    assert place.line == 6


def test_45_46_topics_and_their_tables(tmp_path: Path) -> None:
    config = {**BASE, "topics": "test, other,third", "table.name.format": "<topic>_kafka",
              "topics.assign.tables": "test:dest,third:dest"}  # fmt: skip
    binding = bound(tmp_path, config)
    assert {name: sorted(sink_of(binding, name).tables) for name in binding.targets} == {
        "sink.dest": ["test", "third"],
        "sink.other_kafka": ["other"],
    }
    assert binding.project.tables["sink.dest.records"].options["topic"] == "test;third"


def test_tasks_overrides_and_options_of_the_platform(tmp_path: Path) -> None:
    config = {
        **KEYED,
        "tasks.max": "3",
        "consumer.override.bootstrap.servers": "other:9092",
        "consumer.override.security.protocol": "SASL_SSL",
        "consumer.override.auto.offset.reset": "latest",
        "batch.max-records": "1000",
        "retry.deadline": "1 min",
    }
    binding = bound(tmp_path, config)
    options = binding.project.tables["sink.kafka_t.records"].options
    assert options["properties.bootstrap.servers"] == "other:9092"
    assert options["properties.security.protocol"] == "SASL_SSL"
    assert options["scan.startup.mode"] == "latest-offset"
    assert options["batch.max-records"] == "1000"
    sink = sink_of(binding, "sink.kafka_t")
    assert sink.settings.parallelism == 3
    assert sink.settings.retry_deadline.total_seconds() == 60


def test_topics_by_a_regular_expression_go_to_one_table(tmp_path: Path) -> None:
    config = {**KEYED, "topics.regex": "eu-[a-z]+", "table.name.format": "kafka_t"}
    del config["topics"]
    binding = bound(tmp_path, config)
    options = binding.project.tables["sink.kafka_t.records"].options
    assert (options["topic-pattern"], "topic" in options) == ("eu-[a-z]+", False)
    sink = sink_of(binding, "sink.kafka_t")
    assert sink.table_name == "kafka_t"
    assert sink.tables["eu-one"] is sink.tables["eu-two"] is sink.wide
    assert pickle.loads(pickle.dumps(sink.tables))["eu-one"].primary_key == sink.wide.primary_key


@pytest.mark.parametrize(("given", "expected"), [("1", 1), ("12", 12), (None, None)])
def test_1_1_concurrency(tmp_path: Path, given: str | None, expected: int | None) -> None:
    more = {} if given is None else {"consumer.thread.concurrency": given}
    assert sink_of(bound(tmp_path, {**KEYED, **more}), "sink.kafka_t").settings.parallelism == expected
    both = {"consumer.thread.concurrency": "6", "tasks.max": "4"}
    binding = bound(tmp_path, {**KEYED, **both})
    assert sink_of(binding, "sink.kafka_t").settings.parallelism == 4
    assert ["'tasks.max' is given" in problem.message for problem in binding.warnings] == [True]


NAMES = [("kafka-ts-sink", True), ("0", True), ("a" * 48, True), ("a" * 49, False), ("-a", False), ("A", False),
         ("a_b", False), ("a.b", False), ("é", False)]  # fmt: skip


@pytest.mark.parametrize(("name", "accepted"), NAMES)
def test_1_1_names_that_the_managed_service_would_not_take_are_told(tmp_path: Path, name: str, accepted: bool) -> None:
    project, problems = load(tmp_path, KEYED, name=name)
    assert [problem.severity for problem in problems] == ([] if accepted else ["warning"])
    assert all("1 to 48 digits, lowercase letters and '-'" in problem.message for problem in problems)
    assert project.tables[f"{name}.kafka_t.records"].options["properties.group.id"] == f"connect-{name}"


def test_the_group_may_be_named(tmp_path: Path) -> None:
    project, _ = load(tmp_path, {**KEYED, "consumer.override.group.id": "mine"})
    assert project.tables["sink.kafka_t.records"].options["properties.group.id"] == "mine"


def test_reports_in_topics_bring_headers_and_a_client(tmp_path: Path) -> None:
    config = {
        **BASE,
        "runtime.error.tolerance": "all",
        "runtime.error.mode": "kafka",
        "runtime.error.bootstrap.servers": "errors:9092",
        "runtime.error.topic.name": "failed",
        "consumer.override.sasl.mechanism": "PLAIN",
        "consumer.override.max.poll.records": "5",
    }
    project, _ = load(tmp_path, config)
    headers = ("headers", "ARRAY<ROW<`key` STRING, `value` BYTES>>")
    assert columns(project, "sink.kafka_t.records") == columns(project, "sink.kafka_t") == [*RECORD, headers]
    options = project.tables["sink.kafka_t"].options
    client = {name: value for name, value in options.items() if name.startswith("properties.")}
    assert client == {"properties.bootstrap.servers": "localhost:9092", "properties.sasl.mechanism": "PLAIN"}
    own, _ = load(tmp_path, {**config, "producer.override.acks": "1"})
    client = {name: value for name, value in own.tables["sink.kafka_t"].options.items() if "properties." in name}
    assert client == {"properties.bootstrap.servers": "localhost:9092", "properties.acks": "1"}


def test_time_series(tmp_path: Path) -> None:
    sink = sink_of(bound(tmp_path, SERIES), "sink.kafka_t")
    assert sink.points is not None
    assert (sink.points.name, sink.points.measurement, sink.points.unit) == ("kafka_t", "<topic>", "SECONDS")
    assert sink.tables == {}


def test_1_2_credentials(tmp_path: Path) -> None:
    bare = {name: value for name, value in BASE.items() if "auth" not in name and "access" not in name}
    keys = {"tablestore.access.key.id": "id", "tablestore.access.key.secret": "${SECRET}"}
    role = {
        "account.id": "123",
        "role.name": "writer",
        "sts.endpoint": "sts.aliyuncs.com",
        "client.time.out.ms": "60000",
    }

    def settings_of(**more: str) -> TablestoreSettings:
        return sink_of(bound(tmp_path, {**bare, **more}), "sink.kafka_t").settings

    assert (settings_of().auth_mode, settings_of().role) == ("sts", None)  # the connector's default: the environment's
    assert settings_of(**keys).auth_mode == "aksk"
    assert settings_of(**keys, **{"tablestore.auth.mode": "STS", "tablestore.sts.token": "t"}).auth_mode == "sts"
    assert settings_of(**keys, **{"tablestore.sts.token": "t"}).auth_mode == "sts"
    assert settings_of(**keys, **role).auth_mode == "sts"  # the connector's default: the key assumes the role
    assumed = settings_of(**keys, **role, **{"tablestore.auth.mode": "STS"})
    assert assumed.role is not None
    assert (assumed.role.arn, assumed.role.sts_endpoint) == ("acs:ram::123:role/writer", "sts.aliyuncs.com")
    assert assumed.role.longest.total_seconds() == 60
    (problem,) = problems_of(tmp_path, {**bare, **keys, "tablestore.auth.mode": "STS"})
    assert "needs 'tablestore.sts.token', or 'account.id' and 'role.name' of the role to assume" in problem.message


ERRORS = {"runtime.error.tolerance": "all"}
FAULTS = [
    ("1.2", {"primarykey.mode": "records"}, "option 'primarykey.mode'"),
    ("1.2", {"key.converter.converter.encoding": "UTF-16"}, "'key.converter.converter.encoding' takes UTF-8"),
    ("1.2", {"tablestore.mode": "wide"}, "option 'tablestore.mode' takes one of normal, timeseries, not 'wide'"),
    ("1.2", {"tablestore.auth.mode": "ram"}, "option 'tablestore.auth.mode'"),
    ("55", {"primarykey.mode": "record_value"}, "'delete.mode' = 'row' needs 'primarykey.mode' = 'record_key'"),
    ("1.2", {"tablestore.kafka_t.primarykey.name": ""}, "has 0 items and"),
    ("2.6-8", {"tablestore.kafka_t.primarykey.type": "integer,auto_increment"}, "'auto.increment.repeated-rows'"),
    ("73", {"tablestore.kafka_t.primarykey.type": "integer,double"}, "auto_increment, not 'double'"),
    ("73", {"buffer.size": "1000"}, "option 'buffer.size' takes a power of two"),
    ("73", {"bucket.count": "0"}, "option 'bucket.count' takes a number of at least 1"),
    ("73", {"runtime.error.tolerance": "some"}, "option 'runtime.error.tolerance'"),
    ("73", {"tablestore.kafka_t.columns.whitelist.name": "a,a"}, "names a column twice"),
    ("1.2", {"errors.tolerance": "some"}, "option 'errors.tolerance'"),
    ("1.2", {**ERRORS, "runtime.error.mode": "kafka"}, "needs 'runtime.error.bootstrap.servers'"),
    ("1.2", {**ERRORS, "runtime.error.mode": "tablestore"}, "needs 'runtime.error.table.name'"),
    ("3.3", {"runtime.error.table.name": "a-b"}, "option 'runtime.error.table.name' takes a letter or '_'"),
    ("2.6-9", {"tablestore.kafka_t.primarykey.name": "a,b,c,d,e",
               "tablestore.kafka_t.primarykey.type": "string,string,string,string,string"}, "Tablestore takes 4"),
    ("2.6", {"tablestore.kafka_t.columns.whitelist.name": "id,score"}, "'id' is both primary key and whitelist"),
    ("60", {"key.converter": STRING_CONVERTER}, "a key read as a string is one column, not 2"),
    ("1.1", {"key.converter": "io.confluent.connect.avro.AvroConverter"}, "takes JsonConverter or StringConverter"),
    ("1.2", {"topics": ""}, "option 'topics' is missing"),
    ("1.2", {"topics.assign.tables": "t"}, "takes <topic>:<table>,..."),
    ("", {"topics.regex": "a.*"}, "option 'topics.regex' takes the place of 'topics': give one of them"),
    ("", {"topics.regex": "a.*", "topics": ""}, "'topics.regex': name the one table of all these topics in"),
    ("", {"topics.regex": "a(", "topics": "", "table.name.format": "kafka_t"}, "is not a regular expression"),
    ("1.1", {"consumer.thread.concurrency": "4"}, "takes 1, 2, 3, 6, 12, not '4'"),
    ("", {"transforms": "a", "transforms.a.type": "my.Own$Value"}, "'transforms.a.type': it takes one of Cast, "),
    ("", {"transforms.a.type": "Filter"}, "option 'transforms.a.type': 'transforms' does not name 'a'"),
    ("", {"event.parse.class": "my.Parser"}, "Java classes are not loaded"),
    ("", {"insert.mod": "put"}, "unknown option 'insert.mod'; did you mean 'insert.mode'?"),
    ("", {"tablestore.kafka_u.primarykey.name": "a"}, "unknown option 'tablestore.kafka_u.primarykey.name'"),
    ("", {"tablestore.kafka_t.primarykey.nam": "a"}, "unknown option 'tablestore.kafka_t.primarykey.nam'"),
    ("", {"tablestore.timeseries.mapAll": "true"}, "belongs to 'tablestore.mode' = 'timeseries'"),
    ("", {"consumer.override.auto.offset.reset": "none"}, "takes earliest or latest, not 'none'"),
    ("", {"consumer.override.bootstrap.server": "x"}, "unknown client property 'bootstrap.server'"),
    ("", {"auto.create": "${NOWHERE}"}, "variable ${NOWHERE} is not set"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"), [fault[1:] for fault in FAULTS], ids=[f"{rule} {text[:50]}" for rule, _, text in FAULTS]
)
def test_faults(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    found = problems_of(tmp_path, {**KEYED, **changes})
    assert any(message in problem.message for problem in found if problem.severity == "error"), found
    place = next(problem.location for problem in found if message in problem.message)
    assert place is not None
    assert place.file.endswith("sink.properties")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("primarykey.mode", "kafka"), ("table.max-versions", "3"), ("key.converter.schemas.enable", "false"),
        ("tablestore.kafka_t.columns.whitelist.name", "a"),
    ],
)  # fmt: skip
def test_1_2_options_of_rows_have_no_effect_on_time_series(tmp_path: Path, option: str, value: str) -> None:
    (warning,) = problems_of(tmp_path, {**SERIES, option: value})
    assert (warning.severity, warning.message) == (
        "warning", f"connector 'sink': option '{option}' has no effect in mode timeseries",
    )  # fmt: skip


def test_1_2_key_columns_have_no_effect_where_the_place_is_the_key(tmp_path: Path) -> None:
    option = "tablestore.kafka_t.primarykey.name"
    (warning,) = problems_of(tmp_path, {**BASE, option: "id"})
    assert (warning.severity, f"'{option}' has no effect" in warning.message) == ("warning", True)


def test_1_2_two_connectors_of_one_table(tmp_path: Path) -> None:
    for name in ("one", "two"):
        project, problems = load(tmp_path, {**BASE, "topics.assign.tables": "t:shared"}, name=name)
        (tmp_path / "sink.properties").rename(tmp_path / f"{name}.properties")
    project, problems = load_project(tmp_path, VARIABLES, connectors=CONNECTORS)
    with pytest.raises(
        DeclarationError, match=r"'two.shared' and table 'one.shared' both write Tablestore table"
    ) as told:
        bind(project, problems)
    assert len(told.value.problems) == 1
    with (tmp_path / "two.properties").open("a") as file:
        file.write("\ncontrol.table=other")
    assert set(bind(*load_project(tmp_path, VARIABLES, connectors=CONNECTORS)).targets) == {"one.shared", "two.shared"}


def test_1_2_unknown_options_of_a_time_series_table(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, {**SERIES, "tablestore.kafka_t.whitelist": "a"})
    assert (problem.severity, "unknown option 'tablestore.kafka_t.whitelist'" in problem.message) == ("error", True)


@pytest.mark.parametrize("config", [BASE, {**BASE, "tablestore.mode": "timeseries"}])
def test_3_3_a_topic_whose_name_no_table_can_have(tmp_path: Path, config: dict[str, str]) -> None:
    found = problems_of(tmp_path, {**config, "topics": "my.topic", "table.name.format": "<topic>"})
    told = "Tablestore takes no table name 'my.topic'; use 'topics.assign.tables'"
    assert any(told in problem.message for problem in found), found


def test_80_time_series_without_fields(tmp_path: Path) -> None:
    found = problems_of(tmp_path, {**SERIES, "tablestore.timeseries.mapAll": "false"})
    assert any("'tablestore.timeseries.mapAll' = 'false' needs" in problem.message for problem in found)


IDLE = [
    ("buffer.size", "2048"), ("errors.log.enable", "true"), ("errors.retry.timeout", "1"),
    ("runtime.error.mode", "ignore"), ("flush.Interval", "5"), ("header.converter", "x"),
    ("value.converter.schemas.cache.size", "100"), ("key.converter.converter.encoding", "utf-8"),
    ("admin.override.security.protocol", "SSL"),
]  # fmt: skip


def test_options_without_effect_are_warned_of_with_what_takes_their_place(tmp_path: Path) -> None:
    found = problems_of(tmp_path, {**KEYED, **dict(IDLE), "event.parse.class": "a.b.DefaultEventParser"})
    assert [problem.severity for problem in found] == ["warning"] * (len(IDLE) - 1)
    assert {problem.message.split("'")[3] for problem in found} == {name for name, _ in IDLE} - {"runtime.error.mode"}
    reporter = {"runtime.error.mode": "tablestore", "runtime.error.table.name": "e"}
    (warning,) = problems_of(tmp_path, {**KEYED, **reporter, "errors.tolerance": "all"})
    assert "'runtime.error.tolerance' = 'none' fails the run, and nothing is reported" in warning.message


def test_without_brokers_the_variable_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UPSERT_KAFKA_BOOTSTRAP_SERVERS", raising=False)
    load(tmp_path, KEYED)
    _, problems = load_project(tmp_path, {"SECRET": "x"}, connectors=CONNECTORS)
    assert ["${UPSERT_KAFKA_BOOTSTRAP_SERVERS} is not set" in problem.message for problem in problems] == [True]


def test_other_properties_are_passed_over_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "log4j.properties").write_text("rootLogger.level = info\n")
    _, problems = load_project(tmp_path, connectors=CONNECTORS)
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
empty=
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
