"""BatchWriteRow, BulkImport and BatchGetRow: many rows in one request, each with its own result."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

from upsert_platform.local.tablestore import changes, limits, outcome, plainbuffer
from upsert_platform.local.tablestore.buffer import Buffer
from upsert_platform.local.tablestore.changes import RowWrite
from upsert_platform.local.tablestore.errors import ServiceError, invalid
from upsert_platform.local.tablestore.instance import Instance, read_units, set_consumed
from upsert_platform.local.tablestore.messages import BulkImportRequest, BulkImportResponse, parse, pb
from upsert_platform.local.tablestore.operations.rows import read_key
from upsert_platform.local.tablestore.selection import Selection
from upsert_platform.local.tablestore.table import Table

Prepared = RowWrite | ServiceError


def batch_write_row(instance: Instance, body: bytes) -> bytes:
    """Checks the whole request first (one bad row refuses it), then applies row by row in order.

    A primary key that does not fit its table, a failed condition and an injected failure are results of the row; of an
    atomic batch they refuse the whole.
    """
    request = parse(pb.BatchWriteRowRequest, body)
    if not request.tables:
        raise invalid("No row is specified in BatchWriteRow.")
    tables = [_find_table(instance, request, item) for item in request.tables]
    total = sum(len(item.rows) for item in request.tables)
    if total > limits.BATCH_WRITE_ROWS:
        raise invalid(f"Rows count exceeds the upper limit:{limits.BATCH_WRITE_ROWS}.")
    if instance.drop_writes:
        return b"".join(
            _field(1, _field(1, item.table_name.encode()) + _success(0, 1) * len(item.rows)) for item in request.tables
        )
    now = instance.clock.now()
    prepared = [
        [prepare_row(table, row.type, row.row_change, row.condition, _returns(row), now) for row in item.rows]
        for table, item in zip(tables, request.tables, strict=True)
    ]
    _check_batch([write for writes in prepared for write in writes])
    atomic = _is_atomic(request)
    answer = []
    for table, item, writes in zip(tables, request.tables, prepared, strict=True):
        results = _apply(instance, request.transaction_id, table, writes, now, atomic=atomic)
        answer.append(_field(1, _field(1, item.table_name.encode()) + results))
    return b"".join(answer)


def bulk_import(instance: Instance, body: bytes) -> bytes:
    """Writes rows of one table without conditions or returned rows; results as in BatchWriteRow."""
    request = parse(BulkImportRequest, body)
    table = instance.table(request.table_name)
    if not request.rows:
        raise invalid(f"No operation is specified for table: '{request.table_name}'.")
    if len(request.rows) > limits.BATCH_WRITE_ROWS:
        raise invalid(f"Rows count exceeds the upper limit:{limits.BATCH_WRITE_ROWS}.")
    now = instance.clock.now()
    writes = [prepare_row(table, row.type, row.row_change, None, None, now) for row in request.rows]
    _check_batch(writes)
    response = BulkImportResponse(table_name=request.table_name)
    needed = [write.sortable for write in writes if isinstance(write, RowWrite) and not write.is_blind]
    buffer = Buffer(instance.engine, table, needed)
    for index, write in enumerate(writes):
        result = response.rows.add()
        try:
            if isinstance(write, ServiceError):
                raise write
            instance.faults.check_row(table.name, index)
            applied = outcome.apply(instance.rows_to_write("", table, write.sortable, buffer), write, now)
        except ServiceError as error:
            result.is_ok = False
            result.error.code, result.error.message = error.code, error.message
        else:
            result.is_ok = True
            set_consumed(result, read=applied.read_units, write=applied.write_units)
            instance.rows_written += 1
    buffer.flush()
    return bytes(response.SerializeToString())


def _find_table(instance: Instance, request: Any, item: Any) -> Table:
    if not item.rows:
        raise invalid(f"No operation is specified for table: '{item.table_name}'.")
    if len(request.tables) > 1 and sum(other.table_name == item.table_name for other in request.tables) > 1:
        raise invalid(f"Duplicated table name: '{item.table_name}'.")
    return instance.table(item.table_name)


def _is_atomic(request: Any) -> bool:
    """Field 3, which the Java client sends and the messages at hand do not know."""
    unknown = UnknownFieldSet(request)
    atomic = any(unknown[at].field_number == 3 and unknown[at].data for at in range(len(unknown)))
    if atomic and request.transaction_id:
        raise invalid("An atomic batch cannot be part of a transaction.")
    return atomic


def _returns(row: Any) -> Any:
    return row.return_content if row.HasField("return_content") else None


def prepare_row(table: Table, kind: int, data: bytes, condition: Any, returns: Any, now: int) -> Prepared:
    """A checked write; a key that does not fit the table is kept as that row's own error."""
    try:
        return changes.prepare(table, kind, data, condition=condition, returns=returns, now=now)
    except ServiceError as error:
        if error.code != "OTSInvalidPK":
            raise
        return error


