"""`upsert-platform query`: rows of the lake by declared names, in the forms that people and scripts read."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.store import Positions
from upsert_platform.changelog.upkeep import raise_floor
from upsert_platform.cli import query as command
from upsert_platform.cli.main import main
from upsert_platform.sync.binding import bind, load

SQL = """
CREATE TABLE users (id BIGINT, name STRING, secret STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'localhost:1', 'key.format' = 'json',
  'value.format' = 'json', 'mask.columns' = 'secret');
CREATE TABLE copies (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'c', 'properties.bootstrap.servers' = 'localhost:1', 'key.format' = 'json',
  'value.format' = 'json');
INSERT INTO copies SELECT id, name FROM users;
"""
ROWS = [("+U", 1, "ann"), ("+U", 2, "bob"), ("+U", 1, "anna"), ("-D", 2, None), ("+U", 3, "a\nb")]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose changelog has two batches."""
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(tmp_path / "shop"))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "users.sql").write_text(SQL)
    store = bind(*load(tmp_path / "shop")).changelog("users", Lake(str(tmp_path / "home")))
    for batch, part in enumerate((ROWS[:2], ROWS[2:]), 1):
        head, schema = store.create(), rows.arrow_schema(store.table)
        made: list[dict[str, Any]] = [
            {rows.KIND: kind, rows.TOPIC: "t", rows.PARTITION: 0, rows.OFFSET: batch * 10 + place, rows.ROW: 0,
             "id": key, "name": name, "secret": "s3cret"}
            for place, (kind, key, name) in enumerate(part)
        ]  # fmt: skip
        found = pa.Table.from_pylist(made, schema=schema.remove(0)).to_batches()
        files = write_rows(found, location=store.location, schema=schema, batch=batch)
        assert store.append(files, head=head, positions=Positions({}, {}), run=f"r{batch}")
    return tmp_path / "shop"


def query(*words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(main, ["query", *words], input=given)


def test_topics_have_the_last_row_per_key_and_changelogs_every_change(project: Path) -> None:
    done = query("SELECT id, name FROM users ORDER BY id", "--json")
    assert done.exit_code == 0, done.output
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"id": 1, "name": "anna"}, {"id": 3, "name": "a\nb"},
    ]  # fmt: skip
    counted = "SELECT _batch, _kind, count(*) FROM changelogs.users GROUP BY ALL ORDER BY ALL"
    done = query(counted, "--csv")
    assert done.stdout.splitlines()[1:] == ["1,+U,2", "2,+U,2", "2,-D,1"]


def test_masked_columns_stay_masked(project: Path) -> None:
    for table in ("users", "changelogs.users"):
        done = query(f"SELECT DISTINCT secret FROM {table}", "--csv")
        assert done.exit_code == 0
        assert "s3cret" not in done.output
        assert len(done.stdout.splitlines()) == 2


def test_a_table_of_people_and_its_bounds(project: Path) -> None:
    done = query("SELECT name FROM users ORDER BY id", "--limit", "1")
    assert done.stdout.splitlines()[0].strip() == "name"
    assert done.stdout.splitlines()[-1] == "1 row; there are more (--limit)"
    done = query("SELECT name FROM users", "--most", "2")
    assert (done.exit_code, "more than 2 rows" in done.output) == (1, True)
    assert query("SELECT 1", "--json", "--csv").exit_code == 2


def test_a_statement_may_come_from_a_pipe(project: Path) -> None:
    assert query("--csv", given="SELECT count(*) AS n\nFROM users;\n").stdout.splitlines() == ["n", "2"]


def test_the_prompt_takes_lines_until_a_semicolon_and_survives_errors(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "is_terminal", lambda: True)
    done = query(given="SELECT count(*) AS n\nFROM users;\nSELECT * FROM nothing;\ntables\nSELECT 41 + 1 AS m;\nexit\n")
    assert done.exit_code == 0
    assert "n\n" in done.stdout.replace(" ", "")
    assert "there is no table 'nothing'" in done.output
    assert "changelogs.users" in done.stdout
    assert "42" in done.stdout
    assert query(given="").exit_code == 0  # the end of the input ends it


def test_tab_completes_names_and_words() -> None:
    complete = command.completer(["users", "users_serving", "SELECT"])
    assert [complete("us", state) for state in range(3)] == ["users", "users_serving", None]
    assert complete("sel", 0) == "SELECT"


def test_rows_as_of_a_batch_its_offsets_and_a_time(project: Path) -> None:
    store = bind(*load(project)).changelog("users", Lake(str(project.parent / "home")))
    third = pa.Table.from_pylist(
        [
            {rows.KIND: "-D", rows.TOPIC: "t", rows.PARTITION: 0, rows.OFFSET: 30, rows.ROW: 0, "id": 1},
            {rows.KIND: rows.KIND_ACCOUNTING, rows.ACCOUNTING: RangeAccount("t", 0, 0, 40).to_json()},
        ],
        schema=rows.arrow_schema(store.table).remove(0),
    )
    head = store.head()
    assert head is not None
    time.sleep(0.05)
    between = datetime.now(UTC).isoformat()
    time.sleep(0.05)
    files = write_rows(third.to_batches(), location=store.location, schema=rows.arrow_schema(store.table), batch=3)
    assert store.append(files, head=head, positions=Positions({}, {}), run="r3")

    def names(as_of: str, node: str = "users") -> list[str]:
        done = query(f"SELECT name FROM {node} ORDER BY id", "--json", "--as-of", as_of)
        assert done.exit_code == 0, done.output
        return [json.loads(line)["name"] for line in done.stdout.splitlines()]

    assert names("1") == ["ann", "bob"]
    assert names("2") == ["anna", "a\nb"]
    assert names(between) == ["anna", "a\nb"]
    assert names("3") == names("0:40") == ["a\nb"]
    assert sorted(names("1", "changelogs.users")) == ["ann", "bob"]
    peeked = CliRunner().invoke(main, ["peek", "users", "--as-of", "1", "--json"])
    assert [json.loads(line)["name"] for line in peeked.stdout.splitlines()] == ["ann", "bob"]

    def refused(*words: str) -> str:
        done = CliRunner().invoke(main, list(words))
        assert done.exit_code == 1, done.output
        return done.output

    assert "no rows as of batch 4: its history begins with batch 1 and ends with batch 3" in refused(
        "query", "SELECT * FROM users", "--as-of", "4"
    )
    assert "no batch ends at these offsets" in refused("query", "SELECT * FROM users", "--as-of", "0:39")
    assert "give a batch, offsets" in refused("query", "SELECT * FROM users", "--as-of", "latest")
    assert "its system keeps no earlier rows" in refused("query", "SELECT * FROM copies", "--as-of", "1")
    assert "is not of the lake" in refused("peek", "topics/users", "--as-of", "1")
    raise_floor(store, 0, reduced=2)  # as a compaction does before it reduces history
    assert "its history begins with batch 2" in refused("peek", "users", "--as-of", "1")
    assert names("2") == ["anna", "a\nb"]
