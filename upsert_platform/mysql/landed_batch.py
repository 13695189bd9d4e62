"""One batch of a table: chunks of its snapshot, then the log; or the deletes that a new snapshot has found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.data_files import DataFile, write_rows
from upsert_platform.changelog.head import Head
from upsert_platform.changelog.landed_rows import deletes_of_unmet
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.errors import ReplicationError
from upsert_platform.core.source import Landed
from upsert_platform.mysql.binlog.stream import log_end
from upsert_platform.mysql.catalog import key_problem, read_table
from upsert_platform.mysql.chunks import batch_chunks, find_chunks
from upsert_platform.mysql.connection import Connection
from upsert_platform.mysql.known_gtids import with_gtids
from upsert_platform.mysql.landing import Landing
from upsert_platform.mysql.log_batch import BY_GTIDS, REBUILD, LogBatch, begun_at, next_change, server_id_of
from upsert_platform.mysql.options import OnUnloggedValues, StartupMode
from upsert_platform.mysql.position import LogPosition
from upsert_platform.mysql.privileges import require_grants
from upsert_platform.mysql.progress import FIRST_BYTE, LOG, SNAPSHOT, Progress
from upsert_platform.mysql.server_state import ServerLog, await_visible, read_server_log
from upsert_platform.mysql.snapshot import SnapshotPart, read_chunks, read_chunks_in_task
from upsert_platform.mysql.streamed_table import StreamedTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from upsert_platform.core.task_runner import TaskRunner

_FEW_CHUNKS: Final = 4
"""Chunks that one task reads where a batch is taken to be small; a server's estimate of rows may be far off."""


def begin(source: StreamedTable, *, snapshot: bool) -> Progress:
    """Return the start of reading, with the table as it is there.

    Raises:
        ReplicationError: the table has no key, or another one than is declared; the log does not hold the position.
        EndpointError: the server does not answer, or a grant is missing.
    """
    settings = source.settings
    while True:
        with Connection(settings.server) as connection:
            require_grants(connection, settings.database, settings.table)
            log = read_server_log(connection)
            position = log.end if snapshot else _startup_position(source, log.start, log.end)
            if not log.has(position):
                raise ReplicationError(
                    f"table '{source.table.name}': the log of MySQL server {settings.server} does not hold the position"
                    f" {position}; its oldest file is {log.start.file}"
                )
            executed = log.executed if position == log.end else ""
            position = with_gtids(connection, position, executed=executed, server_id=server_id_of(settings))
            table = read_table(connection, settings.database, settings.table)
            told_at = log_end(connection)
        if table is None:
            raise ReplicationError(f"MySQL server {settings.server} has no table {settings.full_name}")
        problem = key_problem(table)
        if problem is not None:
            raise ReplicationError(problem)
        if table.primary_key != source.table.primary_key:
            raise ReplicationError(
                f"table '{source.table.name}' is declared with the primary key ({', '.join(source.table.primary_key)})"
                f" and has ({', '.join(table.primary_key)}) on the server; declare that one"
            )
        unknown = next_change(settings, table, start=position, upto=told_at)
        if unknown is None or not snapshot:
            begun = begun_at(settings, position)
            return Progress(
                log.identity, position, table, told_at, unknown_upto=unknown, snapshot=snapshot, begun=begun
            )
        # The table was changed in between: the log behind that is told by the columns as they are now.


def begin_anew(source: StreamedTable, head: Head, *, location: TableLocation) -> Landed:
    """A batch without rows, behind which a new snapshot begins. Raises what `begin` does."""
    made = replace(begin(source, snapshot=True), rebuilt_from=head.batch + 1)
    landing, number = Landing(source.table, source.stream), head.positions.offsets[source.stream][LOG]
    rows_made = iter([landing.account(LOG, number, number)])
    files = write_rows(rows_made, location=location, schema=landing.schema, batch=head.batch + 1)
    ends = {(source.stream, LOG): number}
    return Landed(files, head.positions.advanced(ends, {source.stream: made.to_json()}))


