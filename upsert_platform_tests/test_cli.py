"""The command itself: quick to load, and clear when something is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from upsert_platform import cli
from upsert_platform.errors import EndpointError
from upsert_platform.local.process import ServerError

ROOT = Path(__file__).parents[1]
HEAVY = {"pyspark", "dagster", "confluent_kafka", "tablestore", "odps", "pyarrow", "pandas", "deltalake"}


def test_command_and_its_local_group_load_nothing_heavy() -> None:
    code = "import sys, upsert_platform.cli, upsert_platform.cli_local; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "click" in loaded
    assert HEAVY & set(loaded) == set()


def test_every_command_loads_and_is_listed_with_help() -> None:
    listed = CliRunner().invoke(cli.main, ["--help"])
    assert listed.exit_code == 0, listed.output
    for name in cli._COMMANDS:
        assert CliRunner().invoke(cli.main, [name, "--help"]).exit_code == 0
        assert f"\n  {name} " in listed.output


@pytest.mark.parametrize("error", [EndpointError("broker.example:9092 refused"), ServerError("it ended")])
def test_error_made_for_users_is_one_message_without_a_trace(error: Exception) -> None:
    @cli.main.command("fails")
    def fails() -> None:
        raise error

    try:
        result = CliRunner().invoke(cli.main, ["fails"])
    finally:
        del cli.main.commands["fails"]
    assert (result.exit_code, result.output) == (1, f"Error: {error}\n")


def test_unknown_command_is_refused() -> None:
    result = CliRunner().invoke(cli.main, ["no-such-command"])
    assert result.exit_code == click.UsageError.exit_code
    assert "no-such-command" in result.output


def test_shipped_instance_settings_are_taken_by_dagster(tmp_path: Path) -> None:
    from dagster import DagsterInstance

    (tmp_path / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.global_op_concurrency_default_limit == 1
        assert instance.run_monitoring_enabled
        assert not instance.telemetry_enabled
