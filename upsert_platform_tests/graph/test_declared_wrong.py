"""The way back from each kind of wrong declaration, as docs/declared-wrong.md has it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

import upsert_platform
from upsert_platform.cli.main import main
from upsert_platform_tests.campaign import first_of
from upsert_platform_tests.graph.stack import KEY, USERS, Stack
from upsert_platform_tests.referee.judging import maxcompute_table

PAGE = Path(upsert_platform.__file__).parent.parent / "docs" / "declared-wrong.md"
ROWS = [(1, "one", "1.25"), (2, "two", "1.25"), (4, "four", "1.25")]
EVENTS = "'connector' = 'kafka', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json'"
FORMATS = "'key.format' = 'json', 'value.format' = 'json'"
pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]


@dataclass(frozen=True)
class Case:
    """A wrong declaration.

    Attributes:
        within: begins the statement that is wrong; all of them are if empty.
        texts: of the right declaration, each with what stands in its place.
        fails: whether the run under the wrong declaration fails.
        warehouse: whether the table in MaxCompute is looked at.
        plain: whether keys are numbers as text.
    """

    within: str
    texts: dict[str, str]
    fails: bool = False
    warehouse: bool = False
    plain: bool = False


READ, WRITTEN, STORED = "CREATE TABLE users (", "CREATE TABLE users_serving (", "CREATE TABLE users_warehouse ("
INSERT = "INSERT INTO users_serving"
CASES = {
    "format of the key": Case(READ, {"'key.format' = 'csv'": "'key.format' = 'json'"}, fails=True, plain=True),
    "format of the value": Case(READ, {"'value.format' = 'json'": "'value.format' = 'csv'"}, fails=True),
    "type of a column that records do not have": Case("", {"name STRING": "name INT"}, fails=True),
    "type of a column that takes other values too": Case("", {"DECIMAL(12, 2)": "DECIMAL(12, 1)"}),
    "name of a column": Case(READ, {"name STRING": "nmae STRING"}),
    "primary key": Case("", {KEY: "PRIMARY KEY (region) NOT ENFORCED"}, fails=True),
    "connector: `kafka` for a topic of upserts": Case(
        READ, {f", {KEY}": "", "'connector' = 'upsert-kafka'": EVENTS, FORMATS: ""}
    ),
    "topic": Case(READ, {"'topic' = '": "'topic' = 'other-"}),
    "`SELECT` or `WHERE` of the insert": Case(INSERT, {"FROM users": "FROM users WHERE user_id > 1"}),
    "type of a column of the table that is written": Case(STORED, {"name STRING": "name VARCHAR(2)"}, warehouse=True),
    "name of the table that is written": Case(WRITTEN, {"'table.name' = '": "'table.name' = 'other_"}),
}  # fmt: skip


def rows_of_the_page() -> dict[str, list[str]]:
    """What was wrong, with the commands that the page tells to type."""
    found = {}
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 3 and cells[0] not in ("what was wrong", "---"):
            found[cells[0]] = re.findall(r"`(upsert-platform [^`]+)`", cells[2])
    return found


def declared_wrong(text: str, case: Case) -> str:
    before, within, rest = text.partition(case.within) if case.within else ("", "", text)
    statement, end, after = rest.partition(";") if case.within else (rest, "", "")
    for right, wrong in case.texts.items():
        assert right in statement, statement
        statement = statement.replace(right, wrong)
    return before + within + re.sub(r",\s*\n\)", "\n)", statement) + end + after


def send(stack: Stack, *, plain: bool, other: bool) -> None:
    """Three users, and one that is deleted; another topic has a user of its own."""
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})

    def put(topic: str, key: int, name: str | None) -> None:
        value = {
            "user_id": key,
            "name": name,
            "region": f"r{key}",
            "balance": 1.25,
            "updated_at": "2026-01-02 03:04:05",
        }
        text = str(key) if plain else json.dumps({"user_id": key})
        producer.produce(topic, key=text, value=None if name is None else json.dumps(value), partition=0)

    for key, name in [(1, "one"), (2, "two"), (3, "three"), (4, "four"), (3, None)]:
        put(stack.topic, key, name)
    if other:
        put(f"other-{stack.topic}", 9, "nine")
    producer.flush()


def rows(stack: Stack, *, warehouse: bool) -> list[tuple[int, str, str]]:
    found = maxcompute_table(stack.variables, stack.table, USERS.columns) if warehouse else stack.serving_rows()
    return sorted((row[0], row[1], str(row[3])) for row in found)


def test_the_page_has_a_row_for_each_case() -> None:
    assert list(rows_of_the_page()) == list(CASES)


@pytest.mark.parametrize("what", first_of(CASES, every=2))
def test_table_is_right_after_what_the_page_says(
    stack: Stack, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    case = CASES[what]
    if what == "topic":
        make_topic(name=f"other-{stack.topic}")
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)
    stack.declare(warehouse="" if case.warehouse else None)
    file = stack.project / "users.sql"
    right = file.read_text()
    if case.plain:
        right = right.replace("'key.format' = 'json'", "'key.format' = 'csv'")
    send(stack, plain=case.plain, other=what == "topic")
    file.write_text(declared_wrong(right, case))
    first = stack.run()
    assert first.success is not case.fails
    if not case.fails:
        assert what == "name of the table that is written" or rows(stack, warehouse=case.warehouse) != ROWS
    file.write_text(right)
    for command in rows_of_the_page()[what]:
        done = CliRunner().invoke(main, shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
    assert stack.run().success
    assert rows(stack, warehouse=case.warehouse) == ROWS
    shown = CliRunner().invoke(main, ["status"])
    assert shown.exit_code == 0, shown.output
