"""How a measure is told, and how memory is watched."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil


@dataclass
class Peak:
    """Highest memory seen, in MB (RSS).

    Attributes:
        jvm: of Java processes below this one, summed.
        workers: of Python processes below this one, summed.
        worker: of the largest of these.
    """

    jvm: float = 0.0
    workers: float = 0.0
    worker: float = 0.0

    @property
    def total(self) -> float:
        """Both together."""
        return self.jvm + self.workers


@contextmanager
def watch_memory(interval: float = 0.1) -> Iterator[Peak]:
    """Watches the processes below this one while the block runs."""
    peak = Peak()
    done = threading.Event()

    def look() -> None:
        me = psutil.Process()
        while not done.wait(interval):
            jvm = workers = 0.0
            for child in me.children(recursive=True):
                try:
                    size, name = child.memory_info().rss / 2**20, child.name()
                except psutil.Error:  # it ended meanwhile
                    continue
                if "java" in name:
                    jvm += size
                elif "python" in name:
                    workers += size
                    peak.worker = max(peak.worker, size)
            peak.jvm, peak.workers = max(peak.jvm, jvm), max(peak.workers, workers)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def row(
    name: str,
    *,
    rows: int,
    seconds: float,
    memory: Peak | float | None = None,
    ratio: float | None = None,
    ratio_to: str = "",
    goal: str = "",
    **more: Any,
) -> dict[str, Any]:
    """One measure, as `make bench` prints it."""
    peak = memory.total if isinstance(memory, Peak) else memory
    return {
        "name": name,
        "rows": rows,
        "seconds": round(seconds, 3),
        "rows_per_s": round(rows / seconds) if seconds else None,
        "peak_memory_mb": None if peak is None else round(peak),
        "ratio": None if ratio is None else round(ratio, 3),
        "ratio_to": ratio_to,
        "goal": goal,
        **more,
    }
