"""What a reader of a log tells, and at what it stops."""

from __future__ import annotations

import struct
import uuid
import zlib

import pyarrow as pa
import pytest

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.changes import Committed, SchemaChange, TableRows, Told
from upsert_platform.mysql.binlog.events import EventType
from upsert_platform.mysql.binlog.reader import LogReader
from upsert_platform.mysql.columns import MySqlColumn, TypeRules
from upsert_platform.mysql.position import LogPosition
from upsert_platform_tests.mysql.binlog.reading import START, log_reader, read_all, table_of
from upsert_platform_tests.mysql.event_bytes import (
    event,
    field,
    format_description,
    image,
    payload,
    query,
    rotate,
    rows,
    table_map,
    xid,
)

TABLE = table_of(MySqlColumn("id", "int"), MySqlColumn("name", "varchar", length=10, charset="utf8mb4"))
TYPES, METADATA = [3, 15], b"\x28\0"
MAP = table_map(TYPES, METADATA)
SOURCE = uuid.UUID("3E11FA47-71CA-11E1-9E33-C80AA9429562")


def row(number: int, name: str | None) -> bytes:
    text = None if name is None else bytes([len(name.encode())]) + name.encode()
    return image(struct.pack("<i", number), text)


def transaction(*events: bytes, end: int) -> list[bytes]:
    return [query("BEGIN"), *events, xid(end=end)]


def changes(told: list[Told]) -> list[tuple[str, int, str | None]]:
    return [
        (kind, value["id"], value["name"])
        for item in told
        if isinstance(item, TableRows)
        for kind, value in zip(item.kinds, item.rows.to_pylist(), strict=True)
    ]


@pytest.mark.parametrize(("insert", "update", "delete"), [(23, 24, 25), (30, 31, 32)])
def test_inserts_updates_and_deletes_in_the_order_of_the_log(insert: int, update: int, delete: int) -> None:
    reader = log_reader(TABLE)
    events = transaction(MAP, rows(insert, 2, row(1, "a") + row(2, None) + row(3, "ccc")), end=200)
    events += transaction(MAP, rows(update, 2, row(1, "a") + row(1, "é") + row(2, None) + row(4, "b")), end=300)
    events += transaction(MAP, rows(delete, 2, row(3, "ccc")), rows(insert, 2, row(3, "d")), end=400)
    assert read_all(reader, events) == []
    told = list(reader.drain())
    assert changes(told) == [
        ("+I", 1, "a"), ("+I", 2, None), ("+I", 3, "ccc"), ("-U", 1, "a"), ("+U", 1, "é"), ("-U", 2, None),
        ("+U", 4, "b"), ("-D", 3, "ccc"), ("+I", 3, "d"),
    ]  # fmt: skip
    assert told[-1] == Committed(LogPosition("log.000001", 400), 1_700_000_000)
    assert list(reader.drain()) == []


@pytest.mark.parametrize("columns", [1, 2, 7, 8, 9, 15, 16, 17])
@pytest.mark.parametrize("kinds", [(23, 24, 25), (30, 31, 32)])
def test_padding_bits_behind_the_last_column_do_not_count(columns: int, kinds: tuple[int, int, int]) -> None:
    """MySQL sets them in the bitmaps of columns that are present and of those that are NULL."""
    table = table_of(*(MySqlColumn(f"c{number}", "int") for number in range(columns)))
    width = (columns + 7) // 8
    padding = (1 << width * 8) - (1 << columns)

    def padded(*values: int | None) -> bytes:
        made = image(*(None if value is None else struct.pack("<i", value) for value in values))
        return (int.from_bytes(made[:width], "little") | padding).to_bytes(width, "little") + made[width:]

    first = [1, *(None if number % 3 == 0 else number for number in range(1, columns))]
    then = [1, *(number if number % 3 == 0 else None for number in range(1, columns))]
    insert, update, delete = kinds
    reader = log_reader(table)
    present = b"\xff" * width
    signs = ((1 << width * 8 - columns) - 1).to_bytes(width, "big")  # the first column's bit is the highest
    events = [
        table_map([3] * columns, optional=field(1, signs)),
        rows(insert, columns, padded(*first), present=present),
        rows(update, columns, padded(*first) + padded(*then), present=present),
        rows(delete, columns, padded(*then), present=present),
    ]
    read_all(reader, transaction(*events, end=200))
    told = [item for item in reader.drain() if isinstance(item, TableRows)]
    found = [
        (kind, list(row.values())) for item in told for kind, row in zip(item.kinds, item.rows.to_pylist(), strict=True)
    ]
    assert found == [("+I", first), ("-U", first), ("+U", then), ("-D", then)]


