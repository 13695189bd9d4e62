"""The instance tunnel: results of SELECT as records or Arrow."""

from __future__ import annotations

import json
from typing import Any

from upsert_platform.local.maxcompute.errors import ServiceError
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.rest.runner import Instance
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.tunnel.content import choose_columns, row_range, send_rows
from upsert_platform.local.maxcompute.types import DataType

_LIMIT = 10_000


def create_download(service: Service, request: Request, instance_id: str) -> Response:
    """``POST .../instances/I?downloads``."""
    instance = _finished(service, instance_id)
    return _described(instance, limited="instance_tunnel_limit_enabled" in request.query)


def get_download(service: Service, request: Request, instance_id: str) -> Response:
    """``GET .../instances/I?downloadid``, and with ``data`` the rows."""
    instance = _finished(service, instance_id)
    if "data" not in request.query:
        return _described(instance, limited=request.query["downloadid"].endswith("L"))
    assert instance.result is not None and instance.result.rows is not None
    rows = instance.result.rows
    columns = choose_columns(request, instance.result.columns)
    start, count = row_range(request, rows.num_rows)
    return send_rows(request, rows.select([name for name, _ in columns]).slice(start, count), columns, pairs=True)


def _finished(service: Service, instance_id: str) -> Instance:
    instance = service.runner.get(instance_id)
    instance.done.wait()
    if instance.error is not None:
        raise ServiceError(400, "InvalidArgument", f"instance {instance_id} has failed: {instance.error.message}")
    if instance.result is not None and instance.result.rows is None and instance.result.columns:
        raise ServiceError(404, "ResultExpired", f"the result of instance {instance_id} is no longer kept")
    if instance.result is None or instance.result.rows is None:
        raise ServiceError(
            400, "InstanceTypeNotSupported", f"instance {instance_id} has no rows to download: it was no query"
        )
    return instance


def _described(instance: Instance, *, limited: bool) -> Response:
    assert instance.result is not None and instance.result.rows is not None
    count = instance.result.rows.num_rows
    body = {
        "DownloadID": instance.instance_id + ("L" if limited else ""),
        "Status": "normal",
        "RecordCount": min(count, _LIMIT) if limited else count,
        "Schema": columns_json(instance.result.columns),
    }
    return Response(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


def columns_json(columns: tuple[tuple[str, DataType], ...]) -> dict[str, Any]:
    """The ``Schema`` object of sessions."""
    return {
        "IsVirtualView": False,
        "columns": [
            {"name": name, "type": str(data_type), "nullable": True, "comment": ""} for name, data_type in columns
        ],
        "partitionKeys": [],
    }
