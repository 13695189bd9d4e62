"""The page about tests: its project, its asset and its tests are run as they stand there, with no variable set."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
TEST_SECONDS = 40
"""Some ten on a free machine, most of it Spark for the asset that reads a DataFrame; others run beside this test."""


def test_the_project_of_the_page_is_tested_within_seconds(tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8")
    (sql,) = re.findall(r"^```sql\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    first, asset, tests = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "orders.sql").write_text(sql, "utf-8")
    for name, code in (("assets.py", asset), ("test_shop.py", tests), ("test_first.py", first)):
        (tmp_path / name).write_text(code, "utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UPSERT_", "DAGSTER_", "PYTEST"))}
    plugin = ["-p", "upsert_platform.testing.plugin", "-p", "no:cacheprovider"]
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin],
        cwd=tmp_path,
        env=kept,
        capture_output=True,
        text=True,
        timeout=120,
    )
    seconds = time.monotonic() - started
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "5 passed" in done.stdout
    assert seconds < TEST_SECONDS, f"{seconds:.1f} s"
