"""Upsert sessions: rows by bucket, visible together at the commit (spec 3.7, 3.8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from upsert_platform.local.maxcompute.errors import ServiceError, invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.schema import OPERATION, ROW_POLICY, VALUE_COLUMNS, Table
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.storage.ingest import group_by_spec, stage
from upsert_platform.local.maxcompute.storage.sessions import (
    ABORTED,
    COMMITTED,
    COMMITTING,
    NORMAL,
    Session,
    Staged,
    session_conflict,
)
from upsert_platform.local.maxcompute.storage.store import Change
from upsert_platform.local.maxcompute.tunnel.common import (
    answer,
    require,
    schema_json,
    spec_of,
    static_of,
    worker_addresses,
)
from upsert_platform.local.maxcompute.types import parse_type
from upsert_platform.local.maxcompute.wire.compression import decompress
from upsert_platform.local.maxcompute.wire.hasher import buckets_of
from upsert_platform.local.maxcompute.wire.records import Field, decode_records, plain_values, to_arrow

KIND = "upsert"
NOT_FOUND = "UpsertSessionNotFound"
MAXIMUM_LIFECYCLE_HOURS = 24
# What stands behind the data columns of every row.
_SYSTEM = (
    Field("__version", parse_type("bigint")),
    Field("__app_version", parse_type("bigint")),
    Field(OPERATION, parse_type("tinyint")),
    Field("__key_cols", parse_type("array<bigint>")),
    Field(VALUE_COLUMNS, parse_type("array<bigint>")),
)


def create(service: Service, request: Request, table: Table) -> Response:
    """``POST /upserts?slotnum``."""
    if not table.primary_key:
        raise ServiceError(
            400, "InvalidArgument", f"table {table.name} has no primary key: upsert sessions need a Delta table"
        )
    if ROW_POLICY in table.properties:
        raise ServiceError(405, "MethodNotAllowed", f"table {table.name} is under row-level authorization")
    spec = spec_of(service, request, table)
    slots = _whole(request, "slotnum", 1)
    if slots < 1:
        raise invalid_argument("slotnum must be at least 1")
    hours = _whole(request, "lifecycle", MAXIMUM_LIFECYCLE_HOURS)
    if not 1 <= hours <= MAXIMUM_LIFECYCLE_HOURS:
        raise invalid_argument(f"lifecycle must be 1 to {MAXIMUM_LIFECYCLE_HOURS} hours")
    partition = service.store.partition(table, spec)
    state = {
        "spec": spec,
        "partition_id": partition.partition_id,
        "slots": min(slots, table.buckets),
        "lifecycle": hours,
        "quota": request.query.get("quotaName", ""),
    }
    return _described(request, service.sessions.create(KIND, table, state), table)


def _whole(request: Request, name: str, default: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not text.lstrip("-").isdigit():
        raise invalid_argument(f"{name} takes a whole number, not '{text}'")
    return int(text)


def get(service: Service, request: Request, table: Table | None, name: str) -> Response:
    """``GET /upserts?upsertid``: also when the session has ended."""
    session = require(service, KIND, request.query.get("upsertid", ""), NOT_FOUND)
    return _described(request, session, service.sessions.table(session, table, name))


def _described(request: Request, session: Session, table: Table) -> Response:
    count = session.state["slots"]
    slots = [
        {"slot_id": str(number), "buckets": list(range(number, table.buckets, count)), "worker_addr": address}
        for number, address in enumerate(worker_addresses(request, count))
    ]
    described: dict[str, Any] = {
        "id": session.session_id,
        "schema": schema_json(table.columns, table.partition_keys),
        "hash_key": list(table.primary_key),
        "hasher": "default",
        "slots": slots,
        "status": session.status,
        "enable_partial_update": table.partial_update,
    }
    if session.state["quota"]:
        described["quota_name"] = session.state["quota"]
    return answer(described)


def _open(service: Service, request: Request, table: Table | None, name: str) -> tuple[Session, Table]:
    """The session, when it is open and its table and partition are still those it was made for."""
    session = require(service, KIND, request.query.get("upsertid", ""), NOT_FOUND)
    if session.status != NORMAL:
        raise session_conflict(session)
    return session, _same_table(service, session, table, name)


def _same_table(service: Service, session: Session, table: Table | None, name: str) -> Table:
    """The session's table, whose partition is still the one that the session was made for."""
    found = service.sessions.table(session, table, name)
    partition = service.store.partition(found, session.state["spec"])
    if partition.partition_id != session.state["partition_id"]:
        raise ServiceError(409, "TableModified", f"partition {session.state['spec']} of {name} has been recreated")
    return found


