"""A lake restored from an older copy, in whole runs: tables are refused by name until they are equal to it again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from upsert_platform.cli.main import main
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.graph.test_faults import failures

REGIONS = """
CREATE TABLE regions (region STRING, people BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}', 'auto.create' = 'true',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json', 'sink.delivery-guarantee' = 'exactly-once',
  'sink.transactional-id-prefix' = '{topic}'
);
INSERT INTO regions SELECT region, COUNT(*) FROM users GROUP BY region;
"""
TABLES = ("users_serving", "users_warehouse", "regions")


def status(stack: Stack) -> tuple[int, dict[str, str]]:
    """The exit code of `status`, and the error of each table."""
    variables = {"UPSERT_PLATFORM_HOME": str(stack.lake), "UPSERT_PLATFORM_PROJECT": str(stack.project)}
    done = CliRunner().invoke(main, ["status", "--json"], env=variables)
    return done.exit_code, {row["table"]: row["error"] for row in json.loads(done.stdout)["tables"]}


@pytest.mark.soak
def test_tables_are_refused_in_every_run_and_lose_nothing(stack: Stack, tmp_path: Path) -> None:
    (stack.project / "regions.sql").write_text(REGIONS.format(topic=f"{stack.topic}-regions"), "utf-8")
    stack.produce(stack.users.first_wave(60))
    assert stack.run().success
    shutil.copytree(stack.lake, tmp_path / "copy")
    for _ in range(2):
        stack.produce(stack.users.second_wave(20))
        assert stack.run().success
    newer = tmp_path / "newer"
    shutil.move(stack.lake, newer)
    shutil.copytree(tmp_path / "copy", stack.lake)
    for _ in range(3):
        stack.produce(stack.users.second_wave(20))
        result = stack.run()
        assert not result.success
        told = failures(result)
        for table in TABLES:
            assert "restored from an older copy" in told[f"tables__{table}"], told
            assert f"'upsert-platform reconcile {table}'" in told[f"tables__{table}"]
        code, errors = status(stack)
        assert code == 1
        assert all("restored from an older copy" in errors[table] for table in TABLES), errors
    assert not stack.run("verify").success
    repaired = stack.run("reconcile")
    assert repaired.success, failures(repaired)
    assert stack.serving_differences() == stack.warehouse_differences() == []
    stack.produce(stack.users.second_wave(20))
    after = stack.run()
    assert after.success, failures(after)
    assert status(stack)[0] == 0
    assert stack.serving_differences() == stack.warehouse_differences() == []
    assert stack.run("verify").success


def test_a_lake_that_is_away_for_a_while_leaves_no_failed_check(stack: Stack, tmp_path: Path) -> None:
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(30))
    assert stack.run().success
    shutil.move(stack.lake, tmp_path / "away")
    result = stack.run("verify")
    assert not result.success
    assert "but there is no changelog at" in " ".join(failures(result).values())
    code, errors = status(stack)
    assert (code, "there is no changelog at" in errors["users_serving"]) == (1, True)
    shutil.rmtree(stack.lake, ignore_errors=True)
    shutil.move(tmp_path / "away", stack.lake)
    for _ in range(2):
        assert stack.run().success
    stack.produce(stack.users.second_wave(10))
    assert stack.run().success
    assert stack.serving_differences() == []
