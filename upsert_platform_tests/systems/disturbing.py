"""Disturbs a cluster while a step of a run is computed there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

import psutil

from upsert_platform_tests.systems.spark_cluster import SparkCluster

_POLL_SECONDS = 0.05
_WORKED_SECONDS = 0.02


class Disturber:
    """Acts once in each step that Python tasks of executors compute: as soon as one of them works.

    Attributes:
        hit: steps that were under way when it acted.
    """

    def __init__(
        self, cluster: SparkCluster, act: Callable[[SparkCluster], None], *, steps: Collection[str] | None = None
    ) -> None:
        self.hit: list[str] = []
        self._cluster, self._act, self._steps = cluster, act, steps
        self._under_way: str | None = None

    def see(self, step: str, event: str) -> None:
        """Is told of steps as they begin and end."""
        self._under_way = step if event == "STEP_START" else None
        if event == "STEP_START" and (self._steps is None or step in self._steps):
            threading.Thread(target=self._disturb, args=(step, _worked(self._cluster)), daemon=True).start()

    def _disturb(self, step: str, before: dict[int, float]) -> None:
        while self._under_way == step:
            grown = any(
                seconds - before.get(pid, 0.0) >= _WORKED_SECONDS for pid, seconds in _worked(self._cluster).items()
            )
            if grown:
                self.hit.append(step)
                self._act(self._cluster)
                return
            time.sleep(_POLL_SECONDS)


def kill_an_executor(cluster: SparkCluster) -> None:
    """Ends the executor that works most by SIGKILL; its Python ends with it."""
    busy = {executor.pid: sum(seconds for _, seconds in _python(executor)) for executor in cluster.executors()}
    with suppress(psutil.NoSuchProcess, ValueError):
        psutil.Process(max(busy, key=lambda pid: busy[pid])).kill()


def _worked(cluster: SparkCluster) -> dict[int, float]:
    """Processor seconds of each Python worker."""
    return {pid: seconds for executor in cluster.executors() for pid, seconds in _python(executor)}


def _python(executor: psutil.Process) -> Iterator[tuple[int, float]]:
    with suppress(psutil.NoSuchProcess):
        for child in executor.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                times = child.cpu_times()
                yield child.pid, times.user + times.system
