"""``POST /api/storage/v2`` and ``v3``: the operation stands in the query."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from upsert_platform.local.maxcompute.errors import invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.maxstorage import block, read, streaming, write
from upsert_platform.local.maxcompute.service import Service

Operation = Callable[[Service, Request], Response]
_ALWAYS: Mapping[str, Operation] = {
    "TableCreateReadSession": read.create_session,
    "TableGetReadSession": read.get_session,
    "TableRead": read.read,
    "TablePreview": read.preview,
    "InstanceCreateReadSession": read.create_instance_session,
    "InstanceGetReadSession": read.create_instance_session,
    "InstanceRead": read.read_instance,
}
_BATCH: Mapping[str, Operation] = {
    "TableCreateWriteSession": write.create_session,
    "TableGetWriteSession": write.get_session,
    "TableCreateWriteStream": write.create_stream,
    "TableGetWriteStream": write.get_stream,
    "TableGetWriteSchema": write.get_write_schema,
    "TableWrite": write.write,
    "TableCloseWriteStream": write.close_stream,
    "TableCommitWriteSession": write.commit,
    "TableAbortWriteSession": write.abort,
}
_BLOCKS: Mapping[str, Operation] = {
    "TableCreateWriteSession": block.create_session,
    "TableGetWriteSession": block.get_session,
    "TableCreateWriteStream": block.create_stream,
    "TableWrite": block.write,
    "TableCommitWriteSession": block.commit,
    "TableAbortWriteSession": block.abort,
}
_STREAMING: Mapping[str, Operation] = {
    "TableCreateWriteStream": streaming.create_stream,
    "TableWrite": streaming.write,
}


def handle(service: Service, request: Request) -> Response:
    """Runs the operation that ``Action`` names.

    Raises:
        ServiceError: there is no such operation in this write mode.
    """
    action = request.query.get("Action", "")
    operations: Mapping[str, Operation] = _BATCH
    if request.query.get("WriteMode") == "BatchCompatible":
        operations = _BLOCKS
    elif request.query.get("SessionId") == streaming.SESSION_ID:
        operations = _STREAMING
    operation = _ALWAYS.get(action) or operations.get(action)
    if operation is None:
        raise invalid_argument(f"storage API action '{action}' is not an operation of this server")
    return operation(service, request)