@pytest.mark.parametrize("missing", [0, 1])
def test_a_column_that_is_absent_stops_whatever_the_padding_bits_are(missing: int) -> None:
    for padding in (0x00, 0xFC, 0x54):
        present = bytes([padding | (0b11 & ~(1 << missing))])
        with pytest.raises(ReplicationError, match="without all of its columns"):
            read_all(log_reader(TABLE), transaction(MAP, rows(30, 2, row(1, "a"), present=present), end=200))


def test_a_position_never_stands_inside_of_a_transaction() -> None:
    reader = log_reader(TABLE)
    read_all(reader, transaction(MAP, rows(30, 2, row(1, "a")), end=200))
    read_all(reader, [query("BEGIN"), MAP, rows(30, 2, row(2, "b"))])
    assert reader.in_transaction
    told = list(reader.drain())
    assert changes(told) == [("+I", 1, "a"), ("+I", 2, "b")]
    assert told[-1] == Committed(LogPosition("log.000001", 200), 1_700_000_000)
    read_all(reader, [MAP, rows(30, 2, row(3, "c")), xid(end=900)])
    assert not reader.in_transaction
    assert [item for item in reader.drain() if isinstance(item, Committed)] == [
        Committed(LogPosition("log.000001", 900), 1_700_000_000)
    ]


def test_many_rows_are_told_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upsert_platform.mysql.binlog.reader._MOST_BYTES", 100)
    reader = log_reader(TABLE)
    told = read_all(reader, [query("BEGIN"), MAP, *[rows(30, 2, row(number, "abcdef")) for number in range(30)]])
    assert len([item for item in told if isinstance(item, TableRows)]) > 1
    assert [number for _, number, _ in changes(told + list(reader.drain()))] == list(range(30))


def test_tables_that_are_not_wanted_are_not_decoded() -> None:
    reader = log_reader(TABLE)
    unknown = table_map([245, 3], b"\x04", table="other")
    assert read_all(reader, transaction(unknown, rows(30, 2, b"garbage"), end=200)) == []
    assert list(reader.drain()) == [Committed(LogPosition("log.000001", 200), 1_700_000_000)]


def test_a_statement_that_changes_a_table_stands_between_the_rows() -> None:
    reader = log_reader(TABLE)
    events = transaction(MAP, rows(30, 2, row(1, "a")), end=200)
    told = read_all(reader, [*events, query("/* x */ ALTER TABLE t ADD c INT", end=300)])
    assert isinstance(told[0], TableRows)
    assert told[1] == SchemaChange("shop", "/* x */ ALTER TABLE t ADD c INT", LogPosition("log.000001", 300))
    assert reader.position == LogPosition("log.000001", 300)


def test_a_log_goes_on_in_other_files() -> None:
    reader = log_reader(TABLE)
    read_all(reader, transaction(MAP, rows(30, 2, row(1, "a")), end=200))
    read_all(reader, [rotate("log.000002", flags=0), rotate("log.000002"), format_description(checksum=True)])
    assert reader.position == LogPosition("log.000002", 4)
    read_all(
        reader,
        [
            query("BEGIN", checksum=True),
            table_map(TYPES, METADATA, checksum=True),
            rows(30, 2, row(2, "b"), checksum=True),
            query("COMMIT", end=500, checksum=True),
        ],
    )
    assert changes(list(reader.drain())) == [("+I", 1, "a"), ("+I", 2, "b")]
    assert reader.position == LogPosition("log.000002", 500)


def test_the_first_event_may_have_a_checksum_or_not() -> None:
    for with_checksum in (True, False):
        reader = LogReader(START, lambda *_: None, rules=TypeRules(), checksum=True)
        body = struct.pack("<Q", 4) + b"log.000001"
        read_all(reader, [event(4, body, flags=0x20, checksum=with_checksum), format_description(checksum=True)])
        read_all(reader, [query("BEGIN", checksum=True)])
        assert reader.in_transaction


def test_a_damaged_event_is_noticed() -> None:
    reader = log_reader(TABLE)
    read_all(reader, [format_description(checksum=True)])
    good = query("BEGIN", end=77, checksum=True)
    read_all(reader, [good])
    with pytest.raises(ReplicationError, match=r"log\.000001:77: event QUERY \(2\) does not have the checksum"):
        read_all(reader, [good[:-6] + b"\x01" + good[-5:]])
    with pytest.raises(ReplicationError, match=r"says .* bytes and has"):
        read_all(reader, [good[:-1]])


