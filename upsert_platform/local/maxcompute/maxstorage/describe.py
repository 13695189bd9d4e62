"""Schemas as the storage API tells them, and the target of a request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from upsert_platform.local.maxcompute.errors import ServiceError, invalid_argument, is_a_view, no_such_table
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.schema import OPERATION, VALUE_COLUMNS, Column, Table
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.storage.catalogue import DEFAULT_SCHEMA
from upsert_platform.local.maxcompute.types import DataType, parse_type

ROUTE_TOKEN = "x-odps-max-storage-route-token"
_TARGET = re.compile(r"projects\.(?P<project>[^.]+)(?:\.schemas\.(?P<schema>[^.]+))?\.tables\.(?P<table>[^.]+)")
_INSTANCE = re.compile(r"projects\.(?P<project>[^.]+)\.instances\.(?P<instance>[^.]+)")


def find_target(service: Service, request: Request) -> tuple[Table | None, str]:
    """The table that ``Target`` names, None when it does not exist, and its name."""
    match = _TARGET.fullmatch(request.query.get("Target", ""))
    if match is None:
        raise invalid_argument(f"Target '{request.query.get('Target')}' is not projects.P[.schemas.S].tables.T")
    service.check_project(match["project"])
    schema = match["schema"] or request.query.get("curr_schema") or DEFAULT_SCHEMA
    return service.catalogue.find_table(schema, match["table"]), match["table"]


def target(service: Service, request: Request) -> Table:
    """The table that ``Target`` names.

    Raises:
        ServiceError: NoSuchTable.
    """
    table, name = find_target(service, request)
    if table is None:
        raise no_such_table(name)
    if table.query:
        raise is_a_view(name)
    return table


def target_instance(service: Service, request: Request) -> str:
    """The instance id that ``Target`` names."""
    match = _INSTANCE.fullmatch(request.query.get("Target", ""))
    if match is None:
        raise invalid_argument(f"Target '{request.query.get('Target')}' is not projects.P.instances.I")
    service.check_project(match["project"])
    return match["instance"]


def body_json(request: Request) -> dict[str, Any]:
    """The request's JSON object; an empty body is an empty one."""
    if not request.body:
        return {}
    try:
        found = json.loads(request.body)
    except ValueError as error:
        raise invalid_argument(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise invalid_argument("the body must be a JSON object")
    return found


def answer_json(content: Mapping[str, Any], *, route: str | None = None) -> Response:
    """A JSON answer, with the token that sends later requests to the same server."""
    headers = {"Content-Type": "application/json"}
    if route is not None:
        headers[ROUTE_TOKEN] = route
    return Response(200, json.dumps(content).encode(), headers)


def parameter(request: Request, name: str) -> str:
    """A required query parameter.

    Raises:
        ServiceError: it is missing.
    """
    value = request.query.get(name)
    if not value:
        raise invalid_argument(f"query parameter '{name}' is required")
    return value


def number_of(value: object, name: str) -> int:
    """A whole number from a parameter or a JSON field."""
    try:
        return int(str(value))
    except ValueError as error:
        raise invalid_argument(f"'{name}' takes a whole number, not '{value}'") from error


def write_schema(table: Table, static: Iterable[str]) -> dict[str, Any]:
    """Columns of a write: the table's, then the partition columns that no spec gives; system columns of PK tables."""
    given = set(static)
    string = DataType("string")
    columns = [_write_column(table, column, column.type) for column in table.columns]
    columns += [_write_column(table, key, string) for key in table.partition_keys if key.name not in given]
    system = []
    if table.primary_key:
        system = [
            {"comment": "", "label": "", "columnType": parse_type(text).write_schema(name, -1, nullable=True)}
            for name, text in ((OPERATION, "tinyint"), (VALUE_COLUMNS, "array<bigint>"))
        ]
    return {"DataColumns": columns, "SystemColumns": system}


def _write_column(table: Table, column: Column, data_type: DataType) -> dict[str, Any]:
    described = data_type.write_schema(
        column.name, column.column_id, nullable=column.nullable, key=column.name in table.primary_key
    )
    return {"comment": column.comment, "label": "", "columnType": described}


def result_schema(columns: Iterable[tuple[str, DataType]]) -> dict[str, Any]:
    """Columns of a query's result, in the form of a write schema."""
    described = [
        {"comment": "", "label": "", "columnType": data_type.write_schema(name, index, nullable=True)}
        for index, (name, data_type) in enumerate(columns)
    ]
    return {"DataColumns": described, "SystemColumns": []}


def read_columns(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Columns of a read schema: flat, with the type's text."""
    return [
        {
            "Name": column.name,
            "Type": str(column.type),
            "Comment": column.comment,
            "Nullable": column.nullable,
            "ColumnId": column.column_id,
        }
        for column in columns
    ]


def session_not_found(session_id: str) -> ServiceError:
    return ServiceError(404, "SessionNotFound", f"session {session_id} does not exist")
