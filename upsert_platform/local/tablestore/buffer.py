"""The rows of one batch, gathered between reading them and writing them."""

from __future__ import annotations

from upsert_platform.local.tablestore.engine import Engine, Stored
from upsert_platform.local.tablestore.table import Table


class Buffer:
    """The rows of one batch on one table: read at once before, written at once after."""

    def __init__(self, engine: Engine, table: Table, keys_to_read: list[bytes]) -> None:
        self._engine = engine
        self._table = table
        self._stored = engine.read_many(table, keys_to_read) if keys_to_read else {}
        self._changed: dict[bytes, tuple[bytes, int, int, bytes] | None] = {}

    def read(self, table: Table, key: bytes) -> Stored | None:
        """A row as earlier writes of the batch left it; ``key`` must be one of those that were announced."""
        if key in self._changed:
            changed = self._changed[key]
            return Stored(changed[3], changed[1], changed[2]) if changed is not None else None
        return self._stored.get(key)

    def write(self, table: Table, key: bytes, row: bytes, size: int, now: int) -> None:
        self._changed[key] = (key, now, size, row)

    def remove(self, table: Table, key: bytes) -> None:
        self._changed[key] = None

    def flush(self) -> None:
        """Hands the changes to the engine."""
        written = [row for row in self._changed.values() if row is not None]
        if written:
            self._engine.write_many(self._table, written)
        if len(written) < len(self._changed):
            self._engine.remove_many(self._table, [key for key, row in self._changed.items() if row is None])