def _moved(progress: Progress, log: ServerLog) -> Progress:
    """The state of a reader that goes on at another server, where its transactions are known by their global ids.

    Raises:
        ReplicationError: how the table looked is told by places in the log of the server before.
    """
    gtids = progress.position.gtids
    if not log.has_all(gtids) or progress.unknown_upto is not None:
        told = f"and does not hold the transactions up to {gtids or progress.position}"
        if not gtids:
            told = f"and the global ids of all transactions up to {progress.position} are not known"
        raise ReplicationError(
            f"table {progress.table.full_name}: another server answers than the one that was read, {told}; {REBUILD}"
        )
    position = replace(BY_GTIDS, gtids=gtids)
    consistent = log.end if progress.consistent is not None else None
    prepared = tuple(replace(item, place=None) for item in progress.prepared)
    return replace(
        progress,
        server=log.identity,
        position=position,
        told_at=log.end,
        consistent=consistent,
        begun=0,
        prepared=prepared,
    )


def _startup_position(source: StreamedTable, oldest: LogPosition, end: LogPosition) -> LogPosition:
    settings = source.settings
    match settings.startup_mode:
        case StartupMode.LATEST:
            return end
        case StartupMode.OFFSET:
            assert settings.startup_file is not None
            assert settings.startup_position is not None
            return LogPosition(settings.startup_file, settings.startup_position)
        case _:
            return oldest


