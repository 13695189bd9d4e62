"""Examples in the docstrings of what the package exports: they are run as they stand."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import upsert_platform
from upsert_platform.declarations.starter import write_starter


def examples() -> dict[str, str]:
    """Name to the code below ``Example:`` in its docstring."""
    found = {}
    for name in upsert_platform.__all__:
        text = inspect.getdoc(getattr(upsert_platform, name)) or ""
        block = re.search(r"^Example:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
        if block:
            found[name] = textwrap.dedent(block[1])
    return found


def test_everything_that_the_package_exports_has_an_example() -> None:
    assert set(examples()) == set(upsert_platform.__all__)


@pytest.mark.parametrize("name", sorted(name for name in upsert_platform.__all__))
def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_starter(tmp_path / "shop", tests=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path / "lake"))
    found: dict[str, Any] = {"__name__": "example"}
    exec(compile(examples()[name], f"example of {name}", "exec", dont_inherit=True), found)
    if name == "udf":
        assert found["shout"](pa.array(["a", None])).to_pylist() == ["A", None]
        return
    if name == "udtf":
        assert found["words"](pa.array(["a b", None])).to_pylist() == [["a", "b"], None]
        return
    (defs,) = [item for item in found.values() if isinstance(item, dg.Definitions)]
    dg.Definitions.validate_loadable(defs)
    assert defs.resolve_asset_graph().get_all_asset_keys()
