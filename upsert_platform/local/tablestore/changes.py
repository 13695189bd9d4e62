"""Writes of one row: checking a request's row, its condition, and the row that results."""

from __future__ import annotations

import re
import struct
from typing import Any, NamedTuple

from upsert_platform.local.tablestore import keys, limits, plainbuffer
from upsert_platform.local.tablestore.engine import Rows, Stored
from upsert_platform.local.tablestore.errors import ServiceError, invalid
from upsert_platform.local.tablestore.filters import Predicate, decode_filter
from upsert_platform.local.tablestore.messages import pb
from upsert_platform.local.tablestore.plainbuffer import BLOB, STRING, Cell, Change, KeyCell, show
from upsert_platform.local.tablestore.selection import expired, live_cells, newest
from upsert_platform.local.tablestore.table import Table

_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{0,254}")
_known_names: set[bytes] = set()
_read_i64 = struct.Struct("<q").unpack_from


class RowWrite(NamedTuple):
    """A checked write of one row, ready to be applied.

    Attributes:
        kind: PUT, UPDATE or DELETE of the protocol.
        sortable: the key as bytes; empty while an auto-increment value is still to be generated.
        size: data bytes of key and attributes, as limits and capacity units count them.
    """

    table: Table
    kind: int
    sortable: bytes
    key: list[KeyCell]
    cells: list[Change]
    existence: int
    condition: Predicate | None
    returns: int
    return_columns: tuple[bytes, ...]
    size: int

    @property
    def is_blind(self) -> bool:
        """Whether the outcome does not depend on the stored row."""
        return (
            self.kind != pb.UPDATE
            and self.existence == pb.IGNORE
            and self.condition is None
            and self.returns != pb.RT_AFTER_MODIFY
        )


class Applied(NamedTuple):
    """Outcome of a write: the row to return (with header, or empty) and the capacity units."""

    row: bytes
    read_units: int
    write_units: int


def check_name(name: bytes) -> None:
    """Refuses a column name that the service does not take."""
    if _NAME.fullmatch(name) is None:
        if not name:
            raise invalid("invalid name of column: empty name.")
        raise invalid(f"Invalid column name: '{show(name)}'.")
    if len(_known_names) > 100_000:
        _known_names.clear()
    _known_names.add(name)


def prepare(table: Table, kind: int, data: bytes, *, condition: Any = None, returns: Any = None, now: int) -> RowWrite:
    """Checks one row of a write request against the table and the limits.

    Raises:
        ServiceError: ``OTSInvalidPK`` where the key does not fit the table (a batch reports it for the row alone),
            ``OTSParameterInvalid`` otherwise.
    """
    key, cells, deletes = plainbuffer.decode_change(data)
    keys.check_cells(key)
    if deletes != (kind == pb.DELETE):
        if deletes:
            raise invalid("Invalid request of put/update row: unexpected RowDeleteMarker in request.")
        raise invalid("Invalid request of delete row: missing RowDeleteMarker in request.")
    size = _check_cells(table, kind, cells, now)
    for name, value, _ in key:
        size += len(name) + len(value) - (5 if value[0] in (STRING, BLOB) else 1)
    if kind != pb.DELETE and size > limits.REQUEST_DATA:
        operation = "PutRow" if kind == pb.PUT else "UpdateRow"
        raise invalid(
            f"The total data size of {operation} request exceeds the limit, "
            f"limit size: {limits.REQUEST_DATA} , data size: {size}."
        )
    existence = pb.IGNORE
    predicate = None
    if condition is not None:
        existence = condition.row_existence
        if condition.column_condition:
            predicate = decode_filter(bytes(condition.column_condition)).predicate
            if predicate is None:
                raise invalid("Invalid condition:column pagination.")
    if table.generated is not None and _wants_generated(table, key):
        if kind != pb.PUT:
            raise invalid("Invalid row to delete which with pk auto increment.")
        if predicate is not None or existence != pb.IGNORE:
            raise invalid("Can't set condition when modify row with pk auto increment.")
        sortable = b""
    else:
        sortable = keys.encode_key(table.columns, key)
    return_type = returns.return_type if returns is not None else pb.RT_NONE
    columns = tuple(name.encode() for name in returns.return_column_names) if returns is not None else ()
    return RowWrite(table, kind, sortable, key, cells, existence, predicate, return_type, columns, size)


