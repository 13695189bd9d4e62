"""A running Tablestore server for tests: a subprocess on a free port, that can be killed, restarted and disturbed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from upsert_platform_tests.local.dependent import start_dependent

INSTANCE = "local"
ACCESS_KEY_ID = "test-id"
ACCESS_KEY_SECRET = "test-secret"


@dataclass
class ServerHandle:
    """Where the server is, and what can be done to it."""

    endpoint: str
    instance: str
    access_key_id: str
    access_key_secret: str = field(repr=False)
    data: Path
    arguments: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process and waits until it answers."""
        arguments = ["--data", str(self.data), "--port", self.endpoint.rsplit(":", 1)[1], "--instance", self.instance]
        arguments += ["--access-key-id", self.access_key_id, *self.arguments]
        self.data.mkdir(parents=True, exist_ok=True)
        with (self.data / "server.log").open("ab") as log:
            self.process = start_dependent(
                "upsert_platform.local.tablestore",
                arguments,
                environment=os.environ | {"UPSERT_TABLESTORE_ACCESS_KEY_SECRET": self.access_key_secret},
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 60
        while True:
            try:
                if self.page("/healthz") == "ok\n":
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start:\n{self.log()}")
            time.sleep(0.05)

    def log(self) -> str:
        """What the process wrote to its output."""
        return (self.data / "server.log").read_text(errors="replace")

    def kill(self) -> None:
        """``kill -9``."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(timeout=30)
        if self.process.stdin is not None:
            self.process.stdin.close()
        return code

    def restart(self) -> None:
        """Ends the process, if it still runs, and starts it again on the same data and port."""
        if self.process is not None and self.process.poll() is None:
            self.stop()
        self.start()

    def faults(self, *rules: str) -> None:
        """Puts these fault rules in force, in place of the present ones; none ends all faults."""
        self.page("/faults", json.dumps(rules).encode())

    def page(self, path: str, body: bytes | None = None) -> str:
        """Reads ``/healthz``, ``/metrics``, ``/journal`` or ``/faults``."""
        with urllib.request.urlopen(f"{self.endpoint}{path}", data=body, timeout=10) as response:
            return str(response.read().decode())


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def tablestore_server(
    path: Path,
    *,
    faults: Sequence[str] | None = None,
    drop: bool = False,
    arguments: Sequence[str] = (),
    instance: str = INSTANCE,
) -> Iterator[ServerHandle]:
    """Runs a server with its data under ``path``.

    Args:
        faults: rules in force from the start.
        drop: answers batch writes without storing them.
        arguments: further arguments of the command.
    """
    options = [*(("--drop",) if drop else ()), *arguments]
    for rule in faults or ():
        options += ["--fault", rule]
    handle = ServerHandle(
        endpoint=f"http://127.0.0.1:{free_port()}",
        instance=instance,
        access_key_id=ACCESS_KEY_ID,
        access_key_secret=ACCESS_KEY_SECRET,
        data=path / "tablestore",
        arguments=tuple(options),
    )
    handle.start()
    try:
        yield handle
    finally:
        if handle.process is not None and handle.process.poll() is None:
            handle.stop()
