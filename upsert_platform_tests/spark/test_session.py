"""The end of a Spark session."""

from __future__ import annotations

import socket
import threading
import time
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark import SparkContext, accumulators

from upsert_platform.spark.session import end_accumulators


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
