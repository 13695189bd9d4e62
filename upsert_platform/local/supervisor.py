"""Brings the local servers up on a data directory, tells how they are, and takes them down.

The servers run on by themselves; what is known of them lies in the directory: ``local.json`` (ports and access keys,
readable by its owner alone), and per server a folder with pid file, log and data.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from upsert_platform.local.process import (
    ServerError,
    end_of_log,
    free_port,
    is_free,
    running,
    start,
    stop_noted,
)
from upsert_platform.local.services import DEFAULT_SERVERS, DEFAULT_SERVICES, SERVICES, Keys, Service

_START_ATTEMPTS = 3
_ANSWER_SECONDS = 120.0
_LATER_KEYS = ("mysql_password", "postgres_password")
"""Keys that directories of earlier versions lack."""


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The status of a server.

    Attributes:
        state: ``running``; ``not answering`` when its process lives but does not serve; ``stopped``.
        port: the one it has or had last; None if it never ran on this directory.
    """

    name: str
    state: str
    pid: int | None
    port: int | None
    log: Path


@dataclass(frozen=True, slots=True)
class _Noted:
    ports: dict[str, int]
    keys: Keys
    servers: dict[str, str] = field(default_factory=dict)
    changing: threading.Lock = field(default_factory=threading.Lock)

    def to_json(self) -> str:
        return json.dumps({"ports": self.ports, "keys": asdict(self.keys), "servers": self.servers})


def default_directory() -> Path:
    """``$UPSERT_PLATFORM_HOME/local``; of ``.upsert_platform`` in the working directory when that is unset or a URI."""
    home = os.environ.get("UPSERT_PLATFORM_HOME") or ""
    return Path(".upsert_platform" if not home or "://" in home else home).expanduser() / "local"


def up(
    directory: Path,
    *,
    only: Iterable[str] = DEFAULT_SERVICES,
    env_file: Path | None = None,
    ports: Mapping[str, int] | None = None,
    servers: Mapping[str, str] | None = None,
    report: Callable[[str, str], None] = lambda name, state: None,
) -> dict[str, str]:
    """Starts what does not run yet and returns when all of it answers.

    Ports stay the same from one start to the next as long as nobody else took them. A second call, also one at the
    same time from another process, finds the servers of the first.

    Args:
        directory: where data, logs and pid files lie; made when absent.
        only: names of `SERVICES`.
        env_file: gets a ``NAME=value`` line per variable, other lines in it stay; ``local.env`` in the directory when
            left out.
        ports: name to the port it must listen on.
        servers: name to which of its servers it is; the one that it was last, or the service's own, when left out.
            Each has data of its own.
        report: called, from other threads too, with a server's name and ``starting``, ``started`` or ``running
            already``.

    Returns:
        Environment variables for clients of every server that runs on the directory now.

    Raises:
        ServerError: a server ended, does not answer, or cannot have the port that was asked for.
    """
    directory = directory.absolute()
    wanted = [_service(name) for name in only]
    for name in sorted((ports or {}).keys() - {service.name for service in wanted}):
        raise ServerError(
            f"a port is named for {name}, which is not to come up; add it to the servers, or name no port"
        )
    with _exclusive(directory):
        noted = _read(directory)
        for name, chosen in (servers or {}).items():
            _choose(name, chosen, directory, noted)
        _at_once(
            [partial(_ensure, item, directory, noted, (ports or {}).get(item.name), report=report) for item in wanted]
        )
        variables: dict[str, str] = {}
        for service in SERVICES.values():
            if running(_pid_file(directory, service.name)) is not None:
                variables |= service.variables(noted.ports[service.name], noted.keys)
        _write_env(env_file or directory / "local.env", variables)
    return variables


def status(directory: Path) -> list[ServiceStatus]:
    """Return the status of each server of the directory; starts and changes nothing."""
    directory = directory.absolute()
    noted = _read(directory) if (directory / "local.json").exists() else None
    found = []
    for service in SERVICES.values():
        home = directory / service.name
        port = noted.ports.get(service.name) if noted else None
        process = running(_pid_file(directory, service.name))
        state = "stopped"
        if process is not None:
            state = "running" if port is not None and service.answers(port) else "not answering"
        found.append(ServiceStatus(service.name, state, process.pid if process else None, port, home / "server.log"))
    return found


def down(directory: Path, *, report: Callable[[str, str], None] = lambda name, state: None) -> list[str]:
    """Ends the servers that were started on the directory, and nothing else; their data stay.

    Returns:
        The names of those that ran.
    """
    directory = directory.absolute()
    if not directory.is_dir():
        return []
    ended = []

    def end(name: str) -> None:
        if stop_noted(_pid_file(directory, name)):
            report(name, "stopped")
            ended.append(name)

    with _exclusive(directory):
        _at_once([partial(end, name) for name in SERVICES])
    return sorted(ended)


