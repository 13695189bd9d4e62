"""Where a table is cut into ranges that are read in parallel: at the borders of the service's own partitions."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from upsert_platform.tablestore.settings import TablestoreTable
from upsert_platform.tablestore.transport import Endpoint, Transport


def read_ranges(table: TablestoreTable) -> list[str]:
    """JSON pairs of the first key column's bounds, as `upsert_platform.tablestore.reader` takes them.

    DescribeTable names the keys at which the table is partitioned (``shard_splits``), which the SDK does not pass on.
    A table of one partition is one range.
    """
    return ranges_of(_describe(table), table.primary_key[0].name)


def ranges_of(description: bytes, first_key: str) -> list[str]:
    """The ranges between the splits of a DescribeTable answer.

    Args:
        first_key: name of the first key column.
    """
    from tablestore.protobuf.table_store_pb2 import DescribeTableResponse

    from upsert_platform.tablestore.reader import parse_row

    response = DescribeTableResponse()
    response.ParseFromString(description)
    splits = {_plain(dict(parse_row(split)[0]).get(first_key)) for split in response.shard_splits} - {None}
    bounds = [None, *(_text(value) for value in sorted(splits)), None]
    return [json.dumps([start, end]) for start, end in pairwise(bounds)]


def _describe(table: TablestoreTable) -> bytes:
    from upsert_platform.tablestore.client import repeat_until

    settings = table.settings
    transport = Transport(Endpoint.of(settings), connections=1)
    from tablestore.protobuf.table_store_pb2 import DescribeTableRequest

    body = DescribeTableRequest(table_name=table.table_name).SerializeToString()
    timeout = settings.request_timeout.total_seconds()
    try:
        return repeat_until(
            settings.retry_deadline.total_seconds(), lambda: transport.call("DescribeTable", body, timeout=timeout)
        )
    finally:
        transport.close()


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _text(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
