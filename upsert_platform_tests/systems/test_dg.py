"""`dg`: the component is scaffolded into a project of its layout, its YAML is checked, its definitions are listed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.systems
COMPONENT = "upsert_platform.graph.project_component.UpsertProjectComponent"
PYPROJECT = """
[project]
name = "shop"
version = "0.1"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "shop"
registry_modules = ["upsert_platform.graph.project_component"]
"""
DEFINITIONS = """
from pathlib import Path

from dagster import definitions, load_from_defs_folder


@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "shop"
    (package / "defs").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (package / "definitions.py").write_text(DEFINITIONS)
    for name in ("__init__.py", "defs/__init__.py"):
        (package / name).touch()
    return tmp_path


VARIABLES = {
    "UPSERT_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9",
    **{f"UPSERT_TABLESTORE_{name}": "x" for name in ("INSTANCE", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET")},
    "UPSERT_TABLESTORE_ENDPOINT": "http://127.0.0.1:9",
}


def dg(folder: Path, *arguments: str, variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    bin_folder = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": path,
        "PYTHONWARNINGS": "ignore",
        "DAGSTER_HOME": str(folder),
        "UPSERT_PLATFORM_HOME": str(folder / "home"),
        **(VARIABLES if variables is None else variables),
    }
    return subprocess.run(
        [bin_folder / "dg", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_component_is_scaffolded_checked_and_listed(folder: Path) -> None:
    made = dg(folder, "scaffold", "defs", COMPONENT, "orders")
    assert made.returncode == 0, made.stdout + made.stderr
    component = folder / "src" / "shop" / "defs" / "orders"
    assert {"defs.yaml", "orders.sql"} <= {path.name for path in component.iterdir()}
    checked = dg(folder, "check", "yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    listed = dg(folder, "list", "defs", "--json")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    found = json.loads(listed.stdout)
    assert {item["name"] for item in found["jobs"]} >= {"sync", "verify", "reconcile", "replay", "compact"}
    assert "changelogs/orders" in {item["asset_key"] for item in found["assets"]}

    (component / "defs.yaml").write_text(f"type: {COMPONENT}\n\nattributes:\n  kafka: {{}}\n  kafak: {{}}\n")
    wrong = dg(folder, "check", "yaml")
    assert wrong.returncode != 0
    assert "kafak" in wrong.stdout + wrong.stderr
    assert "defs.yaml:5" in wrong.stdout + wrong.stderr


def test_definitions_pass_without_any_variable_and_list_those_that_are_not_set(folder: Path) -> None:
    assert dg(folder, "scaffold", "defs", COMPONENT, "orders").returncode == 0
    checked = dg(folder, "check", "defs", variables={})
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for name in VARIABLES:
        assert name in checked.stdout + checked.stderr
