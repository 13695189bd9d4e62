"""Small runs and continuous mode: what a few thousand records cost, and how old a row is when it can be read."""

from __future__ import annotations

import itertools
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from upsert_platform.demo.users import Users, encode_key, encode_value
from upsert_platform.local.kafka import start_broker
from upsert_platform_tests.bench.measure import row, watch_memory
from upsert_platform_tests.graph.stack import Stack, variables_of
from upsert_platform_tests.local.maxcompute.server import maxcompute_server
from upsert_platform_tests.local.tablestore.server import tablestore_server

SMALL = 5_000
REPEATS = 3
RATE = 5_000
GREAT_RATE = 20_000
SECONDS = 180.0
PROBES_PER_SECOND = 2
KEYS = 100_000
_PROBE = 1_000_000_000
"""First key of probes: rows by which the delay is measured from outside."""


def run(
    *, small: int = SMALL, rate: int = RATE, great_rate: int = GREAT_RATE, seconds: float = SECONDS
) -> Iterator[dict[str, Any]]:
    """Measures `small_sync` by three kinds of session, `stream_delay`, `stream_delay_both` and `stream_rate`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker(Path(folder) / "kafka", die_with_parent=True) as broker,
        tablestore_server(Path(folder) / "tablestore") as tablestore,
        maxcompute_server(Path(folder) / "maxcompute") as maxcompute,
    ):
        variables = variables_of(broker, tablestore, maxcompute)
        os.environ.update(variables)
        yield from _small(Path(folder), variables, small)
        yield _delay("stream_delay", Path(folder), variables, rate, seconds, warehouse=None, goal="p95 <= 0.5 s")
        yield _delay("stream_delay_both", Path(folder), variables, rate, seconds, warehouse="", goal="p95 <= 5 s")
        goal = "as old in the last third as in the second"
        yield _delay("stream_rate", Path(folder), variables, great_rate, seconds, warehouse=None, goal=goal)


def _stack(folder: Path, variables: Mapping[str, str]) -> Stack:
    return Stack(folder / uuid.uuid4().hex, variables, f"bench-{uuid.uuid4().hex[:8]}")


def _small(folder: Path, variables: Mapping[str, str], records: int) -> Iterator[dict[str, Any]]:
    """Whole jobs of their own into both tables, checks included: the session is the run's, a warm one, or none."""
    stacks = [_stack(folder, variables) for _ in range(REPEATS)]
    for stack in stacks:
        stack.declare()
    yield _small_row("small_sync", stacks, records, {"UPSERT_SPARK_LOCAL_ROWS": "0"}, goal="<= 10 s")
    warm = _stack(folder, variables)
    warm.declare()
    session = [str(Path(sys.executable).parent / "upsert-platform"), "session"]
    more = {"UPSERT_SPARK_LOCAL_ROWS": "0", "UPSERT_SPARK_SESSION": str(warm.path / "session")}
    environment = {**warm.environment(), **more}
    subprocess.run([*session, "up"], env=environment, cwd=warm.path, check=True, stdout=subprocess.DEVNULL)
    try:
        _small_run(warm, records, more)  # a session is warm when it has served a run
        yield _small_row("small_sync_warm", [warm] * REPEATS, records, more, goal="<= 6.5 s")
    finally:
        subprocess.run([*session, "down"], env=environment, cwd=warm.path, check=True, stdout=subprocess.DEVNULL)
    stacks = [_stack(folder, variables) for _ in range(REPEATS)]
    for stack in stacks:
        stack.declare()
    yield _small_row("small_sync_local", stacks, records, {"UPSERT_SPARK_LOCAL_ROWS": "100000"}, goal="<= 6 s")


def _small_row(
    name: str, stacks: Sequence[Stack], records: int, more: Mapping[str, str], *, goal: str
) -> dict[str, Any]:
    with watch_memory() as peak:
        found = [_small_run(stack, records, more) for stack in stacks]
    return row(
        name,
        rows=records,
        seconds=statistics.median(seconds for seconds, _ in found),
        memory=peak,
        goal=goal,
        cpu_seconds=round(statistics.median(cpu for _, cpu in found), 1),
    )


