"""One batch of a table's log: rows up to a place between two transactions, at every change of the table judged anew."""

from __future__ import annotations

import random
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from upsert_platform.changelog import rows
from upsert_platform.core.errors import ReplicationError, StaleDeclarationError
from upsert_platform.mysql.binlog.changes import SchemaChange, TableRows, Told, XaCommitted
from upsert_platform.mysql.binlog.reader import LogReader
from upsert_platform.mysql.binlog.spool import SpooledLog, spool_of
from upsert_platform.mysql.binlog.stream import LogStream, log_end
from upsert_platform.mysql.catalog import read_table, require_one_row_per_key, unique_indexes
from upsert_platform.mysql.columns import MySqlTable
from upsert_platform.mysql.connection import Connection
from upsert_platform.mysql.ddl import Effect, effect_on, index_of
from upsert_platform.mysql.landing import Landing
from upsert_platform.mysql.options import MySqlCdcSettings, NewColumns, OnTruncate, OnUnloggedValues
from upsert_platform.mysql.position import LogPosition, holds_transactions
from upsert_platform.mysql.progress import Progress
from upsert_platform.mysql.rewritten import given_values, rewritten_columns
from upsert_platform.mysql.xa import prepared_rows

_BATCH_BYTES: Final = 256 << 20
"""Bytes of the log after which a batch ends with the transaction that it is in."""
BY_GTIDS: Final = LogPosition("other.000000", 4)
"""Stands for the position of a reader that begins at another server by global ids, before its first transaction."""
_FREE_IDS: Final = (1 << 31, (1 << 32) - 2)
REBUILD: Final = "take a new snapshot: job 'rebuild' with this table"
"""What helps where the log does not."""


@dataclass(slots=True)
class LogCounts:
    """The counts of a read of the log.

    Attributes:
        distance: bytes.
        truncated: whether the last statement emptied the table.
    """

    distance: int = 0
    records: int = 0
    changes: int = 0
    deletes: int = 0
    truncated: bool = False


