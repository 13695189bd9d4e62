"""A Spark session that outlives runs: who works in it, what is left of a killed run, and when it is not used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from upsert_platform_tests.graph.stack import Stack

pytestmark = [pytest.mark.systems, pytest.mark.timeout(600)]

RUN = """
import os, sys, time
from upsert_platform.spark.warm_session import close_session, session_for_run

def doubled(batches):
    from factor import FACTOR  # a module of the user's own, which may change between runs
    import pyarrow as pa
    import pyarrow.compute as pc
    for batch in batches:
        counted.add(batch.num_rows)
        yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), FACTOR)], schema=batch.schema)

def slowly(batches):
    open(f"working-{os.getpid()}", "w").close()
    time.sleep(300)
    yield from batches

def told(line):
    print("told:", line)

session = session_for_run({}, tell=told)
counted = session.sparkContext.accumulator(0)
numbers = session.range(1000)
numbers.createOrReplaceTempView("numbers")
session.conf.set("spark.sql.shuffle.partitions", "1")
if sys.argv[1] == "stop":
    session.stop()  # as code of the user's own may do
    close_session(session)
    sys.exit()
if sys.argv[1] == "slow":
    numbers.cache().mapInArrow(slowly, numbers.schema).count()
total = numbers.mapInArrow(doubled, numbers.schema).groupBy().sum().first()[0]
views = [table.name for table in session.catalog.listTables()]
print("jvm", session.sparkContext._gateway.gateway_parameters.port, "total", total, "counted", counted.value, views)
close_session(session)
again = session_for_run({}, tell=told)
print("again", again.range(7).count(), again.catalog.listTables(), again.conf.get("spark.sql.shuffle.partitions"))
close_session(again)
"""


class Warm:
    """A folder with a program that works in Spark, and the environment of its session."""

    def __init__(self, path: Path, variables: Mapping[str, str]) -> None:
        self.path = path
        modules = os.pathsep.join(filter(None, (str(path), os.environ.get("PYTHONPATH"))))
        places = {"UPSERT_SPARK_SESSION": str(path / "session"), "PYTHONPATH": modules, "PYTHONDONTWRITEBYTECODE": "1"}
        self.environment = {**os.environ, **variables, **places}
        (path / "run.py").write_text(RUN, "utf-8")
        self.set_factor(2)

    def set_factor(self, factor: int) -> None:
        (self.path / "factor.py").write_text(f"FACTOR = {factor}\n", "utf-8")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`upsert-platform session`."""
        command = [sys.executable, "-m", "upsert_platform.cli.main", "session", *arguments]
        return subprocess.run(command, cwd=self.path, env=self.environment, capture_output=True, text=True, check=False)

    def up(self, *arguments: str) -> dict[str, int]:
        done = self.command("up", *arguments)
        assert done.returncode == 0, done.stderr
        return self.status()

    def status(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self.command("status", "--json").stdout)
        return found

    def start(self, what: str = "once", **more: str) -> subprocess.Popen[str]:
        """The program."""
        environment = {**self.environment, **more}
        return subprocess.Popen(
            [sys.executable, "run.py", what], cwd=self.path, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, **more: str) -> str:
        """What the program prints, at its orderly end."""
        process = self.start(**more)
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output
        assert "again 7 [] 2" in output, "settings and views of a run are its own"
        return output


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[Warm]:
    made = Warm(tmp_path, {})
    yield made
    made.command("down", "--now")


def port_of(output: str) -> str:
    return output.split("jvm ")[1].split()[0]


TWICE, THRICE = 2 * sum(range(1000)), 3 * sum(range(1000))


