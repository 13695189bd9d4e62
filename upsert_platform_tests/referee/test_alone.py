"""The referee shares nothing with what it judges."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import upsert_platform.referee as room

FILES = sorted(Path(room.__file__).parent.glob("*.py"))
CLIENTS = {"confluent_kafka", "tablestore"}


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module or "")
    return found


def test_referee_imports_nothing_of_the_platform_and_no_library_but_the_clients() -> None:
    assert len(FILES) > 5
    for path in FILES:
        for name in _imported(path):
            top = name.split(".")[0]
            own = name == "upsert_platform.referee" or name.startswith("upsert_platform.referee.")
            assert own or top in sys.stdlib_module_names or top in CLIENTS, f"{path.name} imports {name}"


def test_judging_loads_without_any_installed_library() -> None:
    names = ", ".join(f"upsert_platform.referee.{path.stem}" for path in FILES if path.stem != "__init__")
    code = f"import sys, {names}; print(*[name for name in sys.modules if name.startswith('upsert_platform.')])"
    root = str(Path(room.__file__).parents[2])
    # Without site-packages, so that any library would be missing.
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {root!r}); {code}"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert loaded
    assert all(name.startswith("upsert_platform.referee") for name in loaded)
