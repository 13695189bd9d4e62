"""Requests about a project, or about no project at all."""

from __future__ import annotations

import json
import time
import uuid
import xml.etree.ElementTree as ElementTree

from upsert_platform.local.maxcompute.errors import ServiceError, already_exists, invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.rest import tables
from upsert_platform.local.maxcompute.rest.xml import answer
from upsert_platform.local.maxcompute.service import Service


def route(service: Service, request: Request, rest: str) -> Response:
    """``/projects/P`` and what is below it, tables and instances excepted."""
    parts = [part for part in rest.split("/") if part]
    match request.method, parts:
        case "GET", []:
            return tables.get_project(service, request)
        case "GET", ["tunnel"]:
            return Response(200, request.host.encode(), {"Content-Type": "text/plain"})
        case "PUT", ["logs"]:
            return Response(200)
        case "GET", ["cachedinstances"]:
            # Nothing waits for a quota here.
            return answer(("Instances", [("Marker", ""), ("MaxItems", "0"), ("Content", "[]")]))
        case "GET", ["schemas"]:
            return tables.list_schemas(service, request)
        case "POST", ["schemas"]:
            return _create_schema(service, request)
        case "GET", ["schemas", name]:
            return tables.get_schema(service, request, name)
        case "DELETE", ["schemas", name]:
            for table in service.catalogue.tables(name.lower()):
                service.store.drop(table)
            service.catalogue.execute("DELETE FROM schemas WHERE name = ?", name.lower())
            return Response(204)
        case "POST", ["authorization"]:
            return _authorization(service, request)
    match request.method, _without_schema(parts):
        # Kinds of things that this server has none of: clients that clear up ask for them.
        case "GET", [("resources" | "volumes") as kind]:
            return _nothing(kind)
        case "GET", ["registration", ("functions") as kind]:
            return _nothing(kind)
        case "GET" | "HEAD" | "DELETE", [("resources" | "volumes") as kind, name]:
            raise ServiceError(404, "NoSuchObject", f"{kind}: there is no '{name}'")
        case "GET" | "HEAD" | "DELETE", ["registration", "functions", name]:
            raise ServiceError(404, "NoSuchObject", f"functions: there is no '{name}'")
    raise invalid_argument(f"{request.method} {request.path} is not an operation of this server")


def _without_schema(parts: list[str]) -> list[str]:
    return parts[2:] if len(parts) > 2 and parts[0] == "schemas" else parts


def _nothing(kind: str) -> Response:
    """A list of no things."""
    return answer((kind.capitalize(), [("Marker", ""), ("MaxItems", "0")]))


def route_global(service: Service, request: Request) -> Response:
    """``/tenants``, ``/logview/host`` and their like."""
    match request.method, request.path.rstrip("/"):
        case "GET", "/tenants":
            parameters = {"odps.namespace.schema": "true"} if service.three_tier else {}
            tenant = {
                "Name": service.owner,
                "OwnerId": service.owner,
                "TenantId": "local",
                "TenantState": "NORMAL",
                "Parameters": parameters,
            }
            body = {**tenant, "Tenant": tenant}
            return Response(200, json.dumps(body).encode(), {"Content-Type": "application/json"})
        case "GET", "/logview/host":
            return Response(200, f"http://{request.host}".encode(), {"Content-Type": "text/plain"})
        case "GET", "/projects":
            return answer(("Projects", [("Marker", ""), ("MaxItems", "1"), ("Project", [("Name", service.project)])]))
    raise ServiceError(404, "NoSuchObject", f"{request.path} does not exist on this server")


def _create_schema(service: Service, request: Request) -> Response:
    try:
        name = (ElementTree.fromstring(request.body).findtext("Name") or "").lower()
    except ElementTree.ParseError as error:
        raise invalid_argument(f"the schema is not XML: {error}") from error
    if not name:
        raise invalid_argument("the schema has no name")
    if name in service.catalogue.schema_names():
        raise already_exists(f"Schema {name} already exists")
    service.catalogue.execute("INSERT INTO schemas VALUES (?, ?)", name, time.time())
    return Response(201)


def _authorization(service: Service, request: Request) -> Response:
    """Tokens for log views, and who the caller is; other security queries have no meaning here."""
    if "sign_bearer_token" in request.query:
        return answer(("Authorization", [("Result", uuid.uuid4().hex)]))
    try:
        query = (ElementTree.fromstring(request.body).findtext("Query") or "").strip().lower()
    except ElementTree.ParseError as error:
        raise invalid_argument(f"the query is not XML: {error}") from error
    if query != "whoami":
        raise ServiceError(400, "InvalidArgument", f"security query '{query}' is not supported by this server")
    who = {"ID": service.owner, "DisplayName": service.owner}
    return answer(("Authorization", [("Result", json.dumps(who))]))
