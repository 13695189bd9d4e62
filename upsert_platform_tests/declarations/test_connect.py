"""What Kafka Connect configurations of a project folder declare."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from upsert_platform.declarations.project import load_project
from upsert_platform.sync.connectors import CONNECTORS
from upsert_platform.tablestore.connect.options import KeyMode
from upsert_platform.tablestore.connect.record import Envelope, MessageFormat
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform_tests.declarations.connect_configurations import (
    BASE,
    JSON_CONVERTER,
    KEYED,
    SERIES,
    VARIABLES,
    bound,
    columns,
    load,
    problems_of,
    sink_of,
)

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


@pytest.mark.parametrize(("given", "expected"), [("1", 1), ("12", 12), (None, 6)])
def test_1_1_concurrency(tmp_path: Path, given: str | None, expected: int) -> None:
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


def test_1_2_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UPSERT_TABLESTORE_ACCESS_KEY_ID", "UPSERT_TABLESTORE_ACCESS_KEY_SECRET"):
        monkeypatch.delenv(name, raising=False)  # tables take what they leave out from there
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


@pytest.mark.parametrize(
    ("policy", "more", "tolerances", "told"),
    [
        ("continue", {}, ("all", "all"), ""),
        ("Stop", {}, ("none", "none"), "stops the topic's partition at the first record that fails"),
        ("continue", {"errors.tolerance": "all"}, ("all", "all"), ""),
        (
            "continue", {"runtime.error.tolerance": "none"}, None,
            "means 'runtime.error.tolerance' = 'all', but 'none' is given",
        ),
        ("retry", {}, None, "takes continue or stop, not 'retry'"),
    ],
)  # fmt: skip
def test_the_failure_handling_policy_says_which_records_are_tolerated(
    tmp_path: Path, policy: str, more: dict[str, str], tolerances: tuple[str, str] | None, told: str
) -> None:
    project, problems = load(tmp_path, {**KEYED, "failure.handling.policy": policy, **more})
    assert [problem for problem in problems if told in problem.message] if told else problems == []
    if tolerances is not None:
        options = project.tables["sink.kafka_t"].options
        assert (options["errors.tolerance"], options["runtime.error.tolerance"]) == tolerances
        sink = sink_of(bound(tmp_path, {**KEYED, "failure.handling.policy": policy, **more}), "sink.kafka_t")
        assert bool(sink.failures.fatal) is (tolerances[0] == "none")


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("offset.storage.topic", "offsets are committed with the rows that were read"),
        ("config.storage.topic", "the configuration is this file"),
        ("status.storage.replication.factor", "'upsert-platform status'"),
        ("group.id", "'consumer.override.group.id'"),
    ],
)
def test_topics_and_group_of_the_workers_are_explained(tmp_path: Path, option: str, told: str) -> None:
    _, (problem,) = load(tmp_path, {**KEYED, option: "x"})
    assert problem.severity == "warning"
    assert f"option '{option}' has no effect" in problem.message
    assert told in problem.message


def test_two_connectors_of_one_name_are_refused(tmp_path: Path) -> None:
    for number in range(2):
        text = json.dumps({"name": "sink", **KEYED, "topics": f"t{number}", "tablestore.kafka_t.primarykey.name": "id"})
        text = text.replace("kafka_t.", f"kafka_t{number}.")
        (tmp_path / f"{number}.json").write_text(text, "utf-8")
    _, problems = load_project(tmp_path, VARIABLES, connectors=CONNECTORS)
    (found,) = [problem for problem in problems if "names are unique" in problem.message]
    assert found.severity == "error"
    assert found.location is not None
    assert found.location.file.endswith("1.json")
    assert "0.json" in found.message


CONSOLE = Path(__file__).parents[2] / "docs" / "from-the-console.md"
FIELDS = {
    "Name": "name", "Instance": "consumer.override.bootstrap.servers", "Data Source Topic": "topics",
    "Consumer Thread Concurrency": "consumer.thread.concurrency",
    "Consumer Offset": "consumer.override.auto.offset.reset", "VPC ID": "", "vSwitch ID": "",
    "Failure Handling Policy": "failure.handling.policy", "Resource Creation Method": "",
    "Connector Consumer Group": "consumer.override.group.id", "Task Offset Topic": "offset.storage.topic",
    "Task Configuration Topic": "config.storage.topic", "Task Status Topic": "status.storage.topic",
    "Dead-letter Queue Topic": "errors.deadletterqueue.topic.name", "Error Data Topic": "runtime.error.topic.name",
    "Instance Name": "tablestore.instance.name", "Automatically Create Destination Table": "auto.create",
    "Destination Table Name": "table.name.format", "Tablestore": "tablestore.mode",
    "Message Key Format": "key.converter", "Message Value Format": "value.converter",
    "JSON Message Field Conversion": "json.field.conversion", "Primary Key Mode": "primarykey.mode",
    "Primary Key Column Names": "tablestore.<table>.primarykey.name", "Write Mode": "insert.mode",
    "Delete Mode": "delete.mode", "Metric Name Field": "tablestore.timeseries.<table>.measurement",
    "Data Source Field": "tablestore.timeseries.<table>.dataSource",
    "Tag Field": "tablestore.timeseries.<table>.tags", "Timestamp Field": "tablestore.timeseries.<table>.time",
    "Timestamp Unit": "tablestore.timeseries.<table>.time.unit",
    "Whether to Map All Non-primary Key Fields": "tablestore.timeseries.mapAll",
    "Configure Mapping for All Non-primary Key Fields": "tablestore.timeseries.<table>.field.name",
}  # fmt: skip
"""Fields of the console to the option that the page names."""


def test_the_page_of_the_console_has_every_field_and_options_that_are_known(tmp_path: Path) -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in CONSOLE.read_text("utf-8").splitlines()
            if line.startswith("| ") and not line.startswith(("| field", "| ---"))]  # fmt: skip
    assert {field: option.strip("`").replace("none", "") for field, option in rows} == FIELDS
    for option in filter(None, FIELDS.values()):
        base = SERIES if "timeseries" in option else KEYED
        name = option.replace("<table>", "kafka_t")
        _, problems = load(tmp_path, {**base, name: "x"})
        assert not [problem for problem in problems if f"unknown option '{name}'" in problem.message]
