"""Upload sessions: numbered blocks, visible together at the commit (spec 3.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from upsert_platform.local.maxcompute.errors import ServiceError, invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.schema import Column, Table
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.storage.ingest import group_by_spec, stage
from upsert_platform.local.maxcompute.storage.sessions import COMMITTED, NORMAL, Session, Staged, session_conflict
from upsert_platform.local.maxcompute.storage.store import Change
from upsert_platform.local.maxcompute.tunnel.common import (
    MAXIMUM_FIELD_BYTES,
    answer,
    require,
    schema_json,
    spec_of,
    static_of,
)
from upsert_platform.local.maxcompute.wire.arrow_stream import decode_arrow
from upsert_platform.local.maxcompute.wire.compression import decompress
from upsert_platform.local.maxcompute.wire.records import Field, decode_records, to_arrow

KIND = "upload"
MAXIMUM_BLOCKS = 20_000


def create(service: Service, request: Request, table: Table) -> Response:
    """``POST ?uploads``."""
    refuse_primary_key(table)
    spec = spec_of(service, request, table)
    overwrite = request.query.get("overwrite", "").lower() == "true"
    session = service.sessions.create(KIND, table, {"spec": spec, "overwrite": overwrite})
    return _described(service, session, table)


def refuse_primary_key(table: Table) -> None:
    """Rows without operations cannot go into a table with a primary key."""
    if table.primary_key:
        raise ServiceError(
            400, "MethodNotAllowed", f"table {table.name} has a primary key: write it by an upsert session"
        )


def get(service: Service, request: Request, table: Table) -> Response:
    """``GET ?uploadid``."""
    return _described(service, *_session(service, request, table))


def _session(service: Service, request: Request, table: Table) -> tuple[Session, Table]:
    session = require(service, KIND, request.query["uploadid"], "NoSuchUpload")
    return session, service.sessions.table(session, table, table.name)


def _described(service: Service, session: Session, table: Table) -> Response:
    blocks = service.catalogue.execute(
        "SELECT DISTINCT CAST(stream AS INTEGER) FROM streams WHERE session_id = ? ORDER BY 1", session.session_id
    )
    return answer(
        {
            "UploadID": session.session_id,
            "Status": {COMMITTED: "closed"}.get(session.status, session.status),
            "UploadedBlockList": [{"BlockID": block} for (block,) in blocks],
            "Schema": schema_json(table.columns, table.partition_keys),
            "MaxFieldSize": MAXIMUM_FIELD_BYTES,
        }
    )


def write(service: Service, request: Request, table: Table) -> Response:
    """``PUT ?uploadid&blockid``: a block that comes again replaces the first."""
    session, table = _session(service, request, table)
    if session.status != NORMAL:
        raise session_conflict(session)
    block = request.query.get("blockid", "")
    if not block.isdigit() or int(block) >= MAXIMUM_BLOCKS:
        raise invalid_argument(f"blockid '{block}' must be a number below {MAXIMUM_BLOCKS}")
    rows = read_rows(request, table.columns)
    routed = stage(service.store.files, table, rows, static=static_of(session.state["spec"]))
    replaced: list[str] = []

    def along() -> None:
        replaced.extend(service.sessions.unstage(session, block, 0))
        service.catalogue.execute(
            "INSERT OR REPLACE INTO streams VALUES (?, ?, 0, 1, ?)", session.session_id, block, rows.num_rows
        )

    service.sessions.stage(session, block, 0, routed, along=along)
    service.store.files.remove(replaced)
    return Response(200)


def read_rows(request: Request, columns: tuple[Column, ...]) -> pa.Table:
    """The rows of a body, records or Arrow.

    Raises:
        ServiceError: the body is corrupt, or not of these columns.
    """
    body = decompress(request.headers.get("Content-Encoding"), request.body)
    fields = [Field(column.name, column.type) for column in columns]
    if "arrow" in request.query:
        return decode_arrow(body, fields)
    values, _ = decode_records(body, fields)
    arrays = [to_arrow(column, field.type) for column, field in zip(values, fields, strict=True)]
    return pa.Table.from_arrays(arrays, names=[field.name for field in fields])


def commit(service: Service, request: Request, table: Table) -> Response:
    """``POST ?uploadid``: all blocks, in the order of their numbers; repeated it changes nothing."""
    session, table = _session(service, request, table)
    spec, overwrite = session.state["spec"], session.state["overwrite"]

    def work(staged: list[Staged], along: Callable[[Sequence[Staged]], None]) -> None:
        ordered = sorted(staged, key=lambda item: (int(item.stream), item.ordinal))
        files = group_by_spec(item.routed for item in ordered).get(spec, ())
        service.store.commit(
            table.table_id,
            [Change(spec, files, resets=overwrite)],
            "OVERWRITE" if overwrite else "UPLOAD",
            along=lambda: along(staged),
        )

    return _described(service, service.sessions.commit(session, table, work), table)
