"""PutTimeseriesData and GetTimeseriesData."""

from __future__ import annotations

from upsert_platform.local.tablestore import keys, limits, plainbuffer
from upsert_platform.local.tablestore.errors import ServiceError, invalid
from upsert_platform.local.tablestore.instance import Instance
from upsert_platform.local.tablestore.messages import parse
from upsert_platform.local.tablestore.messages import timeseries as messages
from upsert_platform.local.tablestore.operations.timeseries_meta import read_key
from upsert_platform.local.tablestore.plainbuffer import Cell, decode_row, encode_cell, encode_row
from upsert_platform.local.tablestore.timeseries.rows import (
    TYPE_NAMES,
    SeriesRow,
    check_row,
    hash_cell,
    key_cells,
    read_rows,
    sortable_key,
    time_cell,
)
from upsert_platform.local.tablestore.timeseries.store import SeriesTable, key_type_matches


def put(instance: Instance, body: bytes) -> bytes:
    """Writes up to 200 rows; a row outside the limits is reported by its index, the others are written."""
    request = parse(messages.PutTimeseriesDataRequest, body)
    table = instance.series.table(request.table_name)
    if request.rows_data.type != messages.RST_FLAT_BUFFER:
        raise invalid("Unsupported serialize type of rows.")
    if len(request.rows_data.rows_data) > limits.REQUEST_DATA:
        raise invalid(f"The total data size of PutTimeseriesData exceeds the limit, limit size: {limits.REQUEST_DATA}.")
    response = messages.PutTimeseriesDataResponse()
    if instance.drop_writes:
        return bytes(response.SerializeToString())
    data = request.rows_data
    checksum = data.flatbuffer_crc32c if data.HasField("flatbuffer_crc32c") else None
    rows = list(read_rows(data.rows_data, checksum))
    if not 1 <= len(rows) <= limits.TIMESERIES_ROWS:
        raise invalid(f"The number of rows must be in range: [1, {limits.TIMESERIES_ROWS}].")
    for row in rows:
        _check_field_keys(table, row)
    now = instance.clock.now()
    known: set[bytes] = set()
    for index, row in enumerate(rows):
        try:
            instance.faults.check_row(table.name, index)
            check_row(row, table.key_schema)
            sortable = _write(instance, table, row, now)
        except ServiceError as error:
            response.failed_rows.add(row_index=index, error_code=error.code, error_message=error.message)
            continue
        instance.rows_written += 1
        if sortable not in known and request.meta_update_mode == messages.MUM_NORMAL:
            known.add(sortable)
            instance.series.touch(table, sortable, row.key, now * 1000)
    return bytes(response.SerializeToString())


def _check_field_keys(table: SeriesTable, row: SeriesRow) -> None:
    """Fields that belong to the table's primary key must be in every row, or the request is refused."""
    for name, declared in table.field_keys.items():
        if name not in row.fields:
            raise invalid("missing primary key fields")
        if not key_type_matches(declared, row.fields[name][1]):
            raise invalid(f"Field '{name}' does not have the type of the primary key field.")


def _write(instance: Instance, table: SeriesTable, row: SeriesRow, now: int) -> bytes:
    """Merges a row into what is stored for its timeline and time; returns the timeline's sortable key."""
    timeline = key_cells(row.key, table.key_schema)
    sortable = sortable_key(timeline)
    further = [
        plainbuffer.encode_key_cell(name.encode(), plainbuffer.encode_value(row.fields[name][1]))
        for name in table.field_keys
    ]
    key = [hash_cell(sortable), *timeline, time_cell(row.time), *further]
    place = sortable + sortable_key(key[1 + len(timeline) :])
    cells: dict[bytes, Cell] = {}
    if (stored := instance.series.read(table, place)) is not None:
        cells = {cell.name: cell for cell in decode_row(stored)[1]}
    for name, (type_, value) in row.fields.items():
        if name not in table.field_keys:
            cell = encode_cell(f"{name}:{TYPE_NAMES[type_]}".encode(), plainbuffer.encode_value(value), now)
            cells[cell.name] = cell
    instance.series.write(table, place, row.time, encode_row(key, [cells[name] for name in sorted(cells)]))
    return sortable


def get(instance: Instance, body: bytes) -> bytes:
    """Reads the rows of one timeline with begin <= time < end; the token of a page is the key of the next row."""
    request = parse(messages.GetTimeseriesDataRequest, body)
    table = instance.series.table(request.table_name)
    key = read_key(request.time_series_key)
    sortable = sortable_key(key_cells(key, table.key_schema))
    if request.HasField("specific_time"):
        begin, end = request.specific_time, request.specific_time + 1
    else:
        begin, end = request.begin_time, request.end_time
    if not 0 <= begin < end:
        raise invalid("The begin time must be less than the end time, and neither be less than 0.")
    low, high = sortable + _time(begin), sortable + _time(end)
    if request.token:
        if not low <= request.token < high:
            raise invalid("Invalid token.")
        if request.backward:
            high = bytes(request.token) + b"\0"
        else:
            low = bytes(request.token)
    limit = min(request.limit, limits.RANGE_ROWS) if request.limit > 0 else limits.RANGE_ROWS
    wanted = {_field(field.name, field.type) for field in request.fields_to_get}
    oldest = instance.clock.now() * 1000 - table.ttl_us if table.ttl_us is not None else 0
    response = messages.GetTimeseriesDataResponse(rows_data=b"")
    pieces = [plainbuffer.HEADER]
    size = 0
    for place, row in instance.series.scan(table, low, high, oldest=oldest, reverse=request.backward):
        if len(pieces) > limit or size >= limits.RANGE_DATA:
            response.next_token = place
            break
        size += len(row)
        chosen = _choose(row, wanted) if wanted else row
        if chosen is not None:
            pieces.append(chosen)
    if len(pieces) > 1:
        response.rows_data = b"".join(pieces)
    return bytes(response.SerializeToString())


def _time(time: int) -> bytes:
    return keys.encode_component(plainbuffer.encode_value(min(time, 2**63 - 1)))


def _field(name: str, type_: int) -> bytes:
    if type_ not in TYPE_NAMES:
        raise invalid(f"Unknown type {type_} of field '{name}'.")
    return f"{name}:{TYPE_NAMES[type_]}".encode()


def _choose(row: bytes, wanted: set[bytes]) -> bytes | None:
    key, cells = decode_row(row)
    chosen = [cell for cell in cells if cell.name in wanted]
    return encode_row(key, chosen) if chosen else None
