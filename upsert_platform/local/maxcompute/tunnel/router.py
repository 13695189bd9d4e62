"""Operations of the tunnel on a table, by method and parameters."""

from __future__ import annotations

from collections.abc import Callable

from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.schema import Table
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.tunnel import download, stream, upload, upsert

Operation = Callable[[Service, Request, str, str], Response]
_OnTable = Callable[[Service, Request, Table], Response]
_OnName = Callable[[Service, Request, "Table | None", str], Response]


def table_operation(request: Request, session: str | None) -> Operation | None:
    """The tunnel operation that a request is, None when it is none.

    Args:
        session: ``upserts``, ``streams`` or ``preview``, when the path ends so.
    """
    found = _existing(request, session)
    if found is not None:
        return lambda service, request, schema, name: found(service, request, service.catalogue.table(schema, name))
    named = _named(request, session)
    if named is not None:
        return lambda service, request, schema, name: named(
            service, request, service.catalogue.find_table(schema, name), name
        )
    return None


def _existing(request: Request, session: str | None) -> _OnTable | None:
    query = request.query
    match session, request.method:
        case None, "POST" if "downloads" in query:
            return download.create
        case None, "GET" if "downloadid" in query:
            return download.get
        case None, "POST" if "uploads" in query:
            return upload.create
        case None, "GET" if "uploadid" in query:
            return upload.get
        case None, "PUT" if "uploadid" in query:
            return upload.write
        case None, "POST" if "uploadid" in query:
            return upload.commit
        case "preview", "GET":
            return download.preview
        case "streams", "POST":
            return stream.create
        case "streams", "GET":
            return stream.get
        case "streams", "PUT":
            return stream.write
        case "upserts", "POST" if "upsertid" not in query:
            return upsert.create
    return None


def _named(request: Request, session: str | None) -> _OnName | None:
    """Operations of sessions that outlive their table: they tell a dropped table from a recreated one."""
    if session != "upserts" or "upsertid" not in request.query:
        return None
    return {"GET": upsert.get, "PUT": upsert.write, "POST": upsert.commit, "DELETE": upsert.abort}.get(request.method)
