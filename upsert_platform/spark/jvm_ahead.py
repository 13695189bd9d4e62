"""The JVM and the Spark session of a run, opened before the run knows its work: while its process imports and plans.

Whoever begins a run says so (`start`); whoever opens its session takes the JVM (`take`), if it has the settings and
the environment that the session is to have. One that is not taken is ended (`give_up`), at the latest with its process.
PySpark is not imported meanwhile: two threads that import it could each wait for the other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.protocol import Py4JError

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.spark.gateway import PORT, StartedJvm, read_connection, start_jvm
from upsert_platform.spark.scratch import scratch_folder
from upsert_platform.spark.settings_file import SUBMIT_ARGUMENTS, settings_file


@dataclass
class JvmAhead:
    """A JVM with an open session, and what it was started with.

    Attributes:
        output: descriptor of its error output, to be read.
        environment: of this process when it was started, which its workers have.
    """

    jvm: StartedJvm
    output: int
    settings: Mapping[str, str]
    environment: Mapping[str, str]


_OF_PYSPARK: Final = {
    "spark.serializer.objectStreamReset": "100",
    "spark.rdd.compress": "True",
    "spark.sql.artifact.isolation.enabled": "false",
}
"""What PySpark sets in a SparkContext that it makes itself, if nothing else is said."""

_begun: threading.Thread | None = None
_started: JvmAhead | None = None
_lock = threading.Lock()


def start(settings: Callable[[], Mapping[str, str]]) -> None:
    """Start the JVM in the background, once for a run, unless ``spark-submit`` has started one.

    What goes wrong is no matter: the session is then opened as if nobody had begun.

    Args:
        settings: gives those of the session, in the background.
    """
    global _begun
    with _lock:
        if _begun is not None or PORT in os.environ:
            return
        _begun = threading.Thread(target=_start, args=(settings,), name="jvm-ahead", daemon=True)
        _begun.start()


def _start(settings: Callable[[], Mapping[str, str]]) -> None:
    global _started
    with suppress(UpsertPlatformError, OSError, Py4JError):
        chosen = dict(settings())
        environment = _environment()
        output, jvm_end = os.pipe()
        try:
            with settings_file(chosen, scratch_folder()):
                jvm = start_jvm(stderr=jvm_end)
                _started = JvmAhead(jvm, output, chosen, environment)
                is_ready = jvm.wait()  # it has read the file of its settings then
        finally:
            os.close(jvm_end)
            if _started is None:
                os.close(output)
        is_open = False
        try:
            if is_ready:
                _open_session(*read_connection(jvm.told), chosen)
                is_open = True
        finally:
            if not is_open:
                jvm.process.kill()


def _open_session(port: int, secret: str, settings: Mapping[str, str]) -> None:
    """Open the session in the JVM.

    Strings alone are handed over: PySpark's converters of other values would import pandas here.

    Raises:
        Py4JError: the JVM cannot open it, or is gone.
    """
    gateway = ClientServer(
        java_parameters=JavaParameters(port=port, auth_token=secret),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    try:
        conf = gateway.jvm.org.apache.spark.SparkConf()
        for name, value in {**_OF_PYSPARK, **settings}.items():
            conf.set(name, value)
        gateway.jvm.org.apache.spark.sql.SparkSession.builder().config(conf).getOrCreate()
    finally:
        gateway.close()


def take(settings: Mapping[str, str]) -> JvmAhead | None:
    """The JVM that was started ahead, for the session of this process; None where there is none that fits.

    Args:
        settings: of the session.
    """
    found = _ended()
    if found is None:
        return None
    if found.settings == settings and found.environment == _environment() and found.jvm.process.poll() is None:
        return found
    _end(found)
    return None


def give_up() -> None:
    """End the JVM that nobody has taken."""
    if _started is not None:
        _started.jvm.process.kill()  # whoever waits for it goes on
    found = _ended()
    if found is not None:
        _end(found)


def _ended() -> JvmAhead | None:
    """The JVM that was begun, when it is there; the next run of this process may begin anew."""
    global _begun, _started
    if _begun is not None:
        _begun.join()
    found, _begun, _started = _started, None, None
    return found


def _end(ahead: JvmAhead) -> None:
    ahead.jvm.end()
    os.close(ahead.output)


def _environment() -> dict[str, str]:
    """Variables that workers inherit; the one of the JVM's arguments is set by `settings_file` for a moment."""
    return {name: value for name, value in os.environ.items() if name != SUBMIT_ARGUMENTS}
