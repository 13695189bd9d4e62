"""Rows to response bodies, as records or Arrow, under the encoding that the client asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from upsert_platform.local.maxcompute.errors import invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.types import DataType
from upsert_platform.local.maxcompute.wire.arrow_stream import encode_arrow
from upsert_platform.local.maxcompute.wire.compression import chosen, compress
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
    """The columns that ``columns=a,b`` names; all of them without it.

    A record's fields are numbered in the order asked for, an Arrow batch has the table's order: SDKs count so.
    """
    text = request.query.get("columns")
    if not text:
        return list(columns)
    wanted = [name.strip().lower() for name in text.split(",")]
    known = dict(columns)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise invalid_argument(f"unknown columns: {', '.join(unknown)}")
    if "arrow" in request.query:
        return [(name, data_type) for name, data_type in columns if name in wanted]
    return [(name, known[name]) for name in wanted]


def send_rows(
    request: Request, rows: pa.Table, columns: Sequence[tuple[str, DataType]], *, pairs: bool = False
) -> Response:
    """The rows, whose columns are these in this order.

    Args:
        pairs: Arrow timestamps are pairs of seconds and nanoseconds.
    """
    headers = {"Content-Type": "application/octet-stream"}
    fields = [Field(name, data_type) for name, data_type in columns]
    body = encode_arrow(rows, fields, pairs=pairs) if "arrow" in request.query else encode_records(rows, fields)
    encoding = chosen(request.headers.get("Accept-Encoding"))
    if encoding is None:
        return Response(200, body, headers)
    return Response(200, compress(encoding, b"".join(body)), {**headers, "Content-Encoding": encoding})
