"""`upsert-platform sync` and `run`: jobs of the folder's own code location, recorded in its instance."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from upsert_platform.cli.location import SHIPPED, current_location
from upsert_platform.cli.main import main

LOCATION = """
import os
import dagster as dg

TABLE = "upsert/table"

@dg.asset(metadata={TABLE: "users"})
def users_read():
    return dg.MaterializeResult(metadata={"records": 7, "quarantined": 2, "lag": 0})

@dg.asset(metadata={TABLE: "orders"})
def orders_read():
    return dg.MaterializeResult(metadata={"records": 1})

@dg.asset(deps=[users_read], metadata={TABLE: "users_serving"})
def users_written():
    if os.environ.get("FAILS"):
        raise dg.Failure(description="the table is not there: create it")
    return dg.MaterializeResult(metadata={"upserts": 5, "deletes": 1})

@dg.asset_check(asset=users_written)
def equal():
    told = "2 rows differ: 'upsert-platform reconcile users' writes them"
    severity = dg.AssetCheckSeverity.WARN if os.environ.get("WARNS") else dg.AssetCheckSeverity.ERROR
    passed = not (os.environ.get("DIFFERS") or os.environ.get("WARNS"))
    return dg.AssetCheckResult(passed=passed, severity=severity, description=told)

@dg.asset_check(asset=users_written)
def costly():
    raise AssertionError("no job of these tests has this check")

wanted = dg.AssetSelection.all() - dg.AssetSelection.checks(dg.AssetCheckKey(dg.AssetKey("users_written"), "costly"))
sync = dg.define_asset_job("sync", selection=wanted, executor_def=dg.in_process_executor)
orders = dg.define_asset_job("orders", selection=[orders_read], executor_def=dg.in_process_executor)

@dg.sensor(job=sync)
def waits(context):
    if context.cursor == "asked":
        raise KeyboardInterrupt
    asked = dg.RunRequest(asset_selection=[dg.AssetKey("orders_read")], tags={"why": "one record"})
    return dg.SensorResult(run_requests=[asked], cursor="asked")

defs = dg.Definitions(
    assets=[users_read, orders_read, users_written], asset_checks=[equal, costly], jobs=[sync, orders], sensors=[waits]
)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a code location of its own, and an instance."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")
    (tmp_path / "shop" / "definitions.py").write_text(LOCATION)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "shop"\n'
    )
    (tmp_path / "dagster").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def runs(folder: Path) -> list[dg.DagsterRun]:
    with dg.DagsterInstance.from_config(str(folder / "dagster")) as instance:
        return list(instance.get_runs())


def materialised(folder: Path, run: str) -> set[str]:
    with dg.DagsterInstance.from_config(str(folder / "dagster")) as instance:
        events = instance.all_logs(run, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        return {str(item.get_dagster_event().asset_key.to_user_string()) for item in events}


def test_sync_runs_the_folders_own_job_and_shows_every_asset(folder: Path) -> None:
    done = call("sync", "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout.splitlines()[-1])
    found = {item["asset"]: item for item in shown["assets"]}
    assert found["users_read"]["counts"] == {"records": 7, "quarantined": 2, "lag": 0}
    assert found["users_written"]["counts"] == {"upserts": 5, "deletes": 1}
    assert found["users_written"]["checks"] == {"equal": True}
    [run] = runs(folder)
    assert (run.run_id, run.job_name, run.status) == (shown["run"], "sync", dg.DagsterRunStatus.SUCCESS)


def test_table_runs_what_it_is_made_of_and_the_checks_of_the_job_alone(folder: Path) -> None:
    done = call("sync", "users_serving")
    assert done.exit_code == 0, done.output
    assert "1 passed" in done.stdout
    [run] = runs(folder)
    assert materialised(folder, run.run_id) == {"users_read", "users_written"}


def test_a_check_that_warns_is_not_counted_among_those_that_passed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARNS", "1")
    done = call("sync", "users_serving")
    assert done.exit_code == 0, done.output
    row = next(line for line in done.stdout.splitlines() if line.startswith("users_written  "))
    assert row.rstrip().endswith("1 warned")


@pytest.mark.parametrize(
    ("variable", "shown"),
    [("FAILS", "the table is not there: create it"), ("DIFFERS", "users_written: equal: 2 rows differ")],
)
def test_failed_step_or_check_ends_with_its_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, shown: str
) -> None:
    monkeypatch.setenv(variable, "1")
    done = call("sync")
    assert shown in done.stdout
    last = "upsert-platform doctor" if variable == "FAILS" else "upsert-platform reconcile users"
    assert done.stdout.splitlines()[-1] == f"next: {last}"
    assert done.exit_code == (1 if variable == "FAILS" else 0)  # a check that does not block fails no run of Dagster's


def test_run_takes_any_job_of_the_location(folder: Path) -> None:
    assert call("run", "orders").exit_code == 0
    [run] = runs(folder)
    assert materialised(folder, run.run_id) == {"orders_read"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "order"), "'shop.definitions' has no job 'order'; did you mean 'orders'? Its jobs: orders, sync"),
        (
            ("sync", "user"),
            "job 'sync' has no table 'user'; did you mean 'users'? Its tables: orders, users, users_serving",
        ),
        (("run", "sync", "-m", "no.such.module"), "no code location in module 'no.such.module'"),
    ],
)
def test_names_that_are_not_there_are_refused_with_those_that_are(
    folder: Path, words: tuple[str, ...], message: str
) -> None:
    done = call(*words)
    assert done.exit_code == 1
    assert message in done.output
    assert runs(folder) == []


def test_configuration_that_does_not_fit_is_refused(folder: Path) -> None:
    (folder / "run.yaml").write_text("resources: {kafka: {config: {}}}")
    done = call("sync", "-c", "run.yaml")
    assert done.exit_code == 1
    assert "job 'sync': the run configuration does not fit it" in done.output


def test_watch_runs_what_the_sensor_asks_for(folder: Path) -> None:
    done = call("sync", "--watch", "--interval", "1", "--json")
    assert done.exit_code == 0, done.output
    later, first = runs(folder)
    assert materialised(folder, first.run_id) == {"users_read", "orders_read", "users_written"}
    assert materialised(folder, later.run_id) == {"orders_read"}
    assert later.tags["why"] == "one record"


@pytest.mark.parametrize(
    ("settings", "module"),
    [
        (None, SHIPPED),
        ("", SHIPPED),
        ('[tool.dg.project]\nroot_module = "shop"', "shop.definitions"),
        ('[tool.dg.project]\nroot_module = "shop"\ncode_location_target_module = "shop.all"', "shop.all"),
        ('[tool.dagster]\nmodule_name = "shop.assets"', "shop.assets"),
    ],
)
def test_location_is_what_the_folder_declares(tmp_path: Path, settings: str | None, module: str) -> None:
    if settings is not None:
        (tmp_path / "pyproject.toml").write_text(settings)
    assert current_location(tmp_path) == module
