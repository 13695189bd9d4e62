"""Dagster's events in SQLite, through connections that are kept.

Dagster opens a connection for every statement, and waits for the disk after each, which is most of the time of a run
that finds nothing new. Here a connection lives as long as its process, and the disk is waited for when SQLite writes
its log back. A process that dies loses nothing by that; a machine that does may lose the last events of a run, and no
more than that. Files and tables are Dagster's own, so that either may follow the other.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import dagster as dg
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._serdes import ConfigurableClassData
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

_KEPT: Final = 8
"""Runs whose databases stay open; a run's own process writes into its own and the one of all."""
_BUSY_SECONDS: Final = 30
"""How long a statement waits for another process that writes."""


class KeptEventStorage(SqliteEventLogStorage):
    """For `event_log_storage` of a dagster.yaml; `base_dir` is where Dagster has its own if it is left out.

    Args:
        base_dir: the folder of the events; None is that of the instance, which may be a temporary one: it is known when
            the instance registers itself.
    """

    def __init__(self, base_dir: str | None, inst_data: ConfigurableClassData | None = None) -> None:
        self._engines: OrderedDict[tuple[int, str], Engine] = OrderedDict()
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
            engine = self._engine(shard)
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            with engine.connect() as connection, connection.begin():
                yield connection

    def store_event(self, event: EventLogEntry) -> None:
        """Stores an event, and wakes up those who watch the run: they look at its file, not at the log beside it."""
        super().store_event(event)
        os.utime(self.path_for_shard(event.run_id))

    def _engine(self, shard: str) -> Engine:
        place = (os.getpid(), shard)  # a connection is not carried into a process that was forked
        found = self._engines.get(place)
        if found is None:
            found = create_engine(
                self.conn_string_for_shard(shard),
                poolclass=QueuePool,
                pool_size=1,
                connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False},
            )
            event.listen(found, "connect", _wait_seldom)
            self._engines[place] = found
            if len(self._engines) > _KEPT:
                self._engines.popitem(last=False)[1].dispose()
        self._engines.move_to_end(place)
        return found

    def dispose(self) -> None:
        """Closes all connections."""
        with self._db_lock:
            while self._engines:
                self._engines.popitem()[1].dispose()
        super().dispose()

    def wipe(self) -> None:
        """Deletes all events, and the files of runs."""
        with self._db_lock:
            while self._engines:
                self._engines.popitem()[1].dispose()
        for known in (self._tables, self._columns, self._indexes):
            known.clear()
        super().wipe()


def _wait_seldom(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")
