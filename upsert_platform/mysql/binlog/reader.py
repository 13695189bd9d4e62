"""Events of a log, one after the other, to rows of tables in Arrow and to positions between transactions.

Only events that are known to carry no row are passed over. Whatever else cannot be read stops the reader by its name: a
change that is passed over is a change that is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from upsert_platform.errors import ReplicationError
from upsert_platform.mysql.binlog import control
from upsert_platform.mysql.binlog.cells import ColumnReader, column_reader
from upsert_platform.mysql.binlog.compressed import unpack_mariadb, unpack_transaction
from upsert_platform.mysql.binlog.events import ARTIFICIAL, Event, EventType, event_name, has_checksum, read_event
from upsert_platform.mysql.binlog.rows import KINDS, RowScanner, read_rows_event
from upsert_platform.mysql.binlog.statements import Meaning, meaning
from upsert_platform.mysql.binlog.table_map import TableMap, read_table_map
from upsert_platform.mysql.columns import MySqlTable, TypeRules
from upsert_platform.mysql.position import GtidSet, LogPosition, MariaDbGtids

if TYPE_CHECKING:
    import pyarrow as pa

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
    EventType.XA_PREPARE: "a transaction in two phases (XA) may be rolled back after it is logged",
    EventType.GTID_TAGGED: "a global id with a tag is not read",
}  # fmt: skip
_UNKNOWN: Final = "it is not known, and may change rows"


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of one table, in the order of the log.

    Attributes:
        kinds: per row ``+I``, ``-U``, ``+U`` or ``-D``; before and after an update follow each other.
        times: per row seconds since 1970 at which its statement began.
        ends: per row the bytes of the log from where the reader began to the end of its event.
        rows: a column per column of the table, as `sql_type` carries it; TIME as signed microseconds.
    """

    table: MySqlTable
    kinds: tuple[str, ...]
    times: tuple[int, ...]
    ends: tuple[int, ...]
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A statement that may have changed what tables look like; rows behind it have the new form.

    Attributes:
        schema: that names without one belong to.
        place: right behind it in the log.
        strict: whether it fails where a value does not fit its column.
    """

    schema: str
    sql: str
    place: LogPosition
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """All rows up to a place between two transactions were told; a reader may go on from there.

    Attributes:
        time: seconds since 1970 at which the last statement before it began.
    """

    position: LogPosition
    time: int


Told = TableRows | SchemaChange | Committed


class LogReader:
    """Reads a log from a position.

    Rows are collected per table across transactions, because many are read in little more time than one; their order is
    kept within a table, not between tables.

    Args:
        start: where the first event stands.
        find: the table of that schema and name as the catalogue has it, or None for one that is not wanted.
        checksum: whether the server adds checksums to events; every file's own description has the last word.
        begun: seconds since 1970 at which the server began the file of `start`; 0 if that is not known.

    Attributes:
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
        self._maps: dict[int, TableMap] = {}
        self._wanted: dict[tuple[str, str], MySqlTable | None] = {}
        self._scanners: dict[tuple[str, str], _Collected] = {}
        self._rows_seen = False
        self._told = start
        self._time = 0

    def read(self, data: bytes) -> Iterator[Told]:
        """Reads one event as the server sent it; tells a change of tables, and rows when many are collected.

        Raises:
            ReplicationError: it cannot be followed; names the event, its file and position.
        """
        place = f"{self._file}:{int.from_bytes(data[13:17], 'little')}"
        checksum = self._checksum
        if not self._described and data[4:5] == bytes((EventType.ROTATE,)):
            # Servers differ in whether the first event, which they make for the reader, has a checksum.
            checksum = has_checksum(data)
        yield from self._event(read_event(data, checksum=checksum, place=place), place)
        if sum(collected.scanner.size for collected in self._scanners.values()) >= _MOST_BYTES:
            yield from self._rows_told()

    def drain(self) -> Iterator[Told]:
        """Tells all rows that are collected, then the position that they reach.

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
                if gtid.xa:
                    raise ReplicationError(f"{place}: transaction {gtid.text}: {_REASONS[EventType.XA_PREPARE]}")
                self._begin(gtid, place)
                self.in_transaction = not gtid.standalone
            case EventType.ANONYMOUS_GTID:
                self._begin(None, place)
            case EventType.XID:
                self._commit(event)
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
        self._gtid = gtid

    def _require_ended(self, place: str, told: str) -> None:
        if self._rows_seen:
            raise ReplicationError(
                f"{place}: {told} while a transaction with rows has not ended; the server lost its end"
            )
        self.in_transaction = False

    def _commit(self, event: Event) -> None:
        gtids = self.position.gtids
        if self._gtid is not None:
            known = GtidSet.parse(gtids) if ":" in self._gtid.text else MariaDbGtids.parse(gtids)
            gtids = str(known.with_transaction(self._gtid.text))
        self.position = LogPosition(self._file, event.end, gtids)
        self._time = event.time
        self._gtid, self.in_transaction, self._rows_seen = None, False, False

    def _statement(self, event: Event, place: str) -> Iterator[Told]:
        schema, strict, at = control.read_query(event)
        packed = event.body[at:]
        if event.type == EventType.MARIADB_QUERY_COMPRESSED:
            packed = unpack_mariadb(packed, place=place)
        sql = packed.decode("utf-8", "backslashreplace")
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
                yield SchemaChange(schema, sql, LogPosition(self._file, event.end), strict)
                if not self.in_transaction:
                    self._commit(event)
            case Meaning.NOTHING | Meaning.SAVEPOINT | Meaning.ROLLBACK_TO:
                if not self.in_transaction:
                    self._commit(event)
            case Meaning.XA:
                raise ReplicationError(f"{place}: statement XA: {_REASONS[EventType.XA_PREPARE]}")
            case Meaning.CHANGE:
                told = (
                    f"{place}: a change in schema '{schema}' is logged as a statement, which only a server can repeat"
                )
                raise ReplicationError(f"{told}; set 'binlog_format' = 'ROW', and take a new snapshot")
            case Meaning.UNKNOWN:
                word = sql.split(maxsplit=1)[0] if sql.split() else ""
                raise ReplicationError(f"{place}: a statement that begins with '{word[:20]}': {_UNKNOWN}")

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
        collected = self._scanners.get(key)
        if collected is None or collected.map != replace(found, table_id=0):
            # Not only a statement that changes a table makes it look otherwise: the server's settings do too.
            readers = table_readers(found, table, self._rules, place=f"{place}: {table.full_name}")
            earlier = collected.earlier + collected.told() if collected is not None else ()
            collected = _Collected(table, replace(found, table_id=0), RowScanner(readers, table.full_name), earlier)
            self._scanners[key] = collected
        collected.scanner.add(rows, time=event.time, end=self.distance, place=place)

    def _rows_told(self) -> Iterator[Told]:
        for key, collected in self._scanners.items():
            yield from collected.earlier + collected.told()
            self._scanners[key] = replace(collected, earlier=())


@dataclass(frozen=True, slots=True)
class _Collected:
    """Rows of a table that were not told yet.

    Attributes:
        map: what the log tells of the table, without the id that the server gave it.
        earlier: rows from before it told something else.
    """

    table: MySqlTable
    map: TableMap
    scanner: RowScanner
    earlier: tuple[TableRows, ...]

    def told(self) -> tuple[TableRows, ...]:
        """What the scanner holds, which begins anew."""
        scanner = self.scanner
        if not scanner.count:
            return ()
        kinds, times, ends = tuple(scanner.kinds), tuple(scanner.times), tuple(scanner.ends)
        return (TableRows(self.table, kinds, times, ends, scanner.read()),)


def table_readers(found: TableMap, table: MySqlTable, rules: TypeRules, *, place: str) -> list[ColumnReader]:
    """Readers of a table's columns.

    Args:
        place: where, and which table, for messages.

    Raises:
        ReplicationError: the log and the catalogue do not tell the same columns.
    """
    names = tuple(column.name for column in table.columns)
    changed = "the table was changed between the two"
    if len(found.columns) != len(names):
        told = f"{place} has {len(found.columns)} columns in the log and {len(names)} in the catalogue"
        raise ReplicationError(f"{told}; {changed}")
    if found.names and found.names != names:
        log, own = next(pair for pair in zip(found.names, names, strict=True) if pair[0] != pair[1])
        raise ReplicationError(f"{place}: column '{own}' of the catalogue is '{log}' in the log; {changed}")
    # Which types the bits are of depends on the server; they only guard against a catalogue that is too new or too old.
    differing = [_other_sign(table, found.is_unsigned(with_years=with_years)) for with_years in (False, True)]
    if all(differing):
        raise ReplicationError(
            f"{place}: column '{differing[0]}' is signed on one side and unsigned on the other, of the log and the"
            f" catalogue; {changed}"
        )
    pairs = zip(found.columns, table.columns, strict=True)
    return [column_reader(wire, column, rules, table=place) for wire, column in pairs]


def _other_sign(table: MySqlTable, unsigned: tuple[bool | None, ...]) -> str | None:
    """The first column of which the log tells another sign than the catalogue."""
    for column, told in zip(table.columns, unsigned, strict=True):
        if told is not None and column.kind != "year" and told != column.unsigned:
            return column.name
    return None
