"""Common parts of tunnel sessions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from upsert_platform.local.maxcompute.errors import ServiceError
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.schema import Column, Table, full_spec, parse_spec
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.storage.sessions import Session

MAXIMUM_FIELD_BYTES = 8 << 20


def answer(content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    return Response(200, json.dumps(content).encode(), {"Content-Type": "application/json", **(headers or {})})


def schema_json(columns: Iterable[Column], partition_keys: Iterable[Column] = ()) -> dict[str, Any]:
    """The schema object of sessions."""
    return {
        "IsVirtualView": False,
        "columns": [_column_json(column) for column in columns],
        "partitionKeys": [_column_json(column) for column in partition_keys],
    }


def _column_json(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": str(column.type),
        "nullable": column.nullable,
        "isNullable": column.nullable,
        "comment": column.comment,
        "column_id": column.column_id,
    }


def spec_of(service: Service, request: Request, table: Table) -> str:
    """The canonical spec of the leaf partition that a request names, which exists.

    Raises:
        ServiceError: the spec does not fit the table, or NoSuchPartition.
    """
    text = request.query.get("partition") or None
    if "create_partition" in request.query and text and table.partition_keys:
        with service.store.lock(table.table_id), service.catalogue.durable():
            service.catalogue.add_partition(table.table_id, full_spec(table, text))
    return service.store.leaf(table, text).spec


def require(service: Service, kind: str, session_id: str, code: str) -> Session:
    """The session of that id.

    Raises:
        ServiceError: ``code``, when there is none.
    """
    session = service.sessions.find(kind, session_id)
    if session is None:
        raise ServiceError(404, code, f"session {session_id} does not exist")
    return session


def static_of(spec: str) -> dict[str, str]:
    return parse_spec(spec) if spec else {}


def worker_addresses(request: Request, count: int) -> Sequence[str]:
    """``host:port`` of each slot: this server is all of them."""
    return [request.host] * count
