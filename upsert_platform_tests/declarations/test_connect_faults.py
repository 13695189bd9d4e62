"""What is wrong with Kafka Connect configurations, and what of them has no effect: each is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform.core.errors import DeclarationError
from upsert_platform.declarations.project import load_project
from upsert_platform.sync.binding import bind
from upsert_platform.sync.connectors import CONNECTORS
from upsert_platform_tests.declarations.connect_configurations import (
    BASE,
    KEYED,
    SERIES,
    STRING_CONVERTER,
    VARIABLES,
    load,
    problems_of,
)

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
