"""From requests to replies: signature, faults, operation, signed response; one database commit per group.

Requests that arrived together form a group. A group that writes is one transaction of the database with a savepoint
per request, so the cost of a durable commit is shared and no reply leaves before it.
"""

from __future__ import annotations

import logging
import time
import uuid
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from upsert_platform.local.tablestore import limits
from upsert_platform.local.tablestore.errors import ServiceError, invalid
from upsert_platform.local.tablestore.faults import Fault
from upsert_platform.local.tablestore.http import Reply, Request
from upsert_platform.local.tablestore.instance import Instance
from upsert_platform.local.tablestore.messages import pb
from upsert_platform.local.tablestore.metrics import Entry, Metrics
from upsert_platform.local.tablestore.operations import OPERATIONS
from upsert_platform.local.tablestore.signature import Signer, content_md5

_log = logging.getLogger(__name__)


class Work(NamedTuple):
    """A request and the faults that strike it."""

    request: Request
    faults: Sequence[Fault]

    @property
    def operation(self) -> str:
        return self.request.path.lstrip("/")

    @property
    def delay(self) -> float:
        """Seconds to wait before it is served."""
        return sum(fault.seconds for fault in self.faults if fault.kind == "delay")

    def struck_by(self, kind: str) -> Fault | None:
        return next((fault for fault in self.faults if fault.kind == kind), None)


class Service:
    """Serves groups of requests on one instance."""

    def __init__(self, instance: Instance, signer: Signer, metrics: Metrics) -> None:
        self._instance = instance
        self._signer = signer
        self._metrics = metrics
        self._in_transaction = False

    def accept(self, request: Request) -> Work:
        """Decides which faults strike a request."""
        return Work(request, self._instance.faults.strike(request.path.lstrip("/")))

    def serve(self, group: Sequence[Work]) -> list[Reply]:
        """Serves a group and returns its replies in order; what it wrote is durable then."""
        replies = [self._answer(work) for work in group]
        if not self._in_transaction:
            return replies
        self._in_transaction = False
        try:
            self._instance.engine.commit()
            self._metrics.commits += 1
        except Exception:  # noqa: BLE001 - whatever the database says, no reply may claim success
            _log.exception("the commit failed; the group of %d requests is undone", len(group))
            self._instance.engine.rollback()
            error = ServiceError("OTSInternalServerError")
            return [self._reply(work, error.status, _encode(error), None) for work in group]
        return replies

    def _answer(self, work: Work) -> Reply:
        started = time.perf_counter()
        key: bytes | None = None
        code = ""
        if work.struck_by("cut-before"):
            return Reply(0, b"", cut=True)
        if work.struck_by("bad-gateway"):
            return Reply(502, b"<html><body>502 Bad Gateway</body></html>", {"Content-Type": "text/html"})
        try:
            key = self._check(work.request)
            if fault := work.struck_by("error"):
                raise ServiceError(fault.code, fault.message)
            status, body = 200, self._run(work)
        except ServiceError as error:
            status, body, code = error.status, _encode(error), error.code
        except Exception:  # noqa: BLE001 - a defect of the server is the client's 500, and the next request is served
            _log.exception("%s failed", work.operation)
            failure = ServiceError("OTSInternalServerError")
            status, body, code = failure.status, _encode(failure), failure.code
        reply = self._reply(work, status, body, key)
        if work.struck_by("cut-after"):
            reply.cut = True
        self._metrics.count(
            Entry(
                time.time(),
                reply.headers["x-ots-requestid"],
                work.operation if work.operation in OPERATIONS else "?",
                status,
                code,
                len(work.request.body),
                len(body),
                time.perf_counter() - started,
            )
        )
        return reply

    def _check(self, request: Request) -> bytes:
        if request.method != "POST":
            raise ServiceError("OTSMethodNotAllowed", "Only POST method for requests is supported.")
        if len(request.body) > limits.BODY:
            raise ServiceError("OTSRequestBodyTooLarge", "The size of POST data is too large.")
        return self._signer.check(request.path, request.query, request.headers, request.body)

    def _run(self, work: Work) -> bytes:
        operation = OPERATIONS.get(work.operation)
        if operation is None:
            raise invalid(f"Unsupported operation: '{work.operation}'.")
        body = _decompress(work.request)
        if not operation.writes:
            return operation.handle(self._instance, body)
        engine = self._instance.engine
        if not self._in_transaction:
            engine.begin()
            self._in_transaction = True
        engine.savepoint()
        try:
            answer = operation.handle(self._instance, body)
        except BaseException:
            engine.undo()
            raise
        engine.release()
        return answer

    def _reply(self, work: Work, status: int, body: bytes, key: bytes | None) -> Reply:
        headers = {
            "x-ots-contentmd5": content_md5(body),
            "x-ots-contenttype": "protocol buffer",
            "x-ots-date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "x-ots-requestid": str(uuid.uuid4()),
        }
        if key is not None:
            headers["Authorization"] = self._signer.sign_response(work.request.path, dict(headers), key)
        return Reply(status, body, headers)


def _encode(error: ServiceError) -> bytes:
    return bytes(pb.Error(code=error.code, message=error.message).SerializeToString())


def _decompress(request: Request) -> bytes:
    kind = request.headers.get("x-ots-request-compress-type")
    if kind is None:
        return request.body
    if kind != "deflate":
        raise invalid(f"Unsupported compress type: {kind}.")
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(request.body, limits.BODY + 1)
    except zlib.error:
        raise invalid("Cannot deserialize the request data.") from None
    if len(body) > limits.BODY:
        raise ServiceError("OTSRequestBodyTooLarge", "The size of POST data is too large.")
    return body
