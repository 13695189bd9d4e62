"""An Apicurio schema registry, which speaks the Confluent API under ``/apis/ccompat/v7``."""

from __future__ import annotations

import fcntl
import http.client
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from upsert_platform.local.process import Server, ServerError, free_port, start, stop
from upsert_platform.spark import jars

_HOST = "127.0.0.1"
_API = "/apis/ccompat/v7"
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_START_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Registry:
    """A running registry; ends with the `with` block."""

    port: int
    server: Server

    @property
    def url(self) -> str:
        """Address of the Confluent API, as ``schema.registry.url`` takes it."""
        return registry_url(self.port)

    def stop(self) -> None:
        """Ends the registry; its schemas stay."""
        stop(self.server)

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def start_registry(
    data: Path, *, port: int | None = None, timeout: float = 120.0, die_with_parent: bool = False
) -> Registry:
    """Starts a registry on a data directory and returns when it answers.

    Args:
        data: made when absent; schemas and their ids in it survive a restart, on any port.
        port: of 127.0.0.1; a free one when left out.

    Raises:
        ServerError: the registry ended, or did not answer in `timeout` seconds.
    """
    for attempt in range(_START_ATTEMPTS):
        chosen = port or free_port()
        server = registry_server(data, port=chosen)
        try:
            start(server, timeout=timeout, die_with_parent=die_with_parent)
        except ServerError as error:
            taken = port is None and "already" in str(error)  # by a process that came in between
            if not taken or attempt + 1 == _START_ATTEMPTS:
                raise
        else:
            return Registry(chosen, server)
    raise AssertionError("the last attempt returns or raises")


def registry_server(data: Path, *, port: int) -> Server:
    """Unpacks the registry when that was not done yet, and gives what to run; see `start_registry`."""
    data = data.absolute()
    data.mkdir(parents=True, exist_ok=True)
    return Server(
        name="the schema registry",
        command=(
            *(str(jars.java()), *_JVM, f"-Dquarkus.http.host={_HOST}", f"-Dquarkus.http.port={port}"),
            *("-Dquarkus.log.level=WARN", "-Dquarkus.banner.enabled=false"),
            f"-Dapicurio.datasource.url=jdbc:h2:file:{data / 'registry'}",
            *("-jar", str(_unpacked() / f"apicurio-registry-app-{jars.REGISTRY_VERSION}-runner.jar")),
        ),
        home=data,
        port=port,
        answers=lambda: answers_registry(port),
    )


def registry_url(port: int) -> str:
    """Address of the Confluent API of a registry on a port of 127.0.0.1."""
    return f"http://{_HOST}:{port}{_API}"


def _unpacked() -> Path:
    archive = jars.registry_archive()
    home = archive.parent / "unpacked"
    if home.is_dir():
        return home
    with (archive.parent / ".unpack.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # given back when the file is closed
        if not home.is_dir():
            scratch = Path(tempfile.mkdtemp(dir=archive.parent, prefix=".unpack-"))
            try:
                with tarfile.open(archive) as content:
                    content.extractall(scratch, filter="data")
                scratch.rename(home)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return home


def answers_registry(port: int) -> bool:
    """Return whether a registry on the port of 127.0.0.1 lists its subjects."""
    connection = http.client.HTTPConnection(_HOST, port, timeout=10.0)
    try:
        connection.request("GET", f"{_API}/subjects")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
