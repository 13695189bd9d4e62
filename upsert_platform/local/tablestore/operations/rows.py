"""PutRow, UpdateRow, DeleteRow, GetRow."""

from __future__ import annotations

from typing import Any

from upsert_platform.local.tablestore import changes, keys, outcome, plainbuffer
from upsert_platform.local.tablestore.errors import invalid
from upsert_platform.local.tablestore.instance import Instance, read_units, set_consumed
from upsert_platform.local.tablestore.messages import parse, pb
from upsert_platform.local.tablestore.selection import Selection


def put_row(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.PutRowRequest, body)
    return _write(instance, request, pb.PUT, request.row, pb.PutRowResponse())


def update_row(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.UpdateRowRequest, body)
    return _write(instance, request, pb.UPDATE, request.row_change, pb.UpdateRowResponse())


def delete_row(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.DeleteRowRequest, body)
    return _write(instance, request, pb.DELETE, request.primary_key, pb.DeleteRowResponse())


def _write(instance: Instance, request: Any, kind: int, data: bytes, response: Any) -> bytes:
    table = instance.table(request.table_name)
    now = instance.clock.now()
    write = changes.prepare(
        table,
        kind,
        data,
        condition=request.condition,
        returns=request.return_content if request.HasField("return_content") else None,
        now=now,
    )
    rows = instance.rows_to_write(request.transaction_id, table, write.sortable)
    applied = outcome.apply(rows, write, now)
    instance.rows_written += 1
    set_consumed(response, read=applied.read_units, write=applied.write_units)
    if applied.row:
        response.row = applied.row
    return bytes(response.SerializeToString())


def get_row(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.GetRowRequest, body)
    table = instance.table(request.table_name)
    if request.token:
        raise invalid("The token was not issued by this server.")
    selection = Selection(request, table)
    sortable = read_key(table.columns, request.primary_key)
    stored = instance.rows_to_read(request.transaction_id, table, sortable).read(table, sortable)
    row, size = selection.measure(stored, instance.clock.now()) if stored is not None else (None, 0)
    response = pb.GetRowResponse(row=plainbuffer.HEADER + row if row is not None else b"")
    set_consumed(response, read=read_units(size))
    return bytes(response.SerializeToString())


def read_key(columns: tuple[keys.KeyColumn, ...], data: bytes, *, bounds: bool = False) -> bytes:
    """The sortable key of a read request's PlainBuffer key."""
    key, cells, deletes = plainbuffer.decode_change(data)
    if cells:
        raise invalid("Attribute column cannot be given while reading data.")
    if deletes:
        raise invalid("Delete marker cannot be given.")
    keys.check_cells(key)
    return keys.encode_key(columns, key, bounds=bounds)
