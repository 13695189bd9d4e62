"""Shorthands of the SQL tests."""

from __future__ import annotations

from collections.abc import Mapping

from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Insert, Table
from upsert_platform.sql.declarations import Declarations
from upsert_platform.sql.scripts import Scripts, resolve
from upsert_platform.sql.statements import read_statements
from upsert_platform.sql.variables import Variables

NONE = "SET 'table.exec.sink.upsert-materialize' = 'NONE'; "
"""Before statements whose keys have to tell rows apart."""


def read_scripts(texts: Mapping[str, str], variables: Variables) -> tuple[Scripts, list[Problem]]:
    """Reads SQL files together, from file name to content."""
    found = Declarations()
    for file, text in texts.items():
        found.add(read_statements(text, file, variables))
    return resolve(found)


def read(sql: str, variables: Mapping[str, str] | None = None) -> tuple[Scripts, list[Problem]]:
    """Reads one file named f.sql."""
    return read_scripts({"f.sql": sql}, Variables({}, dict(variables or {}), {}))


def errors(problems: list[Problem]) -> list[str]:
    """Errors as ``line: message``."""
    return [f"{item.location.line}: {item.message}" for item in problems if item.severity == "error" and item.location]


def one_table(sql: str) -> Table:
    """The only table of a text without errors."""
    scripts, problems = read(sql)
    assert errors(problems) == []
    (table,) = scripts.tables.values()
    return table


def one_insert(sql: str) -> Insert:
    """The only insert of a text without errors."""
    scripts, problems = read(sql)
    assert errors(problems) == []
    (insert,) = scripts.inserts
    return insert
