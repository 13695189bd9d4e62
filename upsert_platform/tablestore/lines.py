"""Connections and threads for bulk writes that serve one task after the other.

Continuous mode writes several batches a second, each as a task of its own: threads and connections that begin with
each of them would take as long as the requests.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from upsert_platform.tablestore.transport import Endpoint, Transport

_KEPT: Final = 4
"""Idle ones of a process."""
PLACES_PER_REQUEST: Final = 4
"""Deliveries under way for each request that may be in flight: those that pause before a retry hold up nobody."""

_Key = tuple[int, Endpoint, int]


@dataclass(frozen=True)
class Line:
    """A transport of one endpoint, and the threads that send through it. One task at a time uses it.

    Attributes:
        places: threads at most.
    """

    key: _Key
    transport: Transport
    threads: ThreadPoolExecutor
    places: int

    def close(self) -> None:
        """Ends the threads and closes the connections."""
        self.threads.shutdown(wait=True, cancel_futures=True)
        self.transport.close()


_idle: list[Line] = []
_lock = threading.Lock()


def take_line(endpoint: Endpoint, *, requests: int) -> Line:
    """Return an idle line of an endpoint, or a new one; whoever takes it gives it back.

    Args:
        requests: that may be in flight.
    """
    key = (os.getpid(), endpoint, requests)  # connections and threads are not carried into a process that was forked
    with _lock:
        for place, line in enumerate(_idle):
            if line.key == key:
                return _idle.pop(place)
    places = requests * PLACES_PER_REQUEST
    threads = ThreadPoolExecutor(max_workers=places, thread_name_prefix="tablestore")
    return Line(key, Transport(endpoint, connections=requests), threads, places)


def give_back(line: Line) -> None:
    """Keep a line, none of whose threads works any more, for the next task; close the one that waits longest."""
    with _lock:
        _idle.append(line)
        surplus = _idle.pop(0) if len(_idle) > _KEPT else None
    if surplus is not None and surplus.key[0] == os.getpid():
        surplus.close()
