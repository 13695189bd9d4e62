"""Transactions in two phases: rows count when they are committed, wherever they were logged before."""

from __future__ import annotations

import struct

import pytest

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog import reader as reader_module
from upsert_platform.mysql.binlog.changes import TableRows, Told, XaCommitted
from upsert_platform.mysql.binlog.reader import LogReader
from upsert_platform.mysql.columns import MySqlColumn, TypeRules
from upsert_platform.mysql.position import LogPosition, Prepared
from upsert_platform_tests.mysql.binlog.reading import START, log_reader, read_all, table_of
from upsert_platform_tests.mysql.event_bytes import (
    format_description,
    image,
    mariadb_gtid,
    query,
    rotate,
    rows,
    table_map,
    xa_prepare,
    xa_statement,
    xid,
)

TABLE = table_of(MySqlColumn("id", "int"))
MAP, OTHER = table_map([3]), table_map([3], table="other")
GROUP_COMMITS = [False, True]


def insert(*numbers: int) -> bytes:
    return rows(30, 1, b"".join(image(struct.pack("<i", number)) for number in numbers))


def prepared(name: str, *events: bytes, end: int, one_phase: bool = False) -> list[bytes]:
    return [
        xa_statement("START", name),
        *events,
        xa_statement("END", name),
        xa_prepare(name, end=end, one_phase=one_phase),
    ]


def committed(*events: bytes, end: int) -> list[bytes]:
    return [query("BEGIN"), *events, xid(end=end)]


def found(told: list[Told]) -> list[tuple[int, int]]:
    """Keys of rows, and how far the log was read behind them."""
    return [
        (row["id"], end)
        for item in told
        if isinstance(item, TableRows)
        for row, end in zip(item.rows.to_pylist(), item.ends, strict=True)
    ]


def test_rows_wait_for_their_commit() -> None:
    """And stand behind what was committed meanwhile; a position may lie in between."""
    reader = log_reader(TABLE)
    events = [
        *committed(MAP, insert(1), end=100),
        *prepared("a", MAP, insert(2), MAP, insert(3), end=200),
        *committed(MAP, insert(4), end=300),
    ]
    assert read_all(reader, events) == []
    assert [key for key, _ in found(list(reader.drain()))] == [1, 4]
    assert reader.position.offset == 300
    assert list(reader.prepared.values()) == [Prepared("X'61',X'',1", LogPosition("log.000001", 100), followed=True)]
    told = read_all(reader, [xa_statement("COMMIT", "a", end=400)])
    told += read_all(reader, committed(MAP, insert(5), end=500))
    assert found(told + list(reader.drain())) == [(2, 396), (3, 396), (5, 396)]
    assert reader.prepared == {}
    assert reader.position.offset == 500


def test_rows_that_are_rolled_back_are_forgotten() -> None:
    reader = log_reader(TABLE)
    told = read_all(reader, [*prepared("a", MAP, insert(2), end=200), xa_statement("ROLLBACK", "a", end=300)])
    assert found(told + list(reader.drain())) == []
    assert (reader.prepared, reader.position.offset) == ({}, 300)
    told = read_all(reader, [*prepared("a", MAP, insert(7), end=400), xa_statement("COMMIT", "a", end=500)])
    assert found(told) == [(7, 496)]


def test_one_phase_is_a_commit() -> None:
    reader = log_reader(TABLE)
    told = read_all(
        reader, [*committed(MAP, insert(1), end=100), *prepared("a", MAP, insert(2), end=200, one_phase=True)]
    )
    assert [key for key, _ in found(told + list(reader.drain()))] == [1, 2]
    assert (reader.prepared, reader.position.offset) == ({}, 200)


@pytest.mark.parametrize("group_commit", GROUP_COMMITS)
def test_mariadb_begins_them_with_a_global_id(group_commit: bool) -> None:
    reader = log_reader(TABLE, gtids="0-1-0")
    head = mariadb_gtid(1, flags=0x4C, xid="a", group_commit=group_commit)
    read_all(reader, [head, MAP, insert(2), xa_statement("END", "a"), xa_prepare("a", end=200)])
    assert not reader.in_transaction
    assert reader.position == LogPosition("log.000001", 200, "0-1-1")
    told = read_all(reader, [mariadb_gtid(2, flags=0x8D, xid="a"), xa_statement("COMMIT", "a", end=300)])
    assert [key for key, _ in found(told)] == [2]
    assert reader.position == LogPosition("log.000001", 300, "0-1-2")


def test_tables_that_are_not_followed_do_not_count() -> None:
    reader = log_reader(TABLE)
    told = read_all(reader, prepared("a", OTHER, insert(2), end=200))
    assert [(item.xid, item.followed) for item in reader.prepared.values()] == [("X'61',X'',1", False)]
    assert told + read_all(reader, [xa_statement("COMMIT", "a", end=300)]) + list(reader.drain())[:-1] == []


def test_a_commit_of_what_an_earlier_reader_has_prepared() -> None:
    """Of rows that it met, of rows of other tables, and of a transaction from before all readers."""
    place = LogPosition("log.000001", 40)
    known = [Prepared("X'61',X'',1", place, followed=True), Prepared("X'62',X'',1", place, followed=False)]
    reader = LogReader(START, lambda *_: TABLE, rules=TypeRules(), checksum=False, prepared=known)
    read_all(reader, [rotate(START.file), format_description()])
    told = read_all(reader, [xa_statement("COMMIT", name, end=100 + 10 * at) for at, name in enumerate("abc")])
    assert told == [XaCommitted("X'61',X'',1", place, 96), XaCommitted("X'63',X'',1", None, 116)]
    assert reader.position.offset == 120


def test_rows_that_are_too_many_to_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one event or in several, in one phase or two: the position stays."""
    monkeypatch.setattr(reader_module, "_MOST_BYTES", 40)
    many = tuple(insert(*range(at, at + 5)) for at in range(0, 50, 5))
    for one_phase in (False, True):
        reader = log_reader(TABLE)
        told = read_all(reader, committed(MAP, insert(100), end=100))
        told += read_all(reader, prepared("a", MAP, *many, end=200, one_phase=one_phase))
        told += read_all(reader, [] if one_phase else [xa_statement("COMMIT", "a", end=300)])
        assert [key for key, _ in found(told)] == [100]
        assert told[-1] == XaCommitted("X'61',X'',1", LogPosition("log.000001", 100), 196 if one_phase else 296)


def test_rows_are_told_as_they_come_when_they_are_read_again() -> None:
    reader = LogReader(START, lambda *_: TABLE, rules=TypeRules(), checksum=False, commits_prepared=True)
    read_all(reader, [rotate(START.file), format_description()])
    read_all(reader, prepared("a", MAP, insert(1, 2), end=200))
    assert reader.last_prepared == "X'61',X'',1"
    assert [key for key, _ in found(list(reader.drain()))] == [1, 2]


def test_a_transaction_that_was_never_prepared_leaves_the_others_alone() -> None:
    """As a server that is killed leaves it; rows of a table that is followed stop the reader."""
    reader = log_reader(TABLE)
    read_all(reader, committed(MAP, insert(1), end=100))
    read_all(reader, [xa_statement("START", "a"), OTHER, insert(2), *committed(MAP, insert(3), end=200)])
    assert [key for key, _ in found(list(reader.drain()))] == [1, 3]
    with pytest.raises(ReplicationError, match="the server lost its end"):
        read_all(reader, [xa_statement("START", "a"), MAP, insert(2), query("BEGIN")])
