"""Dagster's events in SQLite, through connections that are kept.

Dagster opens a connection for every statement, and waits for the disk after each, which is most of the time of a run
that finds nothing new. Here a connection lives as long as its process, and the disk is waited for when SQLite writes
its log back. A process that dies loses nothing by that; a machine that does may lose the last events of a run, and no
more than that. Files and tables are Dagster's own, so that either may follow the other.

Each step of a run asks for the last materialisations of its asset and of what that reads, several times: what was read
of an asset is kept until this process stores an event of it, or anybody has written anything else.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import dagster as dg
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log import SqlEventLogStorageTable, SqliteEventLogStorage
from dagster._core.storage.event_log.base import AssetRecord
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME
from dagster._serdes import ConfigurableClassData
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

_KEPT: Final = 8
"""Runs whose databases stay open; a run's own process writes into its own and the one of all."""
_BUSY_SECONDS: Final = 30
"""How long a statement waits for another process that writes."""
_KEPT_ASSETS: Final = 2000
_INSERT: Final = SqlEventLogStorageTable.insert()
"""Compiled once, unlike a statement that has the values in it."""

_ONE_BY_ONE: Final = 8
"""So many assets are read one by one; a run that asks for more has many, and all are read by one statement."""
_READ_TOGETHER: Final = 500
"""An instance with more assets may be that of many projects."""

_Seen = tuple[int, int, int]
"""Which state of the database of all runs was read: its connection, SQLite's count of the changes that others made
(``PRAGMA data_version``), and the writes of this process."""


