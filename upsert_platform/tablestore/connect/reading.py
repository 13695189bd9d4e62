"""Reads back what a connector's table holds. Runs in Spark workers, through ``mapInArrow``.

Cells of a row may be of any name and type, so a row is read as its primary key and one JSON text of its cells, in which
binary values are base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa

from upsert_platform.tablestore import limits
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.connect.frame import Batches
from upsert_platform.tablestore.connect.point_reading import Timeline, scan_points
from upsert_platform.tablestore.connect.table import ConnectSink
from upsert_platform.tablestore.connect.values import KeyValue, Value
from upsert_platform.tablestore.encoder import Cells, encode_keys
from upsert_platform.tablestore.reader import get_rows, read_pages
from upsert_platform.tablestore.sdk import silence_sdk
from upsert_platform.tablestore.transport import Endpoint, Transport
from upsert_platform.tablestore.types import StoredType, stored_arrow_type

Key = tuple[KeyValue, ...]
_STORED: Final = {
    "string": StoredType.STRING,
    "integer": StoredType.INTEGER,
    "auto_increment": StoredType.INTEGER,
    "binary": StoredType.BINARY,
}
_POINT_COLUMNS: Final = ("m_name", "data_source", "tags", "time")


def schema_of(sink: ConnectSink) -> pa.Schema:
    """Columns of rows that are read: the primary key (of time series name, source, JSON tags, time), then `cells`."""
    if sink.points is not None:
        kinds = [pa.string(), pa.string(), pa.string(), pa.int64()]
        return pa.schema([*zip(_POINT_COLUMNS, kinds, strict=True), ("cells", pa.string())])
    key = [(name, stored_arrow_type(_STORED[kind])) for name, kind in sink.wide.primary_key]
    return pa.schema([*key, ("cells", pa.string())])


def scanning_task(sink: ConnectSink) -> Callable[[Batches], Batches]:
    """The function for ``mapInArrow`` that reads rows, page by page.

    It takes a frame of `upsert_platform.tablestore.reader.RANGES_DDL`; of time series any frame of one row.
    """

    def scan(batches: Batches) -> Batches:
        silence_sdk()
        schema = schema_of(sink)
        with closing(Client.of(sink.settings)) as client, closing(open_transport(sink)) as transport:
            for batch in batches:
                for bounds in batch.column(0).to_pylist():
                    wide = sink.points is None
                    pages = _rows(client, sink, bounds) if wide else _points(client, transport, sink)
                    for page in pages:
                        rows = [dict(zip(schema.names, (*key, cells_text(cells)), strict=True)) for key, cells in page]
                        yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return scan


def fetch_rows(transport: Transport, sink: ConnectSink, keys: Sequence[Key]) -> dict[Key, dict[str, Value]]:
    """Rows of primary keys, those that are there."""
    columns = [
        Cells(name, _STORED[kind], pa.array([key[index] for key in keys], stored_arrow_type(_STORED[kind])))
        for index, (name, kind) in enumerate(sink.wide.primary_key)
    ]
    encoded = encode_keys(columns)
    found: dict[Key, dict[str, Value]] = {}
    for start in range(0, len(keys), limits.MAX_ROWS_PER_GET):
        asked = range(start, min(start + limits.MAX_ROWS_PER_GET, len(keys)))
        for primary_key, attributes in get_rows(transport, sink, encoded, asked):
            found[tuple(_plain(value) for _, value in primary_key)] = {cell[0]: _plain(cell[1]) for cell in attributes}
    return found


def open_transport(sink: ConnectSink) -> Transport:
    """A transport to the sink's instance; its owner closes it."""
    return Transport(Endpoint.of(sink.settings), connections=1)


def cells_text(cells: Mapping[str, Any]) -> str:
    """Cells as JSON, ordered by name."""
    shown = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in sorted(cells.items())
    }
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def _rows(client: Client, sink: ConnectSink, bounds: str) -> Iterator[list[tuple[tuple[Any, ...], dict[str, Value]]]]:
    for page in read_pages(client, sink.table_name, sink.wide.key_names, bounds):
        yield [
            (
                tuple(_plain(value) for _, value, *_ in primary_key),
                {name: _plain(value) for name, value, *_ in attributes},
            )
            for primary_key, attributes in page
        ]


def _points(
    client: Client, transport: Transport, sink: ConnectSink
) -> Iterator[list[tuple[tuple[Any, ...], dict[str, Value]]]]:
    from tablestore.metadata import QueryTimeseriesMetaRequest

    token: Any = None
    while True:
        answer = client.repeat(
            "query_timeseries_meta", QueryTimeseriesMetaRequest(sink.table_name, limit=100, nextToken=token)
        )
        for meta in answer.timeseriesMetas or ():
            key = meta.timeseries_key
            line = Timeline(key.measurement_name, key.data_source or "", dict(key.tags or {}))
            text = json.dumps(line.tags, ensure_ascii=False, sort_keys=True)
            for page in scan_points(transport, sink, line, end=limits.MAX_INTEGER):
                yield [((line.measurement, line.source, text, time), fields) for time, fields in page]
        token = answer.nextToken
        if not token:
            return


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value
