"""Repairing a partitioned table: rows that are spoiled in their partitions, and extra ones in others."""

from __future__ import annotations

import dagster as dg
import pytest

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.graph.test_reconcile import EACH, command, repair, spoil_warehouse

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.soak
def test_a_hundred_spoiled_rows_of_each_kind_in_partitions_are_found_and_exactly_those_are_written(
    stack: Stack,
) -> None:
    stack.declare(serving=None, warehouse=", 'sink.partition.move-rows' = 'true'")
    declared = stack.project / "users.sql"
    text = declared.read_text("utf-8")
    head = ") WITH (\n  'connector' = 'maxcompute'"
    assert text.count(head) == 1
    declared.write_text(text.replace(head, f") PARTITIONED BY (region{head}"), "utf-8")
    stack.produce(stack.users.first_wave(600))
    with dg.DagsterInstance.ephemeral() as instance:
        assert stack.run(instance=instance).success
        assert stack.warehouse_differences() == []
        keys = sorted(key for key, row in stack.users.rows.items() if row["region"] != "test")
        regions = {row["region"] for row in stack.users.rows.values()} - {"test"}
        assert len(regions) > 1, "rows lie in several partitions"
        spoil_warehouse(stack, keys, added_to="PARTITION (region = 'elsewhere') ")
        found = {"missing": EACH, "extra": EACH, "stale": EACH}
        code, (told,) = command(stack, "verify", "users_warehouse")
        assert (code, {name: told[name] for name in found}) == (3, found)
        done = repair(stack, instance)["users_warehouse"]
        assert {name: done[name] for name in found} == found
        assert (done["rows_put"], done["rows_deleted"]) == (2 * EACH, EACH)
        assert stack.warehouse_differences() == []
        code, (told,) = command(stack, "verify", "users_warehouse")
        assert (code, told["equal"]) == (0, True)
