"""A key in several partitions of a MaxCompute table: every row stays by default, and moves where that is declared."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from upsert_platform.sync.binding import bind, load
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform_tests.graph.stack import Stack, checks_of
from upsert_platform_tests.graph.test_reconcile import command, repair
from upsert_platform_tests.referee.judging import maxcompute_table

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]

COLUMNS = {"user_id": "BIGINT", "name": "STRING", "region": "STRING"}
CHECK = "last_value_per_key:users_warehouse"


def declare(stack: Stack, *, more: str = "", connector: str = "upsert-kafka") -> None:
    """A table that is partitioned by a column outside its key, fed by a topic."""
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    stack.declare(serving=None, warehouse=more, columns=columns)
    path = stack.project / "users.sql"
    text = path.read_text("utf-8")
    text = text.replace("SELECT user_id, name, region, balance, updated_at FROM users", "SELECT * FROM users")
    head = ") WITH (\n  'connector' = 'maxcompute'"
    assert text.count(head) == 1
    text = text.replace(head, f") PARTITIONED BY (region{head}")
    if connector == "kafka":
        text = text.replace("(user_id BIGINT, name STRING, region STRING, PRIMARY KEY (user_id) NOT ENFORCED)",
                            "(user_id BIGINT, name STRING, region STRING)", 1)  # fmt: skip
        text = text.replace("'upsert-kafka'", "'kafka'").replace(
            "'key.format' = 'json', 'value.format' = 'json'",
            "'value.format' = 'json', 'scan.startup.mode' = 'earliest-offset'",
        )
    path.write_text(text, "utf-8")


def record(key: int, name: str | None, region: str = "") -> tuple[bytes, bytes | None]:
    """A record of the topic; a tombstone without a name."""
    value = None if name is None else json.dumps({"user_id": key, "name": name, "region": region}).encode()
    return json.dumps({"user_id": key}).encode(), value


def rows(stack: Stack) -> list[tuple[Any, ...]]:
    """What the table holds, by the vendor's client."""
    return sorted(map(tuple, maxcompute_table(stack.variables, stack.table, COLUMNS)))


def sync(stack: Stack, instance: dg.DagsterInstance) -> None:
    """Runs the job, with its check."""
    done = stack.run(instance=instance)
    assert done.success
    assert checks_of(done)[CHECK]


@pytest.mark.soak
@pytest.mark.parametrize("connector", ["upsert-kafka", "kafka"])
def test_rows_of_a_key_stay_in_their_partitions_within_a_batch_and_between_batches(
    stack: Stack, connector: str
) -> None:
    declare(stack, connector=connector)
    stack.produce([record(1, "a", "eu"), record(1, "b", "us"), record(1, "c", "eu"), record(2, "a", "eu")])
    expected = [(1, "b", "us"), (1, "c", "eu"), (2, "a", "eu")]
    with dg.DagsterInstance.ephemeral() as instance:
        sync(stack, instance)
        assert rows(stack) == expected
        stack.produce([record(1, "d", "asia"), record(2, "b", "eu")])
        sync(stack, instance)
        expected = [(1, "b", "us"), (1, "c", "eu"), (1, "d", "asia"), (2, "b", "eu")]
        assert rows(stack) == expected
        assert command(stack, "verify", "users_warehouse")[0] == 0
        done = repair(stack, instance)["users_warehouse"]
        assert (done["missing"], done["extra"], done["stale"]) == (0, 0, 0)
        assert rows(stack) == expected
        if connector == "kafka":
            return
        # What lies before a delete is gone from every partition, what follows it stays.
        stack.produce([record(1, "e", "us"), record(1, None), record(1, "f", "eu"), record(1, "g", "asia")])
        stack.produce([record(2, "c", "us"), record(2, None)])
        sync(stack, instance)
        assert rows(stack) == [(1, "f", "eu"), (1, "g", "asia")]
        stack.produce([record(3, "a", "eu")])
        assert stack.run("compact", instance=instance).success
        sync(stack, instance)
        assert rows(stack) == [(1, "f", "eu"), (1, "g", "asia"), (3, "a", "eu")]


def test_compaction_leaves_rows_that_a_table_has_not_applied(stack: Stack, spark: SparkSession) -> None:
    declare(stack)
    stack.produce([record(1, "a", "eu"), record(1, "b", "us")])
    with dg.DagsterInstance.ephemeral() as instance:
        hop = stack.platform().changelog_hop("users", run="first")
        hop.execute(OnDemand.dividing(spark), hop.plan())
        stack.produce([record(1, "c", "asia")])
        hop.execute(OnDemand.dividing(spark), hop.plan())
        assert stack.run("compact", instance=instance).success
        sync(stack, instance)
    assert rows(stack) == [(1, "a", "eu"), (1, "b", "us"), (1, "c", "asia")]


@pytest.mark.soak
def test_a_row_moves_where_that_is_declared(stack: Stack) -> None:
    declare(stack, more=", 'sink.partition.move-rows' = 'true'")
    stack.produce([record(1, "a", "eu"), record(1, "b", "us"), record(2, "a", "eu")])
    with dg.DagsterInstance.ephemeral() as instance:
        sync(stack, instance)
        assert rows(stack) == [(1, "b", "us"), (2, "a", "eu")]
        stack.produce([record(2, "b", "us")])
        sync(stack, instance)
        assert rows(stack) == [(1, "b", "us"), (2, "b", "us")]


def test_validate_says_which_is_meant_until_the_option_is_given(stack: Stack) -> None:
    declare(stack)
    found = bind(*load(stack.project, root=str(stack.lake))).warnings
    assert [p for p in found if "a key has one row per partition" in p.message and "move-rows" in p.message]
    declare(stack, more=", 'sink.partition.move-rows' = 'false'")
    assert not [p for p in bind(*load(stack.project, root=str(stack.lake))).warnings if "partition" in p.message]
