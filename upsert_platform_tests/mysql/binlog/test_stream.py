"""The place in a log that a server is asked for."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog import stream
from upsert_platform.mysql.binlog.stream import LogStream
from upsert_platform.mysql.position import LogPosition

FAR = (1 << 32) + 131
FILES = [("log.000001", FAR + 41), ("log.000002", 400)]


def asked(monkeypatch: pytest.MonkeyPatch, position: LogPosition, files: list[tuple[str, int]]) -> bytes:
    found: list[bytes] = []

    class Raw:
        def _execute_command(self, command: int, data: bytes) -> None:
            if command == 0x12:
                found.append(data)

        def _read_packet(self) -> None:
            pass

    class Told:
        server = "db:3306"
        raw = Raw()

        def __init__(self, server: Any, **_: Any) -> None:
            pass

        def variable(self, name: str) -> str:
            return "CRC32"

        def is_mariadb(self) -> bool:
            return False

        def query(self, sql: str) -> list[tuple[str, int]]:
            return files if sql == "SHOW BINARY LOGS" else []

        def close(self) -> None:
            pass

    monkeypatch.setattr(stream, "Connection", Told)
    LogStream(None, position, server_id=7, to_end=True)  # type: ignore[arg-type]
    return found[0]


def test_a_position_is_asked_for_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    place = LogPosition("log.000001", FAR - 200)
    assert asked(monkeypatch, place, FILES) == struct.pack("<IHI", FAR - 200, 1, 7) + b"log.000001"


def test_behind_the_last_transaction_beyond_four_gigabytes_the_next_file_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked(monkeypatch, LogPosition("log.000001", FAR), FILES) == struct.pack("<IHI", 4, 1, 7) + b"log.000002"


@pytest.mark.parametrize("files", [FILES[:1], [("log.000001", FAR + 300), FILES[1]], FILES[1:]])
def test_a_position_that_no_server_can_be_asked_for_is_told(
    files: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ReplicationError, match=rf"log\.000001:{FAR} is beyond 4 GB of its file"):
        asked(monkeypatch, LogPosition("log.000001", FAR), files)
