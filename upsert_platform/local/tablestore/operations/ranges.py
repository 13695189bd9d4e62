"""GetRange and ComputeSplitPointsBySize: reading by order of primary key."""

from __future__ import annotations

from contextlib import closing

from upsert_platform.local.tablestore import limits, plainbuffer
from upsert_platform.local.tablestore.errors import invalid
from upsert_platform.local.tablestore.instance import Instance, read_units, set_consumed
from upsert_platform.local.tablestore.messages import parse, pb
from upsert_platform.local.tablestore.operations.rows import read_key
from upsert_platform.local.tablestore.selection import Selection


def get_range(instance: Instance, body: bytes) -> bytes:
    """Reads rows between two keys, up to the limit, 5000 rows or 4 MB; then names the key to go on from."""
    request = parse(pb.GetRangeRequest, body)
    table = instance.table(request.table_name)
    if request.HasField("limit") and request.limit <= 0:
        raise invalid("The limit must be greater than 0.")
    if request.token:
        raise invalid("The token was not issued by this server.")
    selection = Selection(request, table)
    begin = read_key(table.columns, request.inclusive_start_primary_key, bounds=True)
    end = read_key(table.columns, request.exclusive_end_primary_key, bounds=True)
    backward = request.direction == pb.BACKWARD
    if backward:
        if begin <= end:
            raise invalid("Begin key must more than end key in BACKWARD")
        # Inclusive begin above exclusive end, read downwards: the least key above `end` is `end` and a zero byte.
        low, high = end + b"\0", begin + b"\0"
    else:
        if begin >= end:
            raise invalid("Begin key must less than end key in FORWARD")
        low, high = begin, end
    limit = request.limit if request.HasField("limit") else limits.RANGE_ROWS
    rows = instance.rows_to_read(request.transaction_id, table, begin)
    now = instance.clock.now()
    pieces = [plainbuffer.HEADER]
    scanned = size = 0
    next_row: bytes | None = None
    with closing(rows.scan(table, low, high, reverse=backward)) as scan:
        for _, stored, row_size in scan:
            if len(pieces) > limit or scanned >= limits.RANGE_ROWS or size >= limits.RANGE_DATA:
                next_row = stored.row
                break
            scanned += 1
            size += row_size
            row = selection.apply(stored, now)
            if row is not None:
                pieces.append(row)
    response = pb.GetRangeResponse(rows=b"".join(pieces) if len(pieces) > 1 else b"")
    set_consumed(response, read=read_units(size))
    if next_row is not None:
        response.next_start_primary_key = plainbuffer.key_piece(next_row)
    return bytes(response.SerializeToString())


def compute_split_points(instance: Instance, body: bytes) -> bytes:
    """Cuts a table into ranges of about the size that is asked for."""
    request = parse(pb.ComputeSplitPointsBySizeRequest, body)
    table = instance.table(request.table_name)
    unit = request.split_size_unit_in_byte or 100 * limits.MIB
    wanted = request.split_size * unit
    if wanted <= 0:
        raise invalid("The split size must be greater than 0.")
    response = pb.ComputeSplitPointsBySizeResponse()
    set_consumed(response)
    response.schema.extend(table.description.table_meta.primary_key)
    for key in instance.engine.split_keys(table, wanted):
        stored = instance.engine.read(table, key)
        assert stored is not None
        response.split_points.append(plainbuffer.key_piece(stored.row))
    response.locations.add(location="", repeat=len(response.split_points) + 1)
    return bytes(response.SerializeToString())
