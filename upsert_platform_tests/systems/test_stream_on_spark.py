"""Continuous mode in a process with live consumers and clients, whose every row goes through Spark."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from tablestore import OTSServiceError

from upsert_platform_tests.graph.stack import Stack

pytestmark = [pytest.mark.systems, pytest.mark.timeout(300)]
_PATIENCE = 180.0


def _is_equal(stack: Stack) -> bool:
    try:
        return not stack.serving_differences()
    except OTSServiceError as error:
        assert error.code == "OTSObjectNotExist"  # the table is not made yet
        return False


def test_spark_opens_beside_live_consumers(stack: Stack) -> None:
    """The JVM starts from a process whose clients have threads, and batches of a row are read and written by tasks."""
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(20))
    command = [sys.executable, "-m", "upsert_platform.cli.main", "stream", "--local-rows", "1", "--max-delay", "300ms"]
    with (stack.path / "stream.log").open("wb") as log:
        process = subprocess.Popen(command, env=stack.environment(), stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _PATIENCE
        for wave in (None, stack.users.second_wave(5)):
            if wave is not None:
                stack.produce(wave)
            while not _is_equal(stack):
                told = (stack.path / "stream.log").read_text("utf-8")
                assert process.poll() is None, told
                assert time.monotonic() < deadline, told
                time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
    told = (stack.path / "stream.log").read_text("utf-8")
    assert "opening Spark" in told
    assert "failing" not in told, told
