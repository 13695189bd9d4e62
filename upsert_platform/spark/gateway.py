"""The JVM of a Spark session, started as PySpark starts it, from a process of any number of threads.

PySpark starts it with a function that runs in the child between fork and exec. Where the process has threads of C
libraries, such as Kafka's clients, that child may crash before it becomes the JVM.
"""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from upsert_platform.core.errors import EndpointError
from upsert_platform.spark.class_archive import spark_folder

if TYPE_CHECKING:
    from py4j.clientserver import ClientServer

PORT: Final = "PYSPARK_GATEWAY_PORT"
SECRET: Final = "PYSPARK_GATEWAY_SECRET"
"""Variables that name a JVM that runs already."""
_CONNECTION: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Names the file into which the JVM writes its port and secret."""
_IGNORING_INTERRUPTS: Final = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Ctrl-C is for the program, which ends the JVM in order; an ignored signal stays ignored by what a shell becomes."""
_TOLD: Final = "connection"
_LOOK_SECONDS: Final = 0.02


@dataclass
class StartedJvm:
    """A JVM that starts, and tells in a file where it listens."""

    process: subprocess.Popen[bytes]
    folder: tempfile.TemporaryDirectory[str]

    @property
    def told(self) -> Path:
        """The file, which the JVM writes when it is ready."""
        return Path(self.folder.name) / _TOLD

    def wait(self) -> bool:
        """Wait until the JVM is ready; False where it ended instead."""
        while not self.told.is_file():
            if self.process.poll() is not None:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def end(self) -> None:
        """End the JVM, which nobody has connected to."""
        self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()


def start_jvm(*, stderr: int) -> StartedJvm:
    """Start a JVM with the arguments of ``PYSPARK_SUBMIT_ARGS``; it ends when this process does: it reads a pipe that
    then closes.

    Args:
        stderr: descriptor for the JVM's error output.
    """
    submit = _spark_home() / "bin" / "spark-submit"
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    folder = tempfile.TemporaryDirectory()
    process = subprocess.Popen(
        [*_IGNORING_INTERRUPTS, str(submit), *arguments],
        env={**os.environ, "SPARK_CONNECT_MODE": "0", _CONNECTION: str(Path(folder.name) / _TOLD)},
        stdin=subprocess.PIPE, stderr=stderr,
    )  # fmt: skip
    return StartedJvm(process, folder)


def _spark_home() -> Path:
    """The folder of Spark, as PySpark finds it: SPARK_HOME, else its own; nothing of PySpark is imported."""
    named = os.environ.get("SPARK_HOME")
    return Path(named) if named else spark_folder()


def start_gateway(*, stderr: int) -> ClientServer:
    """Start a JVM as `start_jvm` does, and connect to it.

    Raises:
        EndpointError: the JVM ended while it started.
    """
    from pyspark.java_gateway import launch_gateway

    if PORT in os.environ:  # of spark-submit, which has started this program
        return launch_gateway()
    return connect_to(start_jvm(stderr=stderr))


def connect_to(started: StartedJvm) -> ClientServer:
    """Connect to a JVM that starts, when it is ready.

    Raises:
        EndpointError: it ended while it started.
    """
    try:
        if not started.wait():
            raise EndpointError(
                f"Spark's JVM ended while it started (status {started.process.returncode}); its own messages stand"
                " before this one. Look at the settings of Spark ('upsert-platform submit-args') and at free memory"
            )
        port, secret = read_connection(started.told)
    finally:
        started.folder.cleanup()
    gateway = connect(port, secret)
    gateway.proc = started.process
    return gateway


def connect(port: int, secret: str) -> ClientServer:
    """Connect to a JVM that runs."""
    from pyspark.java_gateway import launch_gateway

    before = {name: os.environ.get(name) for name in (PORT, SECRET)}
    os.environ |= {PORT: str(port), SECRET: secret}
    try:
        return launch_gateway()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def read_connection(told: Path) -> tuple[int, str]:
    """The port and the secret that a JVM wrote into a file: two numbers of four bytes, the second one a length."""
    content = told.read_bytes()
    port, length = struct.unpack(">ii", content[:8])
    return port, content[8 : 8 + length].decode()
