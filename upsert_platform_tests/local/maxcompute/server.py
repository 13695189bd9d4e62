"""Starts the local MaxCompute server as a process of its own, for tests of any room."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from upsert_platform_tests.local.dependent import start_dependent

_STOP_SECONDS = 20


@dataclass
class ServerHandle:
    """A running server, and what a client needs to reach it."""

    data: Path
    project: str = "local_project"
    access_id: str = "test_id"
    access_key: str = "test_key"
    arguments: Sequence[str] = ()
    port: int = 0
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def odps(self, **options: Any) -> Any:
        """An unmodified PyODPS entry object for this server."""
        from odps import ODPS

        return ODPS(
            options.pop("access_id", self.access_id),
            options.pop("secret_access_key", self.access_key),
            options.pop("project", self.project),
            endpoint=self.endpoint,
            **options,
        )

    def start(self) -> None:
        """Starts the process, on the port it had before if it had one."""
        arguments = [
            *("--data", str(self.data), "--port", str(self.port), "--project", self.project),
            *("--access-id", self.access_id, *self.arguments),
        ]
        environment = {**os.environ, "UPSERT_MAXCOMPUTE_ACCESS_KEY": self.access_key}
        self.process = start_dependent(
            "upsert_platform.local.maxcompute",
            arguments,
            environment=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"the server did not start: {line!r}")
        self.port = int(line.rsplit(":", 1)[1])

    def stop(self) -> int:
        """Ends the process as SIGTERM does, and gives its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(_STOP_SECONDS)
        self._close()
        return code

    def kill(self) -> None:
        """Ends the process as ``kill -9`` does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(_STOP_SECONDS)
        self._close()

    def restart(self) -> None:
        """Kills the process if it runs, and starts it on the same port and data."""
        if self.process is not None:
            self.kill()
        self.start()

    def _close(self) -> None:
        assert self.process is not None and self.process.stdout is not None and self.process.stdin is not None
        self.process.stdout.close()
        self.process.stdin.close()
        self.process = None

    def faults(self, *rules: Mapping[str, Any]) -> None:
        """Replaces the faults in force by these; see the server's README for their fields."""
        self.control("/control/faults", method="DELETE")
        if rules:
            self.control("/control/faults", list(rules))

    def journal(self, operation: str = "*", *, clear: bool = False) -> list[dict[str, Any]]:
        """Requests so far whose operation fits the pattern, oldest first."""
        found = [entry for entry in self.control("/control/journal") if fnmatchcase(entry["operation"], operation)]
        if clear:
            self.control("/control/journal", method="DELETE")
        return found

    def control(self, path: str, body: object = None, *, method: str | None = None) -> Any:
        """Asks the control endpoint, which takes no signature and answers JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.endpoint}{path}", data=data, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            content = response.read()
        return json.loads(content) if content else None


@contextmanager
def maxcompute_server(
    tmp_path: Path,
    faults: Sequence[Mapping[str, Any]] | None = None,
    drop: bool = False,
    arguments: Sequence[str] = (),
) -> Iterator[ServerHandle]:
    """A server on a free port of 127.0.0.1, stopped when the block ends.

    Args:
        tmp_path: its data directory is made below it.
        faults: in force from the start, see `ServerHandle.faults`.
        drop: writes of the storage API and of upsert sessions are taken and thrown away, for benchmarks.
        arguments: more arguments of the command.
    """
    given = [*arguments, *(["--drop"] if drop else [])]
    if faults:
        given += ["--fault", json.dumps(list(faults))]
    handle = ServerHandle(tmp_path / "maxcompute", arguments=given)
    handle.start()
    try:
        yield handle
    finally:
        if handle.process is not None:
            handle.stop()
