"""Packages that systems need and that the base installation leaves out: the extras of the wheel."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

EXTRAS: Final[Mapping[str, tuple[str, str]]] = {
    "tablestore": ("tablestore", "tablestore"),
    "maxcompute": ("odps", "pyodps"),
    "mysql": ("pymysql", "PyMySQL"),
    "postgres": ("psycopg", "psycopg"),
    "query": ("duckdb", "duckdb"),
}
"""Extra to a module that it installs, and the package of that module."""


def missing_package(extra: str) -> str:
    """Return that the package of an extra is not installed and how to install it; empty if it is, or none is needed."""
    if extra not in EXTRAS:
        return ""
    module, package = EXTRAS[extra]
    if find_spec(module) is not None:
        return ""
    return f"package {package} is not installed: pip install 'upsert-platform[{extra}]'"


def installed_extras() -> frozenset[str]:
    """Return the extras whose module is installed."""
    return frozenset(extra for extra, (module, _) in EXTRAS.items() if find_spec(module) is not None)
