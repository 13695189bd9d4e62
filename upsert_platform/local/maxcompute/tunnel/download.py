"""Download sessions and previews of tables (spec 3.6)."""

from __future__ import annotations

from upsert_platform.local.maxcompute.errors import ServiceError
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.maxstorage.read import send_view
from upsert_platform.local.maxcompute.schema import Table
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.storage.readers import Reader, view
from upsert_platform.local.maxcompute.tunnel.common import answer, schema_json
from upsert_platform.local.maxcompute.tunnel.content import choose_columns, row_range, send_rows


def create(service: Service, request: Request, table: Table) -> Response:
    """``POST ?downloads``: a fixed view of one partition, or of a table without partitions."""
    partition = service.store.leaf(table, request.query.get("partition") or None)
    found = view(service.store, table, [partition], table.columns)
    return _described(service.readers.add(found, described={"table": table}))


def get(service: Service, request: Request, table: Table) -> Response:
    """``GET ?downloadid``, and with ``data`` the rows."""
    session_id = request.query["downloadid"]
    reader = service.readers.find(session_id)
    if reader is None:
        raise ServiceError(404, "DownloadSessionNotFound", f"session {session_id} does not exist")
    if "data" not in request.query:
        return _described(reader)
    columns = choose_columns(request, [(column.name, column.type) for column in reader.view.columns])
    start, count = row_range(request, reader.view.count)
    rows = reader.view.table(start, count).select([name for name, _ in columns])
    return send_rows(request, rows, columns)


def _described(reader: Reader) -> Response:
    table = reader.described["table"]
    assert isinstance(table, Table)
    return answer(
        {
            "DownloadID": reader.session_id,
            "Status": "normal",
            "RecordCount": reader.view.count,
            "Schema": schema_json(reader.view.columns, table.partition_keys),
            "SupportReadByRawSize": False,
        }
    )


def preview(service: Service, request: Request, table: Table) -> Response:
    """``GET .../preview``: the first rows as an Arrow stream, partition columns behind the others."""
    spec = request.query.get("partition")
    partitions = [service.store.leaf(table, spec)] if spec else service.catalogue.partitions(table.table_id)
    columns = [*table.columns, *table.partition_keys]
    names = [name for name in request.query.get("columns", "").split(",") if name]
    limit = int(request.query.get("limit") or -1)
    found = view(service.store, table, partitions, columns)
    return send_view(request, found, 0, found.count if limit < 0 else limit, {}, names=names)
