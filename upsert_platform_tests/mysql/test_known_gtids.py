"""The transactions before a place of a log, where its server executes them later than it logs them."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql import known_gtids
from upsert_platform.mysql.known_gtids import with_gtids
from upsert_platform.mysql.position import GtidSet, LogPosition
from upsert_platform_tests.mysql.event_bytes import event, format_description, query, rotate

SOURCE = uuid.UUID(int=7)


class Told:
    """A connection whose answers are given."""

    server = "db:3306"

    def __init__(self, mode: str = "ON", purged: str = "", mariadb: str | None = None) -> None:
        self.mode, self.purged, self.mariadb = mode, purged, mariadb

    def is_mariadb(self) -> bool:
        return self.mariadb is not None

    def variable(self, name: str) -> str:
        assert name == "gtid_mode"
        return self.mode

    def query(self, sql: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        if "BINLOG_GTID_POS" in sql:
            assert arguments == ("log.000002", 400)
            return [(self.mariadb,)]
        assert "gtid_purged" in sql
        return [(self.purged,)]


def gtid(number: int, end: int) -> bytes:
    return event(33, b"\1" + SOURCE.bytes + struct.pack("<Q", number) + bytes(18), end=end)


def previous(end: int, *spans: tuple[int, int]) -> bytes:
    body = struct.pack("<Q", 1) + SOURCE.bytes + struct.pack("<Q", len(spans))
    return event(35, body + b"".join(struct.pack("<QQ", first, last + 1) for first, last in spans), end=end)


def asked(monkeypatch: pytest.MonkeyPatch, events: Sequence[bytes]) -> list[tuple[LogPosition, bool]]:
    found: list[tuple[LogPosition, bool]] = []

    class Stream:
        def __init__(self, server: Any, position: LogPosition, *, by_gtids: bool, **_: Any) -> None:
            found.append((position, by_gtids))

        def __enter__(self) -> Iterator[bytes]:
            return iter(events)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(known_gtids, "LogStream", Stream)
    return found


PLACE = LogPosition("log.000002", 400, "not looked at")


def known(connection: Told, executed: str, place: LogPosition = PLACE) -> LogPosition:
    return with_gtids(connection, place, executed=executed, server_id=5)  # type: ignore[arg-type]


def test_what_is_logged_and_not_executed_is_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transaction 6 waits for a replica; 5 was executed behind it; 8 stands behind the place."""
    sent = [
        rotate("log.000002"), format_description(), previous(150, (1, 4)), event(27, b"log.000002", end=200),
        gtid(6, 280), query("BEGIN", end=300), event(27, b"log.000002", end=400), gtid(8, 480),
    ]  # fmt: skip
    streams = asked(monkeypatch, sent)
    assert known(Told(), f"{SOURCE}:1-5:7") == LogPosition("log.000002", 400, f"{SOURCE}:1-7")
    assert streams == [(LogPosition("", 4, f"{SOURCE}:1-5:7"), True)]


def test_those_of_an_earlier_place_are_read_from_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where those of a backup are in no file, they count as purged."""
    sent = [rotate("log.000002"), format_description(), previous(150, (11, 14)), gtid(15, 230), gtid(16, 400)]
    streams = asked(monkeypatch, [*sent, gtid(17, 480)])
    assert known(Told(purged=f"{SOURCE}:1-10"), "").gtids == f"{SOURCE}:1-16"
    assert streams == [(LogPosition("log.000002", 4), False)]
    assert known(Told(), "", LogPosition("log.000002", 4)).gtids == f"{SOURCE}:11-14"


def test_a_log_that_ends_before_the_place_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a server does not tell of what it passes over, the file is read from its beginning."""
    streams = asked(monkeypatch, [rotate("log.000002"), format_description(), previous(150, (1, 4)), gtid(5, 399)])
    with pytest.raises(ReplicationError, match=r"ended its log at an event before log\.000002:400"):
        known(Told(), f"{SOURCE}:1-4")
    assert [by_gtids for _, by_gtids in streams] == [True, False]


def test_a_server_without_global_ids_tells_none(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = asked(monkeypatch, [])
    assert known(Told(mode="OFF"), f"{SOURCE}:1-4").gtids == ""
    assert known(Told(mariadb="0-1-7,2-1-3"), "0-1-6").gtids == "0-1-7,2-1-3"
    assert streams == []


def test_a_set_with_a_tag_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    tagged = event(35, struct.pack("<Q", 1 << 56 | 2) + bytes(60), end=150)
    asked(monkeypatch, [rotate("log.000002"), format_description(), tagged])
    with pytest.raises(ReplicationError, match="a global id with a tag is not read"):
        known(Told(), "")
    assert GtidSet.parse("") == GtidSet()