class LandedBatch:
    """Lands one batch.

    Args:
        spark: gives a session, where one is needed.
        planned: number of the log's byte up to which the run means to read.
        runner: of the one task that reads few chunks; None: Spark divides them among tasks.
    """

    def __init__(
        self,
        source: StreamedTable,
        spark: Callable[[], SparkSession],
        *,
        head: Head,
        location: TableLocation,
        planned: int,
        runner: TaskRunner | None,
    ) -> None:
        self.source = source
        self.settings = source.settings
        self.spark = spark
        self.head = head
        self.location = location
        self.planned = planned
        self.runner = runner
        self.landing = Landing(source.table, source.stream)
        lanes = head.positions.offsets.get(source.stream, {})
        self.number, self.read = lanes.get(LOG, FIRST_BYTE), lanes.get(SNAPSHOT, 0)

    @property
    def _batch(self) -> int:
        return self.head.batch + 1

    def land(self) -> Landed:
        """The rows, and the positions behind them."""
        snapshots = self.settings.startup_mode in (StartupMode.INITIAL, StartupMode.SNAPSHOT)
        progress = self.source.progress(self.head.positions) or begin(self.source, snapshot=snapshots)
        if progress.swept_before:
            return self._swept(progress)
        server_id = server_id_of(self.settings)
        with Connection(self.settings.server) as connection:
            server_log = read_server_log(connection)
            moved = server_log.identity != progress.server
            if moved:
                progress = _moved(progress, server_log)
                visible = with_gtids(connection, server_log.end, executed=server_log.executed, server_id=server_id)
            else:
                if not progress.position.gtids and server_log.has(progress.position):
                    position = with_gtids(connection, progress.position, executed="", server_id=server_id)
                    progress = replace(progress, position=position)
                visible = progress.position
        files: list[DataFile] = []
        read, ended = self.read, False
        columns = self._stored_columns(progress) if progress.columns is None else progress.columns
        chunks: tuple[LogPosition, Collection[str]] | None = None
        unread_upto: LogPosition | None = None
        if progress.snapshot:
            first = progress.after is None
            files, progress, ended, read_from = self._chunks(progress, visible=visible)
            read += sum(item.rows for item in files)
            chunks = read_from, progress.columns or ()
            if first and not moved:
                unread_upto = read_from
        with Connection(self.settings.server) as connection:
            end = log_end(connection)
            if moved:
                # Where the other server sends nothing, this tells whether it has nothing to send.
                end = with_gtids(connection, end, executed=server_log.executed, server_id=server_id)
        since = self.settings.startup_timestamp if self.settings.startup_mode is StartupMode.TIMESTAMP else None
        log = LogBatch(
            self.settings,
            progress,
            self.landing,
            start=self.number,
            since=since,
            by_gtids=moved,
            unread_upto=unread_upto,
            columns=columns,
            chunks=chunks,
        )
        files += self._written(self._log_rows(log, end, read))
        number = self._number_behind(log, end)
        made = replace(
            progress,
            position=log.position,
            table=log.table,
            before=log.before,
            told_at=log.told_at,
            unknown_upto=log.unknown_upto,
            begun=log.begun,
            prepared=log.prepared,
            columns=tuple(sorted({*(progress.columns or ()), *log.columns})),
        )
        if log.rewritten and self.settings.on_unlogged_values is OnUnloggedValues.SNAPSHOT:
            # The log goes on from here; rows that chunks find are older than what it tells.
            anew = replace(made, snapshot=True, after=None, consistent=None, rebuilt_from=self._batch + 1)
            return self._landed(files, anew, number=number, read=read)
        made = replace(made, rewritten=(*made.rewritten, *log.rewritten))
        if ended:
            # What a chunk saw of later changes, the log tells up to here.
            made = replace(made, snapshot=False, consistent=end, swept_before=progress.rebuilt_from, rebuilt_from=0)
        if log.counts.truncated:
            made = replace(made, swept_before=self._batch + 1)
        return self._landed(files, made, number=number, read=read)

    def _stored_columns(self, progress: Progress) -> set[str]:
        """Columns of which rows may have values, where an earlier version noted none: dropped ones stay stored."""
        stored = ChangelogStore(self.location, self.source.table, mode=self.source.mode).opened().schema()
        return {*(column.name for column in progress.table.columns), *(field.name for field in stored.fields)}

    def _number_behind(self, log: LogBatch, end: LogPosition) -> int:
        """The number of the byte at the batch's end; not below what was planned once the log was read so far."""
        number = self.number + log.counts.distance
        return max(number, self.planned) if log.position.order() >= end.order() else number

    def _log_rows(self, log: LogBatch, end: LogPosition, read: int) -> Iterator[pa.RecordBatch]:
        yield from log.read(end)
        counts, number = log.counts, self._number_behind(log, end)
        yield self.landing.account(
            LOG, self.number, number, records=counts.records, changes=counts.changes, deletes=counts.deletes
        )
        if read > self.read:
            count = read - self.read
            yield self.landing.account(SNAPSHOT, self.read, read, records=count, changes=count)

    def _chunks(
        self, progress: Progress, *, visible: LogPosition
    ) -> tuple[list[DataFile], Progress, bool, LogPosition]:
        """Rows of the next chunks, whether they were the last, and the end of the log before they were read."""
        with Connection(self.settings.server) as connection:
            await_visible(connection, visible)
            # Rows are read as the table is now; the log behind them may still tell of it as it was.
            table = read_table(connection, self.settings.database, self.settings.table)
            if table is None or table.primary_key != self.source.table.primary_key:
                told = "is gone" if table is None else f"has the primary key ({', '.join(table.primary_key)}) now"
                raise ReplicationError(
                    f"table {self.settings.full_name} {told}, before its snapshot was done; leave it out by"
                    " 'tables.exclude', or give it a topic of its own"
                )
            # Rows that are read from here on show what statements before did to them.
            read_from = log_end(connection)
            size = self.settings.chunk_size
            most = batch_chunks(connection, table, rows=size)
            chunks, last = find_chunks(connection, table, after=progress.after, rows=size, most=most)
        part = SnapshotPart(self.settings, self.source.table, table, self.number, self._batch, self.location)
        if self.runner is not None and len(chunks) <= _FEW_CHUNKS:
            task = partial(read_chunks_in_task, part, chunks)
            files = self.runner.call(task, what=f"read {self.settings.full_name}")
        else:
            files = read_chunks(self.spark(), part, chunks)
        return files, replace(progress.with_columns(table), after=chunks[-1].upto), last, read_from

    def _swept(self, progress: Progress) -> Landed:
        """Deletes of the rows that no batch since a given one has met."""
        store, upto = ChangelogStore(self.location, self.source.table, mode=self.source.mode), self.head.batch
        gone = deletes_of_unmet(
            self.spark(),
            store,
            before=progress.swept_before,
            upto=upto,
            stream=self.source.stream,
            lane=LOG,
            offset=self.number,
        )
        files = store.write(gone, batch=self._batch)
        count = sum(item.rows for item in files)
        account = self.landing.account(LOG, self.number, self.number, changes=count, deletes=count)
        return self._landed(
            [*files, *self._written(iter([account]))],
            replace(progress, swept_before=0),
            number=self.number,
            read=self.read,
        )

    def _written(self, batches: Iterator[pa.RecordBatch]) -> list[DataFile]:
        return write_rows(batches, location=self.location, schema=self.landing.schema, batch=self._batch)

    def _landed(self, files: list[DataFile], progress: Progress, *, number: int, read: int) -> Landed:
        stream = self.source.stream
        ends = {(stream, LOG): number, (stream, SNAPSHOT): read}
        return Landed(files, self.head.positions.advanced(ends, {stream: progress.to_json()}))
