"""The tutorial, command after command, in an empty folder where only the wheel is installed."""

from __future__ import annotations

import json
import re
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from upsert_platform_tests.systems.installed import CHECKOUT, Installed

pytestmark = [pytest.mark.systems, pytest.mark.timeout(900)]
BLOCK = "--- block"


def blocks() -> list[str]:
    text = (CHECKOUT / "docs" / "tutorial.md").read_text("utf-8")
    return re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def rows(output: str) -> dict[int, dict[str, Any]]:
    """The JSON lines of an output, by key."""
    found = [json.loads(line, parse_float=Decimal) for line in output.splitlines() if line.startswith("{")]
    return {row["order_id"]: row for row in found}


def test_the_tutorial_does_what_it_says(installed: Installed, tmp_path: Path) -> None:
    commands = blocks()
    assert commands[-1].strip() == "upsert-platform local down"
    script = "set -euo pipefail\n" + f"echo '{BLOCK}'\n".join(["", *commands[:-1]])
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=installed.environment(),
            capture_output=True,
            text=True,
            timeout=600,
        )
    finally:
        down = installed.run(
            "upsert-platform", "local", "down", cwd=tmp_path, variables={"UPSERT_PLATFORM_HOME": str(tmp_path / "home")}
        )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert down.returncode == 0
    told = done.stdout.split(f"{BLOCK}\n")[1:]
    assert len(told) == len(commands) - 1
    _, _, sent, first, second, right, third, aside, given_up = told
    assert "created topic orders, compacted" in sent
    assert "ann" in first
    assert {key: (row["customer"], Decimal(row["amount"])) for key, row in rows(second).items()} == {
        2: ("bob", Decimal("7.5")), 3: ("eve", Decimal(1)),
    }  # fmt: skip
    assert "open_orders: equal, " in right
    assert "open_orders: equal; 2 rows" in right
    assert set(rows(third)) == {2, 4}
    assert "orders: 1 record could not be decoded" in aside
    assert "amount" in aside
    assert "1 record discarded" in given_up
    assert [line.split() for line in given_up.splitlines()[-4:]] == [
        ["state", "orders"], ["closed", "1"], ["open", "2"], ["2", "rows"],
    ]  # fmt: skip
