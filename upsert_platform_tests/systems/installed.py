"""The platform as a user has it who knows no checkout: its wheel, in a virtual environment of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upsert_platform.spark.jars import cache_directory

CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel alone.

    Attributes:
        folder: holds the environment and a cache of its own, which shares the machine's jars.
        wheel: what was installed.
    """

    folder: Path
    wheel: Path

    @property
    def bin(self) -> Path:
        """The folder of the commands."""
        return self.folder / "venv" / "bin"

    def environment(self, **more: str) -> dict[str, str]:
        """Variables of a process that knows nothing of the checkout."""
        kept = {
            name: value for name, value in os.environ.items() if not re.match("PYTHON|UPSERT_|DAGSTER_|VIRTUAL_", name)
        }
        cache = str(self.folder / "cache")
        return {**kept, "UPSERT_PLATFORM_CACHE": cache, "PATH": f"{self.bin}:{os.environ['PATH']}", **more}

    def run(self, *arguments: str, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
        """Runs a command of the environment."""
        command = [str(self.bin / arguments[0]), *arguments[1:]]
        environment = self.environment(**more.pop("variables", {}))
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, **more)


def install_wheel(folder: Path) -> Installed:
    """Builds the wheel and installs it with the versions of requirements.lock, from where pip is told to look."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    # A copy: building leaves files beside the sources, which a later build would take in.
    shutil.copytree(CHECKOUT / "upsert_platform", source / "upsert_platform", ignore=shutil.ignore_patterns("*.pyc"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    _checked([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder / "dist"), str(source)])
    (wheel,) = (folder / "dist").iterdir()
    _checked([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")])
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(locked()), "utf-8")
    python = str(folder / "venv" / "bin" / "python")
    # Modules are compiled when they are imported, which are far fewer than there are.
    install = [*pip, "--python", python, "install", "--quiet", "--no-compile", "--constraint", str(constraints)]
    _checked([*install, f"{wheel}[all]"])
    (folder / "cache").mkdir()
    (cache_directory() / "jars").mkdir(parents=True, exist_ok=True)
    (folder / "cache" / "jars").symlink_to(cache_directory() / "jars")
    return Installed(folder, wheel)


def locked() -> list[str]:
    """``name==version`` of every package of requirements.lock."""
    text = (CHECKOUT / "requirements.lock").read_text("utf-8")
    return re.findall(r"^([A-Za-z0-9][\w.\-]*==[^\s\\;]+)", text, re.MULTILINE)


def _checked(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{command}: {done.stderr[-3000:]}"
