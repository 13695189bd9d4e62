"""The check `unchanged` says what the project of the code location changes in a table, where a table asks for it."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Producer

from upsert_platform_tests.graph.stack import Stack, checks_of
from upsert_platform_tests.proofs.test_plan import SOURCE, TABLES

pytestmark = [pytest.mark.systems, pytest.mark.usefixtures("spark")]


def write(stack: Stack, *edits: tuple[str, str]) -> None:
    """Writes the project of the page of plans, of which one table asks for the check."""
    text = SOURCE.format(topic=stack.topic) + TABLES.format(table=stack.table)
    text = text.replace(
        "'table.name' = '" + stack.table + "_c',", f"'table.name' = '{stack.table}_c', 'check.plan' = 'error',"
    )
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    (stack.project / "users.sql").write_text(text, "utf-8")


def planned(stack: Stack, config: dict[str, Any] | None = None) -> tuple[dg.AssetCheckEvaluation, dict[str, Any]]:
    """The result of job `plan`, and its metadata."""
    job = stack.definitions().resolve_job_def("plan")
    run_config = {"ops": {"plan_copied": {"config": config}}} if config else {}
    (found,) = job.execute_in_process(run_config=run_config).get_asset_check_evaluations()
    return found, {name: value.value for name, value in found.metadata.items()}


def test_the_check_has_the_plan_as_metadata(stack: Stack) -> None:
    write(stack)
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for number in range(40):
        value = f'{{"id":{number},"name":"n{number}","region":"r{number % 4}","amount":{number - 10}}}'
        producer.produce(stack.topic, key=f'{{"id":{number}}}', value=value)
    assert producer.flush(20) == 0
    synced = stack.run()
    assert synced.success
    assert not [name for name in checks_of(synced) if name.startswith("unchanged")], "a sync omits it"
    found, shown = planned(stack)
    assert (found.check_name, found.asset_key.path[-1], found.passed) == ("unchanged", "copied", True)
    assert (shown["kind"], shown["added"], shown["changed"], shown["removed"]) == ("same", 0, 0, 0)

    before = stack.path / "deployed"
    stack.project.rename(before)
    stack.project.mkdir()
    write(stack, ("UPPER(name)", "LOWER(name)"), ("amount >= 0", "amount >= 5"))
    found, shown = planned(stack, {"deployed": str(before), "examples": 3})
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.ERROR)
    # Amounts are number - 10: 30 rows are there, 5 of them below 5, and every other one has another label.
    assert (shown["kind"], shown["added"], shown["changed"], shown["removed"]) == ("changed", 0, 25, 5)
    assert (0 < len(shown["sample"]) <= 3, shown["estimated"]) == (True, False)
    (table,) = shown["plan"]["tables"]
    assert (table["columns"], table["command"]) == ({"label": 25}, "upsert-platform reconcile copied")
    assert table["declared"], "differences of the declarations count too"
    assert "25 rows changed, 5 rows removed" in (found.description or "")


def test_no_table_asks_for_it(stack: Stack) -> None:
    (stack.project / "users.sql").write_text(
        SOURCE.format(topic=stack.topic) + TABLES.format(table=stack.table), "utf-8"
    )
    definitions = stack.definitions()
    assert "plan" not in {job.name for job in definitions.jobs or ()}
    keys = definitions.resolve_asset_graph().asset_check_keys
    assert "unchanged" not in {key.name for key in keys}
