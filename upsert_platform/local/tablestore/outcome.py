"""Applying a checked write: its condition, and the row that results."""

from __future__ import annotations

import struct
from typing import NamedTuple

from upsert_platform.local.tablestore import keys, limits, plainbuffer
from upsert_platform.local.tablestore.changes import RowWrite
from upsert_platform.local.tablestore.engine import Rows, Stored
from upsert_platform.local.tablestore.errors import ServiceError, invalid
from upsert_platform.local.tablestore.messages import pb
from upsert_platform.local.tablestore.plainbuffer import Cell, Change, KeyCell, show
from upsert_platform.local.tablestore.selection import expired, live_cells, newest
from upsert_platform.local.tablestore.table import Table

_read_i64 = struct.Struct("<q").unpack_from


class Applied(NamedTuple):
    """Outcome of a write: the row to return (with header, or empty) and the capacity units."""

    row: bytes
    read_units: int
    write_units: int


def apply(rows: Rows, write: RowWrite, now: int) -> Applied:
    """Applies a checked write.

    Raises:
        ServiceError: ``OTSConditionCheckFail``, or an increment of a column that is not an INTEGER.
    """
    table = write.table
    key = write.key
    sortable = write.sortable
    if not sortable:
        key = _generate_key(table, key, now)
        sortable = keys.encode_key(table.columns, key)
    read_units = 0
    existing: Stored | None = None
    current: list[Cell] | None = None
    if not write.is_blind:
        existing = rows.read(table, sortable)
        if existing is not None:
            current = live_cells(table, plainbuffer.decode_row(existing.row)[1], now)
            if not current and expired(table, existing, now):
                existing = current = None
        if write.existence != pb.IGNORE or write.condition is not None:
            read_units = 1
            check_condition(write, current)
    write_units = max(1, -(-write.size // limits.CAPACITY_UNIT))
    if write.kind == pb.DELETE:
        rows.remove(table, sortable)
        return Applied(_returned(write, key, []), read_units, write_units)
    packed = plainbuffer.pack_version(now)
    if write.kind == pb.PUT:
        cells = put_cells(table, write.cells, now, packed)
        size = write.size
    else:
        cells = update_cells(table, current or [], write.cells, now, packed)
        if existing is None and not cells:
            return Applied(_returned(write, key, []), read_units, write_units)
        size = plainbuffer.row_size(key, cells)
    rows.write(table, sortable, plainbuffer.encode_row(key, cells), size, now)
    return Applied(_returned(write, key, cells) if write.returns else b"", read_units, write_units)


def check_condition(write: RowWrite, cells: list[Cell] | None) -> None:
    """Checks row existence and column condition against the living cells (None: there is no row)."""
    if write.existence == pb.EXPECT_EXIST and cells is None:
        raise ServiceError("OTSConditionCheckFail")
    if write.existence == pb.EXPECT_NOT_EXIST and cells is not None:
        raise ServiceError("OTSConditionCheckFail")
    if write.condition is not None and not write.condition(cells or []):
        raise ServiceError("OTSConditionCheckFail")


def put_cells(table: Table, changes: list[Change], now: int, packed: bytes) -> list[Cell]:
    """Stored cells of a PUT in order of name, newest version first."""
    stamp = plainbuffer.stamp
    cells = []
    ordered = True
    last = b""
    for change in changes:
        version = change[2]
        cells.append(
            stamp(change, now, packed) if version is None else stamp(change, version, plainbuffer.pack_version(version))
        )
        if change[0] <= last:
            ordered = False
        last = change[0]
    if ordered:
        return cells
    return in_order(cells, table.max_versions)


def in_order(cells: list[Cell], versions: int) -> list[Cell]:
    """Sorts cells by name and falling version; of equal versions the last one written stays."""
    unique = {(cell[0], -cell[1]): cell for cell in cells}
    sorted_cells = [unique[place] for place in sorted(unique)]
    return newest(sorted_cells, versions) if len(sorted_cells) > 1 else sorted_cells


def update_cells(table: Table, cells: list[Cell], changes: list[Change], now: int, packed: bytes) -> list[Cell]:
    """The cells after an UPDATE, whose operations are applied in order."""
    if table.stored_versions == 1 and all(change[2] is None and change[3] is None for change in changes):
        return _replace_cells(cells, changes, now, packed)
    result = {(cell.name, -cell.version): cell for cell in cells}
    for change in changes:
        name, value, version, op, _, _ = change
        if op is None:
            cell = (
                plainbuffer.stamp(change, now, packed)
                if version is None
                else plainbuffer.stamp(change, version, plainbuffer.pack_version(version))
            )
            result[name, -cell.version] = cell
        elif op == plainbuffer.DELETE_ALL:
            for place in [place for place in result if place[0] == name]:
                del result[place]
        elif op == plainbuffer.DELETE_ONE and version is not None:
            result.pop((name, -version), None)
        elif value is not None:
            written = now if version is None else version
            latest = min((place for place in result if place[0] == name), default=None)
            total = _increment(name, result[latest].value if latest is not None else None, value)
            result[name, -written] = plainbuffer.encode_cell(name, plainbuffer.encode_value(total), written)
    return newest([result[place] for place in sorted(result)], table.max_versions)


def _replace_cells(cells: list[Cell], changes: list[Change], now: int, packed: bytes) -> list[Cell]:
    """The usual UPDATE of a table with one version: puts at the server's time, which hide no newer version."""
    result = {cell[0]: cell for cell in cells}
    for change in changes:
        current = result.get(change[0])
        if current is None or current[1] <= now:
            result[change[0]] = plainbuffer.stamp(change, now, packed)
    return [result[name] for name in sorted(result)]


def _increment(name: bytes, current: bytes | None, delta: bytes) -> int:
    if current is not None and current[0] != plainbuffer.INTEGER:
        raise invalid(f"Column '{show(name)}' cannot be incremented: its value is not an INTEGER.")
    total = (_read_i64(current, 1)[0] if current is not None else 0) + _read_i64(delta, 1)[0]
    if not -(2**63) <= total < 2**63:
        raise invalid(f"Column '{show(name)}' cannot be incremented: the result is out of the range of INTEGER.")
    return int(total)


def _generate_key(table: Table, key: list[KeyCell], now: int) -> list[KeyCell]:
    """Puts the next auto-increment value (rising with the clock, so it never repeats after a restart) into the key."""
    index = table.generated
    if index is None:
        raise invalid("PKAutoIncr is not declared on the table.")
    table.last_generated = max(table.last_generated + 1, now * 1000)
    value = plainbuffer.encode_value(table.last_generated)
    return [*key[:index], plainbuffer.encode_key_cell(key[index].name, value), *key[index + 1 :]]


def _returned(write: RowWrite, key: list[KeyCell], cells: list[Cell]) -> bytes:
    if write.returns == pb.RT_PK:
        return plainbuffer.HEADER + plainbuffer.encode_row(key, [])
    if write.returns == pb.RT_AFTER_MODIFY and write.kind != pb.DELETE:
        wanted = [cell for cell in newest(cells, 1) if cell.name in write.return_columns]
        return plainbuffer.HEADER + plainbuffer.encode_row(key, wanted)
    return b""