def _wants_generated(table: Table, key: list[KeyCell]) -> bool:
    index = table.generated
    return index is not None and len(key) == len(table.columns) and key[index].value[0] == plainbuffer.AUTO_INCREMENT


def _check_cells(table: Table, kind: int, cells: list[Change], now: int) -> int:
    """Checks the attribute cells and returns their data size."""
    if kind == pb.DELETE:
        if cells:
            raise invalid("Invalid delete row request: unexpected cells in request.")
        return 0
    if not cells:
        if kind == pb.UPDATE:
            raise invalid("Attribute column is missing.")
        return 0
    if len(cells) > limits.COLUMNS_PER_WRITE:
        raise invalid(
            "The number of attribute columns exceeds the limit, "
            f"limit count:{limits.COLUMNS_PER_WRITE}, column count: {len(cells)}."
        )
    if kind == pb.UPDATE and not table.allow_update:
        raise invalid(f"Update is not allowed on table '{table.name}': its option allow_update is false.")
    size = 0
    key_names = table.key_names
    for name, value, version, op, _, _ in cells:
        if name not in _known_names:
            check_name(name)
        if name in key_names:
            raise invalid(f"Duplicated attribute column name with primary key column: '{show(name)}'.")
        if op is not None:
            _check_operation(kind, name, value, version, op)
        elif value is None:
            raise invalid(f"Cell data broken, attr has no value, name:{show(name)}.")
        if version is not None and op != plainbuffer.DELETE_ONE:
            _check_version(table, name, version, now)
        size += len(name)
        if value is not None:
            type_ = value[0]
            if type_ in (STRING, BLOB):
                length = len(value) - 5
                if length > limits.VALUE:
                    raise invalid(
                        f"The length of attribute column: '{show(name)}' exceeded the MaxLength:{limits.VALUE} "
                        f"with Current Length:{length}."
                    )
                size += length
            elif type_ <= plainbuffer.BOOLEAN:
                size += len(value) - 1
            else:
                raise invalid(f"{type_} is an invalid type for the attribute column.")
    return size


def _check_operation(kind: int, name: bytes, value: bytes | None, version: int | None, op: int) -> None:
    if kind == pb.PUT:
        raise invalid(f"OpType cannot be given for column name:{show(name)} in PutRow.")
    if op in (plainbuffer.DELETE_ALL, plainbuffer.DELETE_ONE):
        if value is not None:
            raise invalid("Column value cannot be given when type is DELETE_ONE_VERSION,DELETE_ALL_VERSION.")
        if op == plainbuffer.DELETE_ONE and version is None:
            raise invalid("Timestamp must be given when type is DELETE_ONE_VERSION.")
        if op == plainbuffer.DELETE_ALL and version is not None:
            raise invalid("Timestamp cannot be given when type is DELETE_ALL_VERSION.")
    elif op == plainbuffer.INCREMENT:
        if value is None or value[0] != plainbuffer.INTEGER:
            raise invalid(f"Invalid cell: {show(name)}. Reason: an increment takes an INTEGER value.")
    else:
        raise invalid(f"Invalid op type of cell: {op}.")


def _check_version(table: Table, name: bytes, version: int, now: int) -> None:
    if not 0 <= version < limits.MAX_TIMESTAMP:
        raise invalid("Timestamp must be in range [0, INT64_MAX/1000).")
    low = now - table.deviation_ms
    if table.ttl_ms is not None:
        low = max(low, now - table.ttl_ms)
    if not low <= version < now + table.deviation_ms:
        raise invalid(f"Invalid timestamp. Cell:{show(name)}.")


def apply(rows: Rows, write: RowWrite, now: int) -> Applied:
    """Applies a checked write.

    Raises:
        ServiceError: ``OTSConditionCheckFail``, or an increment of a column that is no INTEGER.
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
        size = sum(plainbuffer.data_size(cell.name, cell.value) for cell in key)
        size += sum(plainbuffer.data_size(cell.name, cell.value) for cell in cells)
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


def _increment(name: bytes, current: bytes | None, delta: bytes) -> int:
    if current is not None and current[0] != plainbuffer.INTEGER:
        raise invalid(f"Column '{show(name)}' cannot be incremented: its value is no INTEGER.")
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
