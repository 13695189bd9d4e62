"""The JVM that the tests of this room call into."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from upsert_platform_tests.interop.bulk import Bulk
from upsert_platform_tests.interop.java import java

STARTED = """
import sys, time
from pathlib import Path
from upsert_platform_tests.interop.java import java
with java([], log=Path(sys.argv[1])) as started:
    print(started.process.pid, flush=True)
    time.sleep(600)
"""


def test_it_listens_on_this_machine_alone_lets_nobody_in_and_ends(tmp_path: Path) -> None:
    from py4j.java_gateway import GatewayParameters, JavaGateway
    from py4j.protocol import Py4JError

    with java([], log=tmp_path / "java.log") as started:
        assert started.classes.java.lang.Math.addExact(40, 2) == 42
        assert list(started.list_of(["a", 1, None])) == ["a", 1, None]
        assert dict(started.map_of({"k": 2**40})) == {"k": 2**40}
        assert list(started.array_of(started.classes.java.lang.String, ["x", "y"])) == ["x", "y"]
        served = [one for one in psutil.Process(started.process.pid).net_connections("inet") if one.status == "LISTEN"]
        assert {one.laddr.ip.removeprefix("::ffff:") for one in served} == {"127.0.0.1"}
        stranger = JavaGateway(gateway_parameters=GatewayParameters(port=served[0].laddr.port, auth_token="guessed"))
        with pytest.raises(Py4JError):
            stranger.jvm.java.lang.Math.addExact(40, 2)
        stranger.close()
    assert started.process.poll() is not None


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", STARTED, str(tmp_path / "java.log")], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    virtual_machine = psutil.Process(int(owner.stdout.readline()))
    owner.kill()
    owner.communicate()
    deadline = time.monotonic() + 30
    while virtual_machine.is_running() and virtual_machine.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_functions_are_mapped_over_many_values(tmp_path: Path) -> None:
    with java([], log=tmp_path / "java.log") as started:
        bulk = Bulk(started)
        number = bulk.static("java.lang.Long", "valueOf", "java.lang.Long", "java.lang.String")
        added = bulk.bind(bulk.static("java.lang.Math", "addExact", "long", "long", "long"), 0, 2**40)
        assert bulk.map(["1", "-1", "7"], number, added) == [str(2**40 + n) for n in (1, -1, 7)]
        assert bulk.map(["a", "", "b", ""], bulk.virtual("java.lang.String", "length", "int")) == ["1", "0", "1", "0"]