def test_global_ids_of_mysql_are_collected_with_their_holes() -> None:
    reader = log_reader(TABLE, gtids=f"{SOURCE}:1-4")
    for number, end in ((5, 100), (6, 200), (9, 300)):
        read_all(reader, [mysql_gtid(number), *transaction(end=end)])
    assert reader.position == LogPosition("log.000001", 300, f"{SOURCE}:1-6:9")


def mysql_gtid(number: int) -> bytes:
    return event(33, b"\1" + SOURCE.bytes + struct.pack("<Q", number) + b"\2" + bytes(16))


def test_a_transaction_that_goes_beyond_four_gigabytes_of_a_file() -> None:
    """Headers of events have the last 32 bits of where they end."""
    reader = log_reader(TABLE)
    far = 1 << 32
    parts = [query("BEGIN", end=100), at(MAP, 200), at(rows(30, 2, row(1, None)), far - 10)]
    read_all(reader, [*parts, at(rows(30, 2, row(2, None)), 100), xid(end=131)])
    assert reader.position == reader.place == LogPosition("log.000001", far + 131)
    assert reader.distance == far + 127
    assert [number for _, number, _ in changes(list(reader.drain()))] == [1, 2]
    with pytest.raises(ReplicationError, match=rf"log\.000001:{far + 150}: event INCIDENT"):
        read_all(reader, [event(26, b"", end=150)])
    read_all(reader, [rotate("log.000002", flags=0), *transaction(end=300)])
    assert reader.position == LogPosition("log.000002", 300)
    assert reader.distance == far + 146 + 296, "the last event ended at 150"


def at(data: bytes, end: int) -> bytes:
    return data[:13] + struct.pack("<I", end) + data[17:]


def test_global_ids_are_not_told_where_those_before_are_not_known() -> None:
    """A set that began here would lack what stands before, which another server would send then."""
    reader = log_reader(TABLE)
    read_all(reader, [mysql_gtid(5), *transaction(end=100)])
    assert reader.position == LogPosition("log.000001", 100)
    reader = log_reader(TABLE, gtids=f"{SOURCE}:1-4")
    read_all(reader, [event(34, bytes(42)), *transaction(end=100)])
    assert reader.position == LogPosition("log.000001", 100)
    read_all(reader, [mysql_gtid(5), *transaction(end=200)])
    assert reader.position == LogPosition("log.000001", 200)


def test_global_ids_of_mariadb_keep_the_last_of_a_domain() -> None:
    reader = log_reader(TABLE, gtids="0-11-6")
    for number, domain in ((7, 0), (8, 0), (3, 2)):
        gtid = event(162, struct.pack("<QIB", number, domain, 0), server=11)
        read_all(reader, [gtid, MAP, rows(23, 2, row(number, None)), xid(end=number)])
    assert reader.position == LogPosition("log.000001", 3, "0-11-8,2-11-3")
    standalone = event(162, struct.pack("<QIB", 9, 0, 1), server=11)
    read_all(reader, [standalone, query("CREATE TABLE x (a INT)", end=400)])
    assert reader.position == LogPosition("log.000001", 400, "0-11-9,2-11-3")


@pytest.mark.parametrize("algorithm", [0, 255])
def test_a_compressed_transaction_of_mysql(algorithm: int) -> None:
    inner = b"".join([query("BEGIN"), MAP, rows(30, 2, b"".join(row(n, "x" * 9) for n in range(500))), xid(end=0)])
    packed = pa.Codec("zstd").compress(inner, asbytes=True) if algorithm == 0 else inner
    reader = log_reader(TABLE)
    read_all(reader, [event(40, payload(inner, packed, algorithm=algorithm), end=1234)])
    told = list(reader.drain())
    assert [number for _, number, _ in changes(told)] == list(range(500))
    assert told[-1] == Committed(LogPosition("log.000001", 1234), 1_700_000_000)


def test_a_compressed_transaction_that_does_not_unpack_stops() -> None:
    inner = b"".join([query("BEGIN"), xid(end=0)])
    packed = pa.Codec("zstd").compress(inner, asbytes=True)
    for body, told in (
        (payload(inner, packed, algorithm=7), "compressed by algorithm 7"),
        (payload(inner + b"x", packed), f"says {len(inner) + 1} bytes and unpacks to {len(inner)}"),
        (payload(inner[:-1], packed), "unpacks to more"),
        (payload(inner, b"\0" * 20), "cannot be unpacked"),
        (payload(inner[:-3], inner[:-3], algorithm=255), "says .* bytes and has"),
    ):
        with pytest.raises(ReplicationError, match=told):
            read_all(log_reader(TABLE), [event(40, body, end=9)])


