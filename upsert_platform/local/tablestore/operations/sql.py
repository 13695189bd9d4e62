"""SQLQuery."""

from __future__ import annotations

from upsert_platform.local.tablestore.errors import invalid
from upsert_platform.local.tablestore.instance import Instance
from upsert_platform.local.tablestore.messages import parse, pb
from upsert_platform.local.tablestore.sql.columns import encode_columns
from upsert_platform.local.tablestore.sql.statements import run_statement


def query(instance: Instance, body: bytes) -> bytes:
    request = parse(pb.SQLQueryRequest, body)
    if request.HasField("version") and request.version != pb.SQL_FLAT_BUFFERS:
        raise invalid("Unsupported version of the payload: this server answers in flatbuffers (2).")
    kind, columns = run_statement(instance, request.query)
    response = pb.SQLQueryResponse(version=pb.SQL_FLAT_BUFFERS, type=kind)
    if columns:
        response.rows = encode_columns(columns)
    return bytes(response.SerializeToString())
