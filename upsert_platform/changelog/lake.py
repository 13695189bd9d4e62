"""Where things are kept: the lake's root, and the environment file that the local stack writes beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

HOME_VARIABLE: Final = "UPSERT_PLATFORM_HOME"
PROJECT_VARIABLE: Final = "UPSERT_PLATFORM_PROJECT"
DEFAULT_HOME: Final = ".upsert_platform"


def home() -> str:
    """The lake's root: a path made absolute, or a URI as given."""
    value = os.environ.get(HOME_VARIABLE) or DEFAULT_HOME
    return value if "://" in value else str(Path(value).expanduser().absolute())


def changelog_uri(root: str, table: str) -> str:
    """The Delta table that holds the changelog of a declared table."""
    return f"{root.rstrip('/')}/changelogs/{table}"


def query_uri(root: str, query: str) -> str:
    """The Delta table that holds the result and the state of a query."""
    return f"{root.rstrip('/')}/queries/{query.removesuffix('$query')}"


def refused_uri(root: str, table: str) -> str:
    """The Delta table that holds rows which a destination refused."""
    return f"{root.rstrip('/')}/refused/{table}"


def project_path() -> Path:
    """The project folder: UPSERT_PLATFORM_PROJECT, or the demo project that ships with the package."""
    value = os.environ.get(PROJECT_VARIABLE)
    return Path(value).expanduser() if value else Path(__file__).parent.parent / "demo" / "project"


def local_variables(root: str) -> dict[str, str]:
    """KEY=VALUE lines of the environment file that ``local up`` writes for its default folder, if there is one."""
    path = Path(DEFAULT_HOME if "://" in root else root) / "local" / "local.env"
    if not path.is_file():
        return {}
    pairs = (line.split("=", 1) for line in path.read_text("utf-8").splitlines() if "=" in line and line[0] != "#")
    return {name.strip(): value.strip() for name, value in pairs}
