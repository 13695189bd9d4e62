"""What a write has to get through: errors, throttled rows, cut connections, a server that dies and comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from upsert_platform_tests.local.tablestore.server import ServerHandle

FAULTS = (
    "error:operation=BatchWriteRow,code=OTSServerBusy,probability=0.05",
    "error:operation=BatchWriteRow,code=OTSServerUnavailable,probability=0.05",
    "row-error:code=OTSNotEnoughCapacityUnit,probability=0.1",
    "cut-before:operation=BatchWriteRow,probability=0.01",
    "cut-after:operation=BatchWriteRow,probability=0.01",
)
"""A tenth of all requests is answered 503, a tenth of all rows throttled, a fiftieth of all connections cut."""
DEATHS = 2
_DOWN_SECONDS = 0.5

Item = TypeVar("Item")


def restart_after_a_while(server: ServerHandle) -> threading.Thread:
    """Kills the server, and starts it again in a thread."""
    server.kill()

    def start() -> None:
        time.sleep(_DOWN_SECONDS)
        server.start()

    thread = threading.Thread(target=start)
    thread.start()
    return thread


def killing_between(items: Iterable[Item], server: ServerHandle, *, at: Iterable[int]) -> Iterator[Item]:
    """The items; the server is killed and started again before those at the given positions."""
    moments = set(at)
    threads = []
    for number, item in enumerate(items):
        if number in moments:
            for thread in threads:
                thread.join()
            threads.append(restart_after_a_while(server))
        yield item
    for thread in threads:
        thread.join()


@contextmanager
def dying(server: ServerHandle, *, every: float) -> Iterator[list[float]]:
    """Kills the server twice while the context is open, so many seconds apart; yields when each was up again."""
    ended = threading.Event()
    deaths: list[float] = []

    def disturb() -> None:
        for _ in range(DEATHS):
            if ended.wait(every):
                return
            restart_after_a_while(server).join()
            deaths.append(time.monotonic())

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield deaths
    finally:
        ended.set()
        thread.join()
