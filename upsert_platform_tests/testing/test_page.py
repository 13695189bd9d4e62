"""The page about tests: its project, its asset and its tests are run as they stand there, with no variable set."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
CPU_SECONDS = 20
"""Of the cores, without Spark's JVM, which nobody waits for. Other tests run beside this one, so no clock is asked."""


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
    before = _cpu_seconds()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin],
        cwd=tmp_path,
        env=kept,
        capture_output=True,
        text=True,
        timeout=240,
    )
    seconds = _cpu_seconds() - before
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "5 passed" in done.stdout
    assert 1 < seconds < CPU_SECONDS, f"{seconds:.1f} s"


def _cpu_seconds() -> float:
    """Return what processes that ended and were waited for have used of the cores."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
