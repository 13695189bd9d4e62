"""Reads time-series rows through the platform's own transport. Runs in Spark workers.

The SDK's client splits the tags of a row at commas, and fails at a tag whose value holds one; what is asked for is one
timeline here, so the tags of its rows need not be read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from upsert_platform.tablestore.client import repeat_until
from upsert_platform.tablestore.connect.table import ConnectSink
from upsert_platform.tablestore.connect.values import Value
from upsert_platform.tablestore.transport import Transport

_API: Final = "GetTimeseriesData"
_MOST_ROWS: Final = 5000
_TABLE_VERSION: Final = 1

Point = tuple[int, dict[str, Value]]
"""Time in microseconds, and fields."""


class Timeline(NamedTuple):
    """A measurement of a data source with its tags."""

    measurement: str
    source: str
    tags: Mapping[str, str]


def scan_points(transport: Transport, sink: ConnectSink, timeline: Timeline, *, end: int) -> Iterator[list[Point]]:
    """All rows of a timeline before a time, page by page."""
    token: bytes | None = None
    while True:
        points, token = _page(transport, sink, timeline, begin=0, end=end, token=token)
        if points:
            yield points
        if not token:
            return


def fetch_points(
    transport: Transport, sink: ConnectSink, timeline: Timeline, times: Sequence[int]
) -> dict[int, dict[str, Value]]:
    """The rows of a timeline at some times, those that are there.

    No page holds more rows than are still wanted, and the next one begins at a time that is wanted, so what lies
    between them is not read, however much it is.
    """
    wanted = sorted(set(times))
    found: dict[int, dict[str, Value]] = {}
    position = 0
    token: bytes | None = None
    while position < len(wanted):
        points, token = _page(
            transport,
            sink,
            timeline,
            begin=wanted[position],
            end=wanted[-1] + 1,
            token=token,
            limit=len(wanted) - position,
        )
        found.update(points)
        if not token:
            break
        if points:
            position, token = bisect_right(wanted, points[-1][0]), None
    return {time: found[time] for time in wanted if time in found}


def _page(
    transport: Transport,
    sink: ConnectSink,
    timeline: Timeline,
    *,
    begin: int,
    end: int,
    token: bytes | None,
    limit: int = _MOST_ROWS,
) -> tuple[list[Point], bytes | None]:
    from tablestore.protobuf.timeseries_pb2 import GetTimeseriesDataRequest, GetTimeseriesDataResponse

    request = GetTimeseriesDataRequest(
        table_name=sink.table_name,
        begin_time=begin,
        end_time=end,
        limit=min(limit, _MOST_ROWS),
        supported_table_version=_TABLE_VERSION,
    )
    key = request.time_series_key
    key.measurement, key.source = timeline.measurement, timeline.source
    for name, value in sorted(timeline.tags.items()):
        key.tag_list.add(name=name, value=value)
    if token:
        request.token = token
    body = request.SerializeToString()
    timeout = sink.settings.request_timeout.total_seconds()
    answer = GetTimeseriesDataResponse()
    answer.ParseFromString(
        repeat_until(sink.settings.retry_deadline.total_seconds(), lambda: transport.call(_API, body, timeout=timeout))
    )
    return list(_points(answer.rows_data)), answer.next_token or None


def _points(data: bytes) -> Iterator[Point]:
    """Rows of PlainBuffer; their cells are named after field and type, as in ``load:double``."""
    from tablestore.plainbuffer.plain_buffer_coded_stream import PlainBufferCodedInputStream
    from tablestore.plainbuffer.plain_buffer_stream import PlainBufferInputStream

    if not data:
        return
    for row in PlainBufferCodedInputStream(PlainBufferInputStream(data)).read_rows():
        fields = {cell[0].rpartition(":")[0]: _plain(cell[1]) for cell in row.attribute_columns}
        yield dict(row.primary_key)["_time"], fields


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value
