"""Continuous mode that is killed, beside jobs and servers that come and go: equal tables, one holder of each lease.

SOAK_SCALE is the share of twenty kills.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.local.kafka import Broker, start_broker
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxComputeServer
from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer
from upsert_platform_tests.soak.load import Load
from upsert_platform_tests.soak.test_streaming import PATIENCE, streaming, told
from upsert_platform_tests.soak.test_waves import compare, load_of

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

KILLS = 20
KEYS = 20_000
RECORDS = 600
"""Of each half second while the loop runs."""
TABLES = ("users_serving", "users_warehouse")
RECOVERY = "recovery of a recorded commit"
"""Whoever looks at a MaxCompute table whose writer died in a commit holds its lease so, for a moment."""


class Holders:
    """Who held the lease of each table, one after the other, as a bystander reads it."""

    def __init__(self, stack: Stack) -> None:
        self.seen: dict[str, list[str]] = {name: [] for name in TABLES}
        self.looks = 0
        self._stack = stack
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Holders:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ends.wait(0.3):
            for name, seen in self.seen.items():
                with suppress(UpsertPlatformError, OSError):  # its server is away
                    holder = self._holder(name)
                    self.looks += 1
                    if holder not in (None, RECOVERY, *seen[-1:]):
                        seen.append(holder)

    def _holder(self, name: str) -> str | None:
        hop = self._stack.hop(name)
        try:
            return hop.destination.state().holder
        finally:
            hop.destination.close()


def killed_tablestore(server: TablestoreServer) -> Callable[[], None]:
    """Kills the server, and starts it again a moment later."""

    def restart() -> None:
        server.kill()
        time.sleep(1)
        server.start()

    return restart


def restarted_broker(held: list[Broker], folder: Path) -> Callable[[], None]:
    """Stops the broker, and starts it again on its port a moment later."""

    def restart() -> None:
        port = int(held[0].bootstrap_servers.rpartition(":")[2])
        held[0].stop()
        time.sleep(1)
        held[0] = start_broker(folder / "broker", port=port, die_with_parent=True)

    return restart


def stream_and_kill(stack: Stack, load: Load, chance: random.Random, disturb: Callable[[], None]) -> None:
    """Produces while the loop runs, disturbs a server in the middle of it, and kills the loop at any moment."""
    with streaming(stack) as process:
        began = time.monotonic()
        due: float | None = chance.uniform(2, 6)
        end = chance.uniform(3, 12)
        while (passed := time.monotonic() - began) < end or due is not None:
            assert process.poll() is None, told(stack)
            load.produce(RECORDS)
            if due is not None and passed >= due:
                disturb()
                due = None
            time.sleep(0.5)
        assert process.poll() is None, told(stack)
        process.kill()
        process.wait()


def sync(stack: Stack) -> None:
    """A job between two loops; it waits for what is left of the killed one's leases."""
    done = stack.execute(timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert stack.serving_differences() == []
    assert stack.warehouse_differences() == []


@contextmanager
def produced_meanwhile(load: Load) -> Iterator[None]:
    """Records arrive without a pause: one who plans finds some that nobody has written yet."""
    ends = threading.Event()

    def produce() -> None:
        while not ends.wait(0.1):
            load.produce(RECORDS // 5)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def sync_is_fenced(stack: Stack, load: Load) -> None:
    """A job beside a running loop writes nothing, and says who does."""
    with streaming(stack) as process:
        time.sleep(40)  # by then the lease is the loop's, whoever was killed before
        with produced_meanwhile(load):
            done = stack.execute(timeout=300)
        assert done.returncode != 0, done.stderr[-3000:]
        assert "stream-" in done.stderr
        assert process.poll() is None, told(stack)
        process.terminate()
        assert process.wait(PATIENCE) == 0, told(stack)


def test_kills_restarts_and_jobs_in_turn(
    streamed: Stack,
    own_broker: list[Broker],
    tablestore: TablestoreServer,
    maxcompute: MaxComputeServer,
    tmp_path: Path,
    seed: int,
    scale: float,
) -> None:
    chance = random.Random(seed)
    load = load_of(streamed, seed, KEYS)
    load.produce(RECORDS)
    kills, syncs = max(3, round(KILLS * scale)), 0
    disturbances: list[Callable[[], None]] = [
        lambda: None,
        killed_tablestore(tablestore),
        maxcompute.restart,
        restarted_broker(own_broker, tmp_path),
    ]
    sync(streamed)
    with Holders(streamed) as holders:
        for number in range(kills):
            stream_and_kill(streamed, load, chance, disturbances[number % len(disturbances)])
            if chance.random() < 0.5:
                sync(streamed)
                syncs += 1
        sync_is_fenced(streamed, load)
        with streaming(streamed) as process:
            time.sleep(20)
            process.terminate()
            assert process.wait(PATIENCE) == 0, told(streamed)
        sync(streamed)
    print(compare(streamed, load))  # noqa: T201
    print(f"{kills} kills, {syncs} jobs between; {holders.looks} looks at leases, holders {holders.seen}")  # noqa: T201
    for name, seen in holders.seen.items():
        assert len(seen) >= kills // 2, name
        assert len(set(seen)) == len(seen), f"{name}: one that was replaced held it again: {seen}"
