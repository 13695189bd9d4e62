"""Partitions that MaxCompute drops at the end of their lifecycle: checks say so, and repairs do not bring them back."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from upsert_platform.cli.main import main
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.graph.test_reconcile import command

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.soak
def test_rows_of_a_partition_that_expired_stay_away(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    from odps import ODPS

    stack.declare(serving=None, warehouse=", 'table.lifecycle' = '30', 'sink.partition.move-rows' = 'true'")
    declared = stack.project / "users.sql"
    head = ") WITH (\n  'connector' = 'maxcompute'"
    declared.write_text(declared.read_text("utf-8").replace(head, f") PARTITIONED BY (region{head}"), "utf-8")
    rows = {1: "old", 2: "old", 3: "new", 4: "new"}
    stack.produce(
        (json.dumps({"user_id": key}).encode(), json.dumps({"user_id": key, "name": "n", "region": region}).encode())
        for key, region in rows.items()
    )
    assert stack.run().success
    names = ("ACCESS_ID", "ACCESS_KEY", "PROJECT", "ENDPOINT")
    client = ODPS(*[stack.variables[f"UPSERT_MAXCOMPUTE_{name}"] for name in names])
    client.execute_sql(f"ALTER TABLE {stack.table} DROP PARTITION (region = 'old')")
    client.execute_sql(f"DELETE FROM {stack.table} WHERE user_id = 3")

    code, (told,) = command(stack, "verify", "users_warehouse")
    assert (code, told["missing"], told.get("expired", 0)) == (3, 3, 0), "no partition is a month old"
    with closing(stack.hop("users_warehouse").destination) as destination:
        assert isinstance(destination, MaxComputeDestination)
        lifetimes = destination.partition_lifetimes()
    assert lifetimes is not None
    moments = (lifetimes.since, *lifetimes.made.values())
    assert all(abs(datetime.now(UTC).timestamp() - moment) < 600 for moment in moments)
    later = datetime.now(UTC) + timedelta(days=40)
    monkeypatch.setattr("upsert_platform.sync.partition_lifetimes.now", lambda: later)
    code, (told,) = command(stack, "verify", "users_warehouse")
    assert (code, told["missing"], told["expired"], told["extra"]) == (3, 1, 2, 0)
    code, (told,) = command(stack, "reconcile", "users_warehouse")
    assert code == 0, told
    with client.execute_sql(f"SELECT user_id FROM {stack.table}").open_reader() as reader:
        assert sorted(int(record["user_id"]) for record in reader) == [3, 4]
    code, (told,) = command(stack, "verify", "users_warehouse")
    assert (code, told["equal"], told["expired"]) == (0, True, 2)

    variables = {"UPSERT_PLATFORM_HOME": str(stack.lake), "UPSERT_PLATFORM_PROJECT": str(stack.project)}
    proven = CliRunner().invoke(main, ["prove", "users_warehouse"], env=variables)
    assert proven.exit_code == 1
    assert "lets partitions expire 30 days after they were written last" in proven.output
    judged = CliRunner().invoke(main, ["audit", "users_warehouse"], env=variables)
    assert "'table.lifecycle' lets partitions expire" in judged.output
