"""The part of a stored row that a read returns: columns, versions, time range, filter, expiry."""

from __future__ import annotations

from typing import Any

from upsert_platform.local.tablestore import limits
from upsert_platform.local.tablestore.engine import Stored
from upsert_platform.local.tablestore.errors import invalid
from upsert_platform.local.tablestore.filters import Filter, decode_filter
from upsert_platform.local.tablestore.plainbuffer import Cell, decode_row, encode_row, row_size
from upsert_platform.local.tablestore.table import Table


class Selection:
    """The read options of GetRow, BatchGetRow and GetRange, checked once and applied to every row."""

    def __init__(self, request: Any, table: Table) -> None:
        names = {name.encode() for name in request.columns_to_get}
        if len(request.columns_to_get) > limits.COLUMNS_TO_GET:
            raise invalid(
                "The number of columns from the request exceeds the limit, "
                f"limit count: {limits.COLUMNS_TO_GET} , column count:{len(request.columns_to_get)}."
            )
        if b"" in names:
            raise invalid("invalid name of column: empty name.")
        self._table = table
        self._columns = frozenset(names) or None
        self._names_key = bool(names & table.key_names)
        self._start = request.start_column.encode() if request.HasField("start_column") else None
        self._end = request.end_column.encode() if request.HasField("end_column") else None
        self._read_versions(request)
        self._filter: Filter | None = decode_filter(bytes(request.filter)) if request.filter else None
        self._whole = (
            self._columns is None
            and self._start is None
            and self._end is None
            and self._low is None
            and self._filter is None
            and table.ttl_ms is None
            and self._versions >= table.stored_versions
        )

    def _read_versions(self, request: Any) -> None:
        has_time = request.HasField("time_range")
        if not has_time and not request.HasField("max_versions"):
            raise invalid("No version condition is specified while querying row.")
        self._versions = self._table.max_versions
        if request.HasField("max_versions"):
            if request.max_versions <= 0:
                raise invalid(f"Invalid max versions: {request.max_versions} . Reason: Max versions must be positive.")
            self._versions = min(request.max_versions, self._table.max_versions)
        self._low: int | None = None
        self._high = 0
        if not has_time:
            return
        time = request.time_range
        if time.HasField("specific_time"):
            if time.HasField("start_time") or time.HasField("end_time"):
                raise invalid("Specific tiemstamp and time range cannot be given at the same time.")
            if time.specific_time < 0:
                raise invalid("Specific timestamp cannot be less than 0.")
            self._low, self._high = time.specific_time, time.specific_time + 1
            return
        if not time.HasField("start_time") or not time.HasField("end_time"):
            raise invalid("Start and end time must be given at the same time.")
        if not 0 <= time.start_time < time.end_time:
            raise invalid("Timestamp must be in range [0, INT64_MAX/1000).")
        self._low, self._high = time.start_time, time.end_time

    def apply(self, stored: Stored, now: int) -> bytes | None:
        """The row (without header) as the client gets it, or None when nothing of it is to be seen."""
        return self.measure(stored, now)[0]

    def measure(self, stored: Stored, now: int) -> tuple[bytes | None, int]:
        """The row as `apply` gives it, and the data bytes that were read for it."""
        if self._whole:
            return stored.row, stored.size
        key, cells = decode_row(stored.row)
        had_cells = bool(cells)
        living = live_cells(self._table, cells, now)
        if living is not cells:
            if not living and expired(self._table, stored, now):
                return None, 0
            cells = living
        if self._columns is not None:
            columns = self._columns
            cells = [cell for cell in cells if cell.name in columns]
            if not cells and not self._names_key:
                return None, 0
        if self._start is not None:
            cells = [cell for cell in cells if cell.name >= self._start]
        if self._end is not None:
            cells = [cell for cell in cells if cell.name < self._end]
        if self._low is not None:
            cells = [cell for cell in cells if self._low <= cell.version < self._high]
            if not cells and had_cells:
                return None, 0
        cells = newest(cells, self._versions)
        size = row_size(key, cells)
        if self._filter is not None:
            if self._filter.predicate is not None:
                if not self._filter.predicate(cells):
                    return None, size
            else:
                cells = _page(cells, self._filter)
        return encode_row(key, cells), size


def newest(cells: list[Cell], versions: int) -> list[Cell]:
    """At most so many versions per column; the cells are in order of name, newest version first."""
    kept: list[Cell] = []
    name, count = b"", 0
    for cell in cells:
        count = count + 1 if cell.name == name else 1
        name = cell.name
        if count <= versions:
            kept.append(cell)
    return kept


def live_cells(table: Table, cells: list[Cell], now: int) -> list[Cell]:
    """The cells that have not outlived the table's time to live (the same list when nothing can expire)."""
    if table.ttl_ms is None:
        return cells
    oldest = now - table.ttl_ms
    return [cell for cell in cells if cell.version >= oldest]


def expired(table: Table, stored: Stored, now: int) -> bool:
    """Return whether a row without living cells is gone: nothing was written to it within the time to live."""
    return table.ttl_ms is not None and stored.written < now - table.ttl_ms


def _page(cells: list[Cell], page: Filter) -> list[Cell]:
    names = list(dict.fromkeys(cell.name for cell in cells))
    chosen = set(names[page.offset : page.offset + (page.limit or 0)])
    return [cell for cell in cells if cell.name in chosen]
