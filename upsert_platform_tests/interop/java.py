"""A Java virtual machine that tests call into, so that vendors' Java clients run without a compiler.

It is started with py4j's gateway server (of the jar that PySpark ships), which listens on 127.0.0.1 alone, asks for a
token, and ends with the process that started it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from subprocess import Popen
from typing import Any

from upsert_platform.spark import jars

_OPTIONS = ("-Xms32m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_STOP_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Java:
    """A running JVM; `java` starts one.

    Attributes:
        classes: Java classes by their full names: ``classes.java.util.ArrayList()``.
        gateway: py4j's own, for what is not here.
    """

    gateway: Any
    process: Popen[bytes]

    @property
    def classes(self) -> Any:
        return self.gateway.jvm

    def list_of(self, items: Iterable[Any]) -> Any:
        """A ``java.util.ArrayList``."""
        found = self.classes.java.util.ArrayList()
        for item in items:
            found.add(item)
        return found

    def array_of(self, kind: Any, items: Sequence[Any]) -> Any:
        """An array of a class: ``array_of(classes.java.lang.String, ["a"])``."""
        found = self.gateway.new_array(kind, len(items))
        for index, item in enumerate(items):
            found[index] = item
        return found

    def map_of(self, items: dict[Any, Any]) -> Any:
        """A ``java.util.HashMap``."""
        found = self.classes.java.util.HashMap()
        for key, value in items.items():
            found.put(key, value)
        return found


@contextmanager
def own_errors() -> Iterator[None]:
    """Leaves errors of a JVM as py4j raises them.

    Once a Spark session has been opened in this process, PySpark converts errors of any JVM as if they were of its own,
    and finds some other object there under the same number.
    """
    import py4j.java_gateway
    import py4j.protocol

    converting = py4j.java_gateway.get_return_value
    py4j.java_gateway.get_return_value = py4j.protocol.get_return_value
    try:
        yield
    finally:
        py4j.java_gateway.get_return_value = converting


def each(found: Any) -> list[Any]:
    """Items of a Java collection, asked for one by one up to its end and not past it.

    Python's own loop ends with an exception of Java, which PySpark converts: see `own_errors`.
    """
    iterator = found.iterator()
    items = []
    while iterator.hasNext():
        items.append(iterator.next())
    return items


@contextmanager
def java(class_path: Sequence[Path], *, log: Path, options: Sequence[str] = ()) -> Iterator[Java]:
    """Starts a JVM with jars on its class path, and ends it.

    Args:
        log: a file for what the JVM and the clients in it print.
        options: of the JVM, behind those for a small and quick one.
    """
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    with log.open("wb") as output:
        port, token, process = launch_gateway(
            jarpath=str(_gateway_jar()),
            classpath=":".join(map(str, class_path)),
            javaopts=[*_OPTIONS, *options],
            java_path=str(jars.java()),
            die_on_exit=True,
            enable_auth=True,
            redirect_stdout=output,
            redirect_stderr=output,
            return_proc=True,
        )
        try:
            gateway = JavaGateway(
                gateway_parameters=GatewayParameters(port=port, auth_token=token), java_process=process
            )
            yield Java(gateway, process)
            gateway.shutdown()
        finally:
            process.stdin.close()  # the server ends when its input does
            try:
                process.wait(_STOP_SECONDS)
            finally:
                process.kill()
                process.wait()


def _gateway_jar() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None and spec.submodule_search_locations is not None
    (found,) = Path(spec.submodule_search_locations[0]).glob("jars/py4j-*.jar")
    return found