def _small_run(stack: Stack, records: int, more: Mapping[str, str]) -> tuple[float, float]:
    """Seconds of a sync with new records, and seconds of the processor that it and its children took."""
    stack.produce(stack.users.first_wave(records))
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command, environment = stack.command(), {**stack.environment(), **more}
    done = subprocess.run(command, env=environment, cwd=stack.path, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not stack.serving_differences()
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _delay(
    name: str,
    folder: Path,
    variables: Mapping[str, str],
    rate: int,
    seconds: float,
    *,
    warehouse: str | None,
    goal: str,
) -> dict[str, Any]:
    """Records of random keys at a steady rate; rows that nobody else touches are looked for by the vendor's client.

    Sent as soon as the process says that it streams: what it takes to start one is not a delay of one that runs.
    """
    stack = _stack(folder, variables)
    looked: list[tuple[float, float]] = []
    lags: list[tuple[float, float]] = []
    done = threading.Event()
    stack.declare(warehouse=warehouse)
    stack.produce(stack.users.first_wave(1))  # makes the topic
    command = [str(Path(sys.executable).parent / "upsert-platform"), "stream", "--metrics-port", "0"]
    with watch_memory() as peak:
        process = subprocess.Popen(command, env=stack.environment(), stderr=subprocess.PIPE, text=True)
        try:
            lines: list[str] = []
            threading.Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True).start()
            _await_start(process, lines)
            began = time.monotonic()
            watcher = threading.Thread(target=_watch_lag, args=(lines, lags, done), daemon=True)
            watcher.start()
            sent = _produced(stack, rate, seconds, looked)
            page = _page(lines)
            done.set()
            watcher.join()
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0, "".join(lines)[-3000:]
        finally:
            done.set()
            process.kill()
    assert len(looked) > seconds
    delays = [delay for _, delay in looked]
    return row(
        name,
        rows=sent,
        seconds=seconds,
        memory=peak,
        goal=goal,
        p50=round(float(np.quantile(delays, 0.5)), 2),
        p95=round(float(np.quantile(delays, 0.95)), 2),
        p99=round(float(np.quantile(delays, 0.99)), 2),
        greatest=round(max(delays), 2),
        p95_of_thirds=_p95_of_thirds(looked, began, seconds),
        p95_lag_of_thirds=_p95_of_thirds(lags, began, seconds),
        lag_at_end=_metric(page, r'lag\{kind="changelog",table="users"\}'),
        batches=_metric(page, r'batches_total\{kind="table",table="users_serving"\}'),
        jvm_memory_mb=round(peak.jvm),
    )


def _p95_of_thirds(found: list[tuple[float, float]], began: float, seconds: float) -> list[float | None]:
    """The 95th percentile of each third of a time; None for one in which nobody looked."""
    return [round(float(np.quantile(part, 0.95)), 2) if part else None for part in _thirds(found, began, seconds)]


def _thirds(found: list[tuple[float, float]], began: float, seconds: float) -> list[list[float]]:
    """What was found in each third of a time."""
    edges = [began + seconds * part / 3 for part in range(4)]
    return [[value for at, value in found if start <= at < end] for start, end in itertools.pairwise(edges)]


def _watch_lag(lines: list[str], lags: list[tuple[float, float]], done: threading.Event) -> None:
    """Appends, twice a second, how many records of the topic are not in the changelog yet."""
    while not done.wait(0.5):
        lags.append((time.monotonic(), _metric(_page(lines), r'lag\{kind="changelog",table="users"\}')))


def _await_start(process: subprocess.Popen[str], lines: list[str]) -> None:
    deadline = time.monotonic() + 60
    while "streaming to" not in "".join(lines):
        assert process.poll() is None and time.monotonic() < deadline, "".join(lines)[-3000:]
        time.sleep(0.05)


def _produced(stack: Stack, rate: int, seconds: float, looked: list[tuple[float, float]]) -> int:
    """Sends records and probes; gives how many, and appends when each probe was sent and how long until it was read."""
    users, chance = Users(seed=1), np.random.default_rng(1)
    every = [(encode_key(key), encode_value(users.make(key))) for key in range(1, min(KEYS, rate * 20) + 1)]
    waiting: dict[int, float] = {}
    done = threading.Event()
    looker = threading.Thread(target=_look, args=(stack, waiting, looked, done), daemon=True)
    looker.start()
    began, sent, probe = time.monotonic(), 0, 0
    while (now := time.monotonic() - began) < seconds:
        due = int(now * rate) - sent
        chosen = [every[place] for place in chance.integers(0, len(every), due)]
        if probe < now * PROBES_PER_SECOND:
            key = _PROBE + probe
            waiting[key] = time.monotonic()
            chosen.append((encode_key(key), encode_value(users.make(key))))
            probe += 1
        sent += stack.produce(chosen)
        time.sleep(0.05)
    deadline = time.monotonic() + 60
    while waiting and time.monotonic() < deadline:
        time.sleep(0.1)
    done.set()
    looker.join()
    assert not waiting, f"{len(waiting)} rows never came"
    return sent


def _look(stack: Stack, waiting: dict[int, float], looked: list[tuple[float, float]], done: threading.Event) -> None:
    from tablestore import OTSClient, OTSServiceError

    values = stack.variables
    client = OTSClient(
        values["UPSERT_TABLESTORE_ENDPOINT"],
        values["UPSERT_TABLESTORE_ACCESS_KEY_ID"],
        values["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"],
        values["UPSERT_TABLESTORE_INSTANCE"],
    )
    client.logger.disabled = True  # the table is not there at first
    while not done.is_set():
        for key, sent_at in list(waiting.items()):
            try:
                _, found, _ = client.get_row(stack.table, [("user_id", key)], max_version=1)
            except OTSServiceError:
                found = None
            if found is not None:
                looked.append((sent_at, time.monotonic() - sent_at))
                del waiting[key]
        time.sleep(0.05)


def _page(lines: list[str]) -> str:
    address = re.search(r"metrics on (\S+)", "".join(lines))
    assert address is not None, "".join(lines)[-3000:]
    with urllib.request.urlopen(address[1], timeout=10) as answer:
        return str(answer.read().decode())


def _metric(page: str, pattern: str) -> float:
    found = re.search(rf"upsert_platform_{pattern} (\S+)", page)
    return float(found[1]) if found else -1.0
