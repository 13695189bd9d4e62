"""The handshake between a warm Spark session and runs: files in a folder that only their user can read.

``session.json`` offers the session: where its JVM listens, the secret, and digests of all that a run has to have alike.
``turn`` is locked by who works there, and names it until it left in good order.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

import upsert_platform
from upsert_platform.core.errors import EndpointError
from upsert_platform.spark.private_folder import make_private, require_private
from upsert_platform.spark.profiles import SparkPlace
from upsert_platform.spark.scratch import is_process
from upsert_platform.spark.session import settings_of

FOLDER_VARIABLE: Final = "UPSERT_SPARK_SESSION"
"""Names another folder; ``off`` makes every run open a session of its own."""
_OFFER: Final = "session.json"
_TURN: Final = "turn"
_TAKEN_SECONDS: Final = 0.5
"""The process that keeps the session looks at the lock now and then, for a moment."""
_VARIABLES: Final = (
    "AWS_", "AZURE_", "GOOGLE_", "HADOOP_", "LANG", "LC_", "OSS_", "PYSPARK_PYTHON", "PYTHONPATH", "SPARK_CONF_DIR",
    "SPARK_HOME", "TZ", "UPSERT_",
)  # fmt: skip
"""Beginnings of variables that Python workers inherit, and that tell them something."""
_OF_RUNS: Final = ("UPSERT_SPARK_LOCAL_ROWS", "UPSERT_STREAM_LOCAL_ROWS")
"""Variables that only a run's own process reads."""


def folder() -> Path | None:
    """Return the folder of the files, or None if warm sessions are disabled.

    Raises:
        EndpointError: the folder belongs to others, who could run programs as this user.
    """
    named = os.environ.get(FOLDER_VARIABLE, "")
    if named == "off":
        return None
    host = socket.gethostname() or "localhost"
    path = Path(named) if named else Path(tempfile.gettempdir()) / f"upsert-platform-session-{os.getuid()}" / host
    try:
        for part in (path,) if named else (path.parent, path):
            require_private(part, strictly=bool(named))
    except EndpointError as error:
        raise EndpointError(f"{error}, or set {FOLDER_VARIABLE}=off to work without a warm Spark session") from None
    return path


def make_folder(path: Path) -> None:
    """Make the folder of `folder`, for this user alone.

    Raises:
        EndpointError: the folder belongs to others, who could run programs as this user.
        OSError: it cannot be made.
    """
    named = os.environ.get(FOLDER_VARIABLE, "")
    if named:
        path.parent.mkdir(parents=True, exist_ok=True)
    make_private(path, below=path.parent if named else path.parent.parent)


@dataclass(frozen=True)
class Offer:
    """A warm session.

    Attributes:
        pid: the process that keeps it.
        began: when that process began, in seconds since 1970.
        port: on which its JVM listens.
        jvm: the process of the JVM.
        master: where it runs.
        idle_seconds: after which it ends by itself.
        salt: of the digests.
        digests: of settings and variables, by what they are called.
    """

    pid: int
    began: float
    port: int
    jvm: int
    master: str
    idle_seconds: float
    secret: str = field(repr=False)
    salt: str = field(repr=False)
    digests: Mapping[str, str] = field(repr=False)

    @classmethod
    def read(cls, where: Path) -> Offer | None:
        """The one in a folder."""
        try:
            return cls(**json.loads((where / _OFFER).read_text("utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):  # of another version
            return None

    def write(self, where: Path) -> None:
        """Puts it into a folder, for this user alone."""
        made = where / f"{_OFFER}.{os.getpid()}"
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)
        made.replace(where / _OFFER)

    @property
    def workers_below(self) -> int:
        """The process below which Python workers are; 0 where a cluster has them."""
        return self.jvm if self.master.startswith("local") else 0

    def is_alive(self) -> bool:
        """Return whether its process is there."""
        return is_process(self.pid, self.began)

    def differs_in(self, place: SparkPlace) -> list[str]:
        """Return the settings in which a run differs from those of the open session."""
        wanted = digests_of(place, self.salt)
        names = {**self.digests, **wanted}
        return sorted(name for name in names if self.digests.get(name) != wanted.get(name))


def new_salt() -> str:
    """One for the digests of an offer: they may be of secrets."""
    return secrets.token_hex(16)


def digests_of(place: SparkPlace, salt: str) -> dict[str, str]:
    """Digests of what is alike in a session and in the runs that work there."""
    alike = {
        "Python": sys.executable,
        "PySpark": version("pyspark"),
        "version of the platform": _platform(),
        "working folder": str(Path.cwd()),
        **{f"variable {name}": value for name, value in os.environ.items() if _is_compared(name)},
        **{f"setting {name}": value for name, value in settings_of(place).items()},
    }
    return {name: hashlib.sha256(f"{salt}{value}".encode()).hexdigest() for name, value in alike.items()}


def _platform() -> str:
    """Return the time of the last change to the platform's modules; workers start with the modules imported before."""
    folder = Path(upsert_platform.__file__).parent
    return " ".join(f"{file}:{file.stat().st_mtime_ns}" for file in sorted(folder.rglob("*.py")))


def _is_compared(variable: str) -> bool:
    return variable.startswith(_VARIABLES) and variable not in (FOLDER_VARIABLE, *_OF_RUNS)


def withdraw(where: Path, offer: Offer) -> None:
    """Removes an offer, if it is still the one in the folder."""
    if Offer.read(where) == offer:
        (where / _OFFER).unlink(missing_ok=True)


class Turn:
    """The right to work in a warm session: one process has it at a time, until it ends.

    Attributes:
        left: what a run wrote that did not leave in good order: its process.
    """

    def __init__(self, descriptor: int, left: str) -> None:
        self._descriptor, self.left = descriptor, left

    @classmethod
    def take(cls, where: Path, *, seconds: float = _TAKEN_SECONDS) -> Turn | None:
        """Takes it; None if another has it."""
        descriptor = os.open(where / _TURN, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    return None
                time.sleep(0.02)
            else:
                return cls(descriptor, os.pread(descriptor, 32, 0).decode("ascii", "replace").strip())

    @staticmethod
    def holder(where: Path) -> str:
        """The process that works there, or that left without order; empty if none."""
        try:
            return (where / _TURN).read_text("ascii").strip()
        except FileNotFoundError:
            return ""

    def begin(self) -> None:
        """Notes that this process works there now."""
        self._note(str(os.getpid()))

    def end(self, *, left: str = "") -> None:
        """Gives it back.

        Args:
            left: the process whose leavings the next one has to clear; empty if there are none.
        """
        self._note(left)
        os.close(self._descriptor)

    def _note(self, text: str) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text.encode("ascii"), 0)
