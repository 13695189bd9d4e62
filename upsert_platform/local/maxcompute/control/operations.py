"""Names of operations, for faults, journal and metrics."""

from __future__ import annotations

import re

from upsert_platform.local.maxcompute.http import Request

_TABLE = re.compile(r"(?:/api)?/projects/[^/]+(?:/schemas/[^/]+)?/tables/([^/]+)(?:/(upserts|streams|preview))?/?")
_TARGET = re.compile(r"\.tables\.([^.]+)")
_STORAGE_1 = re.compile(r"/api/storage/v1/.*/tables/([^/]+)/(sessions|commit|data)(?:/.*)?")
_STORAGE_1_NAMES = {
    ("POST", "sessions"): "write",
    ("GET", "sessions"): "get",
    ("POST", "commit"): "commit",
    ("GET", "data"): "read",
}
_INSTANCE = re.compile(r"(?:/api)?/projects/[^/]+/instances(/[^/]+)?/?")
_SESSIONS = {
    "POST": ("create", "commit"),
    "GET": ("get", "get"),
    "PUT": ("write", "write"),
    "DELETE": ("abort", "abort"),
}


def operation_of(request: Request) -> str:
    """``upsert.write``, ``maxstorage.TableWrite``, ``instance.create`` and their like; ``other`` for the rest."""
    query = request.query
    if match := _STORAGE_1.fullmatch(request.path):
        return f"storage1.{_STORAGE_1_NAMES.get((request.method, match[2]), 'other')}"
    if "/api/storage/" in request.path:
        return f"maxstorage.{query.get('Action', 'unknown')}"
    if match := _TABLE.fullmatch(request.path):
        return _table_operation(request, match[2])
    if match := _INSTANCE.fullmatch(request.path):
        if "downloads" in query or "downloadid" in query:
            return "instance.download"
        return "instance.create" if request.method == "POST" else "instance.get"
    if request.path.rstrip("/").endswith("/tunnel"):
        return "tunnel.discover"
    return "other"


def _table_operation(request: Request, session: str | None) -> str:
    query = request.query
    if session == "upserts":
        return "upsert." + _SESSIONS.get(request.method, ("other", "other"))["upsertid" in query]
    if session == "streams":
        if request.method == "POST" and "uploadid" in query:
            return "stream.abort"
        return "stream." + _SESSIONS.get(request.method, ("other", "other"))[0]
    if session == "preview":
        return "table.preview"
    if "uploads" in query or "uploadid" in query:
        return "upload." + _SESSIONS.get(request.method, ("other", "other"))["uploadid" in query]
    if "downloads" in query:
        return "download.create"
    if "downloadid" in query:
        return "download.read" if "data" in query else "download.get"
    return "table.get"


def table_of(request: Request) -> str:
    """The table that a request is about, in lower case; empty when it is about none."""
    if match := _STORAGE_1.fullmatch(request.path):
        return match[1].lower()
    if match := _TABLE.fullmatch(request.path):
        return match[1].lower()
    match = _TARGET.search(request.query.get("Target", ""))
    return match[1].lower() if match else ""
