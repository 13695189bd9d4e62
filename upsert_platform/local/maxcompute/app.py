"""From request to response: who asks, what is asked for, and how a refusal is told."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable
from functools import partial
from urllib.parse import unquote

from upsert_platform.local.maxcompute.control.faults import Faults
from upsert_platform.local.maxcompute.control.journal import Journal
from upsert_platform.local.maxcompute.control.operations import operation_of
from upsert_platform.local.maxcompute.control.pages import is_page, page
from upsert_platform.local.maxcompute.errors import ServiceError, invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.maxstorage import router as maxstorage
from upsert_platform.local.maxcompute.maxstorage import version1
from upsert_platform.local.maxcompute.rest import instances, projects, tables
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.tunnel import instances as instance_tunnel
from upsert_platform.local.maxcompute.tunnel import router as tunnel

_LOG = logging.getLogger(__name__)
_API_PREFIX = "/api"
_TABLE = re.compile(r"/projects/(?P<project>[^/]+)(?:/schemas/(?P<schema>[^/]+))?/tables(?:/(?P<table>[^/]+))?/?")
_TUNNEL_TABLE = re.compile(_TABLE.pattern[:-2] + r"/(?P<session>upserts|streams|preview)/?")
_INSTANCE = re.compile(r"/projects/(?P<project>[^/]+)/instances(?:/(?P<instance>[^/]+))?/?")
_STORAGE = re.compile(r"/api/storage/v[23]/?")
_PROJECT = re.compile(r"/projects/(?P<project>[^/]+)(?P<rest>/[^?]*)?")
# Parameters that tell a tunnel request from a REST request on the same resource.
_TUNNEL_PARAMETERS = ("downloads", "downloadid", "uploads", "uploadid")


class App:
    """Answers requests for one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.faults = Faults(service.sessions.expire)
        self.journal = Journal()

    def handle(self, request: Request) -> Response:
        """Answers a request; every failure becomes an answer."""
        request.request_id = uuid.uuid4().hex.upper()
        if is_page(request):
            return self._guarded(request, lambda request: page(self._service, self.faults, self.journal, request))
        started = time.perf_counter()
        path, operation = request.path, operation_of(request)
        rule = self.faults.chosen(request, operation)
        if rule is None:
            response = self._guarded(request, self._answer)
        else:
            response = self._guarded(request, lambda request: self.faults.run(rule, request, self._answer))
        request.path = path
        self.journal.add(request, operation, response, started, rule.action if rule else "")
        return response

    def _guarded(self, request: Request, work: Callable[[Request], Response]) -> Response:
        try:
            response = work(request)
        except ServiceError as error:
            response = self._refused(request, error)
        except Exception as error:  # noqa: BLE001 - a defect of the server is an answer too
            _LOG.exception("%s %s failed", request.method, request.path)
            response = self._refused(request, ServiceError(500, "InternalServerError", repr(error)))
        response.headers.setdefault("x-odps-request-id", request.request_id)
        return response

    def _answer(self, request: Request) -> Response:
        prefix = ""
        if request.path.startswith(_API_PREFIX + "/") and not request.path.startswith("/api/storage/"):
            prefix = _API_PREFIX
            request.path = request.path.removeprefix(prefix)
        self._service.authenticator.check(request, prefix=prefix)
        return self._route(request)(request)

    def _route(self, request: Request) -> Callable[[Request], Response]:
        service = self._service
        if match := _TUNNEL_TABLE.fullmatch(request.path):
            service.check_project(unquote(match["project"]))
            return self._session_route(request, match)
        if match := _TABLE.fullmatch(request.path):
            service.check_project(unquote(match["project"]))
            schema = (match["schema"] or request.query.get("curr_schema") or "default").lower()
            return self._table_route(request, schema, match["table"])
        if match := _INSTANCE.fullmatch(request.path):
            service.check_project(unquote(match["project"]))
            return self._instance_route(request, match["instance"])
        if path := version1.PATH.fullmatch(request.path):
            return partial(version1.handle, service, match=path)
        if match := _STORAGE.fullmatch(request.path):
            return lambda request: maxstorage.handle(service, request)
        if match := _PROJECT.fullmatch(request.path):
            service.check_project(unquote(match["project"]))
            return lambda request: projects.route(service, request, (match["rest"] or "").rstrip("/"))
        return lambda request: projects.route_global(service, request)

    def _table_route(self, request: Request, schema: str, table: str | None) -> Callable[[Request], Response]:
        service = self._service
        if table is None and request.method == "GET":
            return lambda request: tables.list_tables(service, request, schema)
        if table is None:
            raise _unsupported(request)
        tunnelled = tunnel.table_operation(request, None)
        if tunnelled is not None:
            return lambda request: tunnelled(service, request, schema, table)
        if request.method == "GET":
            return lambda request: tables.get_table(service, request, schema, table)
        raise _unsupported(request)

    def _session_route(self, request: Request, match: re.Match[str]) -> Callable[[Request], Response]:
        operation = tunnel.table_operation(request, match["session"])
        if operation is None:
            raise _unsupported(request)
        schema = (match["schema"] or request.query.get("curr_schema") or "default").lower()
        return lambda request: operation(self._service, request, schema, match["table"])

    def _instance_route(self, request: Request, instance: str | None) -> Callable[[Request], Response]:
        service = self._service
        match request.method, instance:
            case "POST", None:
                return lambda request: instances.submit(service, request)
            case "GET", None:
                return lambda request: instances.list_instances(service, request)
            case "POST", str() if "downloads" in request.query:
                return lambda request: instance_tunnel.create_download(service, request, instance)
            case "GET", str() if "downloadid" in request.query:
                return lambda request: instance_tunnel.get_download(service, request, instance)
            case "GET", str():
                return lambda request: instances.get_instance(service, request, instance)
            case "PUT", str():
                return lambda request: instances.stop(service, request, instance)
        raise _unsupported(request)

    def _refused(self, request: Request, error: ServiceError) -> Response:
        host = request.host
        if is_tunnel(request):
            body, kind = error.as_json(request.request_id, host), "application/json"
        else:
            body, kind = error.as_xml(request.request_id, host), "application/xml"
        return Response(error.status, body, {"Content-Type": kind, **error.headers})


def is_tunnel(request: Request) -> bool:
    """Return whether the tunnel or the storage API is asked, which answer JSON."""
    if request.path.startswith("/api/storage/") or _TUNNEL_TABLE.fullmatch(request.path):
        return True
    return any(name in request.query for name in _TUNNEL_PARAMETERS)


def _unsupported(request: Request) -> ServiceError:
    return invalid_argument(f"{request.method} {request.path} is not an operation of this server")
