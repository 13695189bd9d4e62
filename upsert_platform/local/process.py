"""Server processes: start one, know it again, wait until it answers, end it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from upsert_platform.spark.scratch import began_at, is_process

_POLL_SECONDS = 0.05
_LOG_BYTES_KEPT = 8 << 20
_TAIL_LINES = 15
_TAIL_BYTES = 16 << 10
_PR_SET_PDEATHSIG = 1


class ServerError(RuntimeError):
    """A local server could not be started or ended; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server process to run.

    Attributes:
        name: for messages.
        command: program and arguments.
        home: its directory; the log and the pid file lie there.
        port: of 127.0.0.1, on which it is to listen.
        answers: tells whether it serves already; called until it does.
        environment: added to the environment that it inherits; never written anywhere.
        account: user of this machine as which it runs; None for the user of this process.
    """

    name: str
    command: tuple[str, ...]
    home: Path
    port: int
    answers: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    account: str | None = None

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    @property
    def pid_file(self) -> Path:
        return self.home / "server.pid"


def start(server: Server, *, timeout: float = 120.0, die_with_parent: bool = False) -> psutil.Process:
    """Starts a server and returns when it answers.

    It runs in a session of its own and outlives the caller, unless `die_with_parent` (Linux only; elsewhere ignored by
    the system) asks the kernel to end it when the calling thread ends.

    Raises:
        ServerError: it ended by itself, or did not answer in `timeout` seconds (it is ended then).
    """
    server.home.mkdir(parents=True, exist_ok=True)
    if server.log.exists() and server.log.stat().st_size > _LOG_BYTES_KEPT:
        server.log.replace(server.log.with_suffix(".log.1"))
    with server.log.open("ab") as log:
        begin = log.tell()
        child = subprocess.Popen(
            server.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=server.home,
            env={**os.environ, **server.environment},
            start_new_session=True,
            user=server.account,
            group=server.account,
            extra_groups=None if server.account is None else [],
            preexec_fn=_end_with_parent if die_with_parent and sys.platform == "linux" else None,
        )
    process = psutil.Process(child.pid)
    _remember(server, process)
    deadline = time.monotonic() + timeout
    while not (_listens(process, server.port) and server.answers()):
        if child.poll() is not None:
            server.pid_file.unlink(missing_ok=True)
            raise ServerError(f"{server.name} ended with code {child.returncode} {end_of_log(server.log, begin)}")
        if time.monotonic() > deadline:
            stop(server)
            raise ServerError(f"{server.name} did not answer within {timeout:.0f} s {end_of_log(server.log, begin)}")
        time.sleep(_POLL_SECONDS)
    return process


def running(pid_file: Path) -> psutil.Process | None:
    """The process that a pid file names, or None when it has ended or its number now belongs to another process."""
    try:
        noted = json.loads(pid_file.read_text("utf-8"))
        process = psutil.Process(noted["pid"])
        same = (
            is_process(process.pid, noted["created"])
            and process.cmdline()[1:] == noted["arguments"]
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError, psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    return process if same else None


def stop(server: Server, *, timeout: float = 30.0) -> bool:
    """Ends a server that was started here; see `stop_noted`."""
    return stop_noted(server.pid_file, timeout=timeout)


def stop_noted(pid_file: Path, *, timeout: float = 30.0) -> bool:
    """Ends the process that a pid file names, first politely, after `timeout` seconds by force.

    Returns:
        True if it ran. A pid file whose process is gone is only removed.
    """
    process = running(pid_file)
    if process is not None:
        try:
            process.terminate()
            if not _ends(process, timeout):
                process.kill()
                if not _ends(process, timeout):
                    raise ServerError(f"process {process.pid} of {pid_file} does not end, not even by force")
        except psutil.NoSuchProcess:
            pass  # it ended in between
    pid_file.unlink(missing_ok=True)
    return process is not None


def _ends(process: psutil.Process, timeout: float) -> bool:
    """Return whether a process ends in time; a zombie, whose parent has not waited for it, has ended."""
    deadline = time.monotonic() + timeout
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    with suppress(psutil.TimeoutExpired):
        process.wait(0)  # where this process is the parent
    return True


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Return whether a server can listen on the port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT does not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def accepts(port: int) -> bool:
    """Return whether the port of 127.0.0.1 accepts a connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


def end_of_log(log: Path, begin: int = 0) -> str:
    """The last lines of a log from a byte position on, in a form that continues an error message."""
    if not log.exists() or log.stat().st_size <= begin:
        return f"and logged nothing ({log})"
    with log.open("rb") as source:
        source.seek(max(begin, log.stat().st_size - _TAIL_BYTES))
        lines = source.read().decode("utf-8", "replace").splitlines()
    return "\n  ".join([f"(log: {log}):", *lines[-_TAIL_LINES:]])


def _listens(process: psutil.Process, port: int) -> bool:
    """Without this, another process that took the port would be mistaken for the server."""
    try:
        sockets = process.net_connections("tcp")
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return accepts(port)  # some systems do not tell
    return any(item.status == psutil.CONN_LISTEN and item.laddr.port == port for item in sockets)


def _remember(server: Server, process: psutil.Process) -> None:
    noted = {"pid": process.pid, "created": began_at(process.pid), "arguments": list(server.command[1:])}
    scratch = server.pid_file.with_suffix(".pid.new")
    scratch.write_text(json.dumps(noted), "utf-8")
    scratch.replace(server.pid_file)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
