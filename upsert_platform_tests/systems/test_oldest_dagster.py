"""The oldest Dagster that pyproject.toml allows, in a few tests of the graph. The lock has the newest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from upsert_platform_tests.systems.installed import CHECKOUT, locked

pytestmark = [pytest.mark.soak, pytest.mark.systems, pytest.mark.timeout(600)]

LATER = ("dagster-rest-resources",)
"""Packages of the lock that came later in the range; older ones do without."""
TESTS = (
    "graph/test_unchanged.py",
    "graph/test_pools.py",
    "graph/test_backfill_page.py",
    "graph/test_component_settings.py",
    "graph/test_asset_decorator.py",
    "graph/test_broken_declarations.py",
    "testing/test_harness.py::test_values_arrive_as_they_were_sent",
    "testing/test_harness.py::test_updates_tombstones_and_rows_that_leave_a_filter",
)


def oldest() -> dict[str, str]:
    """Package of Dagster's to the oldest release in the range of pyproject.toml; siblings are released with it."""
    declared = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    ranges = dict(re.findall(r"^(dagster[\w-]*)>=(\d+\.\d+)", "\n".join(declared), re.MULTILINE))
    core, libraries = ranges["dagster"], ranges["dagster-pyspark"]
    names = dict(item.split("==") for item in locked() if item.startswith("dagster"))
    assert {version.rpartition(".")[0] for version in names.values()} == {core, libraries}
    return {name: f"{version.rpartition('.')[0]}.0" for name, version in names.items() if name not in LATER}


def test_the_oldest_dagster_of_the_range_serves_too(tmp_path: Path) -> None:
    wanted = oldest()
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--python", python, "install"]
    pinned = [f"{name}=={version}" for name, version in wanted.items()]
    subprocess.run([*pip, "--quiet", "--no-compile", "--no-deps", *pinned], check=True)
    # All other packages are those of this environment, which stand behind the older ones.
    [own] = (venv / "lib").glob("python*/site-packages")
    (own / "behind.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    environment = {name: value for name, value in os.environ.items() if not re.match("PYTHON|DAGSTER_|VIRTUAL_", name)}
    told = "import dagster, dagster_pyspark, dagster_webserver as w; print(dagster.__version__, w.__version__)"
    found = subprocess.run([python, "-c", told], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == [wanted["dagster"]] * 2
    tests = [f"upsert_platform_tests/{name}" for name in TESTS]
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", *tests]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-8000:]
