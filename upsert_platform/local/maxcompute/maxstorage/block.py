"""Batch-compatible write sessions: numbered blocks, of which one attempt each is committed."""

from __future__ import annotations

import json
import uuid

from upsert_platform.local.maxcompute.errors import ServiceError, invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.maxstorage.arrow import read_body
from upsert_platform.local.maxcompute.maxstorage.describe import (
    answer_json,
    body_json,
    number_of,
    parameter,
    read_columns,
    target,
)
from upsert_platform.local.maxcompute.maxstorage.write import (
    abort as abort_session,
)
from upsert_platform.local.maxcompute.maxstorage.write import (
    any_session,
    check_static,
    commit_staged,
    open_session,
    stream_answer,
)
from upsert_platform.local.maxcompute.schema import Table
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.storage.ingest import stage
from upsert_platform.local.maxcompute.storage.sessions import Session, Staged

KIND = "maxstorage-blocks"
MAXIMUM_BLOCKS = 20_000
_PARTITION_LIMIT = 512


def create_session(service: Service, request: Request) -> Response:
    """``TableCreateWriteSession`` with ``WriteMode=BatchCompatible``."""
    table = target(service, request)
    body = body_json(request)
    dynamic = body.get("DynamicPartitionOptions") or {}
    limit = number_of(dynamic.get("DynamicPartitionLimit", -1), "DynamicPartitionLimit")
    state = {
        "static": check_static(table, body.get("PartitionSpec") or ""),
        "overwrite": bool(body.get("Overwrite")),
        "limit": _PARTITION_LIMIT if limit < 0 else limit,
        "enhanced": bool(body.get("EnhanceWriteCheck")),
    }
    session = service.sessions.create(KIND, table, state)
    return _described(session, table)


def get_session(service: Service, request: Request) -> Response:
    """``TableGetWriteSession``."""
    return _described(*any_session(service, request, kind=KIND))


def _described(session: Session, table: Table) -> Response:
    static = session.state["static"]
    dynamic = [key for key in table.partition_keys if key.name not in static]
    return answer_json(
        {
            "SessionId": session.session_id,
            "SessionStatus": session.status.upper(),
            "DataSchema": {
                "DataColumns": read_columns(table.columns),
                "PartitionColumns": read_columns(dynamic),
            },
            "MaxBlockNumber": MAXIMUM_BLOCKS,
            "EnhanceWriteCheck": session.state["enhanced"],
        },
        route=session.session_id,
    )


def create_stream(service: Service, request: Request) -> Response:
    """``TableCreateWriteStream``: reserves the quota for one attempt of one block."""
    session, table = open_session(service, request, kind=KIND)
    answer = stream_answer(table, session.state["static"]) | {"QuotaToken": uuid.uuid4().hex}
    return answer_json(answer, route=session.session_id)


def write(service: Service, request: Request) -> Response:
    """``TableWrite`` of one attempt of a block."""
    session, table = open_session(service, request, kind=KIND)
    block = number_of(parameter(request, "BlockNumber"), "BlockNumber")
    attempt = number_of(parameter(request, "AttemptNumber"), "AttemptNumber")
    parameter(request, "quotaToken")
    if not 0 <= block < MAXIMUM_BLOCKS:
        raise invalid_argument(f"BlockNumber must be at least 0 and below {MAXIMUM_BLOCKS}")
    rows = read_body(request.body)
    if service.drop:
        service.dropped_bytes += len(request.body)
    else:
        routed = stage(service.store.files, table, rows, static=session.state["static"], body=request.body)
        replaced: list[str] = []
        service.sessions.stage(
            session,
            str(block),
            attempt,
            routed,
            along=lambda: replaced.extend(service.sessions.unstage(session, str(block), attempt)),
        )
        service.store.files.remove(replaced)
    message = {
        "BlockNumber": block,
        "AttemptNumber": attempt,
        "WriterStats": {"RecordNum": rows.num_rows},
    }
    return answer_json({"CommitMessage": json.dumps(message), "RecordCount": rows.num_rows}, route=session.session_id)


def commit(service: Service, request: Request) -> Response:
    """``TableCommitWriteSession``: the attempts that the commit messages name."""
    session, table = any_session(service, request, kind=KIND)
    messages = body_json(request).get("CommitMessages") or []

    def choose(staged: list[Staged]) -> list[Staged]:
        chosen = _chosen(service, staged, messages)
        specs = {item.routed.spec for item in chosen}
        if len(specs) > session.state["limit"]:
            raise ServiceError(
                400, "DynamicPartitionLimitExceeded", f"{len(specs)} partitions, {session.state['limit']} are allowed"
            )
        return chosen

    commit_staged(service, session, table, choose)
    return _described(*any_session(service, request, kind=KIND))


def abort(service: Service, request: Request) -> Response:
    """``TableAbortWriteSession``."""
    return abort_session(service, request, kind=KIND)


def _chosen(service: Service, staged: list[Staged], messages: list[str]) -> list[Staged]:
    chosen: list[Staged] = []
    for text in messages:
        try:
            message = json.loads(text)
            identity = (str(message["BlockNumber"]), int(message["AttemptNumber"]))
            declared = int(message["WriterStats"]["RecordNum"])
        except (ValueError, KeyError, TypeError) as error:
            raise invalid_argument(f"commit message is not one of this server: {text}") from error
        found = [item for item in staged if (item.stream, item.stream_version) == identity]
        if declared != sum(item.routed.file.rows for item in found) and not service.drop:
            raise ServiceError(400, "BlockNotFound", f"block {identity[0]} attempt {identity[1]} was not written")
        chosen += found
    return chosen