def pack(data: bytes, head: int = 0x82) -> bytes:
    return bytes([head]) + struct.pack(">H", len(data)) + zlib.compress(data)


@pytest.mark.parametrize(("kind", "head"), [(166, b"\1\0"), (169, b"\1\0\2\0")])
def test_compressed_rows_and_statements_of_mariadb(kind: int, head: bytes) -> None:
    data = b"".join(row(number, "x" * 9) for number in range(100))
    whole = rows(30, 2, b"")[19:]
    table_id, bitmaps = whole[:6], whole[10:]
    begin = query("BEGIN")[19:-5]
    reader = log_reader(TABLE)
    read_all(reader, [event(165, begin + pack(b"BEGIN")), MAP, event(kind, table_id + head + bitmaps + pack(data))])
    assert [number for _, number, _ in changes(list(reader.drain()))] == list(range(100))
    for broken, told in ((pack(data, 0x92), "algorithm 1"), (pack(data)[:-9], "does not unpack"), (b"\x82\0", "early")):
        with pytest.raises(ReplicationError, match=told):
            read_all(log_reader(TABLE), [MAP, event(kind, table_id + head + bitmaps + broken)])


KNOWN = {item.value for item in EventType}
STOPS = [5, 13, 14, 17, 18, 20, 21, 22, 26, 42, 0, 1, 43, 99, 159, 172, 250]


@pytest.mark.parametrize("kind", STOPS)
@pytest.mark.parametrize("flags", [0, 0x80])
def test_an_event_that_is_not_read_stops_by_its_name(kind: int, flags: int) -> None:
    name = EventType(kind).name if kind in KNOWN else f"unknown type {kind}"
    with pytest.raises(ReplicationError, match=rf"^log\.000001:55: event (of the )?{name}"):
        read_all(log_reader(TABLE), [event(kind, bytes(30), end=55, flags=flags)])


@pytest.mark.parametrize("kind", [3, 27, 28, 29, 35, 36, 37, 41, 160, 161, 163, 164])
def test_events_that_carry_no_row_are_passed_over(kind: int) -> None:
    reader = log_reader(TABLE)
    assert read_all(reader, [event(kind, bytes(30))]) == []
    assert list(reader.drain()) == []


STATEMENTS = [
    ("INSERT INTO t VALUES (1)", "is logged as a statement"),
    ("/* a */ update t set a = 1", "is logged as a statement"),
    ("REPLACE t VALUES (1)", "is logged as a statement"),
    ("SET STATEMENT max_statement_time = 5 FOR INSERT INTO t VALUES (1)", "is logged as a statement"),
    ("SET STATEMENT max_statement_time = 5 FOR XA PREPARE X'01'", "begins with 'SET'"),
    ("SET STATEMENT max_statement_time = 5", "begins with 'SET'"),
    ("XA PREPARE X'01'", "begins with 'XA'"),
    ("XA COMMIT 'a'", "is not of the form X'61',X'62',1"),
    ("FROBNICATE t", "begins with 'FROBNICATE'"),
    ("", "is not known"),
]


@pytest.mark.parametrize(("sql", "told"), STATEMENTS)
def test_a_statement_that_may_change_rows_stops(sql: str, told: str) -> None:
    with pytest.raises(ReplicationError, match=told):
        read_all(log_reader(TABLE), [query(sql, end=5)])


DEFINITIONS = [
    ("SET STATEMENT max_statement_time = 5 FOR ALTER TABLE t ADD c INT", True),
    ("SET STATEMENT a = 1, b = 'FOR' FOR /* x */ TRUNCATE TABLE t", True),
    ("SET STATEMENT max_statement_time = 5 FOR ANALYZE TABLE t", False),
    ("set statement a=1 for set statement b=2 for drop table t", True),
]


@pytest.mark.parametrize(("sql", "changes_tables"), DEFINITIONS)
def test_what_stands_behind_settings_of_a_statement(sql: str, changes_tables: bool) -> None:
    reader = log_reader(TABLE)
    told = read_all(reader, [query(sql, end=300)])
    assert told == ([SchemaChange("shop", sql, LogPosition("log.000001", 300))] if changes_tables else [])
    assert reader.position.offset == 300