class _RowInsert:
    """The insert of one row by the statement that is compiled once; SQLAlchemy runs whatever has this method."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def _execute_on_connection(self, connection: Connection, _: object, options: Any) -> Any:
        return _INSERT._execute_on_connection(connection, [self._row], options)  # noqa: SLF001


class KeptEventStorage(SqliteEventLogStorage):
    """For `event_log_storage` of a dagster.yaml; `base_dir` is where Dagster has its own if it is left out.

    Args:
        base_dir: the folder of the events; None is that of the instance, which may be a temporary one: it is known when
            the instance registers itself.
    """

    def __init__(self, base_dir: str | None, inst_data: ConfigurableClassData | None = None) -> None:
        self._engines: OrderedDict[tuple[int, str], tuple[Engine, Connection]] = OrderedDict()
        self._records: dict[dg.AssetKey, AssetRecord | None] = {}
        self._records_of: _Seen | None = None
        self._records_lock = threading.RLock()
        self._writes = self._singles = 0
        self._storing = threading.local()
        self._tables: set[str] = set()
        self._columns: set[str] = set()
        self._indexes: set[str] = set()
        self._waits = base_dir is None
        self._given_data = inst_data
        if base_dir is not None:
            super().__init__(base_dir, inst_data)

    def register_instance(self, instance: dg.DagsterInstance) -> None:
        """Opens the storage below the folder of the instance, where none is named."""
        if self._waits:
            self._waits = False
            super().__init__(str(Path(instance.root_directory) / "history" / "runs"), self._given_data)
        super().register_instance(instance)

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        """Its part of the instance's settings, by which another process opens the same storage."""
        return self._given_data

    @classmethod
    def config_type(cls) -> Any:
        return {"base_dir": dg.Field(dg.StringSource, is_required=False)}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Self:
        return cls(config_value.get("base_dir") or None, inst_data)

    def has_table(self, table_name: str) -> bool:
        """Return whether a table is there. One that was seen is not asked for again, as Dagster does for each event."""
        if table_name not in self._tables:
            if not super().has_table(table_name):
                return False
            self._tables.add(table_name)
        return True

    def _has_asset_key_col_on_connection(self, conn: Connection, column_name: str) -> bool:
        """Return whether the table of assets has a column. Dagster asks for the schema several times in each step."""
        if column_name not in self._columns:
            if not super()._has_asset_key_col_on_connection(conn, column_name):
                return False
            self._columns.add(column_name)
        return True

    def has_secondary_index(self, name: str) -> bool:
        """Return whether an index is complete. One that is stays so."""
        if name not in self._indexes:
            if not super().has_secondary_index(name):
                return False
            self._indexes.add(name)
        return True

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        with self._db_lock:
            connection = self._opened(shard)
            changes = _driver(connection).total_changes
            try:
                with connection.begin():
                    yield connection
            finally:
                by_an_event = getattr(self._storing, "event", False)
                if shard == INDEX_SHARD_NAME and not by_an_event and _driver(connection).total_changes != changes:
                    self._writes += 1

    def store_event(self, event: EventLogEntry) -> None:
        """Stores an event, and wakes up those who watch the run: they look at its file, not at the log beside it."""
        self._storing.event = True
        try:
            super().store_event(event)
        finally:
            self._storing.event = False
            key = None if event.dagster_event is None else event.dagster_event.asset_key
            if key is not None:
                with self._records_lock:
                    self._records.pop(key, None)
        os.utime(self.path_for_shard(event.run_id))

    def prepare_insert_event(self, event: EventLogEntry) -> Any:
        """Return what inserts an event into a database when it is executed."""
        return _RowInsert(self._event_to_row(event))

    def get_asset_records(self, asset_keys: Sequence[dg.AssetKey] | None = None) -> Sequence[AssetRecord]:
        """Return what is known of assets; of a single one as it was read before, while nothing has changed."""
        if asset_keys is None or len(asset_keys) != 1:
            return super().get_asset_records(asset_keys)
        found = self._record_of(asset_keys[0])
        return [] if found is None else [found]

    def get_latest_materialization_events(
        self, asset_keys: Iterable[dg.AssetKey]
    ) -> Mapping[dg.AssetKey, EventLogEntry | None]:
        """Return the last materialisations; of a single asset as it was read before, while nothing has changed."""
        asked = list(asset_keys)
        if len(asked) != 1:
            return super().get_latest_materialization_events(asked)
        found = self._record_of(asked[0])
        return {} if found is None else {asked[0]: found.asset_entry.last_materialization}

    def _record_of(self, key: dg.AssetKey) -> AssetRecord | None:
        with self._records_lock:
            with self._connect(INDEX_SHARD_NAME) as connection:
                driver = _driver(connection)
                version = driver.execute("PRAGMA data_version").fetchone()[0]
                seen = (id(driver), version, self._writes)
            if seen != self._records_of or len(self._records) >= _KEPT_ASSETS:
                self._records.clear()
                self._records_of, self._singles = seen, 0
            if key not in self._records:
                self._read(key)
            return self._records[key]

    def _read(self, key: dg.AssetKey) -> None:
        """Reads what is known of an asset; of every one, where many were asked for and there are not too many.

        It is read after `_records_of`, so that what is written meanwhile is found to be newer by the next look.
        """
        self._singles += 1
        if self._singles == _ONE_BY_ONE and self._count_of_assets() <= _READ_TOGETHER:
            self._records |= {found.asset_entry.asset_key: found for found in super().get_asset_records()}
            self._records.setdefault(key, None)
            return
        found = super().get_asset_records([key])
        self._records[key] = found[0] if found else None

    def _count_of_assets(self) -> int:
        with self._connect(INDEX_SHARD_NAME) as connection:
            return int(_driver(connection).execute("SELECT count(*) FROM asset_keys").fetchone()[0])

    def _opened(self, shard: str) -> Connection:
        place = (os.getpid(), shard)  # a connection is not carried into a process that was forked
        found = self._engines.get(place)
        if found is None:
            engine = create_engine(
                self.conn_string_for_shard(shard),
                poolclass=QueuePool,
                pool_size=1,
                connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False},
            )
            event.listen(engine, "connect", _wait_seldom)
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            found = self._engines[place] = (engine, engine.connect())
            if len(self._engines) > _KEPT:
                _close(self._engines.popitem(last=False)[1])
        self._engines.move_to_end(place)
        return found[1]

    def dispose(self) -> None:
        """Closes all connections."""
        self._close_all()
        super().dispose()

    def wipe(self) -> None:
        """Deletes all events, and the files of runs."""
        self._close_all()
        for known in (self._tables, self._columns, self._indexes):
            known.clear()
        super().wipe()

    def _close_all(self) -> None:
        with self._db_lock:
            while self._engines:
                _close(self._engines.popitem()[1])


def _driver(connection: Connection) -> Any:
    """SQLite's own connection below one of SQLAlchemy."""
    return connection.connection.driver_connection


def _close(opened: tuple[Engine, Connection]) -> None:
    opened[1].close()
    opened[0].dispose()


def _wait_seldom(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")
