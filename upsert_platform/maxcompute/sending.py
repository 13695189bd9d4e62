"""The two ways into a table, for the driver: open sessions, give tasks their function, name what is to be committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Protocol

from upsert_platform.core.destination import RefusedFile
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.internal_columns import internal
from upsert_platform.maxcompute.choices import Compression, WriteApi
from upsert_platform.maxcompute.client import Client, TableState
from upsert_platform.maxcompute.connection import ServiceError, explain
from upsert_platform.maxcompute.ddl import add_partitions_statements
from upsert_platform.maxcompute.maxstorage import MaxStorage, WriteSession
from upsert_platform.maxcompute.names import quote
from upsert_platform.maxcompute.partition_spec import Spec, spec_text
from upsert_platform.maxcompute.partitions import partition_columns
from upsert_platform.maxcompute.rows import WireColumn, WirePlan
from upsert_platform.maxcompute.table import TUNNEL_KEY_TYPES, MaxComputeTable
from upsert_platform.maxcompute.tunnel import UpsertSession, UpsertTunnel
from upsert_platform.maxcompute.writer import WriteJob, attempt_of_task, write_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


_LOGGER = logging.getLogger(__name__)
TaskFunction = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
_BUCKET = internal("bucket")
_NO_PARTITION = "NoSuchPartition"


class Sending(Protocol):
    """One batch on its way.

    Attributes:
        api: name of the interface, kept with the recorded commit.
    """

    api: str

    @property
    def sessions(self) -> tuple[tuple[str, str], ...]:
        """Partition text and id of every open session."""

    def open(self, specs: list[Spec], *, record: Callable[[], None]) -> None:
        """Opens the sessions for rows of these partitions; after an error the caller aborts those that are open.

        Args:
            record: notes the sessions that are open so far, so that they can be dropped should this process die.

        Raises:
            DestinationError: refused.
            EndpointError: no answer.
        """

    def spread(self, frame: DataFrame) -> DataFrame:
        """The frame as the tasks should see it."""

    def task(self, open_file: Callable[[], RefusedFile] | None) -> TaskFunction:
        """The function of `mapInArrow`; picklable. Refused rows go to files that it opens, else among its outcomes.

        Args:
        """

    def filled(self, streams: Sequence[tuple[str, int]]) -> tuple[tuple[str, str], ...]:
        """Partition text and id of the sessions to commit, given the streams that tasks closed."""

    def abort(self) -> None:
        """Drops the sessions. Failures are logged: what is left of a session ends by itself."""


class MaxStorageSending:
    """Through MaxStorage: one session for all partitions of the batch, or one for each task."""

    def __init__(
        self, table: MaxComputeTable, actual: TableState, storage: MaxStorage, *, replaces: bool = False
    ) -> None:
        self.api = WriteApi.MAXSTORAGE.value
        self._table, self._plan, self._storage = table, wire_plan(table, actual), storage
        self._replaces = replaces
        self._sessions: list[WriteSession] = []

    @property
    def sessions(self) -> tuple[tuple[str, str], ...]:
        """The session, or those of the tasks in order."""
        static = self._table.partitions.static_text
        return tuple((static, session.session_id) for session in self._sessions)

    def open(self, specs: list[Spec], *, record: Callable[[], None]) -> None:
        """Opens the sessions; partitions that are missing are made by the service when it commits."""
        static = self._table.partitions.static_text
        count = 1
        if self._table.session_per_task:
            from pyspark.sql import SparkSession

            count = self._table.settings.parallelism or SparkSession.active().sparkContext.defaultParallelism
        try:
            for _ in range(count):
                self._sessions.append(self._storage.create_write_session(static, overwrite=self._replaces))
        except ServiceError as error:
            explain(error, self._storage.connection, f"opening a write session on {self._table.target}")
        record()

    def spread(self, frame: DataFrame) -> DataFrame:
        """Over as many tasks as declared; sorted by partition within them if that is asked for."""
        settings = self._table.settings
        tasks = len(self._sessions) if self._table.session_per_task else settings.parallelism
        if tasks is not None:
            by = [quote(name) for name in self._table.primary_key] if self._table.upserts else []
            frame = frame.repartition(tasks, *by)
        if settings.group_partition and self._table.partitions.dynamic:
            frame = frame.sortWithinPartitions(*partition_columns(self._table.partitions))
        return frame

    def task(self, open_file: Callable[[], RefusedFile] | None) -> TaskFunction:
        """Writes a stream of the session."""
        job = WriteJob(
            connection=self._storage.connection,
            endpoint=self._storage.endpoint,
            target=self._table.target,
            session=self._sessions[0],
            plan=self._plan,
            body_bytes=self._table.settings.body_bytes,
            compression=_codec(self._table),
            repeat_unsure=self._plan.upsert,
        )
        own = tuple(self._sessions) if self._table.session_per_task else ()

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            attempt = attempt_of_task()
            return write_task(batches, job, attempt=attempt, sessions=own, open_file=open_file)

        return write

    def filled(self, streams: Sequence[tuple[str, int]]) -> tuple[tuple[str, str], ...]:
        """The session; of those of tasks the ones that got rows, in the order of their streams. Others are dropped."""
        if not self._table.session_per_task:
            return self.sessions
        by_task = dict(enumerate(self._sessions))
        self._sessions = [by_task.pop(int(stream_id)) for stream_id, _ in streams]
        for session in by_task.values():
            _quietly(partial(self._storage.abort, session), session.session_id)
        return self.sessions

    def abort(self) -> None:
        """Drops the sessions."""
        for session in self._sessions:
            _quietly(partial(self._storage.abort, session), session.session_id)
        self._sessions = []


class TunnelSending:
    """Through the upsert tunnel: a session per partition, whole buckets per task."""

    def __init__(self, table: MaxComputeTable, actual: TableState, tunnel: UpsertTunnel, client: Client) -> None:
        self.api = WriteApi.TUNNEL.value
        self._table, self._plan, self._tunnel, self._client = table, wire_plan(table, actual), tunnel, client
        self._sessions: dict[tuple[str, ...], UpsertSession] = {}

    @property
    def sessions(self) -> tuple[tuple[str, str], ...]:
        """The sessions, by partition."""
        return tuple((session.partition, session.session_id) for session in self._sessions.values())

    def open(self, specs: list[Spec], *, record: Callable[[], None]) -> None:
        """Opens a session on each partition, several at once; those that are missing are made in one statement.

        Raises:
            DestinationError: refused, or the table has another number of buckets than declared.
            EndpointError: no answer.
        """
        whole: list[Spec] = [()] if not self._table.partitions.columns else []
        doing = f"opening an upsert session on {self._table.target}"
        missing = self._open_present(whole + specs, doing)
        record()
        if missing:
            try:
                for statement in add_partitions_statements(self._table, [spec for spec, _ in missing]):
                    self._client.run_sql(statement)
            except ServiceError as error:
                explain(error, self._tunnel.connection, f"adding {len(missing)} partitions to {self._table.target}")
            missing = self._open_present([spec for spec, _ in missing], doing)
            if missing:
                explain(missing[0][1], self._tunnel.connection, doing)
            record()

    def _open_present(self, specs: list[Spec], doing: str) -> list[tuple[Spec, ServiceError]]:
        """Opens a session on each partition that exists, and gives the others."""

        def create(spec: Spec) -> UpsertSession | ServiceError:
            try:
                return self._tunnel.create(spec_text(spec), slots=self._table.settings.slots)
            except ServiceError as error:
                return error

        fixed = len(self._table.partitions.static)
        with ThreadPoolExecutor(self._table.settings.commit_threads, thread_name_prefix="maxcompute-open") as pool:
            answers = list(zip(specs, pool.map(create, specs), strict=True))
        for spec, answer in answers:
            if isinstance(answer, UpsertSession):
                self._sessions[tuple(value for _, value in spec[fixed:])] = answer
        failures = [(spec, answer) for spec, answer in answers if isinstance(answer, ServiceError)]
        for _, failure in failures:
            if not (failure.told and failure.code == _NO_PARTITION):
                explain(failure, self._tunnel.connection, doing)
        for session in self._sessions.values():
            self._check(session)
        return failures

    def _check(self, session: UpsertSession) -> None:
        wanted = self._table.settings.buckets
        if wanted is not None and wanted != session.buckets:
            raise DestinationError(
                f"table '{self._table.name}': 'upsert.write.bucket.num' is {wanted}, {self._table.target} has"
                f" {session.buckets} buckets. Nothing was written"
            )
        kinds = {column.name: column.kind.root for column in self._plan.columns}
        for name in session.hash_key:
            if kinds[name] not in TUNNEL_KEY_TYPES:
                raise DestinationError(
                    f"table '{self._table.name}': key column '{name}' is {kinds[name]} in {self._table.target}, and the"
                    " tunnel has no sure bucket for it. Use 'write.api' = 'maxstorage'"
                )

    def spread(self, frame: DataFrame) -> DataFrame:
        """Rows of a bucket come to one task, so that a bucket needs few bodies."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import IntegerType, StructField, StructType

        if not self._sessions:
            return frame
        first, plan = next(iter(self._sessions.values())), self._plan

        def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from upsert_platform.maxcompute.tunnel_writer import add_bucket

            return add_bucket(batches, plan, first)

        schema = StructType([*frame.schema.fields, StructField(_BUCKET, IntegerType())])
        tasks = self._table.settings.parallelism or frame.sparkSession.sparkContext.defaultParallelism
        tasks = min(tasks, first.buckets)
        return frame.mapInArrow(add, schema).repartitionById(tasks, F.col(_BUCKET) % tasks)

    def task(self, open_file: Callable[[], RefusedFile] | None) -> TaskFunction:
        """Sends records of buckets into the sessions."""
        from upsert_platform.maxcompute.tunnel_writer import TunnelJob

        settings = self._table.settings
        job = TunnelJob(
            connection=self._tunnel.connection,
            endpoint=self._tunnel.endpoint,
            target=self._table.target,
            sessions=tuple(self._sessions.items()),
            plan=self._plan,
            bucket_bytes=settings.bucket_bytes,
            buffer_bytes=settings.writer_buffer,
            concurrency=settings.flush_concurrency,
            compression=_codec(self._table),
        )

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from upsert_platform.maxcompute.tunnel_writer import write_tunnel_task

            return write_tunnel_task(batches, job, open_file=open_file)

        return write

    def filled(self, streams: Sequence[tuple[str, int]]) -> tuple[tuple[str, str], ...]:
        """All sessions: one without rows commits as well."""
        return self.sessions

    def abort(self) -> None:
        """Drops the sessions."""
        for partition, session_id in self.sessions:
            _quietly(partial(self._tunnel.abort, partition, session_id), session_id)
        self._sessions = {}


def wire_plan(table: MaxComputeTable, actual: TableState) -> WirePlan:
    """Return the mapping of declared columns to the table's columns."""
    declared = {column.name.lower(): column for column, _ in table.data_columns}
    columns = []
    for present in actual.columns:
        column = declared.get(present.name)
        columns.append(
            WireColumn(
                name=present.name,
                source=column.name if column else None,
                declared=column.type if column else None,
                kind=present.type,
                required=not present.nullable,
                key=present.name in actual.primary_key,
            )
        )
    puts = table.puts_by_key(actual.primary_key)
    return WirePlan(
        columns=tuple(columns),
        partitions=table.partitions.dynamic,
        upsert=puts,
        key=table.primary_key,
        partial=puts and any(column.source is None for column in columns),
        deletes=table.upserts,
    )


def _codec(table: MaxComputeTable) -> str | None:
    compression = table.settings.compression
    return None if compression is Compression.NONE else compression.value


def _quietly(abort: Callable[[], None], session_id: str) -> None:
    try:
        abort()
    except ServiceError as error:
        _LOGGER.warning("session %s was not aborted and ends by itself: %s", session_id, error)