class LogBatch:
    """Reads the log of one table from a position.

    Args:
        start: the number of the first byte, of `progress.LOG`.
        by_gtids: the position is of another server, and is found here by its global ids.
        since: milliseconds since 1970; rows of statements that began before are passed over.
        unread_upto: what stands in the log up to there was done before the rows were read that count, unless the
            batch has others from the log.
        columns: of which rows from before have values, as in `Progress`.
        chunks: where the log ended before the chunks of this batch were read, and their columns: rows have values of
            those when statements behind that place are carried out.

    Attributes:
        position: behind the last transaction read; with `table`, `before`, `told_at`, `unknown_upto`, `begun`,
            `prepared` and `columns` what `Progress` keeps.
        rewritten: columns to which a statement may have given other values in rows that were read, with its place.
    """

    def __init__(
        self,
        settings: MySqlCdcSettings,
        progress: Progress,
        landing: Landing,
        *,
        start: int,
        since: int | None = None,
        by_gtids: bool = False,
        unread_upto: LogPosition | None = None,
        columns: Collection[str] = (),
        chunks: tuple[LogPosition, Collection[str]] | None = None,
    ) -> None:
        self.position = progress.position
        self.table = progress.table
        self.before = progress.before
        self.told_at = progress.told_at
        self.counts = LogCounts()
        self._settings = settings
        self._landing = landing
        self._start = start
        self._since = None if since is None else since // 1000
        self.unknown_upto = progress.unknown_upto
        self._altered: SchemaChange | None = None
        self._stopped = False
        self._by_gtids = by_gtids
        self._unread_upto = unread_upto
        self._chunks = chunks
        self.begun = progress.begun
        self.prepared = progress.prepared
        self.rewritten: tuple[str, ...] = ()
        self.columns = set(columns)

    def read(self, end: LogPosition) -> Iterator[pa.RecordBatch]:
        """Rows up to an end of the log that the server told, or to the end of the batch.

        Raises:
            ReplicationError: the log cannot be followed.
            EndpointError: the server does not answer.
        """
        if self.position.order() >= end.order():
            return
        reader: LogReader | None = None
        committed: XaCommitted | None = None
        broken_off = True
        while reader is None or committed is not None:
            if reader is not None and committed is not None:
                yield from self._rows_of(committed, reader)
                if self._ends(reader, end):
                    break
            committed = None
            with self._stream(reader) as stream:
                if reader is None:
                    reader = LogReader(
                        self.position,
                        self._find,
                        rules=self._settings.type_rules,
                        checksum=stream.checksum,
                        begun=0 if self._by_gtids else self.begun,
                        prepared=self.prepared,
                    )
                else:
                    reader.reopen()
                broken_off = True
                for event in stream:
                    for told in reader.read(event):
                        if isinstance(told, XaCommitted):
                            committed = told
                        yield from self._told(told)
                    if self._stopped or committed is not None or self._ends(reader, end):
                        broken_off = False
                        break
                if broken_off:
                    self._require_end(reader, end)
                for told in reader.drain():
                    yield from self._told(told)
                if isinstance(stream, SpooledLog):
                    stream.settle(reader.position)
        at_end = broken_off or (reader.place.order() >= end.order() and not self._stopped)
        self.position, self.counts.distance = reader.position, reader.distance
        self.prepared = tuple(
            # A reader that begins by global ids has no position before the first transaction that it reads.
            replace(item, place=None) if item.place is not None and item.place.file == BY_GTIDS.file else item
            for item in reader.prepared.values()
        )
        file, begun = reader.begun
        self.begun = begun
        if reader.in_transaction:
            raise ReplicationError(
                f"MySQL server {self._settings.server}: its log ended within a transaction at {reader.place}; run it"
                " again"
            )
        if at_end and end.order() > self.position.order():
            # Events without rows, at a file's beginning say, end no transaction.
            self.position = LogPosition(end.file, end.offset, self.position.gtids)
        if file != self.position.file:
            self.begun = 0
        if self._altered is not None:
            # Asked for when the stream has ended: a second reader of the same id would end the first.
            self._judge(self._altered)

    def _require_end(self, reader: LogReader, end: LogPosition) -> None:
        """A server ends a stream without a word when somebody ends its statement: what follows was not read."""
        if self._by_gtids and reader.place == self.position:
            # Nothing came: it has to be so that there is nothing.
            ended = holds_transactions(self.position.gtids, end.gtids)
        else:
            ended = reader.place.order() >= end.order()
        if not ended:
            raise cut_off(self._settings, reader, end)

    def _ends(self, reader: LogReader, end: LogPosition) -> bool:
        reached = reader.distance >= _BATCH_BYTES or reader.position.order() >= end.order()
        return reached and not reader.in_transaction

    def _rows_of(self, committed: XaCommitted, reader: LogReader) -> Iterator[pa.RecordBatch]:
        """Rows that were prepared before; the stream is closed, since a second reader of its id would end it."""
        server_id = server_id_of(self._settings)
        for told in prepared_rows(self._settings, committed, self._find, before=reader.position, server_id=server_id):
            yield from self._rows(told)

    def _stream(self, reader: LogReader | None) -> LogStream | SpooledLog:
        """The log from where a reader stands, or from where the batch begins."""
        server, server_id = self._settings.server, server_id_of(self._settings)
        heartbeat = self._settings.heartbeat.total_seconds()
        if reader is not None or not self._by_gtids:
            position = self.position if reader is None else reader.position
            return SpooledLog(spool_of(server), position, server_id=server_id, heartbeat=heartbeat)
        return LogStream(server, self.position, server_id=server_id, to_end=True, heartbeat=heartbeat, by_gtids=True)

    def _told(self, told: Told) -> Iterator[pa.RecordBatch]:
        if isinstance(told, TableRows):
            yield from self._rows(told)
        elif isinstance(told, SchemaChange):
            self._changed(told)

    def _rows(self, told: TableRows) -> Iterator[pa.RecordBatch]:
        found = _since(told, self._since) if self._since is not None else told
        if not found.kinds:
            return
        self.columns.update(_names(found.table))
        batch, events = self._landing.changes(found, start=self._start)
        self.counts.records += events
        self.counts.changes += batch.num_rows
        kinds = batch.column(batch.schema.get_field_index(rows.KIND))
        self.counts.deletes += sum(kind == rows.KIND_DELETE for kind in kinds.to_pylist())
        yield batch

    def _find(self, schema: str, name: str) -> MySqlTable | None:
        if not self._is_followed((schema, name)):
            return None
        if self.unknown_upto is not None:
            raise ReplicationError(
                f"table {self.table.full_name} was changed twice before the log was read up to {self.unknown_upto}; how"
                f" its rows looked between the two, the server does not tell any more; {REBUILD}"
            )
        return self.table

    def _is_followed(self, named: tuple[str, str]) -> bool:
        """Return whether it is the table's name; some servers log names in lower case, however they are declared."""
        followed = (self.table.schema, self.table.name)
        if named == followed:
            return True
        if (named[0].casefold(), named[1].casefold()) != (followed[0].casefold(), followed[1].casefold()):
            return False
        return not _tells_cases(self._settings)

    def _changed(self, change: SchemaChange) -> None:
        name = self.table.full_name
        effect = _effect(self._settings, self.table, change)
        changes = effect not in (Effect.NONE, Effect.INDEXED)
        if change.illegible is not None and (changes or not name.isascii()):
            raise ReplicationError(
                f"table {name}: at {change.place} a statement ({_first(change.sql)}) has bytes that the character set"
                f" of its client, {change.illegible}, does not have, so what it does to this table cannot be told;"
                f" {REBUILD}"
            )
        if effect is Effect.NONE:
            return
        if effect is Effect.GONE:
            raise ReplicationError(
                f"table {name} was dropped or renamed at {change.place}; what it held stays in the topics. Leave it out"
                f" by 'tables.exclude', or, if it is there again, {REBUILD}"
            )
        if effect is Effect.ROWS:
            raise ReplicationError(
                f"table {name}: at {change.place} a statement moved rows in or out that are not in the log"
                f" ({_first(change.sql)}); {REBUILD}"
            )
        if effect is Effect.TRUNCATED:
            if self._settings.on_truncate is OnTruncate.FAIL:
                raise ReplicationError(
                    f"table {name} was truncated at {change.place}; 'on-truncate' = 'delete' deletes the rows that it"
                    " held, and goes on"
                )
            self.counts.truncated = self._stopped = True
            return
        if effect is Effect.INDEXED:
            self._indexed(change)
            return
        self._read_again(change)

    def _indexed(self, change: SchemaChange) -> None:
        """Notes the unique indexes behind a statement that made or dropped one.

        The catalogue may be of a later time, behind a swap say. So it tells only of the index that is made, and which
        of those that were known are left; one that has the name of the dropped one was made later.
        """
        name, made = index_of(change.sql)
        with Connection(self._settings.server) as connection:
            found = unique_indexes(connection, self.table.schema, self.table.name)
        if not made:
            found.pop(name, None)
        self.table = _with_indexes(self.table, found, found.get(name))
        if self.before is not None:
            self.before = _with_indexes(self.before, found, found.get(name))

    def _read_again(self, change: SchemaChange) -> None:
        settings = self._settings
        with Connection(settings.server) as connection:
            require_one_row_per_key(connection, self.table.schema, self.table.name)
            table = read_table(connection, self.table.schema, self.table.name)
            told_at = log_end(connection)
        if table is None:
            raise ReplicationError(
                f"table {self.table.full_name} was changed at {change.place}, and is not there any more; leave it"
                " out by 'tables.exclude'"
            )
        if table.primary_key != self._landing.table.primary_key:
            raise ReplicationError(
                f"table {table.full_name}: the primary key was changed to ({', '.join(table.primary_key)}) at"
                f" {change.place} and is declared as ({', '.join(self._landing.table.primary_key)}); give the table"
                " with its new key a topic of its own"
            )
        new = [column.name for column in table.columns if column.name not in self._landing.columns]
        if new and settings.new_columns is NewColumns.FAIL:
            raise StaleDeclarationError(
                f"table {table.full_name} has new columns since {change.place}: {', '.join(new)}. With"
                " 'schema.change.behavior' = 'exception' this stops the pipeline; with another one a run that begins"
                " now carries them, and continuous mode reads the declarations again by itself"
            )
        self.before = self.before or self.table
        self.table, self.told_at = table, told_at
        self._altered, self._stopped = change, True

    def _judge(self, change: SchemaChange) -> None:
        """Notes the columns to which the last statement may have given other values in rows that were read.

        Where another one follows, the catalogue is of behind that: what the first has done, and what the second, is
        not told apart, and each is judged by the table from before both.
        """
        table, before = self.table, self.before
        assert before is not None
        self.unknown_upto = next_change(self._settings, table, start=change.place, upto=self.told_at)
        if self.unknown_upto is None:
            self.before = None
        unread = self._unread_upto is not None and change.place.order() <= self._unread_upto.order()
        # What the log told before the statement counts more than what chunks found behind it.
        if unread and not self.counts.changes:
            return
        if self._chunks is not None and change.place.order() > self._chunks[0].order():
            self.columns.update(self._chunks[1])
        with Connection(self._settings.server) as connection:
            given = given_values(connection, table)
        followed = self._landing.columns
        names = rewritten_columns(
            before,
            table,
            sql=change.sql,
            strict=change.strict,
            last=self.unknown_upto is None,
            given=given,
            followed=followed,
            known=self.columns,
        )
        if not names:
            return
        told = f"{', '.join(names)} (since {change.place})"
        if self._settings.on_unlogged_values is OnUnloggedValues.FAIL:
            raise ReplicationError(
                f"table {table.full_name}: a statement may have given other values to rows that are there, of which its"
                f" log has no row: {told}; {REBUILD}"
            )
        self.rewritten = (told,)


