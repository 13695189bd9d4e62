"""What `init` prints next leads to a first row, typed as it is, in a shell that does not know the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.systems, pytest.mark.timeout(600)]
COMMAND = str(Path(sys.executable).parent / "upsert-platform")


def test_printed_commands_lead_from_an_empty_folder_to_a_row(tmp_path: Path) -> None:
    dropped = ("UPSERT_", "DAGSTER_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    own = str(Path(COMMAND).parent)
    others = [item for item in environment["PATH"].split(os.pathsep) if item != own]
    environment |= {"PATH": os.pathsep.join(others), "UPSERT_SPARK_SESSION": "off"}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)

    shown = call(COMMAND, "init", "shop").stdout
    commands = [line.strip() for line in shown.partition("What to type next:")[2].splitlines() if line.strip()]
    try:
        done = call("bash", "-euc", "\n".join(commands))
    finally:
        down = call(COMMAND, "local", "down")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "1 record and 0 tombstones sent to orders" in done.stdout
    assert "sync succeeded" in done.stdout
    assert "Ada" in done.stdout
    assert down.returncode == 0
