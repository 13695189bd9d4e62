"""MaxStorage, the Arrow storage interface: write sessions with versioned streams, and split reads.

Driver and writing tasks use it alike; a session is a name on the server, so what a task needs fits into `WriteSession`.
PyODPS builds the requests. Left aside are its retries (without end after 429 and 308), its check of `__operation` row
by row, its writers (which send old rows behind newer ones after a failed flush), and its idea that 308 is success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from upsert_platform.maxcompute.connection import Connection, ServiceError, guarded_rest, with_retries
from upsert_platform.maxcompute.names import TableName

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_READ_UNITS = {"TimestampUnit": "micro", "DatetimeUnit": "milli"}
SPLIT_BYTES = 64 << 20
_READ_ROWS = 4096 * 4
_READ_READY_SECONDS = 600
_ROUTE_HEADER = "x-odps-max-storage-route-token"


@dataclass(frozen=True, slots=True)
class WriteSession:
    """A write session: a name on the server, and the token that routes requests to where it lives."""

    session_id: str
    route: str | None = None


@dataclass(frozen=True, slots=True)
class WriteStream:
    """An open stream of a session.

    Attributes:
        version: of the stream; a retried task opens a higher one, and only committed versions count.
        table_id: with `schema_version`, what the server wants to hear again with every body.
        column_ids: id of each data column, names in lower case.
    """

    stream_id: str
    version: int
    table_id: str | None
    schema_version: int | None
    route: str | None
    column_ids: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadSession:
    """A read session with `splits` parts, each read on its own.

    Attributes:
        rows: how many the service expects to give; None where it does not tell.
    """

    session_id: str
    splits: int
    route: str | None = None
    rows: int | None = None


def told_rows(statistics: object) -> int | None:
    """Return the row count in the statistics of a read session, given as a number or as text."""
    told = str(getattr(statistics, "estimated_row_count", ""))
    return int(told) if told.isdecimal() else None


class MaxStorage:
    """Requests about one table. Every method makes one request, repeated after failures that may pass.

    Args:
        endpoint: of the tunnel.
    """

    def __init__(self, connection: Connection, endpoint: str, table: TableName) -> None:
        from odps.maxstorage.models.identifier import TableIdentifier
        from odps.maxstorage.stub import StorageStub

        class Stub(StorageStub):
            def _execute(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
                answer = func(*args, **kwargs)
                return answer if kwargs.get("stream") else _of_service(answer)

        self.connection = connection
        self.endpoint = endpoint
        self._rest = guarded_rest(connection, endpoint, tag="MAXSTORAGE")
        self._stub = Stub(self._rest, "2")
        self._table = TableIdentifier(table.project, table.table, table.schema)

    def close(self) -> None:
        """Drops idle connections. Idempotent."""
        self._rest.session.close()

    def create_write_session(self, partition: str = "", *, overwrite: bool = False) -> WriteSession:
        """Opens a session on the table, or on the partition (full or leading part) that `partition` names.

        Raises:
            ServiceError: refused, or no answer.
        """
        from odps.maxstorage.models.requests import CreateTableWriteSessionRequest

        flags = {"overwrite": str(overwrite).lower()}
        if self.connection.quota:
            flags["quota_name"] = self.connection.quota
        request = CreateTableWriteSessionRequest(partial_partition_spec=partition, flags=flags)
        answer = self._run(lambda: self._stub.create_table_write_session(self._table, request, None))
        if not answer.session_id:
            raise ServiceError("the answer has no session id", status=None, code="", sure=False, told=False)
        return WriteSession(answer.session_id, answer.route_token)

    def open_stream(self, session: WriteSession, stream_id: str, version: int) -> WriteStream:
        """Opens one version of a stream.

        Raises:
            ServiceError: the session is not open, or no answer.
        """
        from odps.maxstorage.models.requests import CreateWriteStreamRequest

        request = CreateWriteStreamRequest(stream_id=stream_id, stream_version=version)
        answer = self._run(
            lambda: self._stub.create_table_write_stream(self._table, session.session_id, request, session.route, None)
        )
        route = answer.route_token or session.route
        columns = [item["columnType"] for item in (answer.data_schema or {}).get("DataColumns", ())]
        ids = {str(column["MemberName"]).lower(): int(column["ColumnId"]) for column in columns}
        return WriteStream(stream_id, version, answer.table_id, answer.schema_version, route, ids)

    def write(self, session: WriteSession, stream: WriteStream, body: bytes | memoryview, *, rows: int) -> None:
        """Sends one body, without repeating it: whether that may be done is the caller's to know.

        Raises:
            ServiceError: refused, or no answer (then `sure` is False: the rows may be there).
        """
        self._run(
            lambda: self._stub.parse_write_stream_response(
                self._stub.write_table(
                    self._table,
                    session.session_id,
                    stream.stream_id,
                    stream.version,
                    rows,
                    body,
                    stream.route,
                    streaming_table_id=stream.table_id,
                    streaming_schema_version=stream.schema_version,
                )
            ),
            retries=0,
        )

    def close_stream(self, session: WriteSession, stream: WriteStream) -> None:
        """Ends a stream version; only closed ones can be committed.

        Raises:
            ServiceError: refused, or no answer.
        """
        from odps.maxstorage.models.requests import CloseWriteStreamRequest

        request = CloseWriteStreamRequest(session.session_id, stream.stream_id, stream.version)
        self._run(lambda: self._stub.close_write_stream(self._table, request, stream.route, None))

    def commit(
        self,
        session: WriteSession,
        streams: Sequence[tuple[str, int]],
        *,
        retries: int | None = None,
        deadline: float | None = None,
    ) -> None:
        """Makes the rows of exactly these stream versions visible at once.

        Args:
            streams: id and version; not empty, for an empty list would commit every closed stream.

        Raises:
            ServiceError: refused, or no answer (then nobody knows whether the commit happened).
        """
        if not streams:
            raise ValueError("a commit names its streams")
        ids, versions = [stream_id for stream_id, _ in streams], [version for _, version in streams]
        self._run(
            lambda: self._stub.commit_table_write_session(
                self._table, session.session_id, ids, versions, None, session.route
            ),
            retries=retries,
            deadline=deadline,
        )

    def status(self, session: WriteSession) -> str:
        """The status of a write session in lower case; empty where the service does not tell it.

        Raises:
            ServiceError: the session is not known, or no answer.
        """
        params = {"Action": "TableGetWriteSession", "Target": self._table.to_target(), "SessionId": session.session_id}
        headers = {"Content-Type": "application/json; charset=utf-8"}
        if session.route:
            headers[_ROUTE_HEADER] = session.route
        url = f"{self._rest.endpoint}/api/storage/v2"
        answer = self._run(lambda: _of_service(self._rest.post(url, data="{}", params=params, headers=headers)))
        return str((answer.json() if answer.content else {}).get("SessionStatus") or "").lower()

    def abort(self, session: WriteSession) -> None:
        """Drops a session and what it holds.

        Raises:
            ServiceError: refused, or no answer.
        """
        self._run(lambda: self._stub.abort_table_write_session(self._table, session.session_id, None, session.route))

    def create_read_session(
        self,
        columns: Sequence[str],
        *,
        partition_columns: Sequence[str] = (),
        partitions: Sequence[str] = (),
        predicate: str = "",
        split_bytes: int = SPLIT_BYTES,
    ) -> ReadSession:
        """Opens a read session on the table as it is now.

        Args:
            columns: data columns to read.
            partition_columns: partition columns to read as well.
            partitions: specs; all if empty.
            predicate: SQL over the columns; the service may ignore it, so the caller filters again.

        Raises:
            ServiceError: refused, or no answer.
        """
        from odps.maxstorage.models.enums import SplitMode
        from odps.maxstorage.models.requests import CreateTableReadSessionRequest
        from odps.maxstorage.options import SplitOptions
        from odps.maxstorage.read.table_session import TableReadSession

        options = SplitOptions()
        options.split_mode, options.split_number = SplitMode.SIZE, split_bytes
        request = CreateTableReadSessionRequest(
            required_data_columns=list(columns),
            required_partition_columns=list(partition_columns),
            required_partitions=list(partitions),
            split_options=options,
            arrow_options=dict(_READ_UNITS),
            filter_predicate=predicate,
            filter_predicate_fallback=bool(predicate),
        )
        session = self._run(
            lambda: TableReadSession(self._stub, self._table, request, session_ready_timeout=_READ_READY_SECONDS)
        )
        answer = session._response  # noqa: SLF001
        return ReadSession(session.id, len(session.splits), answer.route_token, told_rows(answer.session_stats))

    def create_change_session(
        self, columns: Sequence[str], *, partition_columns: Sequence[str], after: int, upto: int | None
    ) -> tuple[ReadSession, int]:
        """Opens a read session on the changes that were committed after a version; the table's latest version.

        Raises:
            ServiceError: refused (the table keeps no changes, or no longer those), no latest version, or no answer.
        """
        from odps.maxstorage.models.requests import CreateTableReadSessionRequest
        from odps.maxstorage.options import IncrementalReadOptions
        from odps.maxstorage.read.table_session import TableReadSession

        request = CreateTableReadSessionRequest(
            required_data_columns=list(columns),
            required_partition_columns=list(partition_columns),
            arrow_options=dict(_READ_UNITS),
            incremental_read=True,
            incremental_read_options=IncrementalReadOptions(version="CDC", from_=after, to=upto),
        )
        session = self._run(
            lambda: TableReadSession(self._stub, self._table, request, session_ready_timeout=_READ_READY_SECONDS)
        )
        answer = session._response  # noqa: SLF001
        if not answer.latest_version:
            text = f"read session {session.id} does not tell the table's latest version"
            raise ServiceError(text, status=200, code="NoLatestVersion", sure=True, told=False)
        return ReadSession(session.id, len(session.splits), answer.route_token), int(answer.latest_version)

    def read_split(self, session: ReadSession, index: int) -> Iterator[pa.RecordBatch]:
        """Reads one split.

        Raises:
            ServiceError: refused, no answer at the start, or a body that ends before its end marker.
        """
        from odps.maxstorage.models.requests import CreateTableReadStreamRequest
        from odps.maxstorage.read.table_session import IndexedInputSplit

        from upsert_platform.maxcompute.arrow_body import read_batches

        split = IndexedInputSplit(session.session_id, index)
        request = CreateTableReadStreamRequest(max_batch_rows=_READ_ROWS)
        answer = self._run(lambda: self._stub.create_table_read_stream(self._table, split, request, session.route))
        with closing(answer):
            yield from read_batches(answer, f"split {index} of read session {session.session_id}")

    def _run(self, request: Callable[[], T], *, retries: int | None = None, deadline: float | None = None) -> T:
        return with_retries(request, self.connection, retries=retries, deadline=deadline)


def _of_service(answer: Any) -> Any:
    """An answer with nothing or a JSON object in it: a gateway that says 200 to everything has something else.

    Raises:
        ServiceError: it is not from the service, so nobody knows what became of the request.
    """
    try:
        known = not answer.content or isinstance(answer.json(), dict)
    except ValueError:
        known = False
    if known:
        return answer
    text = f"status {answer.status_code} with {answer.content[:200]!r}, which is not an answer of the service"
    raise ServiceError(text, status=None, code="", sure=False, told=False)
