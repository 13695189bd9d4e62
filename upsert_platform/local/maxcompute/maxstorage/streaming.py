"""Streaming writes of the storage API: no session, every write is a commit of its own."""

from __future__ import annotations

from upsert_platform.local.maxcompute.errors import invalid_argument, table_modified
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.maxstorage.arrow import read_body
from upsert_platform.local.maxcompute.maxstorage.describe import (
    answer_json,
    number_of,
    parameter,
    target,
)
from upsert_platform.local.maxcompute.maxstorage.write import stream_answer
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.storage.ingest import group_by_spec, stage
from upsert_platform.local.maxcompute.storage.store import Change

SESSION_ID = "default"


def create_stream(service: Service, request: Request) -> Response:
    """``TableCreateWriteStream`` in session ``default``."""
    return answer_json(stream_answer(target(service, request), {}), route=SESSION_ID)


def write(service: Service, request: Request) -> Response:
    """``TableWrite`` in session ``default``: visible when it is answered."""
    table = target(service, request)
    if service.drop:
        service.dropped_bytes += len(request.body)
        return answer_json({}, route=SESSION_ID)
    if request.query.get("TableId", table.table_id) != table.table_id:
        raise table_modified(table.name)
    rows = read_body(request.body)
    declared = number_of(parameter(request, "Count"), "Count")
    if declared != rows.num_rows:
        raise invalid_argument(f"Count is {declared}, the body has {rows.num_rows} rows")
    routed = stage(service.store.files, table, rows, static={}, body=request.body)
    changes = [Change(spec, files) for spec, files in group_by_spec(routed).items()]
    committed = service.store.commit(table.table_id, changes, "STREAM_WRITE", create_partitions=True)
    return answer_json({"StagingId": str(committed.version)}, route=SESSION_ID)
