"""Servers of tests end with the test run, also where it is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from upsert_platform.local.process import accepts

CODE = """
import sys, time
from pathlib import Path
from upsert_platform_tests.local.{room}.server import {room}_server
with {room}_server(Path(sys.argv[1])) as server:
    print(server.endpoint, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("room", ["tablestore", "maxcompute"])
def test_a_server_ends_when_the_process_that_started_it_is_killed(room: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CODE.format(room=room), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        port = int(starter.stdout.readline().rsplit(":", 1)[1])
        assert accepts(port)
        starter.kill()
    deadline = time.monotonic() + 10
    while accepts(port) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not accepts(port)