def cut_off(settings: MySqlCdcSettings, reader: LogReader, end: LogPosition) -> ReplicationError:
    """A log that ended before the place that the server had told."""
    return ReplicationError(
        f"MySQL server {settings.server}: it ended its log at {reader.place}, before the end {end} that it had told, as"
        " it does when somebody ends the statement of a reader (KILL QUERY); run it again"
    )


def begun_at(settings: MySqlCdcSettings, position: LogPosition) -> int:
    """Return the time at which the server began the file of a position, in seconds since 1970."""
    with SpooledLog(spool_of(settings.server), position, server_id=server_id_of(settings), begins=False) as stream:
        reader = LogReader(position, lambda *_: None, rules=settings.type_rules, checksum=stream.checksum)
        for event in stream:
            list(reader.read(event))
            if reader.begun[1]:
                break
    file, begun = reader.begun
    return begun if file == position.file else 0


def next_change(
    settings: MySqlCdcSettings, table: MySqlTable, *, start: LogPosition, upto: LogPosition
) -> LogPosition | None:
    """The place of the next statement that alters a table; None if none does up to an end of the log."""
    if start.order() >= upto.order():
        return None
    server_id = server_id_of(settings)
    with SpooledLog(spool_of(settings.server), start, server_id=server_id, begins=False) as stream:
        reader = LogReader(start, lambda *_: None, rules=settings.type_rules, checksum=stream.checksum)
        for event in stream:
            for told in reader.read(event):
                if isinstance(told, SchemaChange):
                    effect = _effect(settings, table, told)
                    if effect not in (Effect.NONE, Effect.INDEXED, Effect.TRUNCATED):
                        return told.place
            if reader.place.order() >= upto.order():
                return None
    raise cut_off(settings, reader, upto)


