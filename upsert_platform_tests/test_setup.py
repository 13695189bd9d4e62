"""`make setup` on a machine that lacks something: one line that names the remedy, and nothing half made."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("bash", "dirname", "env", "head", "rm", "sed", "touch")
JAVA_17 = "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2"


@pytest.fixture
def machine(tmp_path: Path):
    """Makes a checkout on a machine whose only programs are the given shell scripts and a few basic tools."""
    (tmp_path / "checkout" / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup", tmp_path / "checkout" / "scripts")
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (programs / tool).symlink_to(found)

    def run(scripts: dict[str, str], **environment: str) -> subprocess.CompletedProcess[str]:
        for name, script in scripts.items():
            (programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (programs / name).chmod(0o755)
        return subprocess.run(
            ["bash", str(tmp_path / "checkout" / "scripts" / "setup")],
            env={"PATH": str(programs), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    ("scripts", "environment", "remedy"),
    [
        pytest.param({}, {}, "Java 17 or newer was not found: install it", id="no java"),
        pytest.param({"java": "echo 'openjdk version \"11.0.2\"' >&2"}, {}, "Java 17 or newer", id="java 11"),
        pytest.param({"java": "echo 'java version \"1.8.0_392\"' >&2"}, {}, "Java 17 or newer", id="java 8"),
        pytest.param({"java": JAVA_17}, {"JAVA_HOME": "/nowhere"}, "name it in JAVA_HOME", id="wrong JAVA_HOME"),
        pytest.param({"java": JAVA_17}, {}, "Python 3.11 or newer was not found", id="no python"),
        pytest.param({"java": JAVA_17, "python3": "exit 1"}, {}, "make setup PYTHON=", id="python too old"),
        pytest.param(
            {"java": JAVA_17, "python3": '[ "$1" = -c ]'}, {}, "apt install python3-venv", id="python without venv"
        ),
    ],
)
def test_what_is_missing_is_one_line_with_the_remedy(
    machine, tmp_path: Path, scripts: dict[str, str], environment: dict[str, str], remedy: str
) -> None:
    done = machine(scripts, **environment)
    assert done.returncode == 1
    assert done.stdout == ""
    assert remedy in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "checkout" / ".venv").exists()


def test_lock_names_no_registry_and_pins_every_package_by_digest() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "--index-url" not in text
    pins = text.replace("\\\n", "").splitlines()
    packages = [line for line in pins if line and not line.lstrip().startswith("#")]
    assert packages
    assert [line for line in packages if "==" not in line or "--hash=sha256:" not in line] == []
