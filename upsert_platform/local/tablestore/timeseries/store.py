"""Timeseries tables in the database: their descriptions, rows and timelines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from upsert_platform.local.tablestore.engine import Engine
from upsert_platform.local.tablestore.errors import ServiceError
from upsert_platform.local.tablestore.messages import pb, timeseries
from upsert_platform.local.tablestore.timeseries.rows import DEFAULT_KEY, SeriesKey, read_tags, write_tags


class SeriesTable:
    """One timeseries table; ``description`` is ``DescribeTimeseriesTableResponse`` as clients read it."""

    def __init__(self, id: int, description: Any) -> None:
        self.id = id
        self.description = description
        meta = description.table_meta
        self.name: str = meta.table_name
        self.key_schema: tuple[str, ...] = tuple(meta.timeseries_key_schema) or DEFAULT_KEY
        self.field_keys: dict[str, int] = {column.name: column.type for column in meta.field_primary_key_schema}
        self.rows = f"series_{id}"
        self.timelines = f"timelines_{id}"

    @property
    def ttl_us(self) -> int | None:
        seconds = self.description.table_meta.table_options.time_to_live
        return seconds * 1_000_000 if seconds > 0 else None


class Timeline(NamedTuple):
    """A timeline's metadata; update time in microseconds."""

    sortable: bytes
    key: SeriesKey
    attributes: str
    updated: int


class SeriesStore:
    """The timeseries tables of one instance, by the engine's connection and within its transactions."""

    def __init__(self, engine: Engine) -> None:
        self._run = engine.connection.execute
        self._run(
            "CREATE TABLE IF NOT EXISTS series_catalog (id INTEGER PRIMARY KEY AUTOINCREMENT,"
            " name TEXT NOT NULL UNIQUE, description BLOB NOT NULL)"
        )

    def tables(self) -> list[SeriesTable]:
        found = self._run("SELECT id, description FROM series_catalog ORDER BY name")
        return [
            SeriesTable(id_, timeseries.DescribeTimeseriesTableResponse.FromString(description))
            for id_, description in found
        ]

    def table(self, name: str) -> SeriesTable:
        """A table by name; ``OTSObjectNotExist`` when there is none."""
        found = self._run("SELECT id, description FROM series_catalog WHERE name = ?", (name,)).fetchone()
        if found is None:
            raise ServiceError("OTSObjectNotExist", "Requested timeseries table does not exist.")
        return SeriesTable(found[0], timeseries.DescribeTimeseriesTableResponse.FromString(found[1]))

    def exists(self, name: str) -> bool:
        return self._run("SELECT 1 FROM series_catalog WHERE name = ?", (name,)).fetchone() is not None

    def create(self, description: Any) -> None:
        cursor = self._run(
            "INSERT INTO series_catalog (name, description) VALUES (?, ?)",
            (description.table_meta.table_name, description.SerializeToString()),
        )
        table = SeriesTable(int(cursor.lastrowid or 0), description)
        self._run(f"CREATE TABLE {table.rows} (key BLOB PRIMARY KEY, time INTEGER NOT NULL, row BLOB NOT NULL)")
        self._run(
            f"CREATE TABLE {table.timelines} (key BLOB PRIMARY KEY, measurement TEXT NOT NULL, source TEXT NOT NULL,"
            " tags TEXT NOT NULL, attributes TEXT NOT NULL, updated INTEGER NOT NULL)"
        )

    def save(self, table: SeriesTable) -> None:
        self._run(
            "UPDATE series_catalog SET description = ? WHERE id = ?", (table.description.SerializeToString(), table.id)
        )

    def drop(self, table: SeriesTable) -> None:
        self._run("DELETE FROM series_catalog WHERE id = ?", (table.id,))
        self._run(f"DROP TABLE {table.rows}")
        self._run(f"DROP TABLE {table.timelines}")

    def read(self, table: SeriesTable, key: bytes) -> bytes | None:
        found = self._run(f"SELECT row FROM {table.rows} WHERE key = ?", (key,)).fetchone()
        return found[0] if found is not None else None

    def write(self, table: SeriesTable, key: bytes, time: int, row: bytes) -> None:
        self._run(f"INSERT OR REPLACE INTO {table.rows} (key, time, row) VALUES (?, ?, ?)", (key, time, row))

    def scan(
        self, table: SeriesTable, low: bytes, high: bytes, *, oldest: int, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows (key, encoded row) with low <= key < high and a time of at least ``oldest``."""
        order = "DESC" if reverse else "ASC"
        yield from self._run(
            f"SELECT key, row FROM {table.rows} WHERE key >= ? AND key < ? AND time >= ? ORDER BY key {order}",
            (low, high, oldest),
        )

    def touch(self, table: SeriesTable, sortable: bytes, key: SeriesKey, now: int) -> None:
        """Registers a timeline; one that is known keeps its attributes and update time."""
        self._run(
            f"INSERT OR IGNORE INTO {table.timelines} VALUES (?, ?, ?, ?, '', ?)",
            (sortable, key.measurement, key.source, write_tags(key.tags), now),
        )

    def set_attributes(self, table: SeriesTable, sortable: bytes, key: SeriesKey, attributes: str, now: int) -> None:
        self.touch(table, sortable, key, now)
        self._run(
            f"UPDATE {table.timelines} SET attributes = ?, updated = ? WHERE key = ?", (attributes, now, sortable)
        )

    def forget(self, table: SeriesTable, sortable: bytes) -> None:
        """Removes a timeline's metadata; its rows stay."""
        self._run(f"DELETE FROM {table.timelines} WHERE key = ?", (sortable,))

    def timelines(self, table: SeriesTable) -> Iterator[Timeline]:
        """All timelines in order of key."""
        for sortable, measurement, source, tags, attributes, updated in self._run(
            f"SELECT key, measurement, source, tags, attributes, updated FROM {table.timelines} ORDER BY key"
        ):
            yield Timeline(sortable, SeriesKey(measurement, source, read_tags(tags)), attributes, updated)


def key_type_matches(declared: int, value: Any) -> bool:
    """Return whether a field's value fits the declared type of a key field."""
    kinds = {pb.INTEGER: int, pb.STRING: str, pb.BINARY: bytes}
    return type(value) is kinds.get(declared)