def _at_once(actions: Sequence[Callable[[], None]]) -> None:
    """Runs the actions side by side and, when all have ended, raises the first error."""
    with ThreadPoolExecutor(max_workers=len(actions)) as pool:
        for done in [pool.submit(action) for action in actions]:
            done.result()


def _ensure(
    service: Service, directory: Path, noted: _Noted, port: int | None, *, report: Callable[[str, str], None]
) -> None:
    name = service.name
    process = running(_pid_file(directory, name))
    if process is None:
        report(name, "starting")
        _start(service, directory, noted, port)
        report(name, "started")
        return
    known = noted.ports[name]
    if port is not None and port != known:
        raise ServerError(
            f"{name} runs on port {known} already (pid {process.pid}); end it first: upsert-platform local down"
        )
    _await_answer(service, known, directory)
    report(name, "running already")


def _choose(name: str, chosen: str, directory: Path, noted: _Noted) -> None:
    service = _service(name)
    known = {**service.others, DEFAULT_SERVERS[name]: service.server}
    if chosen not in known:
        raise ServerError(f"{name} is no server '{chosen}'; it is one of {', '.join(sorted(known))}")
    last = noted.servers.get(name, DEFAULT_SERVERS[name])
    process = running(_pid_file(directory, name))
    if process is not None and last != chosen:
        raise ServerError(
            f"{name} runs as {last} already (pid {process.pid}); end it first: upsert-platform local down"
        )
    noted.servers[name] = chosen


def _start(service: Service, directory: Path, noted: _Noted, port: int | None) -> None:
    name = service.name
    if port is not None and not is_free(port):
        raise ServerError(f"{name} cannot have port {port}: another process listens on it; name another, or none")
    for attempt in range(_START_ATTEMPTS):
        with noted.changing:
            last = noted.ports.get(name)
            noted.ports[name] = port or (last if last is not None and is_free(last) and attempt == 0 else free_port())
            _write_private(directory / "local.json", noted.to_json())
        make = service.others.get(noted.servers.get(name, ""), service.server)
        try:
            start(make(directory / name, noted.ports[name], noted.keys))
        except ServerError as error:
            taken = "already in use" in str(error) and port is None  # by a process that came in between
            if not taken or attempt + 1 == _START_ATTEMPTS:
                raise
        else:
            return


def _await_answer(service: Service, port: int, directory: Path) -> None:
    deadline = time.monotonic() + _ANSWER_SECONDS
    while not service.answers(port):
        if time.monotonic() > deadline or running(_pid_file(directory, service.name)) is None:
            tail = end_of_log(directory / service.name / "server.log")
            raise ServerError(
                f"{service.name} runs but does not answer on port {port}; end it: upsert-platform local down {tail}"
            )
        time.sleep(0.1)


def _service(name: str) -> Service:
    if name not in SERVICES:
        raise ServerError(f"there is no local server '{name}'; there are {', '.join(SERVICES)}")
    return SERVICES[name]


def _pid_file(directory: Path, name: str) -> Path:
    return directory / name / "server.pid"


@contextmanager
def _exclusive(directory: Path) -> Iterator[None]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = (directory / ".lock").open("w")
    except OSError as error:
        raise ServerError(
            f"{directory} cannot be written: {error.strerror or error}; name another folder with --data, or in"
            " UPSERT_PLATFORM_HOME"
        ) from None
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield  # closing the file gives the lock back


def _read(directory: Path) -> _Noted:
    path = directory / "local.json"
    if not path.exists():
        names = ("local", secrets.token_urlsafe(24), "local", secrets.token_urlsafe(24))
        return _Noted({}, Keys(*names, **{name: secrets.token_hex(16) for name in _LATER_KEYS}))
    try:
        noted = json.loads(path.read_text("utf-8"))
        # An earlier version of the platform knew no MySQL server, and later one of two.
        keys = Keys(**{**{name: secrets.token_hex(16) for name in _LATER_KEYS}, **noted["keys"]})
        return _Noted(dict(noted["ports"]), keys, dict(noted.get("servers", {})))
    except (ValueError, KeyError, TypeError):
        raise ServerError(
            f"{path} is damaged; end its servers by hand and delete it (new access keys are made)"
        ) from None


def _write_env(path: Path, variables: Mapping[str, str]) -> None:
    kept = path.read_text("utf-8").splitlines() if path.exists() else []
    others = [line for line in kept if line.split("=", 1)[0].strip() not in variables]
    _write_private(path, "".join(f"{line}\n" for line in [*others, *(f"{k}={v}" for k, v in variables.items())]))


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.touch(mode=0o600)
    scratch.write_text(text, "utf-8")
    scratch.replace(path)
