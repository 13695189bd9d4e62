"""`upsert-platform erase`: keys that it does not take, and tables of which it would not be right. No servers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from upsert_platform.changelog.erasure import same_keys
from upsert_platform.cli.main import main
from upsert_platform.sync.binding import bind, load
from upsert_platform.sync.erased_elsewhere import readers_of_same
from upsert_platform.sync.erased_key import key_rows, parsed_key
from upsert_platform.sync.following import tables_behind

KAFKA = """'connector' = 'upsert-kafka', 'properties.bootstrap.servers' = '127.0.0.1:9', 'key.format' = 'json',
  'value.format' = 'json'"""
SOURCES = f"""
CREATE TABLE users (name STRING, region STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED)
WITH ({KAFKA}, 'topic' = 'users');
CREATE TABLE pairs (a BIGINT, b DECIMAL(10, 2), v STRING, PRIMARY KEY (a, b) NOT ENFORCED)
WITH ({KAFKA}, 'topic' = 'pairs', 'mask.columns' = 'a');
CREATE TABLE shown (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH ({KAFKA}, 'topic' = 'shown');
CREATE TABLE pairs_shown (a BIGINT, b DECIMAL(10, 2), v STRING, PRIMARY KEY (a, b) NOT ENFORCED)
WITH ({KAFKA}, 'topic' = 'pairs_shown');
INSERT INTO pairs_shown SELECT a, b, v FROM pairs;
CREATE TABLE shown_again (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH ({KAFKA}, 'topic' = 'again');
CREATE TABLE from_shown (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED)
WITH ({KAFKA}, 'topic-pattern' = 'show.*');
INSERT INTO shown_again SELECT name, n FROM from_shown;
"""
PLAIN = "INSERT INTO shown SELECT name, n FROM users;"
QUERY = "INSERT INTO shown SELECT region AS name, COUNT(*) AS n FROM users GROUP BY region;"
APPENDS = """CREATE TABLE appended (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) WITH (
'connector' = 'maxcompute', 'table.name' = 'appended', 'sink.operation' = 'insert', 'odps.project.name' = 'p',
'odps.end.point' = 'http://127.0.0.1:9/api', 'odps.access.id' = 'i', 'odps.access.key' = 'k');
INSERT INTO appended SELECT name, n FROM users;"""
REFUSED = {
    "a table that is written": (PLAIN, ["shown", "x"], "erase the key of what it is written from, users"),
    "no such table": (PLAIN, ["nobody", "x"], "no insert reads a table 'nobody'; read are: from_shown, pairs, users"),
    "another column": (PLAIN, ["users", '{"id": 1}'], "is of the columns name"),
    "part of a key": (PLAIN, ["pairs", '{"a": 1}'], "is of the columns a, b"),
    "a value alone of two": (PLAIN, ["pairs", "1"], "is a JSON object of the columns a, b"),
    "another type": (PLAIN, ["pairs", '{"a": "x", "b": 1}'], "the key of table 'pairs'"),
    "a null": (PLAIN, ["users", '{"name": null}'], "has no null"),
    "no such table to leave": (PLAIN, ["users", "x", "--leave", "other"], "'other' is not fed by table 'users'"),
    "a table that appends rows": (APPENDS, ["users", "x"], "table 'appended' has no key, or appends rows"),
    "a query": (QUERY, ["users", "x"], "keeps rows of 'users' in its state and history"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_erased_is_refused(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    insert, arguments, told = REFUSED[case]
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "tables.sql").write_text(SOURCES + insert)
    done = CliRunner().invoke(main, ["erase", "--project", str(tmp_path / "project"), *arguments])
    assert (done.exit_code, told in done.output) == (1, True), done.output


def test_a_key_is_told_by_its_values_however_it_is_spelled(tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text(SOURCES + PLAIN)
    binding = bind(*load(tmp_path, root=str(tmp_path)))
    pairs = binding.sources["pairs"].kafka  # type: ignore[attr-defined]
    key = key_rows(pairs, parsed_key('{"b": 1.50, "a": 7}', pairs))
    assert key.key.to_pylist()[0]["a"] == 7
    spelled = [b'{"a":7,"b":1.5}', b'{ "b": 1.50, "a": 7 }', b'{"a":8,"b":1.5}', b"broken", None, b'{"a":7,"b":1.51}']
    told = key.of_record(pa.array(spelled, pa.binary())).to_pylist()
    assert told == [True, True, False, None, None, False], "of what does not decode nobody can tell"
    users = binding.sources["users"].kafka  # type: ignore[attr-defined]
    assert parsed_key("17", users) == {"name": "17"}, "a text is taken as it is"


def test_a_masked_key_is_not_shown_when_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "tables.sql").write_text(SOURCES + PLAIN)
    command = ["erase", "--project", str(tmp_path / "project"), "pairs", '{"a": "quokka", "b": 1}']
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, "the key of table 'pairs'" in done.output) == (1, True)
    assert "quokka" not in done.output


def test_tables_that_read_the_same_topics_are_named(tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text(SOURCES + PLAIN)
    binding = bind(*load(tmp_path, root=str(tmp_path)))
    named = {
        name: readers_of_same(binding, source, tables_behind(binding, name))  # type: ignore[arg-type]
        for name, source in binding.sources.items()
    }
    assert named == {"users": ("from_shown",), "pairs": (), "from_shown": ()}


def test_keys_are_compared_as_values() -> None:
    key = pa.record_batch({"a": pa.array([1]), "b": pa.array(["x"])})
    found = pa.record_batch({"a": pa.array([1, 1, None, 2]), "b": pa.array(["x", "y", "x", "x"])})
    assert same_keys(found, key).to_pylist() == [True, False, False, False]
