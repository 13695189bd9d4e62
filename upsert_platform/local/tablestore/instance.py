"""One instance of the service: its tables, clock, open transactions and counters."""

from __future__ import annotations

import time
from typing import Any

from upsert_platform.local.tablestore import limits
from upsert_platform.local.tablestore.engine import Engine, Rows, ScannedRows
from upsert_platform.local.tablestore.errors import ServiceError, invalid, no_such_table
from upsert_platform.local.tablestore.faults import Faults
from upsert_platform.local.tablestore.messages import pb
from upsert_platform.local.tablestore.sql.mapping import Mappings
from upsert_platform.local.tablestore.table import Table
from upsert_platform.local.tablestore.timeseries.store import SeriesStore
from upsert_platform.local.tablestore.transactions import Transactions, partition_of


class Clock:
    """Milliseconds since the epoch, never falling, so that a later write has no lower version."""

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> int:
        self._last = max(self._last, time.time_ns() // 1_000_000)
        return self._last


class Instance:
    """The state that operations share.

    Attributes:
        drop_writes: accepts BatchWriteRow and PutTimeseriesData and stores nothing, for benchmarks of clients.
        rows_written: rows written since the start.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        faults: Faults,
        *,
        max_tables: int = limits.TABLES,
        drop_writes: bool = False,
    ) -> None:
        self.name = name
        self.engine = engine
        self.faults = faults
        self.max_tables = max_tables
        self.drop_writes = drop_writes
        self.clock = Clock()
        self.transactions = Transactions(engine)
        self.series = SeriesStore(engine)
        self.mappings = Mappings(engine)
        self.rows_written = 0

    def table(self, name: str) -> Table:
        """A table by name; refused while it is unknown or not ready."""
        table = self.engine.tables.get(name)
        if table is None:
            if not name:
                raise invalid(f"Invalid table name: '{name}'.")
            raise no_such_table()
        if self.faults.not_ready_seconds and self.clock.now() < table.created + self.faults.not_ready_seconds * 1000:
            raise ServiceError("OTSTableNotReady")
        return table

    def rows_to_read(self, transaction_id: str, table: Table, sortable: bytes) -> ScannedRows:
        """Return the rows that a request reads: the stored ones, or the view of its transaction."""
        if not transaction_id:
            return self.engine
        return self.transactions.view(transaction_id, table, sortable, self.clock.now())

    def rows_to_write(self, transaction_id: str, table: Table, sortable: bytes, rows: Rows | None = None) -> Rows:
        """Return the target of a request's write: its transaction's view, or ``rows`` (the engine unless given).

        Raises:
            ServiceError: ``OTSRowOperationConflict`` while another transaction holds the row's partition.
        """
        if transaction_id:
            return self.transactions.view(transaction_id, table, sortable, self.clock.now())
        if self.transactions.any_locked and sortable:
            self.transactions.check_lock(table, partition_of(table, sortable), self.clock.now())
        return self.engine if rows is None else rows


def read_units(size: int) -> int:
    """Capacity units of reading so many bytes; a miss costs one."""
    return max(1, -(-size // limits.CAPACITY_UNIT))


def set_consumed(message: Any, *, read: int = 0, write: int = 0) -> None:
    """Fills the ``consumed`` field of a response."""
    message.consumed.capacity_unit.CopyFrom(pb.CapacityUnit(read=read, write=write))
