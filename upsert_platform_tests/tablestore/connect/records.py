"""Configurations and records for the tests of the connector's semantics."""

from __future__ import annotations

import base64
import json
from typing import Any

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Options
from upsert_platform.tablestore.connect.change import RowChange, row_change
from upsert_platform.tablestore.connect.options import ConnectTable, read_connect_tables
from upsert_platform.tablestore.connect.record import ConnectRecord
from upsert_platform.tablestore.connect.values import DirtyRecordError

PLACE = SourceLocation("connector.properties", 3)


def problems_of(options: dict[str, str]) -> list[Problem]:
    """What is wrong with a configuration."""
    return read_connect_tables(Options({"topics": "t", **options}), subject="connector 'c'", location=PLACE)[1]


def table(
    *,
    key: str = "pk0:string",
    whitelist: str = "",
    key_format: str = "json",
    value_format: str = "json",
    **options: str,
) -> ConnectTable:
    """A table of topic ``t``; ``key`` and ``whitelist`` as ``name:type,...``, options with ``_`` for dots."""
    given = {"topics": "t", "key.converter": key_format, "value.converter": value_format}
    given |= {name.replace("_", "."): value for name, value in options.items()}
    for prefix, pairs in (("primarykey", key), ("columns.whitelist", whitelist)):
        if pairs and not (prefix == "primarykey" and given.get("primarykey.mode") in ("kafka", "search", None)):
            names, types = zip(*(pair.split(":") for pair in pairs.split(",")), strict=True)
            given[f"tablestore.t.{prefix}.name"] = ",".join(names)
            given[f"tablestore.t.{prefix}.type"] = ",".join(types)
    tables, problems = read_connect_tables(Options(given), subject="connector 'c'", location=PLACE)
    assert not problems, problems
    return tables["t"]


def message(content: Any) -> bytes | None:
    """None stays null, bytes and text are sent as they are, the rest as JSON."""
    if content is None or isinstance(content, bytes):
        return content
    return content.encode() if isinstance(content, str) else json.dumps(content).encode()


def record(key: Any, value: Any, *, timestamp: int | None = 1_700_000_000_000) -> ConnectRecord:
    """Record t/3/42."""
    return ConnectRecord("t", 3, 42, message(key), message(value), timestamp)


def outcome(made: ConnectTable, key: Any, value: Any, **options: Any) -> tuple[Any, ...] | str:
    """``(operation, cells, removed)`` of a record, with the key before them unless it is ``k``; ``dirty`` otherwise."""
    try:
        change = row_change(record(key, value, **options), made)
    except DirtyRecordError as error:
        assert str(error)
        return "dirty"
    return short(change)


def short(change: RowChange) -> tuple[Any, ...]:
    """A change without the names of its key columns."""
    key = tuple(value for _, value in change.key)
    body = (change.operation.name, dict(change.cells), change.removed)
    return body if key == ("k",) else (key, *body)


def envelope(fields: dict[str, str | tuple[str, str]], payload: dict[str, Any] | None) -> dict[str, Any]:
    """JSON with schema and payload; a field's type may be ``(type, logical name)``."""
    described = []
    for name, kind in fields.items():
        base, logical = kind if isinstance(kind, tuple) else (kind, None)
        described.append({"field": name, "type": base, "optional": True, **({"name": logical} if logical else {})})
        if logical is not None and logical.endswith("Decimal"):
            described[-1]["parameters"] = {"scale": "2"}
    encoded = payload and {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value for name, value in payload.items()
    }
    return {"schema": {"type": "struct", "fields": described, "optional": True}, "payload": encoded}
