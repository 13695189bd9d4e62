"""Job `drain_quarantine`: what was kept aside arrives once it can be decoded and written, and is kept aside no more."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import pytest

from upsert_platform_tests.graph.stack import COLUMNS, KEY, Stack
from upsert_platform_tests.graph.test_replay_refused import COPY, LONG
from upsert_platform_tests.graph.test_topics import last_values

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]


def declare(stack: Stack, *, source: str, limit: int) -> None:
    stack.declare(serving=None, warehouse=None, source=source)
    text = COPY.format(columns=COLUMNS, key=KEY, topic=stack.topic, limit=limit)
    (stack.project / "zz_copy.sql").write_text(text, "utf-8")


def drain(stack: Stack, **config: Any) -> dict[str, dict[str, Any]]:
    """Runs the job; what it observed, by asset."""
    job = stack.definitions().resolve_job_def("drain_quarantine")
    result = job.execute_in_process(run_config={"ops": {"try_again": {"config": config}}}, raise_on_error=False)
    assert result.success, result.all_events[-1]
    found = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
    return {
        "/".join(item.asset_key.path): {name: value.value for name, value in item.metadata.items()} for item in found
    }


def test_records_and_rows_that_were_kept_aside_arrive_when_they_can(stack: Stack) -> None:
    declare(stack, source=", 'value.json.fail-on-missing-field' = 'true'", limit=1000)
    whole = {"region": "r", "balance": 1, "updated_at": "2026-11-01 00:00:00"}
    values = [
        {"user_id": 1, "name": "one"},
        {"user_id": 2, "name": LONG, **whole},
        {"user_id": 3, "name": "x", **whole},
    ]
    stack.produce((json.dumps({"user_id": row["user_id"]}).encode(), json.dumps(row).encode()) for row in values)
    assert stack.run().success
    topic = f"{stack.topic}-copy"
    assert sorted(last_values(stack, topic)) == [3]
    declare(stack, source="", limit=100_000)
    shown = drain(stack, dry_run=True)
    assert shown["changelogs/users"]["in_quarantine"] == 1
    assert shown["tables/users_copy"]["refused"] == 1
    assert sorted(last_values(stack, topic)) == [3], "nothing was written"

    done = drain(stack, tables=["users"])
    assert {name: done["changelogs/users"][name] for name in ("replayed", "in_quarantine")} == {
        "replayed": 1, "in_quarantine": 0,
    }  # fmt: skip
    assert sorted(last_values(stack, topic)) == [1, 3], "its tables were brought up to it"
    done = drain(stack)
    assert done["changelogs/users"]["in_quarantine"] == 0
    assert {name: done["tables/users_copy"][name] for name in ("replayed", "still_refused", "refused")} == {
        "replayed": 1, "still_refused": 0, "refused": 0,
    }  # fmt: skip
    assert {key: row["name"] for key, row in last_values(stack, topic).items()} == {1: "one", 2: LONG, 3: "x"}
    assert stack.run("verify").success


def test_a_table_that_is_not_there_is_named(stack: Stack) -> None:
    job = stack.definitions().resolve_job_def("drain_quarantine")
    config = {"ops": {"try_again": {"config": {"tables": ["nobody"]}}}}
    with pytest.raises(
        dg.Failure, match="no insert reads or writes a table 'nobody'; tables are: users, users_serving"
    ):
        job.execute_in_process(run_config=config)
