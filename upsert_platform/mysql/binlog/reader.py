"""Events of a log, one after the other, to rows of tables in Arrow and to positions between transactions.

Only events that are known to carry no row are passed over. Whatever else cannot be read stops the reader by its name: a
change that is passed over is a change that is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog import control
from upsert_platform.mysql.binlog.changes import Committed, SchemaChange, TableRows, Told, XaCommitted, row_bytes
from upsert_platform.mysql.binlog.collected import Collected, table_readers
from upsert_platform.mysql.binlog.compressed import unpack_mariadb, unpack_transaction
from upsert_platform.mysql.binlog.events import (
    ARTIFICIAL,
    Event,
    EventType,
    event_name,
    has_checksum,
    read_event,
    whole_end,
)
from upsert_platform.mysql.binlog.rows import KINDS, RowScanner, read_rows_event
from upsert_platform.mysql.binlog.statements import Meaning, meaning
from upsert_platform.mysql.binlog.table_map import TableMap, read_table_map
from upsert_platform.mysql.columns import MySqlTable, TypeRules
from upsert_platform.mysql.position import GtidSet, LogPosition, MariaDbGtids, Prepared

_MOST_BYTES: Final = 32 << 20
"""Bytes of rows that are collected before they are told, asked or not."""
_PASSED: Final = frozenset(
    (
        EventType.STOP, EventType.HEARTBEAT, EventType.HEARTBEAT_V2, EventType.IGNORABLE, EventType.ROWS_QUERY,
        EventType.PREVIOUS_GTIDS, EventType.TRANSACTION_CONTEXT, EventType.VIEW_CHANGE,
        EventType.MARIADB_ANNOTATE_ROWS, EventType.MARIADB_BINLOG_CHECKPOINT, EventType.MARIADB_GTID_LIST,
        EventType.MARIADB_START_ENCRYPTION,
    )
)  # fmt: skip
"""Events that are known to carry no row and to change none."""
_REASONS: Final = {
    EventType.INTVAR: "a change is logged as a statement; set 'binlog_format' = 'ROW'",
    EventType.RAND: "a change is logged as a statement; set 'binlog_format' = 'ROW'",
    EventType.USER_VAR: "a change is logged as a statement; set 'binlog_format' = 'ROW'",
    EventType.BEGIN_LOAD_QUERY: "LOAD DATA is logged as a statement; set 'binlog_format' = 'ROW'",
    EventType.EXECUTE_LOAD_QUERY: "LOAD DATA is logged as a statement; set 'binlog_format' = 'ROW'",
    EventType.INCIDENT: "the server says that its log may lack changes; take a new snapshot",
    EventType.GTID_TAGGED: "a global id with a tag is not read",
}  # fmt: skip
_UNKNOWN: Final = "it is not known, and may change rows"


class LogReader:
    """Reads a log from a position.

    Rows are collected per table across transactions, because many are read in little more time than one; their order is
    kept within a table, not between tables.

    Args:
        start: where the first event stands; global ids are told of positions where those of this one are known.
        find: the table of that schema and name as the catalogue has it, or None for one that is not wanted.
        checksum: whether the server adds checksums to events; every file's own description has the last word.
        begun: seconds since 1970 at which the server began the file of `start`; 0 if that is not known.
        prepared: transactions in two phases (XA) that were prepared before `start` and not completed.
        commits_prepared: tells rows of transactions that are prepared as if that committed them.

    Attributes:
        prepared: those that are prepared and not completed at `position`, by their xid.
        last_prepared: xid of the last one that was prepared.
        position: behind the last transaction that was read whole.
        in_transaction: whether the last event belongs to a transaction that has not ended.
        distance: bytes of the log from `start` to the end of the last event.
        place: behind the last event, be it within a transaction.
        begun: the file that is read, and when the server began it; 0 where that is not known.
    """

    def __init__(
        self,
        start: LogPosition,
        find: Callable[[str, str], MySqlTable | None],
        *,
        rules: TypeRules,
        checksum: bool,
        begun: int = 0,
        prepared: Iterable[Prepared] = (),
        commits_prepared: bool = False,
    ) -> None:
        self.begun = (start.file, begun)
        self.position = start
        self.in_transaction = False
        self.distance = 0
        self.place = start
        self._base = -start.offset
        self._find = find
        self._rules = rules
        self._checksum = checksum
        self._described = False
        self._file = start.file
        self._gtid: control.Gtid | None = None
        self._anonymous = False
        self._maps: dict[int, TableMap] = {}
        self._wanted: dict[tuple[str, str], MySqlTable | None] = {}
        self._scanners: dict[tuple[str, str], Collected] = {}
        self._rows_seen = False
        self.prepared = {item.xid: item for item in prepared}
        self.last_prepared: str | None = None
        self._commits_prepared = commits_prepared
        self._held: dict[str, tuple[TableRows, ...]] = {}
        self._outside: dict[tuple[str, str], Collected] | None = None
        self._not_held = False
        self._told = start
        self._time = 0

    def read(self, data: bytes) -> Iterator[Told]:
        """Reads one event as the server sent it; tells a change of tables, and rows when many are collected.

        Raises:
            ReplicationError: it cannot be followed; names the event, its file and position.
        """
        before = self.place.offset if self.place.file == self._file else 0
        place = f"{self._file}:{whole_end(int.from_bytes(data[13:17], 'little'), before=before)}"
        checksum = self._checksum
        if not self._described and data[4:5] == bytes((EventType.ROTATE,)):
            # Servers differ in whether the first event, which they make for the reader, has a checksum.
            checksum = has_checksum(data)
        yield from self._event(read_event(data, checksum=checksum, place=place, before=before), place)
        if sum(collected.scanner.size for collected in self._scanners.values()) >= _MOST_BYTES:
            if self._outside is None:
                yield from self._rows_told()
            else:
                self._scanners, self._not_held = {}, True

    def reopen(self) -> None:
        """Prepares for the first events of another stream, which begins at `position`."""
        self._described = False

    def drain(self) -> Iterator[Told]:
        """Yield all collected rows, then the position that they reach.

        Rows of a transaction that has not ended are told too; a reader that goes on from the position meets them again.
        """
        yield from self._rows_told()
        if self.position != self._told:
            self._told = self.position
            yield Committed(self.position, self._time)

    def _event(self, event: Event, place: str) -> Iterator[Told]:
        if event.end and not event.flags & ARTIFICIAL:
            self.distance = max(self.distance, self._base + event.end)
            self.place = LogPosition(self._file, event.end)
        match event.type:
            case kind if kind in KINDS:
                self._rows(event, place)
            case EventType.TABLE_MAP:
                found = read_table_map(event, place=place)
                self._maps[found.table_id] = found
            case EventType.ROTATE:
                self._require_ended(place, "the log goes on in another file")
                rotate = control.read_rotate(event)
                if rotate.file != self._file:
                    self._base = self.distance - rotate.position
                    self.begun = (rotate.file, 0)
                self._file = rotate.file
                if not event.flags & ARTIFICIAL:
                    self.place = LogPosition(rotate.file, rotate.position)
                    self.position = LogPosition(rotate.file, rotate.position, self.position.gtids)
            case EventType.FORMAT_DESCRIPTION:
                self._require_ended(place, "the server was started anew")
                self._require_same_file(event)
                self._checksum = control.read_format(event).checksum
                self._described = True
                self._maps = {}
            case EventType.GTID:
                self._begin(control.read_mysql_gtid(event), place)
            case EventType.MARIADB_GTID:
                gtid = control.read_mariadb_gtid(event)
                self._begin(gtid, place)
                self.in_transaction = not gtid.standalone
                if gtid.prepares is not None:
                    self._begin_prepared()
            case EventType.ANONYMOUS_GTID:
                self._begin(None, place)
                self._anonymous = True
            case EventType.XID:
                self._commit(event)
            case EventType.XA_PREPARE:
                yield from self._prepare(event)
            case EventType.QUERY | EventType.MARIADB_QUERY_COMPRESSED:
                yield from self._statement(event, place)
            case EventType.TRANSACTION_PAYLOAD:
                # Its events have no positions of their own; the transaction ends where the payload ends.
                for inner in unpack_transaction(event, place=place):
                    if inner.type == EventType.TRANSACTION_PAYLOAD:
                        raise ReplicationError(f"{place}: a compressed transaction stands in another one")
                    yield from self._event(replace(inner, end=event.end), place)
            case passed if passed in _PASSED:
                pass
            case other:
                reason = next((told for kind, told in _REASONS.items() if kind == other), _UNKNOWN)
                raise ReplicationError(f"{place}: event {event_name(other)}: {reason}")

    def _require_same_file(self, event: Event) -> None:
        """A file may have the name of one that is gone; when they were begun tells them apart."""
        begun, self.begun = self.begun[1], (self._file, event.time)
        if begun not in (0, event.time):
            then, now = (datetime.fromtimestamp(seconds, UTC) for seconds in (begun, event.time))
            raise ReplicationError(
                f"file {self._file} of the log is another one than was read: that one was begun at"
                f" {then:%Y-%m-%d %H:%M:%S} UTC, and this one at {now:%Y-%m-%d %H:%M:%S}. The log was reset, or the"
                " server was set up anew, and what changed in between is known to the database alone; take a new"
                " snapshot: job 'rebuild' with this table"
            )

    def _begin(self, gtid: control.Gtid | None, place: str) -> None:
        self._require_ended(place, "another transaction begins")
        self._gtid, self._anonymous = gtid, False

    def _require_ended(self, place: str, told: str) -> None:
        if self._rows_seen:
            raise ReplicationError(
                f"{place}: {told} while a transaction with rows has not ended; the server lost its end"
            )
        self.in_transaction = False
        if self._outside is not None:
            # Rows of other tables only, of a transaction that the server never prepared.
            self._scanners, self._outside = self._outside, None

    def _commit(self, event: Event) -> None:
        # Of a transaction without an id nobody can tell whether another server has it.
        gtids = "" if self._anonymous else self.position.gtids
        if self._gtid is not None and gtids:
            known = GtidSet.parse(gtids) if ":" in self._gtid.text else MariaDbGtids.parse(gtids)
            gtids = str(known.with_transaction(self._gtid.text))
        self.position = LogPosition(self._file, event.end, gtids)
        self._time = event.time
        self._gtid, self._anonymous, self.in_transaction, self._rows_seen = None, False, False, False

    def _statement(self, event: Event, place: str) -> Iterator[Told]:
        head = control.read_query(event)
        packed = event.body[head.at :]
        if event.type == EventType.MARIADB_QUERY_COMPRESSED:
            packed = unpack_mariadb(packed, place=place)
        sql, legible = control.read_text(packed, head.charset)
        match meaning(sql):
            case Meaning.BEGIN:
                self._require_ended(place, "another transaction begins")
                self.in_transaction = True
            case Meaning.COMMIT:
                self._commit(event)
            case Meaning.ROLLBACK | Meaning.ROLLBACK_TO if self._rows_seen:
                raise ReplicationError(
                    f"{place}: a transaction whose rows are logged is rolled back, as servers log it when it touched"
                    " tables without transactions too; keep those out of transactions, and take a new snapshot"
                )
            case Meaning.ROLLBACK:
                self._commit(event)
            case Meaning.DDL:
                yield from self._rows_told()
                self._wanted, self._scanners = {}, {}
                self._not_held = True
                place_behind = LogPosition(self._file, event.end)
                yield SchemaChange(head.schema, sql, place_behind, head.strict, None if legible else head.charset)
                if not self.in_transaction:
                    self._commit(event)
            case Meaning.NOTHING | Meaning.SAVEPOINT | Meaning.ROLLBACK_TO:
                if not self.in_transaction:
                    self._commit(event)
            case Meaning.XA_START:
                self._require_ended(place, "another transaction begins")
                self.in_transaction = True
                self._begin_prepared()
            case Meaning.XA_END:
                pass  # XA_PREPARE follows
            case Meaning.XA_COMMIT:
                self._require_ended(place, "another transaction is committed")
                yield from self._complete(control.read_xid(sql, place=place), event)
            case Meaning.XA_ROLLBACK:
                self._require_ended(place, "another transaction is rolled back")
                xid = control.read_xid(sql, place=place)
                self.prepared.pop(xid, None)
                self._held.pop(xid, None)
                self._commit(event)
            case Meaning.CHANGE:
                raise ReplicationError(
                    f"{place}: a change in schema '{head.schema}' is logged as a statement, which only a server can"
                    " repeat; set 'binlog_format' = 'ROW', and take a new snapshot"
                )
            case Meaning.UNKNOWN:
                word = sql.split(maxsplit=1)[0] if sql.split() else ""
                raise ReplicationError(f"{place}: a statement that begins with '{word[:20]}': {_UNKNOWN}")

    def _begin_prepared(self) -> None:
        """Rows that follow wait for what becomes of their transaction; those before them do not."""
        if not self._commits_prepared:
            self._outside, self._scanners, self._not_held = self._scanners, {}, False

    def _prepare(self, event: Event) -> Iterator[Told]:
        """The end of rows that wait; MySQL ends a transaction so that is committed in one phase, too."""
        xid, one_phase = control.read_xa_prepare(event)
        self.last_prepared = xid
        if self._outside is None:
            self._commit(event)
            return
        found = Prepared(xid, self.position, followed=self._rows_seen)
        rows = tuple(item for collected in self._scanners.values() for item in (*collected.earlier, *collected.told()))
        held = None if self._not_held else rows
        self._scanners, self._outside = self._outside, None
        self._commit(event)
        if one_phase:
            yield from self._prepared_rows(found, held)
            return
        self.prepared[xid] = found
        if held is not None and sum(map(row_bytes, (*self._held_rows(), *held))) < _MOST_BYTES:
            self._held[xid] = held

    def _complete(self, xid: str, event: Event) -> Iterator[Told]:
        found, held = self.prepared.pop(xid, None), self._held.pop(xid, None)
        self._commit(event)
        yield from self._prepared_rows(found or Prepared(xid, None, followed=True), held)

    def _prepared_rows(self, found: Prepared, held: tuple[TableRows, ...] | None) -> Iterator[Told]:
        """Rows that count from here on, behind all that was committed before."""
        if not found.followed:
            return
        yield from self._rows_told()
        if held is None:
            yield XaCommitted(found.xid, found.place, self.distance)
        else:
            yield from (replace(item, ends=(self.distance,) * len(item.ends)) for item in held)

    def _held_rows(self) -> Iterator[TableRows]:
        for rows in self._held.values():
            yield from rows

    def _rows(self, event: Event, place: str) -> None:
        rows = read_rows_event(event, place=place)
        found = self._maps.get(rows.table_id)
        if found is None:
            if not rows.data:
                return  # It only ends a statement.
            told = f"{place}: event {event_name(event.type)}"
            raise ReplicationError(f"{told}: its table {rows.table_id} was not told before")
        key = (found.schema, found.table)
        if key not in self._wanted:
            self._wanted[key] = self._find(*key)
        table = self._wanted[key]
        if table is None:
            return
        self._rows_seen = True
        if self._not_held and self._outside is not None:
            return
        collected = self._scanners.get(key)
        if collected is None or collected.map != replace(found, table_id=0):
            # Not only a statement that changes a table makes it look otherwise: the server's settings do too.
            readers = table_readers(found, table, self._rules, place=f"{place}: {table.full_name}")
            earlier = collected.earlier + collected.told() if collected is not None else ()
            collected = Collected(table, replace(found, table_id=0), RowScanner(readers, table.full_name), earlier)
            self._scanners[key] = collected
        collected.scanner.add(rows, time=event.time, end=self.distance, place=place)

    def _rows_told(self) -> Iterator[Told]:
        scanners = self._scanners if self._outside is None else self._outside
        for key, collected in scanners.items():
            yield from collected.earlier + collected.told()
            scanners[key] = replace(collected, earlier=())
