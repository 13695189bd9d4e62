"""Writes of one row as clients send them, checked against the table and the limits."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from upsert_platform.local.tablestore import keys, limits, plainbuffer
from upsert_platform.local.tablestore.errors import invalid
from upsert_platform.local.tablestore.filters import Predicate, decode_filter
from upsert_platform.local.tablestore.messages import pb
from upsert_platform.local.tablestore.plainbuffer import BLOB, STRING, Change, KeyCell, show
from upsert_platform.local.tablestore.table import Table

_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{0,254}")
_known_names: set[bytes] = set()


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
        """Return whether the outcome does not depend on the stored row."""
        return (
            self.kind != pb.UPDATE
            and self.existence == pb.IGNORE
            and self.condition is None
            and self.returns != pb.RT_AFTER_MODIFY
        )


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
    if table.main is not None:
        raise invalid(f"Disallow write index table: '{table.name}'.")
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
