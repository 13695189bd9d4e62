"""Reads rows back into declared types. Runs in Spark workers, through ``mapInArrow``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.errors import DestinationError
from upsert_platform.tablestore import limits
from upsert_platform.tablestore.client import Client, repeat_until
from upsert_platform.tablestore.encoder import Cells, EncodedRows, batch_get_body, encode_keys
from upsert_platform.tablestore.failures import ServiceError
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.sdk import silence_sdk
from upsert_platform.tablestore.table import StoredColumn, TablestoreTable
from upsert_platform.tablestore.transport import Endpoint, Transport
from upsert_platform.tablestore.types import StoredType, from_stored, stored_arrow_type, to_stored

if TYPE_CHECKING:
    Batches = Iterator[pa.RecordBatch]

Row = tuple[list[tuple[str, Any]], list[tuple[str, Any, int]]]
"""Primary key and attribute cells (name, value, version)."""
_GET = "BatchGetRow"
_GETS_IN_FLIGHT = 4
PAGE_ROWS = 5_000
"""Rows that one request for a range asks for."""


class StoredTable(Protocol):
    """A table of an instance."""

    @property
    def table_name(self) -> str: ...

    @property
    def settings(self) -> TablestoreSettings: ...


RANGES_DDL = "bounds STRING"
"""What `scanning_task` takes: ranges as `upsert_platform.tablestore.ranges.read_ranges` gives them."""


def scanning_task(table: TablestoreTable) -> Callable[[Batches], Batches]:
    """The function for ``mapInArrow`` that reads ranges of a table, page by page."""

    def scan(batches: Batches) -> Batches:
        silence_sdk()
        client = Client.of(table.settings)
        names = [column.name for column in table.primary_key]
        try:
            for batch in batches:
                for text in batch.column(0).to_pylist():
                    for rows in read_pages(client, table.table_name, names, text):
                        yield decode_rows(rows, table)
        finally:
            client.close()

    return scan


def fetching_task(table: TablestoreTable) -> Callable[[Batches], Batches]:
    """The function for ``mapInArrow`` that reads the rows of primary keys, 100 per request."""

    def fetch(batches: Batches) -> Batches:
        transport = Transport(Endpoint.of(table.settings), connections=_GETS_IN_FLIGHT)
        threads = ThreadPoolExecutor(_GETS_IN_FLIGHT)
        try:
            for batch in batches:
                keys = _keys(batch, table.primary_key)
                step = limits.MAX_ROWS_PER_GET
                groups = [range(start, min(start + step, len(keys))) for start in range(0, len(keys), step)]
                for wave in range(0, len(groups), 2 * _GETS_IN_FLIGHT):
                    asked = groups[wave : wave + 2 * _GETS_IN_FLIGHT]
                    found = threads.map(lambda group, keys=keys: get_rows(transport, table, keys, group), asked)
                    if rows := list(chain.from_iterable(found)):
                        yield decode_rows(rows, table)
        finally:
            threads.shutdown(cancel_futures=True)
            transport.close()

    return fetch


@cache
def row_parser() -> Callable[[bytes], Row]:
    """What reads one row of PlainBuffer: the SDK's compiled parser where it has one for this Python."""
    from tablestore.native import NATIVE_AVAILABLE, parse_single_row

    if NATIVE_AVAILABLE:
        return parse_single_row
    from tablestore.plainbuffer.plain_buffer_coded_stream import PlainBufferCodedInputStream
    from tablestore.plainbuffer.plain_buffer_stream import PlainBufferInputStream

    return lambda plain: PlainBufferCodedInputStream(PlainBufferInputStream(plain)).read_row()


def decode_rows(rows: Sequence[Row], table: TablestoreTable) -> pa.RecordBatch:
    """Rows as `row_parser` reads them to declared columns.

    Raises:
        DestinationError: a cell holds what no declared column could have stored.
    """
    found = []
    for primary_key, attributes in rows:
        cells = {cell[0]: cell[1] for cell in attributes}
        cells.update(primary_key)
        found.append(cells)
    stored = {column.name: column for column in (*table.primary_key, *table.attributes)}
    arrays = [
        _decode([cells.get(column.name) for cells in found], stored[column.name], table) for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in table.columns])


