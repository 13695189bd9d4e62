"""Which project `upsert-platform ui` opens."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from upsert_platform.cli.main import main
from upsert_platform.local.process import free_port

TABLES = """CREATE TABLE orders (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092', 'key.format' = 'json', 'value.format' = 'json');
"""


class Replaced(Exception):  # noqa: N818 - what happens instead of the process becoming another program
    """Arguments and environment of the program that the command becomes."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def replace(_: str, arguments: list[str], environment: dict[str, str]) -> None:
        raise Replaced(arguments, environment)

    monkeypatch.setattr(os, "execve", replace)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", "elsewhere")
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "tables.sql").write_text(TABLES)
    return tmp_path


def test_a_named_project_is_that_of_the_ui(folder: Path) -> None:
    done = CliRunner().invoke(main, ["ui", "--no-warm", "--port", str(free_port()), "--project", "shop"])
    assert isinstance(done.exception, Replaced), done.output
    arguments, environment = done.exception.args
    assert arguments[1:4] == ["dev", "-m", "upsert_platform.definitions"]
    assert environment["UPSERT_PLATFORM_PROJECT"] == str(folder / "shop")


def test_a_code_location_of_ones_own_names_its_project_itself(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.dagster]\nmodule_name = "mine"\n')
    done = CliRunner().invoke(main, ["ui", "--port", str(free_port()), "--project", "shop"])
    assert done.exit_code == 2
    assert "the code location 'mine' names its project itself" in done.output
