"""``/healthz``, ``/metrics`` and ``/control/...``: unsigned, and but for the first two only from this machine."""

from __future__ import annotations

import ipaddress
import json
from typing import Any

from upsert_platform.local.maxcompute.control.faults import Faults, parse_rules
from upsert_platform.local.maxcompute.control.journal import Journal
from upsert_platform.local.maxcompute.errors import ServiceError
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.service import Service

_PREFIX = "/control/"


def is_page(request: Request) -> bool:
    """Return whether a request is for one of these pages."""
    return request.path in ("/healthz", "/metrics") or request.path.startswith(_PREFIX)


def page(service: Service, faults: Faults, journal: Journal, request: Request) -> Response:
    """Answers one of these pages.

    Raises:
        ServiceError: the page does not exist, or the client is not on this machine.
    """
    if request.path == "/healthz":
        return Response(200, b"ok", {"Content-Type": "text/plain"})
    if request.path == "/metrics":
        lines = [*journal.metrics(), *_service_metrics(service), ""]
        return Response(200, "\n".join(lines).encode(), {"Content-Type": "text/plain; version=0.0.4"})
    if not ipaddress.ip_address(request.client).is_loopback:
        raise ServiceError(403, "NoPermission", "control pages answer requests from this machine alone")
    match request.method, request.path.removeprefix(_PREFIX).rstrip("/"):
        case "GET", "faults":
            return _json(faults.listed())
        case "POST", "faults":
            faults.add(parse_rules(request.body))
            return _json(faults.listed())
        case "DELETE", "faults":
            faults.clear()
            return _json([])
        case "GET", "journal":
            return _json(journal.entries(int(request.query.get("after") or 0)))
        case "DELETE", "journal":
            journal.clear()
            return _json([])
    raise ServiceError(404, "NoSuchObject", f"{request.method} {request.path} is not a control page")


def _json(content: Any) -> Response:
    return Response(200, json.dumps(content).encode(), {"Content-Type": "application/json"})


def _service_metrics(service: Service) -> list[str]:
    sessions = service.catalogue.execute("SELECT kind, status, count(*) FROM sessions GROUP BY kind, status")
    counts = {
        "tables": "SELECT count(*) FROM tables",
        "segments": "SELECT count(*) FROM segments",
        "segment_bytes": "SELECT coalesce(sum(bytes), 0) FROM segments",
        "staged_bytes": "SELECT coalesce(sum(bytes), 0) FROM staged",
    }
    lines = [f"maxcompute_{name} {service.catalogue.execute(sql)[0][0]}" for name, sql in counts.items()]
    lines += [f'maxcompute_sessions{{kind="{kind}",status="{status}"}} {count}' for kind, status, count in sessions]
    lines.append(f"maxcompute_dropped_bytes_total {service.dropped_bytes}")
    lines.append(f"maxcompute_misrouted_rows_total {service.misrouted_rows}")
    return lines
