"""The JVM of a Spark session, started from a process of any number of threads.

PySpark starts it with a function that runs in the child between fork and exec. Where the process has threads of C
libraries, such as Kafka's clients, that child may crash before it becomes the JVM.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from upsert_platform.core.errors import EndpointError
from upsert_platform.spark.direct_launch import launch_command, launch_environment
from upsert_platform.spark.worker_daemon import CLIENTS_VARIABLE

if TYPE_CHECKING:
    from py4j.clientserver import ClientServer

PORT: Final = "PYSPARK_GATEWAY_PORT"
SECRET: Final = "PYSPARK_GATEWAY_SECRET"
"""Variables that name a JVM that runs already."""
_CONNECTION: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Names the file into which the JVM writes its port and secret."""
_IGNORING_INTERRUPTS: Final = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Ctrl-C is for the program, which ends the JVM in order; an ignored signal stays ignored by what a shell becomes."""
_LOOK_SECONDS: Final = 0.02


def start_gateway(
    settings: Mapping[str, str] | None, *, stderr: int, mllib: bool = False, systems: Iterable[str] = ()
) -> ClientServer:
    """Start a JVM with the arguments of ``PYSPARK_SUBMIT_ARGS``, and connect to it.

    The JVM ends when this process does: it reads a pipe that then closes.

    Args:
        settings: of the session; None where the user has given options of ``spark-submit``, which is asked then.
        stderr: descriptor for the JVM's error output.
        mllib: see `launch_command`.
        systems: endpoints whose clients Python workers begin with.

    Raises:
        EndpointError: the JVM ended while it started.
    """
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.java_gateway import launch_gateway

    if PORT in os.environ:  # of spark-submit, which has started this program
        return launch_gateway()
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    command = None if settings is None else launch_command(settings, arguments, mllib=mllib)
    variables = launch_environment()
    if command is None:  # which puts its variables together by itself
        command, variables = [str(Path(_find_spark_home()) / "bin" / "spark-submit"), *arguments], {}
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "connection"
        process = subprocess.Popen(
            [*_IGNORING_INTERRUPTS, *command], stdin=subprocess.PIPE, stderr=stderr,
            env={
                **os.environ, **variables, "SPARK_CONNECT_MODE": "0", _CONNECTION: str(told),
                CLIENTS_VARIABLE: ",".join(systems),
            },
        )  # fmt: skip
        while not told.is_file():
            if process.poll() is not None:
                raise EndpointError(
                    f"Spark's JVM ended while it started (status {process.returncode}); its own messages stand before"
                    " this one. Look at the settings of Spark ('upsert-platform submit-args') and at free memory"
                )
            time.sleep(_LOOK_SECONDS)
        port, secret = _read(told)
    gateway = connect(port, secret)
    gateway.proc = process
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


def _read(told: Path) -> tuple[int, str]:
    from pyspark.serializers import UTF8Deserializer, read_int

    with told.open("rb") as file:
        return read_int(file), UTF8Deserializer().loads(file)
