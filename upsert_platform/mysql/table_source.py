"""One table of a MySQL or MariaDB server as the source of a changelog: a snapshot in chunks, and the log behind it.

The log's position is recorded before the first chunk is read. Every batch of a snapshot also lands the log up to its
end, so that a long snapshot does not lose to the server's expiry. Within a batch rows of a snapshot are older than
those of the log, and between batches the later one counts; so each key ends with the last thing that the log says of
it, or else with what a chunk found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.core.errors import ReplicationError, TopicError
from upsert_platform.core.source import Landed
from upsert_platform.mysql.catalog import require_one_row_per_key
from upsert_platform.mysql.connection import Connection, require_row_log
from upsert_platform.mysql.options import StartupMode
from upsert_platform.mysql.position import LogPosition
from upsert_platform.mysql.progress import FIRST_BYTE, LOG, SNAPSHOT, Progress
from upsert_platform.mysql.server_state import read_server_log, require_logged
from upsert_platform.mysql.streamed_table import StreamedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from upsert_platform.changelog.head import Head, Positions
    from upsert_platform.changelog.tables import TableLocation
    from upsert_platform.core.task_runner import TaskRunner
    from upsert_platform.mysql.server_state import ServerLog


@dataclass(frozen=True, slots=True)
class Lane:
    """Numbers of a lane; see `progress`."""

    partition: int
    low: int
    end: int


@dataclass(frozen=True, slots=True)
class TableStream:
    """The table as it is now.

    Attributes:
        topic_id: identity of the server.
        rows: that it holds, as the server estimates.
        filtered: a warning about statements that the log leaves out.
    """

    name: str
    topic_id: str
    partitions: tuple[Lane, ...]
    log: ServerLog
    rows: int
    filtered: str | None = None


@dataclass(frozen=True)
class MySqlTableSource(StreamedTable):
    """Reads the table that a declared one with ``'connector' = 'mysql-cdc'`` names."""

    def discover(self) -> Sequence[TableStream]:
        """The table, and where its server's log ends.

        Raises:
            TopicError: the server has no such table.
            ReplicationError: it does not log rows whole, or not those of the table alone.
            EndpointError: no answer, or a login that is refused.
        """
        with Connection(self.settings.server) as connection:
            require_row_log(connection)
            found = connection.query(
                "SELECT table_rows FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
                (self.settings.database, self.settings.table),
            )
            if not found:
                raise TopicError(
                    f"table '{self.table.name}': MySQL server {connection.server} has no table {self.stream}, or user"
                    f" '{connection.server.user}' may not read it: GRANT SELECT ON {self.stream} TO that user"
                )
            require_one_row_per_key(connection, self.settings.database, self.settings.table)
            log = read_server_log(connection)
            filtered = require_logged(connection, self.settings.database)
        lane = Lane(LOG, 0, log.end.number)
        return (TableStream(self.stream, log.identity, (lane,), log, int(found[0][0] or 0), filtered),)

    def version(self, stream: TableStream) -> str:
        """Return the end of the log: its global ids, or file and offset."""
        return stream.log.executed or str(stream.log.end)

    def details(self, positions: Positions) -> Mapping[str, str | int]:
        """The position in the log, and from which one on the changelog is consistent."""
        progress = self.progress(positions)
        if progress is None:
            return {}
        consistent = "not yet" if progress.consistent is None else str(progress.consistent)
        return {
            "log_position": str(progress.position),
            "consistent_from": consistent,
            "snapshot_rows": positions.offsets[self.stream].get(SNAPSHOT, 0),
            **({"values_not_followed": "; ".join(progress.rewritten)} if progress.rewritten else {}),
        }

    def warnings(self, positions: Positions) -> Sequence[str]:
        """Columns that may differ from the database until a new snapshot."""
        progress = self.progress(positions)
        if progress is None or not progress.rewritten:
            return ()
        return (
            f"table {self.stream}: a statement gave, or may have given, other values to rows that were there, of which"
            f" the log has no row: {'; '.join(progress.rewritten)}. Rows that were not changed since differ from the"
            f" database: {_REBUILD}, or let 'on-unlogged-values' = 'snapshot' do it the next time",
        )

    def stream_warnings(self, streams: Sequence[TableStream]) -> Sequence[str]:
        """Statements that the server leaves out of its log."""
        return [f"table {stream.name}: {stream.filtered}" for stream in streams if stream.filtered is not None]

    def backlog(self, streams: Sequence[TableStream], positions: Positions) -> Sequence[OffsetRange]:
        """Bytes of the log behind the position, and rows of a snapshot that is not read yet (an estimate).

        Raises:
            ReplicationError: the position is not in the log any more, or belongs to another server.
        """
        (stream,) = streams
        progress = self.progress(positions)
        if progress is None:
            rows = stream.rows if self._snapshots else 0
            ranges = [OffsetRange(self.stream, LOG, FIRST_BYTE, FIRST_BYTE)]
            return [*ranges, OffsetRange(self.stream, SNAPSHOT, 0, max(rows, 1))]
        if self._has_ended(progress):
            return ()
        lanes = positions.offsets[self.stream]
        if stream.topic_id == progress.server:
            self._require_there(stream, progress.position)
            behind = stream.log.bytes_from(progress.position)
        elif stream.log.has_all(progress.position.gtids):
            # How far it is in the log of this server, nobody tells before it is read.
            behind = 1
        else:
            raise ReplicationError(
                f"table '{self.table.name}': the server at {self.settings.server} is another one than the position"
                f" {progress.position} was read from ({stream.topic_id}, not {progress.server}); go back to that"
                f" one, or {_REBUILD}"
            )
        ranges = [OffsetRange(self.stream, LOG, lanes[LOG], lanes[LOG] + behind)] if behind else []
        if progress.snapshot or progress.swept_before:
            read = lanes.get(SNAPSHOT, 0)
            ranges.append(OffsetRange(self.stream, SNAPSHOT, read, max(stream.rows, read + 1)))
        return ranges

    def remaining(self, backlog: Sequence[OffsetRange], positions: Positions) -> Iterator[OffsetRange]:
        """The log up to the planned end; and a snapshot until it is done, however many rows it proves to have."""
        progress = self.progress(positions)
        log = [item for item in backlog if item.partition == LOG]
        left = list(super().remaining(log, positions))
        if not left and progress is not None and not _is_consistent(progress):
            number = positions.offsets[self.stream][LOG]
            left = [_range(self.stream, LOG, number, number + 1)]
        if progress is None or not self._has_ended(progress):
            yield from left
        if progress is None or progress.snapshot or progress.swept_before:
            found = [item for item in backlog if item.partition == SNAPSHOT]
            read = positions.offsets.get(self.stream, {}).get(SNAPSHOT, 0)
            end = max([read + 1, *(item.end for item in found)])
            yield _range(self.stream, SNAPSHOT, read, end)

    def bound(
        self, ranges: Sequence[OffsetRange], *, record_bytes: float | None, widened: int = 1
    ) -> tuple[OffsetRange, ...]:
        """All: a batch of a log ends with a transaction, one of a snapshot with a chunk, which `land` finds."""
        del record_bytes, widened
        return tuple(ranges)

    def land(
        self,
        spark: Callable[[], SparkSession],
        ranges: Sequence[OffsetRange],
        *,
        streams: Sequence[TableStream],
        head: Head,
        location: TableLocation,
        runner: TaskRunner | None = None,
    ) -> Landed:
        """Reads the next chunks of a snapshot, and the log up to its end or a batch's size.

        The log is read by this process; chunks are read by tasks of Spark, unless they are few.

        Raises:
            ReplicationError: the log cannot be followed; says what helps.
            EndpointError: the server does not answer, or refuses.
        """
        from upsert_platform.mysql.landed_batch import LandedBatch

        del streams
        planned = next((item.end for item in ranges if item.partition == LOG), FIRST_BYTE)
        return LandedBatch(self, spark, head=head, location=location, planned=planned, runner=runner).land()

    def publish(self, positions: Positions) -> None:
        """Nobody else looks."""

    def begin_anew(self, head: Head, *, location: TableLocation) -> Landed:
        """A batch that begins a new snapshot; rows that it does not meet are deleted when it is done."""
        from upsert_platform.mysql.landed_batch import begin_anew

        return begin_anew(self, head, location=location)

    @property
    def _snapshots(self) -> bool:
        return self.settings.startup_mode in (StartupMode.INITIAL, StartupMode.SNAPSHOT)

    @staticmethod
    def is_settled(progress: Progress) -> bool:
        """Return whether the changelog is consistent: no snapshot is being read, and no deletes of one are left."""
        return not progress.snapshot and not progress.swept_before and _is_consistent(progress)

    def _has_ended(self, progress: Progress) -> bool:
        """Return whether nothing more is to be read: ``scan.startup.mode`` = ``snapshot``, and it is consistent."""
        only = self.settings.startup_mode is StartupMode.SNAPSHOT
        return only and _is_consistent(progress) and not progress.snapshot and not progress.swept_before

    def _require_there(self, stream: TableStream, position: LogPosition) -> None:
        if not stream.log.has(position):
            raise ReplicationError(
                f"table '{self.table.name}': the log of MySQL server {self.settings.server} does not hold the position"
                f" {position} any more (its oldest file is {stream.log.start.file}); what changed since is known to the"
                f" database alone: {_REBUILD}. Let 'binlog_expire_logs_seconds' be longer than a pause between runs"
            )


_REBUILD: Final = "take a new snapshot, by the job 'rebuild' with this table"


def _is_consistent(progress: Progress) -> bool:
    """Return whether the log was read to where every chunk of the snapshot had been; so it is without a snapshot."""
    return progress.consistent is None or progress.position.order() >= progress.consistent.order()


def _range(stream: str, lane: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(stream, lane, start, end)