def _decode(values: list[Any], column: StoredColumn, table: TablestoreTable) -> pa.Array:
    logical = column.column.type
    assert logical is not None
    try:
        if column.stored is StoredType.BINARY:
            values = [bytes(value) if isinstance(value, bytearray) else value for value in values]
        if column.stored is not StoredType.BOOLEAN and bool in set(map(type, values)):
            raise ValueError("a BOOLEAN cell")
        return from_stored(pa.array(values, stored_arrow_type(column.stored)), logical)
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:
        raise DestinationError(
            f"table '{table.name}': column '{column.name}' of Tablestore table '{table.table_name}' holds a cell that"
            f" is not {logical} ({error}); another program wrote it. Mend the cell, or declare the column's real type"
        ) from error


def _keys(batch: pa.RecordBatch, primary_key: Sequence[StoredColumn]) -> EncodedRows:
    """Keys that can be in the table; one with a null, a refused or an oversized value cannot, and is left out."""
    cells, possible = [], None
    for column in primary_key:
        assert column.column.type is not None
        values = to_stored(batch.column(column.name), column.column.type).values
        valid = values.is_valid()
        if column.stored is not StoredType.INTEGER:
            fits = pc.less_equal(pc.binary_length(values), limits.MAX_PRIMARY_KEY_BYTES)
            valid = pc.and_(valid, pc.fill_null(fits, False))
        cells.append(Cells(column.name, column.stored, values))
        possible = valid if possible is None else pc.and_(possible, valid)
    return encode_keys([Cells(cell.name, cell.stored, cell.values.filter(possible)) for cell in cells])


def get_rows(transport: Transport, table: StoredTable, keys: EncodedRows, asked: range) -> list[Row]:
    """Rows of encoded keys; those that fail for a passing reason are asked for again, until the retry deadline."""
    from tablestore.protobuf.table_store_pb2 import BatchGetRowResponse

    rows: list[Row] = []
    waiting: Sequence[int] = asked
    parse = row_parser()

    def ask() -> None:
        nonlocal waiting
        body = batch_get_body(table.table_name, keys.select(waiting))
        timeout = table.settings.request_timeout.total_seconds()
        answer = BatchGetRowResponse()
        answer.ParseFromString(transport.call(_GET, body, timeout=timeout))
        results = answer.tables[0].rows
        failed = [(key, result) for key, result in zip(waiting, results, strict=True) if not result.is_ok]
        rows.extend([parse(result.row) for result in results if result.is_ok and result.row])
        waiting = [key for key, _ in failed]
        if failed:
            error = failed[0][1].error
            raise ServiceError(api=_GET, status=200, code=error.code, message=error.message)

    repeat_until(table.settings.retry_deadline.total_seconds(), ask)
    return rows


def read_pages(
    client: Client, table: str, key_names: Sequence[str], bounds: str, *, page_rows: int = PAGE_ROWS
) -> Iterator[list[Row]]:
    """Rows of a range, page by page.

    Args:
        bounds: of `upsert_platform.tablestore.ranges.read_ranges`.
    """
    from tablestore.metadata import INF_MAX, INF_MIN

    first, last = json.loads(bounds)
    position: Any = _bound(key_names, first, INF_MIN)
    end = _bound(key_names, last, INF_MAX)
    while position is not None:
        _, position, rows, _ = client.repeat(
            "get_range", table, "FORWARD", position, end, limit=page_rows, max_version=1
        )
        if rows:
            yield [(row.primary_key, row.attribute_columns) for row in rows]


def _bound(names: Sequence[str], values: list[Any] | None, outermost: Any) -> list[tuple[str, Any]]:
    """A bound of a range; values that a split point lacks are the lowest."""
    from tablestore.metadata import INF_MIN

    if values is None:
        return [(name, outermost) for name in names]
    found = [bytearray.fromhex(value["hex"]) if isinstance(value, dict) else value for value in values]
    return list(zip(names, [*found, *[INF_MIN] * (len(names) - len(found))], strict=True))
