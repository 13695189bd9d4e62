"""`upsert-platform init`: what it writes is valid, and what is there stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from upsert_platform.cli.main import main

LOCAL = {
    "UPSERT_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9",
    "UPSERT_TABLESTORE_ENDPOINT": "http://127.0.0.1:9",
    "UPSERT_TABLESTORE_INSTANCE": "local",
    "UPSERT_TABLESTORE_ACCESS_KEY_ID": "id",
    "UPSERT_TABLESTORE_ACCESS_KEY_SECRET": "secret",
}
"""The variables that `local up` sets; the written project may need no other."""


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def test_written_project_is_valid_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    for name, value in LOCAL.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "a shop"
    written = run("init", str(folder))
    assert written.exit_code == 0, written.output
    assert f"export UPSERT_PLATFORM_PROJECT='{folder}'" in written.output
    checked = run("validate", str(folder))
    assert checked.exit_code == 0, checked.output
    assert f"2 tables and 1 insert in {folder}: no error, 0 warnings" in checked.output


def test_next_commands_are_commands(tmp_path: Path) -> None:
    shown = run("init", str(tmp_path)).output.partition("next:")[2].split("\n")
    told = [line.rpartition("| ")[2].split() for line in shown]
    own = [words[1:] for words in told if words and words[0].endswith("upsert-platform")]
    assert len(own) == 6
    for words in own:
        assert run(*words[: 2 if words[0] == "local" else 1], "--help").exit_code == 0, words


def test_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    mine = tmp_path / "orders.sql"
    mine.write_text("-- mine")
    done = run("init", str(tmp_path))
    assert done.exit_code == 1
    assert f"{mine}: error: this file is there already" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["orders.sql"]
    assert mine.read_text() == "-- mine"


def test_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("init", str(tmp_path / "file" / "shop"))
    assert done.exit_code == 1
    assert "the project cannot be written here (Not a directory)" in done.output
    assert run("init", str(tmp_path / "file")).exit_code == 2  # a file in the place of the folder is wrong usage


def test_a_project_to_postgres_is_valid_and_names_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    done = CliRunner().invoke(main, ["init", str(tmp_path / "shop"), "--to", "postgres"])
    assert done.exit_code == 0, done.output
    assert "local up --only kafka,postgres" in done.output
    text = (tmp_path / "shop" / "orders.sql").read_text("utf-8")
    assert "'url' = '${UPSERT_POSTGRES_URL}'" in text
    assert "'auto.create' = 'true'" in text
    assert "tablestore" not in text.lower()
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "POSTGRES_USER", "POSTGRES_PASSWORD"):
        monkeypatch.setenv(f"UPSERT_{name}", "of-a-test")
    monkeypatch.setenv("UPSERT_POSTGRES_URL", "jdbc:postgresql://127.0.0.1:1/shop")
    valid = CliRunner().invoke(main, ["validate", str(tmp_path / "shop")])
    assert valid.exit_code == 0, valid.output