def test_runs_work_in_one_session_and_a_killed_one_leaves_nothing(warm: Warm) -> None:
    up = warm.up()
    assert up["up"] and up["used_by"] is None
    assert "up since" in warm.command("up").stdout, "a second one is not opened"
    first = warm.run()
    assert f"total {TWICE} counted 1000 ['numbers']" in first
    assert "told:" not in first
    warm.set_factor(3)
    second = warm.run()
    assert f"total {THRICE} counted 1000" in second, "modules are read again"
    assert port_of(first) == port_of(second)

    slow = warm.start("slow")
    wait_for(lambda: list(warm.path.glob("working-*")), slow)
    workers = [int(path.name.split("-")[1]) for path in warm.path.glob("working-*")]
    assert warm.status()["used_by"] == slow.pid
    beside = warm.run()  # while the session is at work
    assert f"told: the warm Spark session is at work for process {slow.pid}: this run opens a session" in beside
    assert port_of(beside) != port_of(first)
    refused = warm.command("down")
    assert (refused.returncode, f"process {slow.pid} works in the session" in refused.stderr) == (1, True)
    slow.send_signal(signal.SIGKILL)
    slow.communicate()
    wait_for(lambda: not [pid for pid in workers if is_there(pid)])
    wait_for(lambda: warm.status()["used_by"] is None)
    last = warm.run()
    assert f"total {THRICE} counted 1000" in last
    assert port_of(last) == port_of(first)
    assert warm.command("down").returncode == 0
    assert not is_there(up["process"])
    assert warm.command("status").returncode == 1


def test_a_session_that_does_not_fit_or_is_gone_is_told_and_not_used(warm: Warm) -> None:
    up = warm.up()
    differing = warm.run(UPSERT_SPARK_SETTINGS="", AWS_REGION="elsewhere")
    assert "was opened with another variable AWS_REGION, variable UPSERT_SPARK_SETTINGS: this run opens" in differing
    assert "told:" not in warm.run(UPSERT_SPARK_SESSION="off")
    jvm = psutil.Process(up["process"]).children()
    os.kill(up["process"], signal.SIGKILL)
    gone, alive = psutil.wait_procs(jvm, timeout=30)
    assert gone and not alive, "the JVM ends with the process that keeps it"
    after = warm.run()
    assert f"the warm Spark session (process {up['process']}) is gone: this run opens a session of its own" in after
    assert "told:" not in warm.run(), "it is told once"
    session = warm.path / "session"
    session.chmod(0o755)
    others = warm.command("status")
    assert (others.returncode, "is not a folder that only this user may open" in others.stderr) == (1, True)
    session.chmod(0o700)


@pytest.mark.soak
def test_a_session_that_a_run_stops_ends(warm: Warm) -> None:
    up = warm.up()
    stopping = warm.start("stop")
    output, _ = stopping.communicate(timeout=240)
    assert stopping.returncode == 0, output
    wait_for(lambda: not is_there(up["process"]))
    assert "a run stopped Spark" in (warm.path / "session" / "session.log").read_text("utf-8")
    assert warm.status() == {"up": False}
    assert f"total {TWICE} counted 1000" in warm.run()


def test_a_session_without_runs_ends(warm: Warm) -> None:
    up = warm.up("--idle", "2s")
    wait_for(lambda: not is_there(up["process"]))
    assert "nobody worked here for 2 s" in (warm.path / "session" / "session.log").read_text("utf-8")
    assert warm.command("down").stdout == "there is no warm session\n"


def test_a_sync_of_dagster_works_in_it(stack: Stack) -> None:
    stack.declare()
    config = stack.path / "spark.yaml"
    config.write_text("resources: {spark: {config: {local_rows: 0}}}\n", "utf-8")
    places = {"UPSERT_PLATFORM_HOME": str(stack.lake), "UPSERT_PLATFORM_PROJECT": str(stack.project)}
    warm = Warm(stack.path, {**stack.variables, **places})
    warm.up()
    try:
        for wave in (stack.users.first_wave(2000), stack.users.second_wave(500)):
            stack.produce(wave)
            done = subprocess.run(
                [*stack.command(), "-c", str(config)],
                env={**stack.environment(), **warm.environment}, cwd=stack.path, capture_output=True, text=True,
                check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-4000:]
            assert "warm Spark session" not in done.stderr
            assert stack.serving_differences() == stack.warehouse_differences() == []
        assert warm.status()["used_by"] is None
    finally:
        assert warm.command("down").returncode == 0


def is_there(pid: int) -> bool:
    """Whether a process works; one that ended may wait for its parent to ask."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        if process is not None and process.poll() is not None:
            pytest.fail(process.communicate()[0])
        time.sleep(0.1)