def write(service: Service, request: Request, table: Table | None, name: str) -> Response:
    """``PUT /upserts?upsertid&bucketid&slotid&record_count``: rows of one bucket."""
    if service.drop:
        service.dropped_bytes += len(request.body)
        return Response(200)
    session, table = _open(service, request, table, name)
    bucket, slot = _whole(request, "bucketid", -1), _whole(request, "slotid", -1)
    if not 0 <= bucket < table.buckets:
        raise invalid_argument(f"bucketid must be at least 0 and below {table.buckets}, not {bucket}")
    if not 0 <= slot < session.state["slots"]:
        raise invalid_argument(f"slotid must be at least 0 and below {session.state['slots']}, not {slot}")
    rows, count = _read(request, table)
    declared = _whole(request, "record_count", -1)
    if declared != count:
        raise invalid_argument(f"record_count is {declared}, the body has {count} records")
    _check_buckets(service, table, rows, bucket)
    routed = stage(service.store.files, table, rows, static=static_of(session.state["spec"]))
    service.sessions.stage(session, str(bucket), 0, routed)
    return Response(200)


def _read(request: Request, table: Table) -> tuple[pa.Table, int]:
    body = decompress(request.headers.get("Content-Encoding"), request.body)
    fields = [*(Field(column.name, column.type) for column in table.columns), *_SYSTEM]
    values, count = decode_records(body, fields)
    wanted = [index for index, field in enumerate(fields) if not _is_unused(field)]
    arrays = [to_arrow(values[index], fields[index].type) for index in wanted]
    return pa.Table.from_arrays(arrays, names=[fields[index].name for index in wanted]), count


def _is_unused(field: Field) -> bool:
    return field.name in ("__version", "__app_version", "__key_cols")


def _check_buckets(service: Service, table: Table, rows: pa.Table, bucket: int) -> None:
    """Counts rows that a client has put into another bucket than their key's; a strict server refuses them."""
    keys = [table.column(name) for name in table.primary_key]
    columns = [plain_values(rows.column(key.name), key.type) for key in keys]
    found = buckets_of(columns, [key.type for key in keys], table.buckets)
    wrong = sum(1 for number in found if number != bucket)
    service.misrouted_rows += wrong
    if wrong and service.strict_buckets:
        raise ServiceError(400, "InvalidBucket", f"{wrong} rows do not belong to bucket {bucket}")


def commit(service: Service, request: Request, table: Table | None, name: str) -> Response:
    """``POST /upserts?upsertid``: repeated it changes nothing."""
    session = require(service, KIND, request.query.get("upsertid", ""), NOT_FOUND)
    if session.status in (NORMAL, COMMITTING):
        found = service.sessions.table(session, table, name)

        def work(staged: list[Staged], along: Callable[[Sequence[Staged]], None]) -> None:
            now = _same_table(service, session, service.catalogue.find_table(found.schema, found.name), name)
            files = group_by_spec(item.routed for item in staged).get(session.state["spec"], ())
            service.store.commit(
                now.table_id, [Change(session.state["spec"], files)], "UPSERT", along=lambda: along(staged)
            )

        session = service.sessions.commit(session, found, work)
    if session.status != COMMITTED:
        raise session_conflict(session)
    return _described(request, session, service.sessions.table(session, table, name))


def abort(service: Service, request: Request, table: Table | None, name: str) -> Response:
    """``DELETE /upserts?upsertid``: through any handle, and once more without effect."""
    session = require(service, KIND, request.query.get("upsertid", ""), NOT_FOUND)
    if session.status == COMMITTED:
        raise session_conflict(session)
    if session.status in (NORMAL, COMMITTING):
        service.sessions.end(session, ABORTED)
    return answer({})
