"""Rows to response bodies, as records or Arrow, under the encoding that the client asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from upsert_platform.local.maxcompute.errors import invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.types import DataType
from upsert_platform.local.maxcompute.wire.arrow_stream import encode_arrow
from upsert_platform.local.maxcompute.wire.compression import ARROW_LZ4, chosen, compress
from upsert_platform.local.maxcompute.wire.records import Field, encode_records

_RANGE = re.compile(r"\s*\(?\s*(\d+)\s*,\s*(\d+)\s*\)?\s*")


def row_range(request: Request, total: int) -> tuple[int, int]:
    """Start and count of ``rowrange=(start,count)``.

    Raises:
        ServiceError: it is malformed, or begins behind the last row.
    """
    text = request.query.get("rowrange")
    if not text:
        return 0, total
    match = _RANGE.fullmatch(text)
    if match is None:
        raise invalid_argument(f"rowrange '{text}' must be (start,count)")
    start, count = int(match[1]), int(match[2])
    if start > total:
        raise invalid_argument(f"rowrange {text} begins behind the last of {total} rows")
    return start, count


def choose_columns(request: Request, columns: Sequence[tuple[str, DataType]]) -> list[tuple[str, DataType]]:
    """The columns that ``columns=a,b`` names, in the table's order; all of them without it."""
    text = request.query.get("columns")
    if not text:
        return list(columns)
    wanted = {name.strip().lower() for name in text.split(",")}
    unknown = wanted - {name for name, _ in columns}
    if unknown:
        raise invalid_argument(f"unknown columns: {', '.join(sorted(unknown))}")
    return [(name, data_type) for name, data_type in columns if name in wanted]


def send_rows(request: Request, rows: pa.Table, columns: Sequence[tuple[str, DataType]]) -> Response:
    """The rows, whose columns are these in this order."""
    accept = request.headers.get("Accept-Encoding")
    headers = {"Content-Type": "application/octet-stream"}
    fields = [Field(name, data_type) for name, data_type in columns]
    if "arrow" in request.query:
        lz4 = accept == ARROW_LZ4
        body = encode_arrow(rows, fields, lz4=lz4)
        if lz4:
            return Response(200, body, {**headers, "Content-Encoding": ARROW_LZ4})
    else:
        # A field's number is its place in the whole table, whatever columns were chosen: the reader counts those.
        body = encode_records(rows, fields)
    encoding = chosen(accept)
    if encoding is None:
        return Response(200, body, headers)
    return Response(200, compress(encoding, b"".join(body)), {**headers, "Content-Encoding": encoding})
