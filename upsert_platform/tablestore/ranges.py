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
    splits = sorted(_splits(table))
    bounds = [None, *(_text(value) for value in splits), None]
    return [json.dumps([start, end]) for start, end in pairwise(bounds)]


def _splits(table: TablestoreTable) -> set[Any]:
    from upsert_platform.tablestore.client import repeat_until
    from upsert_platform.tablestore.reader import parse_row

    settings = table.settings
    transport = Transport(Endpoint.of(settings), connections=1)
    from tablestore.protobuf.table_store_pb2 import DescribeTableRequest, DescribeTableResponse

    body = DescribeTableRequest(table_name=table.table_name).SerializeToString()
    timeout = settings.request_timeout.total_seconds()
    try:
        answer = repeat_until(
            settings.retry_deadline.total_seconds(), lambda: transport.call("DescribeTable", body, timeout=timeout)
        )
    finally:
        transport.close()
    response = DescribeTableResponse()
    response.ParseFromString(answer)
    first = table.primary_key[0].name
    keys = (dict(parse_row(split)[0]) for split in response.shard_splits)
    return {bytes(key[first]) if isinstance(key[first], bytearray) else key[first] for key in keys if first in key}


def _text(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
