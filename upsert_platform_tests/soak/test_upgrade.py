"""An upgrade: lake, tables and DAGSTER_HOME of an earlier commit are carried on as they are.

The earlier tree is taken from the repository's history and runs with the packages that are installed now.
`UPGRADE_FROM` names another commit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.referee.judging import latest, records_of

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

EARLIER = "976ac0baf83d26afb74e73e52fdef836685b5704"
"""The commit from which the test upgrades, unless `UPGRADE_FROM` names another."""
ROOT = Path(__file__).parents[2]
COMMAND = str(Path(sys.executable).parent / "upsert-platform")
TABLES = {"tables/users_serving", "tables/users_warehouse", "tables/per_region", "tables/richest"}
_QUERIES = """
CREATE TABLE per_region (
  region STRING, users BIGINT, balance DECIMAL(38, 2), PRIMARY KEY (region) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}-per-region', 'auto.create' = 'true',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO per_region SELECT region, COUNT(*), SUM(balance) FROM users GROUP BY region;
CREATE TABLE richest (
  region STRING, place BIGINT, user_id BIGINT, PRIMARY KEY (region, place) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}-richest', 'auto.create' = 'true',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO richest SELECT region, place, user_id FROM (
  SELECT region, user_id,
    ROW_NUMBER() OVER (PARTITION BY region ORDER BY balance DESC, user_id) AS place
  FROM users
) WHERE place <= 3;
"""


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The tree of the earlier commit."""
    tree = tmp_path / "earlier"
    tree.mkdir()
    commit = os.environ.get("UPGRADE_FROM", EARLIER)
    archive = subprocess.run(["git", "archive", commit, "upsert_platform"], cwd=ROOT, capture_output=True)
    assert archive.returncode == 0, archive.stderr.decode()
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    return tree


def _run(stack: Stack, *command: str, tree: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What a command prints, of the earlier tree if one is given."""
    environment = stack.environment() | {"UPSERT_SPARK_SESSION": "off"}
    if tree is not None:
        environment["PYTHONPATH"] = str(tree)
    return subprocess.run(command, cwd=stack.path, env=environment, capture_output=True, text=True)


def _last(stack: Stack, name: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = latest(records_of(stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], f"{stack.topic}-{name}"))
    return {
        tuple(json.loads(key or b"").values()): json.loads(value, parse_float=Decimal) for key, value in found.items()
    }


def _judge(stack: Stack) -> None:
    """All four tables against what was produced."""
    assert stack.serving_differences() == []
    assert stack.warehouse_differences() == []
    regions: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in stack.users.rows.values():
        regions[row["region"]].append(row)
    counted = {key: (row["users"], row["balance"]) for (key,), row in _last(stack, "per-region").items()}
    assert counted == {region: (len(rows), sum(row["balance"] for row in rows)) for region, rows in regions.items()}
    found = {key: row["user_id"] for key, row in _last(stack, "richest").items()}
    expected = {}
    for region, rows in regions.items():
        ranked = sorted((-row["balance"], row["user_id"]) for row in rows)
        expected |= {(region, place): user for place, (_, user) in enumerate(ranked[:3], 1)}
    assert found == expected


def _materialized(stack: Stack) -> dict[str, int]:
    """Table to its materialisations, as Dagster counts them."""
    with dg.DagsterInstance.from_config(str(stack.path / "dagster")) as instance:
        keys = [key for key in instance.all_asset_keys() if key.to_user_string() in TABLES]
        return {key.to_user_string(): len(instance.fetch_materializations(key, limit=100).records) for key in keys}


def test_lake_tables_and_runs_of_an_earlier_commit_are_carried_on(stack: Stack, earlier: Path) -> None:
    stack.declare()
    with (stack.project / "users.sql").open("a") as script:
        script.write(_QUERIES.format(topic=stack.topic))
    dagster = stack.command()
    seen = _run(stack, sys.executable, "-c", "import upsert_platform; print(upsert_platform.__file__)", tree=earlier)
    assert seen.stdout.startswith(str(earlier))
    stack.produce(stack.users.first_wave(2_000))
    first = _run(stack, *dagster, tree=earlier)
    assert first.returncode == 0, first.stderr[-5000:]
    _judge(stack)
    assert _materialized(stack) == dict.fromkeys(TABLES, 1)

    # The upgrade by itself changes nothing, and starts no run.
    assert _run(stack, COMMAND, "validate").returncode == 0
    planned = _run(stack, COMMAND, "plan")
    assert planned.returncode == 0, planned.stdout + planned.stderr[-3000:]
    idle = _run(stack, COMMAND, "sync")
    assert idle.returncode == 0, idle.stderr[-3000:]
    assert _materialized(stack) == dict.fromkeys(TABLES, 1), idle.stdout

    stack.produce(stack.users.second_wave(500))
    second = _run(stack, COMMAND, "sync")
    assert second.returncode == 0, second.stdout + second.stderr[-5000:]
    _judge(stack)
    assert _materialized(stack) == dict.fromkeys(TABLES, 2)
    store = stack.platform().changelog_hop("users", run="upgrade").store
    head = store.head()
    assert head is not None
    assert head.batch == 2  # no record was read again
    verified = _run(stack, COMMAND, "run", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr[-3000:]
    proven = _run(stack, COMMAND, "prove", "users_serving")
    assert proven.returncode == 0, proven.stdout + proven.stderr[-3000:]
