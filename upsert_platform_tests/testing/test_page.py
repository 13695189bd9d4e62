"""The page about tests: its project, its asset and its tests are run as they stand there, with no variable set."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole_runs

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
SECONDS = 20.0
"""Of the processor, by the process of the tests; Spark's own is another one, and nobody waits for it."""
IMPORTS = 25.0
"""On a slow machine: as many times what `import dagster` takes there."""
WHOLE = """
import resource, sys
def used():
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime
before = used()
import dagster, pytest
imported = used() - before
code = pytest.main(["-q", "-p", "upsert_platform.testing.plugin", "-p", "no:cacheprovider"])
print("seconds", imported, used())
sys.exit(code)
"""


def test_the_project_of_the_page_is_tested_within_seconds(tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8")
    (sql,) = re.findall(r"^```sql\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    first, asset, tests = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "orders.sql").write_text(sql, "utf-8")
    for name, code in (("assets.py", asset), ("test_shop.py", tests), ("test_first.py", first)):
        (tmp_path / name).write_text(code, "utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UPSERT_", "DAGSTER_", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-c", WHOLE], cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "5 passed" in done.stdout
    imported, seconds = map(float, done.stdout.splitlines()[-1].split()[1:])
    print(f"{seconds:.1f} s of the processor, import dagster {imported:.1f} s")  # noqa: T201 - told by -s
    assert 1 < seconds < max(SECONDS, IMPORTS * imported), f"{seconds:.1f} s, import dagster {imported:.1f} s"
