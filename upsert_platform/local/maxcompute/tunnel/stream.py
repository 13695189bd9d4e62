"""Stream uploads: no commit, every pack is visible when it is answered (spec 3.6)."""

from __future__ import annotations

import time
from dataclasses import replace

from upsert_platform.local.maxcompute.errors import ServiceError, invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.schema import Table
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.storage.ingest import group_by_spec, stage
from upsert_platform.local.maxcompute.storage.sessions import ABORTED, NORMAL, Session, session_conflict
from upsert_platform.local.maxcompute.storage.store import Change
from upsert_platform.local.maxcompute.tunnel.common import (
    answer,
    require,
    schema_json,
    spec_of,
    static_of,
    worker_addresses,
)
from upsert_platform.local.maxcompute.tunnel.upload import read_rows, refuse_primary_key
from upsert_platform.local.maxcompute.types import DataType

KIND = "stream"


def create(service: Service, request: Request, table: Table) -> Response:
    """``POST /streams``, or with ``uploadid`` the end of a session."""
    if "uploadid" in request.query:
        session = require(service, KIND, request.query["uploadid"], "StreamSessionNotFound")
        service.sessions.end(session, ABORTED)
        return answer({})
    refuse_primary_key(table)
    dynamic = request.query.get("dynamic_partition", "").lower() == "true"
    _check_schema_version(request, table)
    if dynamic and not table.partition_keys:
        raise invalid_argument(f"table {table.name} has no partitions: dynamic_partition does not apply")
    spec = "" if dynamic else spec_of(service, request, table)
    slots = max(1, int(request.headers.get("odps-slot-num") or 1))
    session = service.sessions.create(KIND, table, {"spec": spec, "dynamic": dynamic, "slots": slots})
    return _described(request, session, table)


def _check_schema_version(request: Request, table: Table) -> None:
    wanted = request.query.get("schema_version")
    if wanted is None:
        return
    latest = request.query.get("check_latest_schema") == "true"
    if int(wanted) > table.schema_version or (latest and int(wanted) != table.schema_version):
        raise ServiceError(
            400, "NoSuchSchema", f"table {table.name} has schema version {table.schema_version}, not {wanted}"
        )


def get(service: Service, request: Request, table: Table) -> Response:
    """``GET /streams?uploadid``: the session's routes."""
    return _described(request, *_session(service, request, table))


def _session(service: Service, request: Request, table: Table) -> tuple[Session, Table]:
    session = require(service, KIND, request.query.get("uploadid", ""), "StreamSessionNotFound")
    return session, service.sessions.table(session, table, table.name)


def _columns(session: Session, table: Table) -> Table:
    """The table as packs carry it: with dynamic partitions their columns come last, as text."""
    if not session.state["dynamic"]:
        return table
    keys = tuple(replace(key, type=DataType("string")) for key in table.partition_keys)
    return replace(table, columns=(*table.columns, *keys))


def _described(request: Request, session: Session, table: Table) -> Response:
    keys = () if session.state["dynamic"] else table.partition_keys
    slots = worker_addresses(request, session.state["slots"])
    return answer(
        {
            "session_name": session.session_id,
            "schema": schema_json(_columns(session, table).columns, keys),
            "status": session.status,
            "slots": [[str(number), address] for number, address in enumerate(slots)],
            "schema_version": table.schema_version,
            "last_batch_id": table.version,
            "last_batch_commit_time": int(table.last_modified * 1000),
        }
    )


def write(service: Service, request: Request, table: Table) -> Response:
    """``PUT /streams?uploadid&slotid``: one pack, and where the slot is served from now on."""
    session, table = _session(service, request, table)
    if session.status != NORMAL:
        raise session_conflict(session)
    rows = read_rows(request, _columns(session, table).columns)
    dynamic = session.state["dynamic"]
    routed = stage(service.store.files, table, rows, static={} if dynamic else static_of(session.state["spec"]))
    changes = [Change(spec, files) for spec, files in group_by_spec(routed).items()]
    committed = service.store.commit(table.table_id, changes, "STREAM_UPLOAD", create_partitions=dynamic)
    headers = {
        "odps-tunnel-routed-server": request.host,
        "odps-tunnel-slot-num": str(session.state["slots"]),
    }
    return answer({"batch_id": committed.version, "time": int(time.time() * 1000)}, headers)