def test_a_statement_of_a_strict_session() -> None:
    for modes, strict in ((1 << 21, True), (1 << 22, True), (1 << 23, False)):
        status = b"\0" + bytes(4) + b"\1" + struct.pack("<Q", modes)
        body = struct.pack("<IIBHH", 7, 0, 4, 0, len(status)) + status + b"shop\0ALTER TABLE t ADD c INT"
        told = read_all(log_reader(TABLE), [event(2, body, end=300)])
        assert [item.strict for item in told if isinstance(item, SchemaChange)] == [strict]


def test_a_file_that_was_begun_anew_stops() -> None:
    """`event` dates what it makes 1,700,000,000."""

    def stream(begun: int, *events: bytes) -> LogReader:
        reader = LogReader(
            LogPosition("log.000001", 99), lambda *_: None, rules=TypeRules(), checksum=False, begun=begun
        )
        read_all(reader, [rotate("log.000001", 99), format_description(), *events])
        return reader

    assert stream(0).begun == stream(1_700_000_000).begun == ("log.000001", 1_700_000_000)
    with pytest.raises(ReplicationError, match=r"^file log\.000001 of the log is another one than was read.*'rebuild'"):
        stream(1_600_000_000)
    later = struct.pack("<I", 1_700_000_009) + format_description()[4:]
    following = stream(1_700_000_000, rotate("log.000002", flags=0), later)
    assert following.begun == ("log.000002", 1_700_000_009)
    with pytest.raises(ReplicationError, match=r"^file log\.000002"):
        read_all(following, [format_description()])


@pytest.mark.parametrize("sql", ["ROLLBACK", "ROLLBACK TO SAVEPOINT s", "ROLLBACK WORK"])
def test_rows_that_are_rolled_back_stop(sql: str) -> None:
    events = [query("BEGIN"), query("SAVEPOINT s"), MAP, rows(30, 2, row(1, "a")), query(sql, end=9)]
    with pytest.raises(ReplicationError, match="is rolled back"):
        read_all(log_reader(TABLE), events)
    reader = log_reader(TABLE)
    read_all(reader, [query("BEGIN"), query(sql, end=9)])
    assert reader.position.offset == (4 if " TO " in sql else 9)


def test_rows_without_an_end_stop() -> None:
    for following in (query("BEGIN"), rotate("log.000002", flags=0), format_description()):
        with pytest.raises(ReplicationError, match="has not ended"):
            read_all(log_reader(TABLE), [query("BEGIN"), MAP, rows(30, 2, row(1, "a")), following])


def test_a_table_that_was_changed_stops_with_the_difference() -> None:
    full = field(4, b"\x02id\x05other")
    for told_map, columns, told in (
        (table_map([3]), 1, "has 1 columns in the log and 2 in the catalogue"),
        (table_map(TYPES, METADATA, optional=full), 2, "column 'name' of the catalogue is 'other' in the log"),
        (table_map(TYPES, METADATA, optional=field(1, b"\x80")), 2, "column 'id' is signed on one side"),
    ):
        with pytest.raises(ReplicationError, match=told):
            read_all(log_reader(TABLE), [told_map, rows(30, columns, row(1, "a"))])


def test_rows_that_do_not_fit_their_event_stop() -> None:
    for data in (row(1, "a")[:-1], row(1, "abc") + b"\0", row(1, None) + b"\0\1"):
        with pytest.raises(ReplicationError, match="do not end where their event ends"):
            read_all(log_reader(TABLE), [MAP, rows(30, 2, data)])
    with pytest.raises(ReplicationError, match="do not end where their event ends"):
        read_all(log_reader(TABLE), [MAP, rows(31, 2, row(1, "a") * 3)])


def test_images_without_all_columns_stop() -> None:
    with pytest.raises(ReplicationError, match="set 'binlog_row_image' = 'FULL'"):
        read_all(log_reader(TABLE), [MAP, rows(30, 2, image(struct.pack("<i", 1)), present=b"\1")])


def test_rows_without_their_table_stop() -> None:
    with pytest.raises(ReplicationError, match="was not told before"):
        read_all(log_reader(TABLE), [rows(30, 2, row(1, "a"))])
    read_all(log_reader(TABLE), [rows(30, 2, b"")])


def test_many_rows_with_changing_nulls_and_lengths() -> None:
    expected = [("+I", n, None if n % 3 == 0 else "x" * (n % 10)) for n in range(5000)]
    reader = log_reader(TABLE)
    chunks = [expected[at : at + 77] for at in range(0, len(expected), 77)]
    events = [rows(30, 2, b"".join(row(number, name) for _, number, name in chunk)) for chunk in chunks]
    read_all(reader, [query("BEGIN"), MAP, *events, xid(end=7)])
    assert changes(list(reader.drain())) == expected
