"""The log of a server: what is read from it, against the server's own text of every value."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from upsert_platform.core.errors import EndpointError, ReplicationError
from upsert_platform.mysql.binlog.changes import SchemaChange, TableRows, Told
from upsert_platform.mysql.binlog.events import EventType
from upsert_platform.mysql.binlog.reader import LogReader
from upsert_platform.mysql.binlog.stream import LogStream, executed_gtids, log_end
from upsert_platform.mysql.catalog import list_tables, read_table
from upsert_platform.mysql.chunk_sums import Marks
from upsert_platform.mysql.columns import MySqlTable, TypeRules
from upsert_platform.mysql.connection import Connection, Server, require_row_log
from upsert_platform.mysql.known_gtids import with_gtids
from upsert_platform.mysql.names import TableSelection, parse_patterns
from upsert_platform.mysql.position import LogPosition
from upsert_platform.mysql.server_state import await_visible, snapshot_end, waiting_sessions
from upsert_platform_tests.systems.servers import ONLY_MARIADB, ONLY_MYSQL, Kind, create_user, numbers

pytestmark = pytest.mark.systems


def read_log(
    server: Server, start: LogPosition, *tables: MySqlTable, rules: TypeRules | None = None
) -> tuple[list[Told], LogReader]:
    """All that the log tells from a position to its end."""
    known = {(table.schema, table.name): table for table in tables}
    with LogStream(server, start, server_id=secrets.randbelow(10**9) + 10, to_end=True) as stream:
        reader = LogReader(start, lambda *name: known.get(name), rules=rules or TypeRules(), checksum=stream.checksum)
        told = [item for event in stream for item in reader.read(event)]
        return told + list(reader.drain()), reader


def table_of(connection: Connection, schema: str, name: str) -> MySqlTable:
    found = read_table(connection, schema, name)
    assert found is not None
    return found


def images(told: list[Told]) -> list[tuple[Any, ...]]:
    return [
        (kind, *row.values())
        for item in told
        if isinstance(item, TableRows)
        for kind, row in zip(item.kinds, item.rows.to_pylist(), strict=True)
    ]


def as_text(value: Any) -> str:
    return str(value)


def as_time(digits: int) -> Callable[[int], str]:
    def text(micros: int) -> str:
        seconds, fraction = divmod(abs(micros), 1_000_000)
        whole = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return ("-" if micros < 0 else "") + whole + (f".{fraction:06}"[: digits + 1] if digits else "")

    return text


def as_moment(digits: int) -> Callable[[Any], str]:
    def text(moment: Any) -> str:
        whole = f"{moment:%Y-%m-%d %H:%M:%S}".rjust(19, "0")
        return whole + (f".{moment.microsecond:06}"[: digits + 1] if digits else "")

    return text


def as_hex(value: bytes) -> str:
    return value.hex().upper()


def as_bit(value: bool) -> str:
    return str(int(value))


def as_compact_json(text: str) -> str:
    """Without blanks: MariaDB keeps the text that it was given, MySQL writes a text of its own."""
    return text.replace(": ", ":").replace(", ", ",")


# Type, values as SQL writes them, how the server tells one, how the test writes what was read.
TYPES: list[tuple[str, list[str], str, Callable[[Any], str]]] = [
    ("TINYINT", ["-128", "127"], "c", as_text),
    ("TINYINT UNSIGNED", ["255", "0"], "c", as_text),
    ("TINYINT(1)", ["0", "1", "-7"], "c", as_text),
    ("SMALLINT", ["-32768", "32767"], "c", as_text),
    ("SMALLINT UNSIGNED ZEROFILL", ["65535"], "c+0", as_text),
    ("MEDIUMINT", ["-8388608", "8388607"], "c", as_text),
    ("MEDIUMINT UNSIGNED", ["16777215"], "c", as_text),
    ("INT", ["-2147483648", "2147483647"], "c", as_text),
    ("INT UNSIGNED", ["4294967295"], "c", as_text),
    ("BIGINT", ["-9223372036854775808", "9223372036854775807"], "c", as_text),
    ("BIGINT UNSIGNED", ["18446744073709551615", "9223372036854775808"], "c", as_text),
    ("FLOAT", ["1.5", "-0.25"], "c", as_text),
    ("DOUBLE", ["0.1", "-123456.789", "3.5"], "c", as_text),
    ("YEAR", ["0", "1901", "2155", "2024"], "IF(c = 0, '0', c)", as_text),
    ("BIT(1)", ["b'0'", "b'1'"], "c+0", as_bit),
    ("BIT(10)", ["b'1000000001'", "b'0'"], "HEX(CAST(LPAD(c, 2, '\\0') AS BINARY))", as_hex),
    ("BIT(64)", ["18446744073709551615", "9223372036854775809"], "c+0", lambda v: str(int.from_bytes(v, "big"))),
    ("DECIMAL(5,0)", ["99999", "-1"], "c", as_text),
    ("DECIMAL(18,9)", ["-999999999.999999999", "0.000000001"], "c", lambda v: f"{v:f}"),
    ("DECIMAL(19,1)", ["999999999999999999.9", "-1.5"], "c", as_text),
    ("DECIMAL(38,10)", ["-1234567890123456789012345678.0123456789"], "c", as_text),
    ("DECIMAL(65,30)", ["-" + "9" * 35 + "." + "9" * 30, "0", "1.5"], "c", as_text),
    ("DECIMAL(65,0)", ["9" * 65, "-1"], "c", as_text),
    ("DATE", ["'1000-01-01'", "'9999-12-31'", "'2024-02-29'"], "c", as_text),
    *[
        (f"TIME({digits})", ["'-838:59:59'", "'838:59:59'", "'-00:00:01.5'", "'12:34:56.123456'", "'-00:00:00.000001'"],
         "c", as_time(digits))
        for digits in range(7)
    ],
    *[
        (f"DATETIME({digits})", ["'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'2024-02-29 12:34:56.123456'"], "c",
         as_moment(digits))
        for digits in range(7)
    ],
    *[
        (f"TIMESTAMP({digits})", ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'2024-02-29 12:34:56.123456'"],
         "c", as_moment(digits))
        for digits in range(7)
    ],
    ("CHAR(10)", ["'a  '", "''", "'é€😀'"], "c", as_text),
    ("CHAR(255)", ["'x'", "REPEAT('😀', 255)"], "c", as_text),
    ("VARCHAR(10)", ["'a  '", "''", "'é€😀'"], "c", as_text),
    ("VARCHAR(1000)", ["REPEAT('é', 1000)"], "c", as_text),
    ("TINYTEXT", ["'a'"], "c", as_text),
    ("TEXT", ["REPEAT('ab', 30000)", "''"], "c", as_text),
    ("MEDIUMTEXT", ["REPEAT('ab', 60000)"], "c", as_text),
    ("LONGTEXT", ["'l'"], "c", as_text),
    *[
        (f"VARCHAR(20) CHARACTER SET {charset}", [f"'{text}'", "'plain'"], "CONVERT(c USING utf8mb4)", as_text)
        for charset, text in (
("latin1", "é€ÿ"), ("latin2", "łőž"), ("latin5", "ğş"), ("latin7", "ģķ"), ("cp1250", "łőž"),
            ("cp1251", "Привет"), ("cp1256", "سلام"), ("cp1257", "ģķ"), ("cp850", "éñ"), ("cp852", "łő"),
            ("cp866", "Привет"), ("greek", "αβγ"), ("hebrew", "שלום"), ("koi8r", "Привет"),
            ("koi8u", "Київ"), ("macroman", "éñ"), ("macce", "łő"), ("tis620", "สวัสดี"), ("gbk", "你好"),
            ("gb2312", "你好"), ("big5", "你好"), ("sjis", "こんにちは"), ("cp932", "こんにちは"),
            ("ujis", "こんにちは"),
            ("eucjpms", "こんにちは"), ("euckr", "안녕"), ("ucs2", "é你"), ("utf16", "é你😀"), ("utf16le", "é你😀"),
            ("utf32", "é你😀"), ("utf8mb3", "é你"), ("ascii", "a~"),
        )
    ],
    ("BINARY(5)", ["x'0100'", "x'0000000000'", "x'ffffffffff'"], "HEX(c)", as_hex),
    ("VARBINARY(300)", ["x'0100'", "''", "REPEAT(x'00', 300)"], "HEX(c)", as_hex),
    ("TINYBLOB", ["x'00ff'"], "HEX(c)", as_hex),
    ("BLOB", ["REPEAT(x'00ff', 20000)"], "HEX(c)", as_hex),
    ("MEDIUMBLOB", ["x'00ff'"], "HEX(c)", as_hex),
    ("LONGBLOB", ["x'00ff'"], "HEX(c)", as_hex),
    (r"ENUM('a','it''s','x\\y','')", ["'a'", "'it''s'", r"'x\\y'", "''", "'none'"], "c", as_text),
    (r"SET('p','q q','x\\y')", [r"'p,x\\y'", "''", "'q q'"], "c", as_text),
    ("JSON", ["'{\"a\": [1, 2.50]}'"], "REPLACE(REPLACE(c, ': ', ':'), ', ', ',')", as_compact_json),
    ("POINT", ["ST_GeomFromText('POINT(1 -2.5)')"],
     "'{\"coordinates\":[1,-2.5],\"type\":\"Point\",\"srid\":0}'", as_text),
    ("GEOMETRY", ["ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 2),MULTIPOLYGON(((0 0,1 0,1 1,0 0))))')"],
     "'{\"geometries\":[{\"coordinates\":[1,2],\"type\":\"Point\"},{\"coordinates\":[[[[0,0],[1,0],[1,1],[0,0]]]],"
     "\"type\":\"MultiPolygon\"}],\"type\":\"GeometryCollection\",\"srid\":0}'", as_text),
]  # fmt: skip


@pytest.fixture(params=["MINIMAL", "FULL"])
def row_metadata(request: pytest.FixtureRequest, connection: Connection) -> Iterator[str]:
    connection.query(f"SET GLOBAL binlog_row_metadata = '{request.param}'")
    yield str(request.param)
    connection.query("SET GLOBAL binlog_row_metadata = DEFAULT")


def test_every_type_is_what_the_server_shows(
    connection: Connection, server: Server, schema: str, row_metadata: str
) -> None:
    """One table per type, two columns of it, NULL among the values; the last column shows that widths are right."""
    starts = log_end(connection)
    tables, expected = [], {}
    for number, (kind, values, shown, _) in enumerate(TYPES):
        name = f"{schema}.t{number}"
        connection.query(f"CREATE TABLE {name} (id INT PRIMARY KEY, c {kind} NULL, d {kind} NULL, e INT NOT NULL)")
        for row, value in enumerate([*values, "NULL"]):
            connection.query(f"INSERT INTO {name} VALUES ({row}, {value}, {values[0]}, {row})")
        told_by_server = "CAST(c AS CHAR)" if shown == "c" else shown
        query = f"SELECT id, IF(c IS NULL, NULL, {told_by_server}), e FROM {name} ORDER BY id"
        expected[f"t{number}"] = connection.query(query)
        tables.append(table_of(connection, schema, f"t{number}"))
    told, reader = read_log(server, starts, *tables)
    found = {item.table.name: item.rows.to_pylist() for item in told if isinstance(item, TableRows)}
    wrong = []
    for number, (kind, _, _, text) in enumerate(TYPES):
        rows = found[f"t{number}"]
        for row, (key, shown_text, last) in zip(rows, expected[f"t{number}"], strict=True):
            assert (row["id"], row["e"]) == (key, last), kind
            got = None if row["c"] is None else text(row["c"])
            want = None if shown_text is None else str(shown_text)
            if got != want:
                wrong.append((kind, key, got, want))
    assert not wrong
    end = log_end(connection)
    assert (reader.position.file, reader.position.offset) == (end.file, end.offset)


def test_dates_that_do_not_exist(connection: Connection, server: Server, schema: str) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a DATE, b DATETIME(3), c TIMESTAMP NULL)")
    table, start = table_of(connection, schema, "t"), log_end(connection)
    connection.query("SET sql_mode = 'ALLOW_INVALID_DATES'")
    connection.query(f"INSERT INTO {schema}.t VALUES (1, '0000-00-00', '2024-00-10', '0000-00-00 00:00:00')")
    connection.query(f"INSERT INTO {schema}.t VALUES (2, '2024-02-31', '2024-02-31 01:02:03', '2024-01-01 00:00:00')")
    told, _ = read_log(server, start, table)
    assert [row[2:4] for row in images(told)] == [(None, None), (None, None)]
    assert [row[4] is None for row in images(told)] == [True, False]


@pytest.mark.parametrize("compressed", ["OFF", "ON"])
@pytest.mark.parametrize("checksum", ["NONE", "CRC32"])
def test_inserts_updates_and_deletes(
    connection: Connection, server: Server, schema: str, kind: Kind, compressed: str, checksum: str
) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, name VARCHAR(600), at DATETIME(6))")
    connection.query(f"CREATE TABLE {schema}.other (id INT PRIMARY KEY)")
    table, start = table_of(connection, schema, "t"), log_end(connection)
    connection.query(f"SET GLOBAL {kind.compression} = {compressed}")
    connection.query(f"SET GLOBAL binlog_checksum = {checksum}")
    try:
        with Connection(server) as writer:
            writer.query(
                f"INSERT INTO {schema}.t SELECT seq, IF(seq % 7 = 0, NULL, REPEAT('x', seq % 600)),"
                f" '2024-02-29 01:02:03.000004' FROM {numbers(3_000)}"
            )
            writer.query(f"INSERT INTO {schema}.other VALUES (1)")
            writer.query(f"UPDATE {schema}.t SET name = CONCAT('u', id) WHERE id <= 1000")
            writer.query(f"UPDATE {schema}.t SET id = id + 100000 WHERE id BETWEEN 50 AND 60")
            writer.query(f"DELETE FROM {schema}.t WHERE id % 3 = 0")
            writer.query(f"REPLACE INTO {schema}.t VALUES (1, 'r', NULL)")
        told, _ = read_log(server, start, table)
    finally:
        connection.query(f"SET GLOBAL {kind.compression} = OFF")
        connection.query("SET GLOBAL binlog_checksum = CRC32")
    state: dict[int, tuple[Any, ...]] = {}
    for kind, key, *rest in images(told):
        if kind in ("-D", "-U"):
            assert state.pop(key) == tuple(rest)
        else:
            assert key not in state
            state[key] = tuple(rest)
    assert sorted((key, *rest) for key, rest in state.items()) == connection.query(
        f"SELECT * FROM {schema}.t ORDER BY id"
    )


def test_global_ids_follow_the_server(connection: Connection, server: Server, schema: str) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    table, end = table_of(connection, schema, "t"), log_end(connection)
    start = with_gtids(connection, end, executed="", server_id=secrets.randbelow(10**9) + 10)
    connection.query(f"INSERT INTO {schema}.t VALUES (1)")
    connection.query("FLUSH BINARY LOGS")
    connection.query(f"DELETE FROM {schema}.t")
    told, reader = read_log(server, start, table)
    assert images(told) == [("+I", 1), ("-D", 1)]
    end = log_end(connection)
    # MariaDB notes by itself, a moment later, up to where it has to recover.
    assert (reader.position.file, reader.position.gtids) == (end.file, executed_gtids(connection))
    assert start.order() < reader.position.order()
    again, _ = read_log(server, reader.position, table)
    assert again == []


@ONLY_MYSQL
def test_global_ids_of_what_is_logged_and_not_executed(connection: Connection, server: Server, schema: str) -> None:
    """A second passes between the two; the position is behind the transaction, and its set has to be so too."""
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    before, executed = log_end(connection), executed_gtids(connection)
    connection.query("SET GLOBAL binlog_group_commit_sync_delay = 1000000")
    try:
        with ThreadPoolExecutor(1) as pool, Connection(server) as writer:
            written = pool.submit(writer.query, f"INSERT INTO {schema}.t VALUES (1)")
            while (end := log_end(connection)).order() == before.order():
                time.sleep(0.01)
            exact = with_gtids(connection, end, executed=executed, server_id=secrets.randbelow(10**9) + 10)
            read = with_gtids(connection, end, executed="", server_id=secrets.randbelow(10**9) + 10)
            assert executed_gtids(connection) == executed
            await_visible(connection, exact)
            assert connection.query(f"SELECT * FROM {schema}.t") == [(1,)]
            written.result()
    finally:
        connection.query("SET GLOBAL binlog_group_commit_sync_delay = 0")
    assert exact == read == replace(log_end(connection), gtids=executed_gtids(connection))


@ONLY_MARIADB
def test_what_waits_for_a_replica_is_not_yet_visible(connection: Connection, server: Server, schema: str) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    before = log_end(connection)
    with Connection(server) as writer, ThreadPoolExecutor(1) as pool:
        connection.query("SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'")
        connection.query("SET GLOBAL rpl_semi_sync_master_timeout = 3000")
        connection.query("SET GLOBAL rpl_semi_sync_master_enabled = 1")
        try:
            written = pool.submit(writer.query, f"INSERT INTO {schema}.t VALUES (1)")
            while (end := log_end(connection)).order() == before.order() or not waiting_sessions(connection):
                time.sleep(0.01)
            time.sleep(1.5)
            assert snapshot_end(connection).order() == before.order()
            assert connection.query(f"SELECT * FROM {schema}.t") == []
            marks = Marks(connection)
            assert connection.query(f"SELECT * FROM {schema}.t") == [(1,)]
            assert marks.visible().order() >= end.order()
            written.result()
        finally:
            for name in ("enabled", "timeout", "wait_point"):
                connection.query(f"SET GLOBAL rpl_semi_sync_master_{name} = DEFAULT")


def test_a_change_of_the_table_is_told_between_its_rows(connection: Connection, server: Server, schema: str) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    before, start = table_of(connection, schema, "t"), log_end(connection)
    connection.query(f"INSERT INTO {schema}.t VALUES (1)")
    connection.query(f"ALTER TABLE {schema}.t ADD COLUMN n BIGINT UNSIGNED")
    told, _ = read_log(server, start, before)
    assert images(told) == [("+I", 1)]
    assert [item.sql for item in told if isinstance(item, SchemaChange)] == [
        f"ALTER TABLE {schema}.t ADD COLUMN n BIGINT UNSIGNED"
    ]
    connection.query(f"INSERT INTO {schema}.t VALUES (2, 18446744073709551615)")
    with pytest.raises(ReplicationError, match="has 2 columns in the log and 1 in the catalogue"):
        read_log(server, start, before)
    with pytest.raises(ReplicationError, match="has 1 columns in the log and 2 in the catalogue"):
        read_log(server, start, table_of(connection, schema, "t"))


def test_changes_that_are_logged_as_statements_stop(connection: Connection, server: Server, schema: str) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    table, start = table_of(connection, schema, "t"), log_end(connection)
    connection.query("SET SESSION binlog_format = 'STATEMENT'")
    connection.query(f"INSERT INTO {schema}.t VALUES (1)")
    with pytest.raises(ReplicationError, match=r"logged as a statement.*'binlog_format' = 'ROW'"):
        read_log(server, start, table)


def test_rows_that_are_logged_in_part_stop(connection: Connection, server: Server, schema: str) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a INT, b INT)")
    connection.query(f"INSERT INTO {schema}.t VALUES (1, 2, 3)")
    table, start = table_of(connection, schema, "t"), log_end(connection)
    connection.query("SET SESSION binlog_row_image = 'MINIMAL'")
    connection.query(f"UPDATE {schema}.t SET a = 5")
    with pytest.raises(ReplicationError, match="'binlog_row_image' = 'FULL'"):
        read_log(server, start, table)


@ONLY_MYSQL
@pytest.mark.parametrize("compressed", ["OFF", "ON"])
def test_documents_that_are_logged_in_part(
    connection: Connection, server: Server, schema: str, compressed: str
) -> None:
    """Every kind of step, in rows of nine documents; the server's own text of each is the measure."""
    names = [f"j{number}" for number in range(9)]
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, {', '.join(f'{name} JSON' for name in names)})")
    document = '{"a": [1, 2, {"b": "' + "x" * 300 + '"}], "c": null, "d": "' + "y" * 200 + '"}'
    columns = ", ".join(f"'{document}'" for _ in names)
    connection.query(f"INSERT INTO {schema}.t SELECT seq, {columns} FROM {numbers(5)}")
    table, start = table_of(connection, schema, "t"), log_end(connection)
    with Connection(server) as writer:
        writer.query("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
        writer.query(f"SET SESSION binlog_transaction_compression = {compressed}")
        writer.query(f"UPDATE {schema}.t SET j0 = JSON_SET(j0, '$.a[1]', 'z'), j8 = JSON_REMOVE(j8, '$.d')")
        writer.query(f"UPDATE {schema}.t SET j3 = JSON_REPLACE(j3, '$.a[2].b', id), j4 = NULL WHERE id > 2")
        writer.query(f"UPDATE {schema}.t SET j0 = JSON_SET(j0, '$.new', CAST('[1.5, true]' AS JSON)) WHERE id = 4")
        writer.query(f"UPDATE {schema}.t SET j1 = JSON_REMOVE(j1, '$.a[0]'), id = id + 10 WHERE id = 5")
    with LogStream(server, start, server_id=secrets.randbelow(10**9) + 10, to_end=True) as stream:
        kinds = {event[4] for event in stream}
    assert EventType.TRANSACTION_PAYLOAD in kinds if compressed == "ON" else EventType.PARTIAL_UPDATE_ROWS in kinds
    told, _ = read_log(server, start, table)
    state = {row[1]: row[2:] for row in images(told) if row[0] == "+U"}
    shown = connection.query(f"SELECT * FROM {schema}.t ORDER BY id")
    assert {key: state[key] for key, *_ in shown} == {
        key: tuple(None if value is None else as_compact_json(value) for value in values) for key, *values in shown
    }


def test_settings_of_the_server_are_judged(connection: Connection) -> None:
    require_row_log(connection)
    connection.query("SET GLOBAL binlog_row_image = 'MINIMAL'")
    try:
        with pytest.raises(ReplicationError, match="'binlog_row_image' is 'MINIMAL': set 'binlog_row_image' = 'FULL'"):
            require_row_log(connection)
    finally:
        connection.query("SET GLOBAL binlog_row_image = 'FULL'")


def test_a_silent_server_tells_that_it_lives(connection: Connection, server: Server) -> None:
    start = log_end(connection)
    with LogStream(server, start, server_id=4711, to_end=False, heartbeat=0.2) as stream:
        reader = LogReader(start, lambda *_: None, rules=TypeRules(), checksum=stream.checksum)
        for event in stream:
            assert list(reader.read(event)) == []
            if event[4] == EventType.HEARTBEAT:
                break
    assert reader.position == start


def test_a_purged_log_has_its_remedy(connection: Connection, server: Server) -> None:
    start = log_end(connection)
    deadline = time.monotonic() + 60
    while start.file in {name for name, *_ in connection.query("SHOW BINARY LOGS")}:
        # A server keeps a file as long as a reader that has just ended, or its own recovery, may need it.
        assert time.monotonic() < deadline
        connection.query("FLUSH BINARY LOGS")
        connection.query(f"PURGE BINARY LOGS TO '{log_end(connection).file}'")
        time.sleep(0.2)
    with pytest.raises(ReplicationError, match=r"the log cannot be read from log\.\d+:\d+.*a new snapshot"):
        read_log(server, start)


def test_a_wrong_password_and_a_missing_grant_are_told(connection: Connection, server: Server) -> None:
    with pytest.raises(EndpointError, match="GRANT SELECT ON the tables, and REPLICATION SLAVE") as failed:
        Connection(replace(server, password="not-the-one"))
    assert "not-the-one" not in str(failed.value)
    create_user(connection, "weak")
    with pytest.raises(EndpointError, match="REPLICATION SLAVE"):
        read_log(replace(server, user="weak", password="weak"), log_end(connection))


def test_tables_that_a_selection_names(connection: Connection, schema: str) -> None:
    for name in ("orders", "orders_1", "_orders_gho", "users"):
        connection.query(f"CREATE TABLE {schema}.{name} (b INT, a VARCHAR(5), PRIMARY KEY (a, b))")
    connection.query(f"CREATE VIEW {schema}.orders_view AS SELECT 1")
    selection = TableSelection(parse_patterns(rf"{schema}.\.*orders\.*"), parse_patterns(r"\.*._\.*_gho"))
    assert list_tables(connection, selection) == [(schema, "orders"), (schema, "orders_1")]
    assert table_of(connection, schema, "orders").primary_key == ("a", "b")
    assert read_table(connection, schema, "none") is None
