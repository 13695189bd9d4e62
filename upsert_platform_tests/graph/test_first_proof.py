"""What "Materialize all" says of tables that nothing was proven of before."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from tablestore import Condition, OTSClient, Row, RowExistenceExpectation

from upsert_platform.graph import standing
from upsert_platform_tests.graph.stack import Stack


def everything(stack: Stack, instance: dg.DagsterInstance) -> dict[tuple[str, str], dg.AssetCheckEvaluation]:
    """The evaluations of a run of all assets with all their checks, by table and check."""
    job: Any = stack.definitions().resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(instance=instance)
    assert done.success
    return {(item.asset_key.path[-1], item.check_name): item for item in done.get_asset_check_evaluations()}


def test_small_tables_are_judged_in_their_first_run(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(30))
    instance = dg.DagsterInstance.ephemeral()
    with monkeypatch.context() as larger:
        larger.setattr(standing, "AT_ONCE_ROWS", 10)
        found = everything(stack, instance)["users_serving", "equals_topic"]
        assert (found.passed, found.severity.value) == (False, "WARN")
        larger.setattr(standing, "AT_ONCE_ROWS", 10_000)
        larger.setattr(standing, "AT_ONCE_ASSETS", 1)
        found = everything(stack, instance)["users_serving", "equals_topic"]
        assert (found.passed, found.severity.value) == (False, "WARN")
    for new in (True, False):
        found = everything(stack, instance)["users_serving", "equals_topic"]
        shown = {name: value.value for name, value in found.metadata.items()}
        assert (found.passed, shown["new"], shown["equal_rows"]) == (True, new, len(stack.users.rows))


def test_a_table_that_is_wrong_is_found_in_its_first_run_and_judged_again_until_it_is_repaired(stack: Stack) -> None:
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(30))
    assert stack.run().success
    name = stack.variables
    client = OTSClient(
        name["UPSERT_TABLESTORE_ENDPOINT"], name["UPSERT_TABLESTORE_ACCESS_KEY_ID"],
        name["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"], name["UPSERT_TABLESTORE_INSTANCE"],
    )  # fmt: skip
    client.put_row(
        stack.table, Row([("user_id", 999_999)], [("name", "new")]), Condition(RowExistenceExpectation.IGNORE)
    )
    instance = dg.DagsterInstance.ephemeral()
    found = everything(stack, instance)["users_serving", "equals_topic"]
    assert (found.passed, found.metadata["extra"].value) == (False, 1)
    client.delete_row(stack.table, [("user_id", 999_999)], Condition(RowExistenceExpectation.IGNORE))
    found = everything(stack, instance)["users_serving", "equals_topic"]
    assert (found.passed, found.metadata["new"].value) == (True, True)
