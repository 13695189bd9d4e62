"""Storage API version 1: sessions below a table's path, blocks to write, splits to read.

Arrow is compressed inside of its buffers, by the codec that a reader names in ``Accept-Encoding``.
"""

from __future__ import annotations

import re
from typing import Any

from upsert_platform.local.maxcompute.errors import invalid_argument, no_such_table
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.maxstorage import block, read
from upsert_platform.local.maxcompute.maxstorage.arrow import stream
from upsert_platform.local.maxcompute.maxstorage.describe import (
    answer_json,
    body_json,
    number_of,
    parameter,
    session_not_found,
)
from upsert_platform.local.maxcompute.schema import Table
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.storage.readers import Reader
from upsert_platform.local.maxcompute.storage.sessions import NORMAL, Session, session_conflict

PATH = re.compile(
    r"/api/storage/v1/projects/(?P<project>[^/]+)(?:/schemas/(?P<schema>[^/]+))?/tables/(?P<table>[^/]+)"
    r"/(?P<rest>sessions|sessions/[^/]+|sessions/[^/]+/data|commit|data)"
)
_CREATED = 201
_CODECS = {"": None, "ZSTD": "zstd", "LZ4_FRAME": "lz4"}


def handle(service: Service, request: Request, match: re.Match[str]) -> Response:
    """Runs the operation that method and path name.

    Raises:
        ServiceError: there is no such operation.
    """
    service.check_project(match["project"])
    schema, name = (match["schema"] or "default").lower(), match["table"]
    session_id = match["rest"].split("/")[1] if match["rest"].count("/") else ""
    kind = request.query.get("session_type", "")
    match request.method, match["rest"].split("/")[0], match["rest"].endswith("data"):
        case "POST", "sessions", False if not session_id and kind == "batch_read":
            table = service.catalogue.table(schema, name)
            return _answer(read.description(read.new_session(service, table, body_json(request))), status=_CREATED)
        case "GET", "sessions", False if session_id and kind == "batch_read":
            return _answer(read.description(_reader(service, session_id)))
        case "GET", "data", True:
            return _read(service, request)
        case "POST", "sessions", False if not session_id and kind == "batch_write":
            table = service.catalogue.table(schema, name)
            made = block.new_session(service, table, body_json(request))
            return _answer(block.description(*made), status=_CREATED)
        case "GET", "sessions", False if session_id and kind == "batch_write":
            return _answer(block.description(*_session(service, session_id, schema, name)))
        case "POST", "sessions", True:
            return _write(service, request, *_session(service, session_id, schema, name))
        case "POST", "commit", False:
            session, table = _session(service, parameter(request, "session_id"), schema, name)
            block.commit_blocks(service, session, table, body_json(request).get("CommitMessages") or [])
            found = _session(service, session.session_id, schema, name)
            return _answer(block.description(*found), status=_CREATED)
    raise invalid_argument(f"{request.method} {request.path} is not an operation of storage API version 1")


def _answer(content: dict[str, Any], *, status: int = 200) -> Response:
    found = answer_json(content)
    return Response(status, found.body, found.headers)


def _reader(service: Service, session_id: str) -> Reader:
    reader = service.readers.find(session_id)
    if reader is None:
        raise session_not_found(session_id)
    return reader


def _session(service: Service, session_id: str, schema: str, name: str) -> tuple[Session, Table]:
    session = service.sessions.find(block.KIND, session_id)
    if session is None:
        raise session_not_found(session_id)
    table = service.catalogue.find_table(schema, name)
    if table is None:
        raise no_such_table(name)
    return session, service.sessions.table(session, table, name)


def _read(service: Service, request: Request) -> Response:
    """A split by its number; in a session by row offset, rows from ``row_index`` on."""
    reader = _reader(service, parameter(request, "session_id"))
    codec = request.headers.get("Accept-Encoding") or ""
    if codec.upper() not in _CODECS:
        codec = ""  # of an HTTP client, which offers what it can take
    if reader.splits:
        start, count = read.split_of(reader, number_of(request.query.get("split_index") or 0, "split_index"))
    else:
        start = number_of(request.query.get("row_index") or 0, "row_index")
        count = number_of(request.query.get("row_count") or 0, "row_count")
    units: Any = reader.described["units"]
    options = {"MaxBatchRows": request.query.get("max_batch_rows")}
    schema, batches = read.batches_of(reader.view, start, count, options, units=units)
    headers = {"Content-Type": "application/octet-stream"}
    return Response(200, stream(schema, batches, compression=_CODECS[codec.upper()]), headers)


def _write(service: Service, request: Request, session: Session, table: Table) -> Response:
    if session.status != NORMAL:
        raise session_conflict(session)
    place = tuple(number_of(request.query.get(name) or 0, name) for name in ("block_number", "attempt_number"))
    return _answer(block.write_block(service, session, table, (place[0], place[1]), request.body))
