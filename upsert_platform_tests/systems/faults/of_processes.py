"""Faults of a run's own processes and of their machine: kill -9, too little memory, a clock that is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final
from unittest.mock import patch

import psutil

from upsert_platform_tests.systems.faults.world import World
from upsert_platform_tests.systems.hosts import Host

ON_SPARK: Final = {"UPSERT_SPARK_LOCAL_ROWS": "0"}
_SECONDS: Final = 120.0


def _is_jvm(process: psutil.Process) -> bool:
    """Spark's; neither one that tells Java's version nor one that makes the command line of Spark's."""
    told = " ".join(process.cmdline())
    return process.name() == "java" and "SparkSubmit" in told and "spark.launcher" not in told


def _is_worker(process: psutil.Process) -> bool:
    """A Python worker of Spark's, which the daemon forked."""
    parent = process.parent()
    return process.name().startswith("python") and parent is not None and "worker_daemon" in " ".join(parent.cmdline())


def killed(world: World, *, which: Callable[[psutil.Process], bool] | None, after: float = 0.3) -> None:
    """A process of a run on Spark is killed with SIGKILL; the run fails, or goes on without it; the next one heals.

    It may have ended before its moment, in which case the run has succeeded.

    Args:
        which: of the processes below the run's; None is the run itself.
        after: seconds since it was there.
    """
    world.must()
    world.wave(200)
    environment = {**world.stack.environment(), **ON_SPARK}
    run = subprocess.Popen(
        world.stack.command(), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    victim = _found(run, which or _is_jvm)
    time.sleep(after)
    with suppress(ProcessLookupError):
        os.kill(run.pid if which is None else victim, signal.SIGKILL)
    _, output = run.communicate(timeout=_SECONDS)
    print(f"the run ended with {run.returncode}")  # noqa: T201
    if which is not None and run.returncode:
        world.told += [line for line in output.splitlines() if line.startswith("    ") and ": failed: " in line]
        assert world.told, output[-3000:]
    _await_lease(world)
    world.must()


def warm_killed(world: World, *, after: float) -> None:
    """The process that keeps a warm session is killed while a run works there; the run fails by name, or has ended.

    Args:
        after: seconds since the run began to work there.
    """
    world.must()
    world.wave(200)
    shared = {"UPSERT_SPARK_SESSION": str(world.stack.path / "session")}
    environment = {**world.stack.environment(), **ON_SPARK, **shared}
    session = [sys.executable, "-m", "upsert_platform.cli.main", "session"]

    def status() -> dict[str, int]:
        told = subprocess.run([*session, "status", "--json"], env=environment, capture_output=True, text=True)
        found: dict[str, int] = json.loads(told.stdout)
        return found

    subprocess.run([*session, "up"], env=environment, check=True, capture_output=True)
    try:
        run = subprocess.Popen(
            world.stack.command(), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + _SECONDS
        while (found := status())["used_by"] != run.pid:
            assert run.poll() is None, run.communicate()[1][-3000:]
            assert time.monotonic() < deadline
        time.sleep(after)
        os.kill(found["process"], signal.SIGKILL)
        _, output = run.communicate(timeout=_SECONDS)
        print(f"the run ended with {run.returncode}", output[-6000:], sep="\n")  # noqa: T201 - where the test fails
        if run.returncode:
            world.told += [line for line in output.splitlines() if line.startswith("    ") and ": failed: " in line]
            assert world.told, output[-3000:]
        _await_lease(world)
        world.wave(200)
        done = world.command(**ON_SPARK, **shared)  # opens a session of its own, for the warm one is gone
        assert done.returncode == 0, done.stderr[-3000:]
    finally:
        subprocess.run([*session, "down", "--now"], env=environment, capture_output=True)
    world.must("verify")


def two_hosts(world: World) -> None:
    """Two hosts sync at once, over one lake: each ends well, or one is refused while the other writes."""
    world.must()
    hosts = [Host(name, world.stack.path / name) for name in ("host-a", "host-b")]
    for _ in range(2):
        world.wave(200)
        runs = [host.start(world.stack.command(), world.stack.environment()) for host in hosts]
        told = [run.communicate(timeout=_SECONDS)[0] for run in runs]
        for run, text in zip(runs, told, strict=True):
            if run.returncode:
                world.told += [line for line in text.splitlines() if line.startswith("    ") and ": failed: " in line]
                assert world.told, text[-3000:]
    world.must()


def _found(run: subprocess.Popen[str], which: Callable[[psutil.Process], bool]) -> int:
    """The first process below a run's that is the wanted one."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        assert run.poll() is None, run.communicate()[1][-3000:]
        for child in psutil.Process(run.pid).children(recursive=True):
            try:
                if which(child):
                    return int(child.pid)
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.02)
    raise AssertionError("there is no such process")


def _await_lease(world: World) -> None:
    """The lease of a writer that was killed ends by itself; until then nobody writes."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        before = len(world.told)
        if world.sync():
            return
        assert all("is being written by" in text for text in world.told[before:]), world.told
        time.sleep(2)


def little_memory(world: World, *, megabytes: int) -> None:
    """The address space of a run is bounded."""
    world.must()
    world.wave(3000)
    done = world.command("prlimit", f"--as={megabytes << 20}", seconds=100)
    assert done.returncode != 0, "the bound is too wide to be one"
    world.must()


def clock(world: World, *, offset: str) -> None:
    """The clocks of both services jump by an hour, which to them is a run's machine with a wrong clock; and back.

    A run of its own under libfaketime does not work: librdkafka would wait for the hour to pass.
    """
    world.must()
    world.wave()
    servers = world.stores
    wrong = {"LD_PRELOAD": str(faketime_library()), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    for server in servers:
        server.kill()
        with patch.dict(os.environ, wrong):
            server.start()
    world.sync()
    for server in servers:
        server.kill()
        server.start()
    _await_lease(world)
    world.must("verify")


def faketime_library() -> Path:
    """The library that `scripts/setup-systems` unpacks, or the system's."""
    cache = Path(os.environ.get("UPSERT_PLATFORM_CACHE", Path.home() / ".cache" / "upsert_platform"), "libraries")
    for root in (Path("/"), cache):
        for found in root.glob("usr/lib/*/faketime/libfaketime.so.1"):
            return found
    raise AssertionError("libfaketime is not there: run scripts/setup-systems")


FAULTS: Final[Mapping[str, Callable[[World], None]]] = {
    **{f"run killed {after:.0f} s into Spark": partial(killed, which=None, after=after) for after in (0, 3, 5)},
    **{f"JVM killed after {after:.0f} s": partial(killed, which=_is_jvm, after=after) for after in (0, 1, 2)},
    **{f"warm session killed after {after:.0f} s": partial(warm_killed, after=after) for after in (0, 2)},
    "two hosts at once": two_hosts,
    "Python worker killed": partial(killed, which=_is_worker),
    **{f"memory of {size} MB": partial(little_memory, megabytes=size) for size in (900, 1200)},
    "clock an hour ahead": partial(clock, offset="+1h"),
    "clock an hour behind": partial(clock, offset="-1h"),
}
