"""Write sessions: streams with versions, and a commit that names them (spec 3.11, 4.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from upsert_platform.local.maxcompute.errors import ServiceError, invalid_argument
from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.maxstorage.arrow import read_body
from upsert_platform.local.maxcompute.maxstorage.describe import (
    answer_json,
    body_json,
    find_target,
    number_of,
    parameter,
    session_not_found,
    target,
    write_schema,
)
from upsert_platform.local.maxcompute.schema import Table, format_spec, full_spec, parse_spec
from upsert_platform.local.maxcompute.service import Service
from upsert_platform.local.maxcompute.storage.ingest import group_by_spec, stage
from upsert_platform.local.maxcompute.storage.sessions import (
    ABORTED,
    COMMITTED,
    COMMITTING,
    NORMAL,
    Session,
    Staged,
    session_conflict,
)
from upsert_platform.local.maxcompute.storage.store import Change

KIND = "maxstorage"


def check_static(table: Table, text: str) -> dict[str, str]:
    """A full, partial or empty spec: the leading partition keys with their values."""
    static = parse_spec(text) if text else {}
    names = [key.name for key in table.partition_keys]
    if list(static) != names[: len(static)]:
        if sorted(static) == sorted(names[: len(static)]):
            return {name: static[name] for name in names[: len(static)]}
        wanted = ", ".join(names) or "no partition columns"
        raise invalid_argument(f"partition spec '{text}' must give leading partition columns of: {wanted}")
    return static


def create_session(service: Service, request: Request) -> Response:
    """``TableCreateWriteSession``; a partition that a full spec names is created at commit, with its rows."""
    table = target(service, request)
    body = body_json(request)
    flags = body.get("Flags") or {}
    static = check_static(table, body.get("PartialPartitionSpec") or "")
    session = service.sessions.create(
        KIND, table, {"static": static, "overwrite": str(flags.get("overwrite", "false")).lower() == "true"}
    )
    return answer_json({"SessionId": session.session_id}, route=session.session_id)


def open_session(service: Service, request: Request, *, kind: str = KIND) -> tuple[Session, Table]:
    """The session that a request names, when it is open, and its table."""
    session, table = any_session(service, request, kind=kind)
    if session.status != NORMAL:
        raise session_conflict(session)
    return session, table


def any_session(service: Service, request: Request, *, kind: str = KIND) -> tuple[Session, Table]:
    """The session that a request names, whatever its status, and its table."""
    session_id = parameter(request, "SessionId")
    session = service.sessions.find(kind, session_id)
    if session is None:
        raise session_not_found(session_id)
    return session, service.sessions.table(session, *find_target(service, request))


def get_session(service: Service, request: Request) -> Response:
    """``TableGetWriteSession``: the latest closed version of each stream."""
    session, _ = any_session(service, request)
    rows = service.catalogue.execute(
        "SELECT stream, max(version) FROM streams WHERE session_id = ? AND closed = 1 GROUP BY stream",
        session.session_id,
    )
    return answer_json(
        {"Streams": dict(rows), "SessionStatus": session.status.upper()},
        route=session.session_id,
    )


def stream_identity(request: Request, body: dict[str, Any]) -> tuple[str, int]:
    """Id and version of the stream that a request is about."""
    stream = body.get("StreamId") or request.query.get("StreamId")
    version = body.get("StreamVersion") or request.query.get("StreamVersion")
    if not stream:
        raise invalid_argument("StreamId is required")
    return str(stream), number_of(version, "StreamVersion")


def stream_answer(table: Table, static: dict[str, str]) -> dict[str, Any]:
    """Return the description of a stream for clients: its table, schema and data to write."""
    return {
        "TableSchema": write_schema(table, static),
        "TableId": table.table_id,
        "SchemaVersion": table.schema_version,
    }


def create_stream(service: Service, request: Request) -> Response:
    """``TableCreateWriteStream``; repeated while nothing was written it changes nothing."""
    session, table = open_session(service, request)
    body = body_json(request)
    stream, version = stream_identity(request, body)
    found = _stream(service, session, stream, version)
    if found is not None and (found[0] or found[1]):
        raise ServiceError(
            409, "StreamAlreadyExists", f"stream {stream} version {version} has been written: open another version"
        )
    service.catalogue.execute(
        "INSERT OR IGNORE INTO streams VALUES (?, ?, ?, 0, 0)", session.session_id, stream, version
    )
    answer = stream_answer(table, session.state["static"])
    if body.get("ExactlyOnceMode"):
        answer["AccessToken"] = _access_token(session, stream, version)
    return answer_json(answer, route=session.session_id)


def get_stream(service: Service, request: Request) -> Response:
    """``TableGetWriteStream``: how far a stream has come, to go on with it."""
    session, table = open_session(service, request)
    stream, version = stream_identity(request, body_json(request))
    closed, rows = require_stream(service, session, stream, version)
    answer = stream_answer(table, session.state["static"]) | {
        "status": "CLOSED" if closed else "OK",
        "recordCount": rows,
        "LatestSchemaVersion": table.schema_version,
        "RowOffset": rows,
    }
    if request.query.get("ExactlyOnceMode") == "true":
        answer["AccessToken"] = _access_token(session, stream, version)
    return answer_json(answer, route=session.session_id)


def write(service: Service, request: Request) -> Response:
    """``TableWrite``: one Arrow stream, staged until the commit."""
    if service.drop:
        service.dropped_bytes += len(request.body)
        return answer_json({}, route=parameter(request, "SessionId"))
    session, table = open_session(service, request)
    stream, version = parameter(request, "StreamId"), number_of(parameter(request, "StreamVersion"), "StreamVersion")
    closed, offset = require_stream(service, session, stream, version)
    if closed:
        raise ServiceError(409, "StreamClosed", f"stream {stream} version {version} is closed")
    rows = read_body(request.body)
    declared = number_of(parameter(request, "Count"), "Count")
    if declared != rows.num_rows:
        raise invalid_argument(f"Count is {declared}, the body has {rows.num_rows} rows")
    answer: dict[str, Any] = {}
    if "RowOffset" in request.query:
        expected = number_of(request.query["RowOffset"], "RowOffset")
        if request.headers.get("x-odps-max-storage-write-access-token") != _access_token(session, stream, version):
            raise ServiceError(403, "AccessTokenMismatch", "another writer has taken this stream")
        if expected < offset:
            # A repeated write: its rows are there already.
            return answer_json({"ExactlyOnceRowOffset": offset}, route=session.session_id)
        if expected > offset:
            raise invalid_argument(f"RowOffset is {expected}, the stream has {offset} rows")
        answer["ExactlyOnceRowOffset"] = offset + rows.num_rows
    routed = stage(service.store.files, table, rows, static=session.state["static"], body=request.body)
    placed = offset if "RowOffset" in request.query else None
    service.sessions.stage(
        session,
        stream,
        version,
        routed,
        along=lambda: _advance(service, session, (stream, version), rows.num_rows, offset=placed),
    )
    return answer_json(answer, route=session.session_id)


def _advance(service: Service, session: Session, stream: tuple[str, int], rows: int, *, offset: int | None) -> None:
    """Counts rows of a stream that is still open, and still has `offset` rows if that is given."""
    found = service.catalogue.execute(
        "UPDATE streams SET rows = rows + ? WHERE session_id = ? AND stream = ? AND version = ? AND closed = 0"
        " AND rows = coalesce(?, rows) RETURNING rows",
        rows,
        session.session_id,
        *stream,
        offset,
    )
    if not found:
        raise ServiceError(
            409, "StreamModified", f"stream {stream[0]} version {stream[1]} was written or closed meanwhile"
        )


def close_stream(service: Service, request: Request) -> Response:
    """``TableCloseWriteStream``: only closed versions can be committed."""
    session, _ = open_session(service, request)
    stream, version = stream_identity(request, body_json(request))
    if not service.drop:
        require_stream(service, session, stream, version)
    service.catalogue.execute(
        "UPDATE streams SET closed = 1 WHERE session_id = ? AND stream = ? AND version = ?",
        session.session_id,
        stream,
        version,
    )
    return answer_json({})


def commit(service: Service, request: Request) -> Response:
    """``TableCommitWriteSession``: the versions that are named, or the latest closed one of each stream."""
    session, table = any_session(service, request)
    body = body_json(request)

    def choose(staged: list[Staged]) -> list[Staged]:
        chosen = _chosen_streams(service, session, body)
        return [item for stream in chosen for item in staged if (item.stream, item.stream_version) == stream]

    commit_staged(service, session, table, choose)
    return answer_json({})


def _chosen_streams(service: Service, session: Session, body: dict[str, Any]) -> list[tuple[str, int]]:
    streams = [str(stream) for stream in body.get("StreamIds") or ()]
    versions = [int(version) for version in body.get("StreamVersions") or ()]
    if len(streams) != len(versions):
        raise invalid_argument("StreamIds and StreamVersions must have the same length")
    if not streams:
        rows = service.catalogue.execute(
            "SELECT stream, max(version) FROM streams WHERE session_id = ? AND closed = 1 GROUP BY stream"
            " ORDER BY min(rowid)",
            session.session_id,
        )
        return [(stream, version) for stream, version in rows]
    if len(set(streams)) != len(streams):
        raise invalid_argument("a stream is named twice: one version of it can be committed")
    for stream, version in zip(streams, versions, strict=True):
        found = _stream(service, session, stream, version)
        if found is None or not found[0]:
            state = "does not exist" if found is None else "is not closed"
            raise ServiceError(400, "StreamNotClosed", f"stream {stream} version {version} {state}")
    return list(zip(streams, versions, strict=True))


def commit_staged(
    service: Service,
    session: Session,
    table: Table,
    choose: Callable[[list[Staged]], list[Staged]],
    operation: str = "STORAGE_WRITE",
) -> None:
    """Commits what is chosen of the staged files and the session in one transaction, and removes the others."""
    overwrite = bool(session.state.get("overwrite"))
    static = session.state["static"]

    def work(staged: list[Staged], along: Callable[[Sequence[Staged]], None]) -> None:
        kept = choose(staged)
        grouped = group_by_spec(item.routed for item in kept)
        if len(static) == len(table.partition_keys):
            grouped.setdefault(full_spec(table, format_spec(static)) if static else "", ())
        service.store.commit(
            table.table_id,
            [Change(spec, files, resets=overwrite) for spec, files in grouped.items()],
            "OVERWRITE" if overwrite else operation,
            create_partitions=True,
            along=lambda: along(kept),
        )

    service.sessions.commit(session, table, work)


def abort(service: Service, request: Request, *, kind: str = KIND) -> Response:
    """``TableAbortWriteSession``; repeated it changes nothing."""
    session, _ = any_session(service, request, kind=kind)
    if session.status == COMMITTED:
        raise session_conflict(session)
    if session.status in (NORMAL, COMMITTING):
        service.sessions.end(session, ABORTED)
    return answer_json({})


def get_write_schema(service: Service, request: Request) -> Response:
    """``TableGetWriteSchema``."""
    session, table = any_session(service, request)
    return answer_json({"TableSchema": write_schema(table, session.state["static"])}, route=session.session_id)


def _stream(service: Service, session: Session, stream: str, version: int) -> tuple[bool, int] | None:
    rows = service.catalogue.execute(
        "SELECT closed, rows FROM streams WHERE session_id = ? AND stream = ? AND version = ?",
        session.session_id,
        stream,
        version,
    )
    return (bool(rows[0][0]), int(rows[0][1])) if rows else None


def require_stream(service: Service, session: Session, stream: str, version: int) -> tuple[bool, int]:
    """Return whether the stream is closed, and how many rows it has.

    Raises:
        ServiceError: StreamNotFound.
    """
    found = _stream(service, session, stream, version)
    if found is None:
        raise ServiceError(404, "StreamNotFound", f"stream {stream} version {version} was not created")
    return found


def _access_token(session: Session, stream: str, version: int) -> str:
    return f"{session.session_id}.{stream}.{version}"
