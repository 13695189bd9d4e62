"""Repairing tables: `verify` finds every spoiled row, `reconcile` writes exactly those."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from upsert_platform.cli.main import main
from upsert_platform_tests.graph.stack import Stack

EACH = 100


def spoil_serving(stack: Stack, keys: list[int]) -> None:
    from tablestore import DeleteRowItem, OTSClient, PutRowItem, Row, TableInBatchWriteRowItem, UpdateRowItem
    from tablestore.metadata import BatchWriteRowRequest

    names = ("ENDPOINT", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "INSTANCE")
    client = OTSClient(*[stack.variables[f"UPSERT_TABLESTORE_{name}"] for name in names])
    gone = [DeleteRowItem(Row([("user_id", key)]), None) for key in keys[:EACH]]
    stale = [UpdateRowItem(Row([("user_id", key)], {"PUT": [("name", "x")]}), None) for key in keys[EACH : 2 * EACH]]
    extra = [PutRowItem(Row([("user_id", 900_000 + number)], [("name", "nobody")]), None) for number in range(EACH)]
    for items in (gone, stale, extra):
        request = BatchWriteRowRequest()
        request.add(TableInBatchWriteRowItem(stack.table, items))
        assert client.batch_write_row(request).is_all_succeed()


def spoil_warehouse(stack: Stack, keys: list[int], *, added_to: str = "") -> None:
    """Takes rows out, changes as many, and adds as many (to a partition: ``PARTITION (name = 'value') ``)."""
    from odps import ODPS

    names = ("ACCESS_ID", "ACCESS_KEY", "PROJECT", "ENDPOINT")
    client = ODPS(*[stack.variables[f"UPSERT_MAXCOMPUTE_{name}"] for name in names])
    gone, stale = (", ".join(map(str, part)) for part in (keys[:EACH], keys[EACH : 2 * EACH]))
    more = ", ".join(f"({900_000 + number}, 'nobody', 1.5BD, NULL)" for number in range(EACH))
    for statement in (
        f"DELETE FROM {stack.table} WHERE user_id IN ({gone})",
        f"UPDATE {stack.table} SET name = 'x' WHERE user_id IN ({stale})",
        f"INSERT INTO {stack.table} {added_to}(user_id, name, balance, updated_at) VALUES {more}",
    ):
        client.execute_sql(statement)


def repair(stack: Stack, instance: dg.DagsterInstance, **config: Any) -> dict[str, dict[str, Any]]:
    """Runs the job; metadata per table."""
    job = stack.definitions().resolve_job_def("reconcile")
    result = job.execute_in_process(
        run_config={"ops": {"repair": {"config": config}}}, instance=instance, raise_on_error=False
    )
    assert result.success, result.all_events[-1]
    observed = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
    return {item.asset_key.path[-1]: {name: value.value for name, value in item.metadata.items()} for item in observed}


def command(stack: Stack, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Runs a command in this process, with its session: the exit code and what it printed per table."""
    variables = {"UPSERT_PLATFORM_HOME": str(stack.lake), "UPSERT_PLATFORM_PROJECT": str(stack.project)}
    done = CliRunner().invoke(main, [*arguments, "--json"], env=variables)
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.soak
def test_a_hundred_spoiled_rows_of_each_kind_are_found_and_exactly_those_are_written(stack: Stack) -> None:
    stack.produce(stack.users.first_wave(600))
    with dg.DagsterInstance.ephemeral() as instance:
        assert stack.run(instance=instance).success
        assert stack.serving_differences() == stack.warehouse_differences() == []
        keys = sorted(key for key, row in stack.users.rows.items() if row["region"] != "test")
        assert len(keys) >= 2 * EACH
        spoil_serving(stack, keys)
        spoil_warehouse(stack, keys)
        found = {"missing": EACH, "extra": EACH, "stale": EACH}
        verified = stack.run("verify", instance=instance)
        assert not verified.success
        for check in verified.get_asset_check_evaluations():
            assert {name: check.metadata[name].value for name in found} == found
            assert "upsert-platform run reconcile" in str(check.description)
        code, told = command(stack, "verify")
        assert code == 3
        assert {row["table"]: {name: row[name] for name in found} for row in told} == {
            "users_serving": found, "users_warehouse": found,
        }  # fmt: skip
        shown = repair(stack, instance, dry_run=True)
        assert [{name: shown[table][name] for name in found} for table in sorted(shown)] == [found, found]
        assert stack.serving_differences()
        assert stack.warehouse_differences()
        done = repair(stack, instance)
        for table in ("users_serving", "users_warehouse"):
            assert {name: done[table][name] for name in found} == found
            assert (done[table]["rows_put"], done[table]["rows_deleted"]) == (2 * EACH, EACH)
            key = dg.AssetCheckKey(dg.AssetKey(["tables", table]), "last_value_per_key")
            (last,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
            assert last.status.value == "SUCCEEDED"
        assert stack.serving_differences() == stack.warehouse_differences() == []
        assert stack.run(instance=instance).success  # the verdict that failed it is gone
        spoil_serving(stack, keys)
        code, (shown_row,) = command(stack, "reconcile", "users_serving", "--dry-run")
        assert (code, {name: shown_row[name] for name in found}) == (3, found)
        assert stack.serving_differences()
        code, (row,) = command(stack, "reconcile", "users_serving")
        assert (code, row["put"], row["deleted"]) == (0, 2 * EACH, EACH)
        assert stack.serving_differences() == []
        code, (row,) = command(stack, "verify", "users_serving")
        assert (code, row["equal"], row["compared"] >= len(keys)) == (0, True, True)
        assert command(stack, "verify", "users") == (1, [])
