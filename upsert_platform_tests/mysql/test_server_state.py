"""When a SELECT sees what the log holds, of MySQL, whose sessions wait for replicas behind the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql import server_state
from upsert_platform.mysql.chunk_sums import Marks
from upsert_platform.mysql.position import LogPosition
from upsert_platform.mysql.server_state import SETTLE_SECONDS, await_visible


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Server:
    """A connection to MySQL, one session of which waits for a replica until some second."""

    server = "db:3306"

    def __init__(self, clock: Clock, *, until: float = 0.0, timeout: float = 10.0, mode: str = "OFF") -> None:
        self.clock, self.until, self.timeout, self.mode = clock, until, timeout, mode
        self.wait_point = "AFTER_SYNC"
        self.asked: list[object] = []
        self.executed = 0.0

    def is_mariadb(self) -> bool:
        return False

    def version(self) -> tuple[int, ...]:
        return (8, 0, 36)

    def variable(self, name: str) -> str | None:
        found = {
            "gtid_mode": self.mode,
            "rpl_semi_sync_source_timeout": str(int(self.timeout * 1000)),
            "rpl_semi_sync_source_wait_point": self.wait_point,
        }
        return found.get(name)

    def query(self, sql: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        if "wait_sessions" in sql:
            return [("Rpl_semi_sync_source_wait_sessions", "1" if self.clock.now < self.until else "0")]
        if "STATUS" in sql:
            return [("log.000001", int(self.clock.now * 1000))]
        assert "GTID_SUBSET" in sql
        self.asked.append(arguments[0])
        return [(int(self.clock.now >= self.executed),)]


PLACE = LogPosition("log.000001", 400)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(server_state, "time", found)
    monkeypatch.setattr("upsert_platform.mysql.chunk_sums.time", found)
    return found


@pytest.mark.parametrize(("wait", "timeout", "waited"), [(0, 10, 1), (5, 10, 5), (500, 10, 11), (7, 10**15, 7)])
def test_what_waits_for_a_replica_is_waited_for(clock: Clock, wait: float, timeout: float, waited: float) -> None:
    """Longer than a server lets a session wait, none of those waits that the position has before it."""
    await_visible(Server(clock, until=100 + wait, timeout=timeout), PLACE)  # type: ignore[arg-type]
    assert clock.now - 100 == pytest.approx(waited, abs=0.1)


def test_a_replica_that_never_answers_is_told(clock: Clock) -> None:
    with pytest.raises(
        ReplicationError, match=r"log\.000001:400 is not visible after 60 s: sessions wait for replicas"
    ):
        await_visible(Server(clock, until=10**6, timeout=10**6), PLACE)  # type: ignore[arg-type]


def test_what_waits_behind_its_commit_is_seen_already(clock: Clock) -> None:
    server = Server(clock, until=10**6, timeout=10**6)
    server.wait_point = "AFTER_COMMIT"
    await_visible(server, PLACE)  # type: ignore[arg-type]
    assert clock.now - 100 == pytest.approx(1.0, abs=0.1)


def test_global_ids_are_waited_for_where_a_server_has_them(clock: Clock) -> None:
    place = LogPosition("log.000001", 400, "a:1-7")
    server = Server(clock, until=10**6, mode="ON")
    await_visible(server, place)  # type: ignore[arg-type]
    assert server.asked == ["a:1-7"]
    assert clock.now == 100
    server.executed = 130.0
    await_visible(server, place)  # type: ignore[arg-type]
    assert clock.now == pytest.approx(130, abs=0.1)
    server.executed = 1000.0
    with pytest.raises(ReplicationError, match="its transactions have not all been executed"):
        await_visible(server, place)  # type: ignore[arg-type]


def test_marks_are_not_believed_while_a_session_waits(clock: Clock) -> None:
    server = Server(clock)
    marks = Marks(server)  # type: ignore[arg-type]
    first = marks.visible()
    server.until = clock.now + 30
    marks.now()
    clock.sleep(5)
    assert marks.visible() == first
    clock.sleep(30)
    assert marks.visible().order() > first.order()
    assert SETTLE_SECONDS == 1.0
