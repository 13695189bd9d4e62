"""Division of a table into ranges that are read in parallel: at keys that the service names by data size."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from typing import Any, Final

from upsert_platform.tablestore.client import repeat_until
from upsert_platform.tablestore.reader import StoredTable
from upsert_platform.tablestore.transport import Endpoint, Transport

RANGE_MEGABYTES: Final = 8
WHOLE: Final = "[null, null]"
"""The range of all keys."""
_MEGABYTE: Final = 1 << 20
_MOST_RANGES: Final = 256
_U32: Final = struct.Struct("<I")
_HEADER_BYTES, _CHECKSUM_BYTES, _CELL = 5, 2, 3
_INTEGER, _STRING, _BINARY = 0, 3, 7


def read_ranges(table: StoredTable) -> list[str]:
    """Ranges of keys that cover a table once, as `upsert_platform.tablestore.reader.read_pages` takes them.

    A small table is one range.
    """
    return ranges_of(_split_points(table))


def measured_ranges(table: StoredTable) -> tuple[list[str], int]:
    """Return the ranges of `read_ranges`, and an upper estimate of the table's bytes."""
    from tablestore.protobuf.table_store_pb2 import ComputeSplitPointsBySizeResponse

    answer = _split_points(table)
    response = ComputeSplitPointsBySizeResponse()
    response.ParseFromString(answer)
    return ranges_of(answer), (len(response.split_points) + 1) * RANGE_MEGABYTES * _MEGABYTE


def _split_points(table: StoredTable) -> bytes:
    """The answer of ComputeSplitPointsBySize: keys at which so many megabytes have passed.

    The SDK does not offer this operation.
    """
    settings = table.settings
    transport = Transport(Endpoint.of(settings), connections=1)
    from tablestore.protobuf.table_store_pb2 import ComputeSplitPointsBySizeRequest

    request = ComputeSplitPointsBySizeRequest(
        table_name=table.table_name, split_size=RANGE_MEGABYTES, split_size_unit_in_byte=_MEGABYTE
    )
    body = request.SerializeToString()
    timeout = settings.request_timeout.total_seconds()
    try:
        return repeat_until(
            settings.retry_deadline.total_seconds(),
            lambda: transport.call("ComputeSplitPointsBySize", body, timeout=timeout),
        )
    finally:
        transport.close()


def ranges_of(answer: bytes) -> list[str]:
    """The ranges between the split points of an answer, as JSON: the values of two keys, null at an open end.

    A key is a list of values, binary ones as ``{"hex": ...}``; it may have fewer than the table, which then begin at
    the lowest. Of very many ranges neighbours are joined.
    """
    from tablestore.protobuf.table_store_pb2 import ComputeSplitPointsBySizeResponse

    response = ComputeSplitPointsBySizeResponse()
    response.ParseFromString(answer)
    step = len(response.split_points) // _MOST_RANGES + 1
    points = [_values(point) for point in response.split_points[step - 1 :: step]]
    return [json.dumps([start, end]) for start, end in pairwise([None, *filter(None, points), None])]


def _values(key: bytes) -> list[Any]:
    """The values of a key in PlainBuffer form, up to the first that is only a bound, such as the lowest.

    The SDK's own parsers take no bounds (specification section 6.3: each cell is tag, name, value and checksum).
    """
    values: list[Any] = []
    position = _HEADER_BYTES
    while position < len(key) and key[position] == _CELL:
        (name_length,) = _U32.unpack_from(key, position + 2)
        position += 2 + _U32.size + name_length + 1
        (length,) = _U32.unpack_from(key, position)
        start = position + _U32.size
        kind, data = key[start], key[start + 1 : start + length]
        position = start + length + _CHECKSUM_BYTES
        if kind == _INTEGER:
            values.append(int.from_bytes(data, "little", signed=True))
        elif kind == _STRING:
            values.append(data[_U32.size :].decode())
        elif kind == _BINARY:
            values.append({"hex": data[_U32.size :].hex()})
        else:
            break
    return values
