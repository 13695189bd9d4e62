"""Every step by both runners: in Spark's workers and in the run's own process, with equal tables and reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from upsert_platform_tests.graph.stack import Stack, checks_of
from upsert_platform_tests.referee.judging import tablestore_table

pytestmark = pytest.mark.usefixtures("spark")

COUNTS = """
CREATE TABLE regions (region STRING, n BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'table.name' = '{table}_regions',
  'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',
  'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',
  'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',
  'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}', 'auto.create' = 'true'
);
INSERT INTO regions SELECT region, COUNT(*) FROM users WHERE region IS NOT NULL GROUP BY region;
"""
REPORTED = (
    "records", "superseded", "quarantined", "upserts", "deletes", "refused", "deletes_unmatched", "applied_batch",
    "changes_read", "changes_written", "compared", "missing", "extra", "stale", "writer/tasks", "multi_partition_keys",
)  # fmt: skip
BY_SPARK = ("spark_jobs", "spark_stages", "spark_tasks")


def reports(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    """Metadata of all that a run has made and checked."""
    made = {
        "/".join(event.asset_key.path): event.materialization.metadata
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    }
    checked = {
        f"{item.check_name} of {item.asset_key.path[-1]}": item.metadata
        for item in result.get_asset_check_evaluations()
    }
    return {name: {key: value.value for key, value in shown.items()} for name, shown in {**made, **checked}.items()}


@pytest.mark.soak
def test_both_runners_give_equal_tables_and_reports(
    make_stack: Callable[[], Stack], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first batch, and one of updates, deletes and records that cannot be decoded."""
    found: dict[str, list[Any]] = {}
    for rows in ("0", "250000"):
        monkeypatch.setenv("UPSERT_SPARK_LOCAL_ROWS", rows)
        stack = make_stack()
        stack.declare()
        (stack.project / "regions.sql").write_text(COUNTS.format(table=stack.table), "utf-8")
        told: list[Any] = []
        found[rows] = told
        for wave in (stack.users.first_wave(300), stack.users.second_wave(60)):
            stack.produce(wave)
            stack.produce([(b'{"user_id":7', b'{"user_id":7}')])  # no key
            result = stack.run()
            assert result.success
            shown = reports(result)
            told.append({name: {key: item[key] for key in REPORTED if key in item} for name, item in shown.items()})
            told.append(checks_of(result))
            worked = {name for name, item in shown.items() if set(BY_SPARK) <= item.keys()}
            steps = {name for name in shown if name.startswith(("changelogs/", "queries/", "tables/", "last_value"))}
            assert len(steps) == 8
            assert worked == (steps if rows == "0" else set()), shown
        assert stack.serving_differences() == stack.warehouse_differences() == []
        counted = {"region": "STRING", "n": "BIGINT"}
        named = tablestore_table(stack.variables, f"{stack.table}_regions", counted, ("region",))
        told.append(sorted(map(tuple, named)))
        idle = stack.run()
        assert idle.success
        assert not [item for item in reports(idle).values() if set(BY_SPARK) & item.keys()], "nothing new, no session"
    assert found["0"] == found["250000"]