def _effect(settings: MySqlCdcSettings, table: MySqlTable, change: SchemaChange) -> Effect:
    names = (table.schema, table.name)
    effect = effect_on(change.sql, schema=change.schema, table=names)
    if effect is Effect.NONE:
        return effect
    exact = effect_on(change.sql, schema=change.schema, table=names, exact=True)
    return exact if exact is not effect and _tells_cases(settings) else effect


def _tells_cases(settings: MySqlCdcSettings) -> bool:
    """Return whether names that differ by case alone are of two tables."""
    with Connection(settings.server) as connection:
        return connection.variable("lower_case_table_names") == "0"


def _with_indexes(table: MySqlTable, found: Mapping[str, tuple[str, ...]], made: tuple[str, ...] | None) -> MySqlTable:
    """The table with those of its unique indexes that are still there, and the one that was made."""
    kept = tuple(index for index in table.unique if index in found.values())
    if not kept:  # an earlier version noted none
        return table
    return replace(table, unique=kept if made is None or made in kept else (*kept, made))


def server_id_of(settings: MySqlCdcSettings) -> int:
    """The number that a reader goes by among the replicas of its server; each table of a pipeline has its own."""
    own = settings.server_ids
    if own is None:
        return random.randint(*_FREE_IDS)
    return own[zlib.crc32(settings.full_name.encode()) % len(own)]


def _since(told: TableRows, since: int) -> TableRows:
    keep = np.flatnonzero(np.array(told.times) >= since)
    if len(keep) == len(told.times):
        return told
    chosen = keep.tolist()
    return TableRows(
        told.table,
        tuple(told.kinds[at] for at in chosen),
        tuple(told.times[at] for at in chosen),
        tuple(told.ends[at] for at in chosen),
        told.rows.take(pa.array(keep)),
    )


def _names(table: MySqlTable) -> Iterator[str]:
    return (column.name for column in table.columns)


def _first(sql: str) -> str:
    """The beginning of a statement, without what may be a value."""
    return " ".join(sql.split()[:3])
