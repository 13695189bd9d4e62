"""The Dagster instance that the demo, the UI and the documented commands share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from upsert_platform.changelog import lake

SHIPPED_SETTINGS: Final = Path(__file__).with_name("dagster.yaml")
"""Settings of an instance that keeps its records in SQLite."""


def dagster_home() -> Path:
    """DAGSTER_HOME if it is set, else ``<home>/dagster``; made with the shipped dagster.yaml when it is missing."""
    named = os.environ.get("DAGSTER_HOME")
    directory = Path(named) if named else lake.lake_folder(lake.home()) / "dagster"
    directory.mkdir(parents=True, exist_ok=True)
    settings = directory / "dagster.yaml"
    if not settings.exists():
        shutil.copyfile(SHIPPED_SETTINGS, settings)
    return directory


def environment() -> dict[str, str]:
    """The environment of a Dagster process: this one's, with the shared instance and the lake's root named.

    Warnings of Python, which are for those who write code, are not shown unless asked for.
    """
    named = {"DAGSTER_HOME": str(dagster_home()), lake.HOME_VARIABLE: lake.home()}
    return {"PYTHONWARNINGS": "ignore", **os.environ, **named}
