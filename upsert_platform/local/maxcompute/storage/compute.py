"""DuckDB as the engine that computes: it keeps nothing, tables come to it as Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from upsert_platform.local.maxcompute.storage.macros import MACROS


class Compute:
    """One DuckDB in memory; each caller works on its own cursor, and what it registers there goes with it."""

    def __init__(self, directory: Path, *, threads: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._database = duckdb.connect(":memory:")
        self._database.execute("SET TimeZone = 'UTC'")
        self._database.execute(f"SET threads = {threads}")
        self._database.execute(f"SET temp_directory = '{directory}'")
        self._database.execute("SET preserve_insertion_order = true")
        for macro in MACROS:
            self._database.execute(macro)

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        cursor = self._database.cursor()
        try:
            cursor.execute("SET TimeZone = 'UTC'")
            yield cursor
        finally:
            cursor.close()

    def close(self) -> None:
        self._database.close()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
