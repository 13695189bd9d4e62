"""The end of a Spark session."""

from __future__ import annotations

import socket
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import JavaClass, JavaPackage, java_import
from pyspark import SparkContext, accumulators

from upsert_platform.spark.session import end_accumulators

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("held", [True, False], ids=["open session", "already ended"])
def test_an_ending_session_does_not_wait_for_the_server_of_accumulators(*, held: bool) -> None:
    server = accumulators._start_update_server("secret", False)
    context = SimpleNamespace(_accumulatorServer=server if held else None)
    # As Spark's JVM: it connects once, names the secret with its first updates, here none, and keeps the connection.
    with socket.create_connection(server.server_address, timeout=10) as spark:
        spark.sendall(b"secret" + (0).to_bytes(4, "big"))
        assert spark.recv(1) == b"\x01"
        before = time.monotonic()
        end_accumulators(cast("SparkContext", context))
        assert time.monotonic() - before < 0.4  # the server looks once a second
        assert context._accumulatorServer is None
    if not held:
        server.shutdown()
    for thread in threading.enumerate():
        if thread.name == "end-accumulators":
            thread.join(10)
    assert server.socket.fileno() == -1


def test_the_jvm_is_asked_once_what_a_name_stands_for(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    jvm: Any = spark.sparkContext._jvm
    asked: list[str] = []
    send = ClientServerConnection.send_command

    def counted(connection: ClientServerConnection, command: str) -> str:
        asked.append(command)
        return cast("str", send(connection, command))

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    assert jvm.java.util.concurrent.TimeUnit.valueOf("DAYS").toString() == "DAYS"
    asked.clear()
    assert jvm.java.util.concurrent.TimeUnit.valueOf("HOURS").toString() == "HOURS"
    assert [command[0] for command in asked if command[0] == "r"] == []
    # What was no class may become one, with a jar that is added, or by an import.
    for _ in range(2):
        assert isinstance(jvm.java.util.nothing.LikeThis, JavaPackage)
    assert sum("LikeThis" in command for command in asked) == 2
    assert isinstance(jvm.DoubleAdder, JavaPackage)
    java_import(jvm, "java.util.concurrent.atomic.DoubleAdder")
    assert isinstance(jvm.DoubleAdder, JavaClass)
