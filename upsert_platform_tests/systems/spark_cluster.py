"""A standalone Spark cluster of this machine, from PySpark's own package: a master, workers, and their ends."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from upsert_platform.local.process import free_port

_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1


@dataclass
class SparkCluster:
    """A master and its workers, each with one core; ends with the `with` block.

    Attributes:
        folder: holds their logs, and below ``work-N`` what the executors of worker N unpack and write.
        spark: PySpark's folder.
        environment: of its processes, executors and their Python among them.
    """

    folder: Path
    spark: Path
    environment: Mapping[str, str]
    port: int = field(default_factory=free_port)
    pages: int = field(default_factory=free_port)
    master: subprocess.Popen[bytes] | None = None
    workers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """What `spark.master` is."""
        return f"spark://127.0.0.1:{self.port}"

    def __enter__(self) -> SparkCluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.master = self._start(
            "master", "master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.pages)
        )
        self._await(0)
        for number in (1, 2):
            self.add_worker(number, wait=False)
        self._await(2)
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers.values(), self.master):
            if process is not None:
                _end(process)

    def add_worker(self, number: int, *, wait: bool = True) -> None:
        """Starts a worker, in a folder of its own; returns when the master knows it."""
        before = self._alive() if wait else 0
        self.workers[number] = self._start(
            f"worker-{number}", "worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1500m",
            "--webui-port", "0", "--work-dir", str(self.folder / f"work-{number}"), self.url,
        )  # fmt: skip
        if wait:
            self._await(before + 1)

    def kill_worker(self, number: int) -> None:
        """Ends a worker by SIGKILL, with its executors and their Python, as when a machine is lost."""
        process = psutil.Process(self.workers.pop(number).pid)
        for item in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                item.kill()

    def executors(self) -> list[psutil.Process]:
        """The JVMs of executors."""
        found = []
        for worker in self.workers.values():
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(worker.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        if any("CoarseGrainedExecutorBackend" in word for word in child.cmdline()):
                            found.append(child)
        return found

    def unpacked(self) -> list[Path]:
        """The interpreters that executors have unpacked."""
        return sorted(self.folder.glob("work-*/app-*/*/environment/bin/python"))

    def _start(self, name: str, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **self.environment,
            "SPARK_HOME": str(self.spark),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self.folder / f"local-{name}"),
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [str(self.spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, env=environment,
                # The signal comes when the thread ends that started it, which may be one that disturbs for a moment.
                preexec_fn=_end_with_parent if threading.current_thread() is threading.main_thread() else os.setsid,
            )  # fmt: skip

    def _alive(self) -> int:
        return sum(worker["state"] == "ALIVE" for worker in self._state().get("workers", ()))

    def _state(self) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.pages, timeout=5)
        try:
            connection.request("GET", "/json/")
            return dict(json.loads(connection.getresponse().read()))
        finally:
            connection.close()

    def _await(self, workers: int) -> None:
        deadline = time.monotonic() + _SECONDS
        while True:
            with suppress(OSError, ValueError, http.client.HTTPException):
                if self._alive() >= workers:
                    return
            for process in (self.master, *self.workers.values()):
                assert process is None or process.poll() is None, self._logs()
            assert time.monotonic() < deadline, self._logs()
            time.sleep(0.1)

    def _logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-1500:] for path in sorted(self.folder.glob("*.log")))


def _end_with_parent() -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes]) -> None:
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