def _check_batch(writes: list[Prepared]) -> None:
    """Limits of the whole batch, and no conditions on a row that is written twice."""
    checked = [write for write in writes if isinstance(write, RowWrite)]
    size = sum([write.size for write in checked])
    if size > limits.REQUEST_DATA:
        raise invalid(
            "The total data size of BatchWriteRow request exceeds the limit, "
            f"limit size: {limits.REQUEST_DATA}, data size:{size}."
        )
    conditional = [write for write in checked if write.existence != pb.IGNORE or write.condition is not None]
    if not conditional:
        return
    written = Counter((write.table.name, write.sortable) for write in checked)
    for write in conditional:
        if written[write.table.name, write.sortable] > 1:
            what = "condition" if write.condition is not None else "row exist expectation"
            raise invalid(f"Repeated rows do not support {what} check in BatchModify.")


def _apply(
    instance: Instance, transaction_id: str, table: Table, writes: list[Prepared], now: int, *, atomic: bool
) -> bytes:
    """Applies the rows of one table and returns their encoded results, in order.

    Raises:
        ServiceError: of a row of an atomic batch; what was applied is undone with the request.
    """
    results: list[bytes] = []
    needed = [write.sortable for write in writes if isinstance(write, RowWrite) and not write.is_blind]
    buffer = Buffer(instance.engine, table, [] if transaction_id else needed)
    for index, write in enumerate(writes):
        try:
            if isinstance(write, ServiceError):
                raise write
            if instance.faults.has_row_faults:
                instance.faults.check_row(table.name, index)
            rows = instance.rows_to_write(transaction_id, table, write.sortable, buffer)
            applied = outcome.apply(rows, write, now)
        except ServiceError as error:
            if atomic:
                raise
            results.append(_failure(error.code, error.message))
        else:
            instance.rows_written += 1
            units = applied.read_units, applied.write_units
            results.append(_success_with(*units, applied.row) if applied.row else _success(*units))
    buffer.flush()
    return b"".join(results)


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field."""
    length = len(payload)
    prefix = bytearray((number << 3 | 2,))
    while length > 0x7F:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + payload


def _success_with(read: int, write: int, row: bytes) -> bytes:
    """The encoded result of a row that was written, with what the client wants back of it."""
    result = pb.RowInBatchWriteRowResponse(is_ok=True)
    set_consumed(result, read=read, write=write)
    if row:
        result.row = row
    return _field(2, result.SerializeToString())


@lru_cache(maxsize=1024)
def _success(read: int, write: int) -> bytes:
    """The same without a row, which is the result of most rows of a batch."""
    return _success_with(read, write, b"")


def _failure(code: str, message: str) -> bytes:
    result = pb.RowInBatchWriteRowResponse(is_ok=False)
    result.error.code, result.error.message = code, message
    return _field(2, result.SerializeToString())


def batch_get_row(instance: Instance, body: bytes) -> bytes:
    """Reads up to 100 rows; a key that does not fit its table fails for its row alone."""
    request = parse(pb.BatchGetRowRequest, body)
    if not request.tables:
        raise invalid("No row specified in the request of BatchGetRow.")
    if sum(len(item.primary_key) for item in request.tables) > limits.BATCH_READ_ROWS:
        raise invalid(f"Rows count exceeds the upper limit:{limits.BATCH_READ_ROWS}.")
    names = Counter(item.table_name for item in request.tables)
    if duplicate := next((name for name, count in names.items() if count > 1), None):
        raise invalid(f"Duplicated table name: '{duplicate}'.")
    now = instance.clock.now()
    answer = []
    for item in request.tables:
        table = instance.table(item.table_name)
        selection = Selection(item, table)
        keys = [_key_to_read(instance, table, index, data) for index, data in enumerate(item.primary_key)]
        found = instance.engine.read_many(table, [key for key in keys if isinstance(key, bytes)])
        results = []
        for key in keys:
            if isinstance(key, ServiceError):
                results.append(_failure(key.code, key.message))
                continue
            stored = found.get(key)
            row, size = selection.measure(stored, now) if stored is not None else (None, 0)
            # Encoded by hand: fields `is_ok` and `consumed`, then `row`.
            data = _field(4, plainbuffer.HEADER + row if row is not None else b"")
            results.append(_field(2, _consumed(read_units(size)) + data))
        answer.append(_field(1, _field(1, item.table_name.encode()) + b"".join(results)))
    return b"".join(answer)


def _key_to_read(instance: Instance, table: Table, index: int, data: bytes) -> bytes | ServiceError:
    """The sortable key of a row that is read; a key that does not fit the table is kept as that row's own error."""
    try:
        key = read_key(table.columns, data)
        if instance.faults.has_row_faults:
            instance.faults.check_row(table.name, index)
    except ServiceError as error:
        if error.code == "OTSParameterInvalid":
            raise
        return error
    return key


@lru_cache(maxsize=1024)
def _consumed(read: int) -> bytes:
    """The encoded result of a row that was read, but for the row."""
    result = pb.RowInBatchGetRowResponse(is_ok=True)
    set_consumed(result, read=read)
    return bytes(result.SerializeToString())
