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


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("", "one row per key and (region): rows in other partitions stay"),
        (", 'sink.partition.move-rows' = 'true'", "one row per key: a row moves when its partition changes"),
    ],
)
def test_explain_says_what_becomes_of_rows_in_other_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, shown: str
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "lake"))
    source = PROJECT.partition("CREATE TABLE per_region")[0]
    sink = f"""CREATE TABLE by_region (id INT, region STRING, PRIMARY KEY (id) NOT ENFORCED)
      PARTITIONED BY (region) WITH (
      'connector' = 'maxcompute', 'odps.end.point' = 'http://127.0.0.1:1/api', 'odps.project.name' = 'p',
      'odps.access.id' = 'i', 'odps.access.key' = 'k', 'table.name' = 't', 'sink.operation' = 'upsert'{option});
    INSERT INTO by_region SELECT * FROM users;"""
    (tmp_path / "users.sql").write_text(source + sink, "utf-8")
    result = CliRunner().invoke(main, ["explain", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert shown in result.output


def test_explain_names_what_arrow_does_not_compute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the columns and the condition for which batches pass Spark SQL, wherever they stand; nothing of others."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "lake"))
    sources = PROJECT.partition("INSERT")[0]
    names = sources.replace("per_region (region STRING, n BIGINT, ids BIGINT", "names (region STRING, n DECIMAL(3, 0)")
    project = tmp_path / "project"
    project.mkdir()

    def shown(statement: str, declared: str = names) -> list[str]:
        (project / "regions.sql").write_text(declared + statement, "utf-8")
        result = CliRunner().invoke(main, ["explain", str(project)])
        assert result.exit_code == 0, result.output
        return [line.strip() for line in result.output.splitlines() if "Spark" in line]

    assert shown("INSERT INTO names SELECT region, CAST(NULL AS DECIMAL(3, 0)) FROM users WHERE id > 3;") == []
    through = "through Spark SQL, which is slower, for:"
    found = shown("INSERT INTO names SELECT REPEAT(region, 1), CAST(LN(id) AS DECIMAL(3, 0)) FROM users WHERE id > 3;")
    assert found == [f"{through} EXPR$0, EXPR$1"]
    plain = sources.replace("per_region (region STRING, n BIGINT, ids BIGINT", "plain (id INT, region STRING")
    plain = plain.replace("PRIMARY KEY (region)", "PRIMARY KEY (id)")
    found = shown("INSERT INTO plain SELECT id, REPEAT(region, 1) FROM users WHERE REPEAT(region, 1) = 'A';", plain)
    assert found == [f"{through} region, WHERE"]
    fails = "INSERT INTO plain SELECT id, CAST(CAST(region AS INT) AS STRING) FROM users;"
    assert shown(fails, plain) == []
    stops = plain.replace("'topic' = 'regions',", "'topic' = 'regions', 'on-error' = 'fail',")
    assert shown(fails, stops) == [
        f"{through} all rows, since the first that cannot be computed ends the write before any is written"
    ]
    assert shown("INSERT INTO plain SELECT id, region FROM users;", stops) == []
    added = """CREATE TABLE added (id INT) WITH ('connector' = 'maxcompute',
      'odps.end.point' = 'http://127.0.0.1:1/api', 'odps.project.name' = 'p', 'odps.access.id' = 'i',
      'odps.access.key' = 'k', 'table.name' = 't');"""
    found = shown("INSERT INTO added SELECT id FROM users;", sources + added)
    assert found == [f"{through} all rows, since the table has no primary key"]
    query = (
        "INSERT INTO per_region SELECT region, COUNT(*), 0 FROM users WHERE REPEAT(region, 1) = 'A' GROUP BY region;"
    )
    assert shown(query, sources) == [f"{through} the filter"]
    query = "INSERT INTO per_region SELECT REPEAT(region, 1), COUNT(*), 0 FROM users GROUP BY REPEAT(region, 1);"
    assert shown(query, sources)[0].startswith(through)
