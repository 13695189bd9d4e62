"""Reads rows back into declared types. Runs in Spark workers, through ``mapInArrow``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.collections_off import collections_off
from upsert_platform.core.errors import DestinationError
from upsert_platform.tablestore import limits
from upsert_platform.tablestore.client import Client, repeat_until
from upsert_platform.tablestore.encoder import Cells, EncodedRows, batch_get_body, encode_keys
from upsert_platform.tablestore.failures import ServiceError
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.table import StoredColumn, TablestoreTable
from upsert_platform.tablestore.transport import Endpoint, Transport
from upsert_platform.tablestore.types import StoredType, from_stored, stored_arrow_type, to_stored

if TYPE_CHECKING:
    Batches = Iterator[pa.RecordBatch]

Row = tuple[list[tuple[str, Any]], list[tuple[str, Any, int]]]
"""Primary key and attribute cells (name, value, version)."""
_NAME, _VALUE = itemgetter(0), itemgetter(1)
"""Of a cell."""
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
"""A frame of ranges as `upsert_platform.tablestore.ranges.read_ranges` gives them."""


@dataclass(frozen=True)
class RangeRows:
    """The function for ``mapInArrow`` that gets numbers of ranges, and gives their rows."""

    table: TablestoreTable
    ranges: tuple[str, ...]

    def __call__(self, numbers: Batches) -> Batches:
        for batch in numbers:
            yield from _scanned(self.table, [self.ranges[number] for number in batch.column(0).to_pylist()])


def _scanned(table: TablestoreTable, ranges: Sequence[str]) -> Batches:
    """The rows of ranges, page by page; the next page is on its way while one is read."""
    transport = Transport(Endpoint.of(table.settings), connections=1)
    thread = ThreadPoolExecutor(1)
    names = [column.name for column in table.primary_key]
    parse = page_parser()
    try:
        with collections_off():
            for bounds in ranges:
                first, last = json.loads(bounds)
                position, end = _encoded_bound(names, first, lowest=True), _encoded_bound(names, last, lowest=False)
                coming = thread.submit(_get_page, transport, table, position, end)
                while True:
                    page = coming.result()
                    if page.next_start_primary_key:
                        coming = thread.submit(_get_page, transport, table, page.next_start_primary_key, end)
                    if page.rows:
                        yield decode_rows(parse(page.rows), table)
                    if not page.next_start_primary_key:
                        break
    finally:
        thread.shutdown(cancel_futures=True)
        transport.close()


def _get_page(transport: Transport, table: StoredTable, start: bytes, end: bytes) -> Any:
    """The answer of a request for a range, which may end before the range does."""
    from tablestore.protobuf import table_store_pb2 as pb

    request = pb.GetRangeRequest(
        table_name=table.table_name, direction=pb.FORWARD, max_versions=1, limit=PAGE_ROWS,
        inclusive_start_primary_key=start, exclusive_end_primary_key=end,
    )  # fmt: skip
    body, settings = request.SerializeToString(), table.settings
    timeout = settings.request_timeout.total_seconds()
    answer = pb.GetRangeResponse()
    answer.ParseFromString(
        repeat_until(settings.retry_deadline.total_seconds(), lambda: transport.call("GetRange", body, timeout=timeout))
    )
    return answer


def _encoded_bound(names: Sequence[str], values: list[Any] | None, *, lowest: bool) -> bytes:
    """A bound of a range in PlainBuffer form."""
    from tablestore.metadata import INF_MAX, INF_MIN
    from tablestore.plainbuffer.plain_buffer_builder import PlainBufferBuilder

    key = _bound(names, values, INF_MIN if lowest else INF_MAX)
    return bytes(PlainBufferBuilder.serialize_primary_key(key))


def fetching_task(table: TablestoreTable) -> Callable[[Batches], Batches]:
    """The function for ``mapInArrow`` that reads the rows of primary keys, 100 per request."""

    def fetch(batches: Batches) -> Batches:
        transport = Transport(Endpoint.of(table.settings), connections=_GETS_IN_FLIGHT)
        threads = ThreadPoolExecutor(_GETS_IN_FLIGHT)
        try:
            with collections_off():
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
    """Return the parser of one PlainBuffer row: the SDK's compiled one if it exists for this Python."""
    from tablestore.native import NATIVE_AVAILABLE, parse_single_row

    if NATIVE_AVAILABLE:
        return parse_single_row
    from tablestore.plainbuffer.plain_buffer_coded_stream import PlainBufferCodedInputStream
    from tablestore.plainbuffer.plain_buffer_stream import PlainBufferInputStream

    return lambda plain: PlainBufferCodedInputStream(PlainBufferInputStream(plain)).read_row()


@cache
def page_parser() -> Callable[[bytes], Sequence[Row]]:
    """Return the parser of consecutive PlainBuffer rows; as `row_parser`."""
    from tablestore.native import NATIVE_AVAILABLE, parse_multiple_rows

    if NATIVE_AVAILABLE:
        return parse_multiple_rows
    from tablestore.plainbuffer.plain_buffer_coded_stream import PlainBufferCodedInputStream
    from tablestore.plainbuffer.plain_buffer_stream import PlainBufferInputStream

    def parse(plain: bytes) -> Sequence[Row]:
        found = PlainBufferCodedInputStream(PlainBufferInputStream(plain)).read_rows()
        return [(row.primary_key, row.attribute_columns) for row in found]

    return parse


def decode_rows(rows: Sequence[Row], table: TablestoreTable) -> pa.RecordBatch:
    """Rows as `row_parser` reads them to declared columns.

    Raises:
        DestinationError: a cell holds what no declared column could have stored.
    """
    columns = _columns_of_alike(rows) or _columns(rows, table.names)
    stored = {column.name: column for column in (*table.primary_key, *table.attributes)}
    absent = [None] * len(rows)
    arrays = [_decode(columns.get(column.name, absent), stored[column.name], table) for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, names=table.names)


def _columns_of_alike(rows: Sequence[Row]) -> dict[str, list[Any]] | None:
    """Values by column, of rows that have the same cells in the same order: a loop in C over each column.

    None where they do not.
    """
    found: dict[str, list[Any]] = {}
    for cells_of_rows in zip(*rows, strict=True) if rows else ():
        if len(set(map(len, cells_of_rows))) != 1:
            return None
        for cells in zip(*cells_of_rows, strict=True):
            name = cells[0][0]
            if name in found or set(map(_NAME, cells)) != {name}:
                return None
            found[name] = list(map(_VALUE, cells))
    return found


def _columns(rows: Sequence[Row], names: Sequence[str]) -> dict[str, list[Any]]:
    """Values by column, null where a row has no such cell."""
    found = []
    for primary_key, attributes in rows:
        cells = {cell[0]: cell[1] for cell in attributes}
        cells.update(primary_key)
        found.append(cells)
    return {name: [cells.get(name) for cells in found] for name in names}


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
