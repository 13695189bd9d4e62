"""Continuous mode for long: memory, files and handles stay flat, and tables are equal in the end.

SOAK_SCALE is the share of half an hour.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.soak.test_waves import compare, load_of

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

SECONDS = 1800.0
RATE = 300
KEYS = 20_000
PATIENCE = 120.0


@contextmanager
def streaming(stack: Stack) -> Iterator[subprocess.Popen[bytes]]:
    """`upsert-platform stream` as a user starts it; what it tells is in a file."""
    command = [str(Path(sys.executable).parent / "upsert-platform"), "stream", "--report-every", "20s"]
    with (stack.path / "stream.log").open("ab") as log:
        process = subprocess.Popen(command, env=stack.environment(), stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def told(stack: Stack) -> str:
    return (stack.path / "stream.log").read_text(errors="replace")[-3000:]


@dataclass
class Sample:
    """What is there at a moment.

    Attributes:
        memory: resident, of all processes of the loop, in MB.
        files: live ones of the changelog.
        handles: open files and threads of the loop.
    """

    memory: float
    files: int
    handles: int


def sample(stack: Stack, process: subprocess.Popen[bytes]) -> Sample:
    main = psutil.Process(process.pid)
    memory = sum(item.memory_info().rss for item in (main, *main.children(recursive=True))) / 2**20
    files = len(stack.platform().changelog_hop("users", run="look").store.files())
    return Sample(memory, files, main.num_fds() + main.num_threads())


def test_it_is_flat(streamed: Stack, seed: int, scale: float) -> None:
    """Of the last third nothing is more than of the second, but for what a heap breathes."""
    load = load_of(streamed, seed, KEYS)
    load.produce(RATE)
    samples = []
    with streaming(streamed) as process:
        began = time.monotonic()
        end = began + max(60.0, SECONDS * scale)
        step = (end - began) / 90
        due = began + step
        while (now := time.monotonic()) < end:
            assert process.poll() is None, told(streamed)
            load.produce(RATE)
            time.sleep(max(0.0, now + 1 - time.monotonic()))
            if time.monotonic() >= due:
                samples.append(sample(streamed, process))
                due += step
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, told(streamed)
    print(compare(streamed, load))  # noqa: T201
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    for what, room in (("memory", 30.0), ("files", 64.0), ("handles", 8.0)):
        before, after = ([float(getattr(item, what)) for item in part] for part in (middle, last))
        line = f"{what}: {statistics.median(before):.0f}, then {statistics.median(after):.0f}, at most {max(after):.0f}"
        print(line)  # noqa: T201
        assert statistics.median(after) <= statistics.median(before) * 1.1 + room, line
    assert max(item.files for item in samples) <= 200
