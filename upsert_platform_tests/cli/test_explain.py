"""`upsert-platform explain`: a tree per statement, with its state."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from upsert_platform.changelog.lake import HOME_VARIABLE
from upsert_platform.cli.main import main

PROJECT = """
CREATE TABLE users (id INT, region STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users', 'properties.bootstrap.servers' = '127.0.0.1:1',
  'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE per_region (region STRING, n BIGINT, ids BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'regions', 'properties.bootstrap.servers' = '127.0.0.1:1',
  'key.format' = 'json', 'value.format' = 'json');
INSERT INTO per_region SELECT region, COUNT(*), COUNT(DISTINCT id) FROM users WHERE id > 3 GROUP BY region;
"""


def test_explain_shows_operators_state_and_what_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "lake"))
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "regions.sql").write_text(PROJECT, "utf-8")
    result = CliRunner().invoke(main, ["explain", str(tmp_path / "project")])
    assert result.exit_code == 0, result.output
    lines = [line.strip() for line in result.output.splitlines()]
    assert lines[0].endswith(": per_region")
    assert lines[1] == "key (region); not computed yet"
    assert "read users (id, region): upserts" in lines
    assert "state: the columns above per (id); grows with the keys of users" in lines
    grouped = next(line for line in lines if line.startswith("state: (region"))
    assert "grows with the groups" in grouped
    assert "grows with the different values" in grouped
    assert any(line.startswith("filter") and line.endswith("> 3") for line in lines)
