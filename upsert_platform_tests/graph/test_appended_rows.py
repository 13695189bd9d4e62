"""Tables that rows are appended to: a check that compares says what is wrong, and one that cannot says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from upsert_platform import testing
from upsert_platform.testing.tables import MemoryTable

pytestmark = pytest.mark.whole_runs

SQL = """
CREATE TABLE events (id BIGINT, name STRING) WITH (
  'connector' = 'kafka', 'topic' = 'events', 'properties.bootstrap.servers' = '${BROKERS}', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset');
CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users', 'properties.bootstrap.servers' = '${BROKERS}',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE log (id BIGINT NOT NULL, name STRING) WITH ('table.name' = 'log', ${STORE});
CREATE TABLE whole (id BIGINT, name STRING) WITH ('table.name' = 'whole', ${STORE});
CREATE TABLE trail (id BIGINT, name STRING) WITH ('table.name' = 'trail', ${STORE});
INSERT INTO log SELECT * FROM events WHERE name <> 'test';
INSERT OVERWRITE whole SELECT * FROM events;
INSERT INTO trail SELECT * FROM users;
"""
STORE = (
    "'connector' = 'maxcompute', 'odps.end.point' = '${END_POINT}', 'odps.project.name' = 'p', 'sink.operation' ="
    " 'insert', 'odps.access.id' = '${ID}', 'odps.access.key' = '${SECRET}', 'auto.create' = 'true'"
)
ROWS = [{"id": 1, "name": "a"}, {"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "test"},
        {"id": 4, "name": "b"}]  # fmt: skip
Check = tuple[bool, Any, Any, Any, str]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[testing.ProjectUnderTest]:
    (tmp_path / "shop.sql").write_text(SQL.replace("${STORE}", STORE), "utf-8")
    with testing.project(tmp_path) as found:
        yield found


def held(project: testing.ProjectUnderTest, table: str) -> MemoryTable:
    systems = project._systems
    assert systems is not None
    return systems.table(project.platform.binding().project.tables[table])


def checks(project: testing.ProjectUnderTest, job: str) -> dict[str, Check]:
    """Table to its check: passed, compared, missing, extra, and the description."""
    chosen = project.definitions.resolve_job_def(job)
    result = chosen.execute_in_process(instance=project.instance, raise_on_error=False)
    return {
        item.asset_key.path[-1]: (
            item.passed,
            *(_number(item.metadata.get(name)) for name in ("compared", "missing", "extra")),
            item.description or "",
        )
        for item in result.get_asset_check_evaluations()
        if item.check_name == "last_value_per_key"
    }


def _number(value: dg.MetadataValue[Any] | None) -> Any:
    return None if value is None else value.value


def test_a_sync_says_that_it_compares_nothing(project: testing.ProjectUnderTest) -> None:
    project.send("events", ROWS)
    project.send("users", ROWS[:1])
    found = checks(project, "sync")
    assert {name: item[:2] for name, item in found.items()} == dict.fromkeys(("log", "whole", "trail"), (True, 0))
    assert all("nothing was compared" in item[-1] for item in found.values()), found


Spoil = Callable[[MemoryTable], object]
SPOILED: dict[str, tuple[Spoil, tuple[bool, int, int, int]]] = {
    "as it was written": (lambda table: None, (True, 3, 0, 0)),
    "a row is gone": (lambda table: table.rows.popitem(), (False, 3, 1, 0)),
    "one of two equal rows is gone": (lambda table: table.rows.pop((0,)), (False, 3, 1, 0)),
    "every row is gone": (lambda table: table.rows.clear(), (False, 3, 3, 0)),
    "a row was appended twice": (lambda table: table.put(ROWS[4]), (False, 3, 0, 1)),
    "a row has another value": (lambda table: table.rows.update({(0,): {"id": 1, "name": "x"}}), (False, 3, 1, 0)),
    "a row of another program": (lambda table: table.put({"id": 9, "name": "x"}), (True, 3, 0, 0)),
}


@pytest.mark.parametrize("case", SPOILED)
def test_every_row_is_there_as_often_as_it_was_appended(case: str, project: testing.ProjectUnderTest) -> None:
    spoil, expected = SPOILED[case]
    for part in (ROWS[:2], ROWS[2:]):
        project.send("events", part)
        assert project.sync().success
    spoil(held(project, "log"))
    found = checks(project, "verify")
    assert found["log"][:-1] == expected
    assert ("reset log --drop-target" in found["log"][-1]) is not expected[0]
    assert checks(project, "sync")["log"][0] is expected[0], "the verdict stands"


def test_a_table_that_is_overwritten_holds_no_other_row(project: testing.ProjectUnderTest) -> None:
    project.send("events", ROWS)
    assert project.sync().success
    assert checks(project, "verify")["whole"][:-1] == (True, 5, 0, 0)
    held(project, "whole").put({"id": 9, "name": "x"})
    assert checks(project, "verify")["whole"][:-1] == (False, 5, 0, 1)


def test_a_changelog_that_keeps_the_last_values_alone_is_no_proof(project: testing.ProjectUnderTest) -> None:
    project.send("users", ROWS[:1])
    assert project.sync().success
    held(project, "trail").rows.clear()
    passed, compared, *_, told = checks(project, "verify")["trail"]
    assert (passed, compared) == (True, 0)
    assert told.startswith("nothing was compared: 'users' has a key"), told
    assert not project.platform.destination_hop("trail", run="test").plan().state.verdict, "no verdict says so"


def test_rows_that_were_refused_are_not_missing(project: testing.ProjectUnderTest) -> None:
    project.send("events", [*ROWS, {"id": None, "name": "c"}])
    assert project.sync(raise_on_error=False).success
    assert len(held(project, "log").rows) == 3
    found = checks(project, "verify")["log"]
    assert found[1:-1] == (4, 0, 0)
    assert "1 rows were refused" in found[-1]
    held(project, "log").rows.popitem()
    assert checks(project, "verify")["log"][1:-1] == (4, 1, 0)
