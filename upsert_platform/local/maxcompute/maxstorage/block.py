"""Batch-compatible write sessions: numbered blocks, of which one attempt each is committed."""

from __future__ import annotations

import json
import uuid
from typing import Any

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
    session, table = new_session(service, target(service, request), body_json(request))
    return _described(session, table)


def new_session(service: Service, table: Table, body: dict[str, Any]) -> tuple[Session, Table]:
    """A session on the table, or on the partitions that the body's spec names."""
    dynamic = body.get("DynamicPartitionOptions") or {}
    limit = number_of(dynamic.get("DynamicPartitionLimit", -1), "DynamicPartitionLimit")
    state = {
        "static": check_static(table, body.get("PartitionSpec") or ""),
        "overwrite": bool(body.get("Overwrite")),
        "limit": _PARTITION_LIMIT if limit < 0 else limit,
        "enhanced": bool(body.get("EnhanceWriteCheck")),
    }
    return service.sessions.create(KIND, table, state), table


def get_session(service: Service, request: Request) -> Response:
    """``TableGetWriteSession``."""
    return _described(*any_session(service, request, kind=KIND))


def _described(session: Session, table: Table) -> Response:
    return answer_json(description(session, table), route=session.session_id)


def description(session: Session, table: Table) -> dict[str, Any]:
    """Return the description of a session for clients."""
    static = session.state["static"]
    dynamic = [key for key in table.partition_keys if key.name not in static]
    return {
        "SessionId": session.session_id,
        "SessionStatus": session.status.upper(),
        "DataSchema": {
            "DataColumns": read_columns(table.columns),
            "PartitionColumns": read_columns(dynamic),
        },
        "MaxBlockNumber": MAXIMUM_BLOCKS,
        "EnhanceWriteCheck": session.state["enhanced"],
    }


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
    return answer_json(write_block(service, session, table, (block, attempt), request.body), route=session.session_id)


def write_block(
    service: Service, session: Session, table: Table, place: tuple[int, int], body: bytes
) -> dict[str, Any]:
    """Stages the rows of one attempt of a block, and gives the message to commit it with."""
    block, attempt = place
    if not 0 <= block < MAXIMUM_BLOCKS:
        raise invalid_argument(f"BlockNumber must be at least 0 and below {MAXIMUM_BLOCKS}")
    rows = read_body(body)
    if service.drop:
        service.dropped_bytes += len(body)
    else:
        routed = stage(service.store.files, table, rows, static=session.state["static"], body=body)
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
    return {"CommitMessage": json.dumps(message), "RecordCount": rows.num_rows}


def commit(service: Service, request: Request) -> Response:
    """``TableCommitWriteSession``: the attempts that the commit messages name."""
    session, table = any_session(service, request, kind=KIND)
    commit_blocks(service, session, table, body_json(request).get("CommitMessages") or [])
    return _described(*any_session(service, request, kind=KIND))


def commit_blocks(service: Service, session: Session, table: Table, messages: list[str]) -> None:
    """Commits the attempts that the messages name."""

    def choose(staged: list[Staged]) -> list[Staged]:
        chosen = _chosen(service, staged, messages)
        specs = {item.routed.spec for item in chosen}
        if len(specs) > session.state["limit"]:
            raise ServiceError(
                400, "DynamicPartitionLimitExceeded", f"{len(specs)} partitions, {session.state['limit']} are allowed"
            )
        return chosen

    commit_staged(service, session, table, choose)


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
