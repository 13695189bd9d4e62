"""Whole syncs: what one with nothing to do costs, and whether a batch costs more when more history lies behind it."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from upsert_platform.demo.users import Users, encode_key, encode_value
from upsert_platform.local.kafka import start_broker
from upsert_platform_tests.bench.measure import row, watch_memory
from upsert_platform_tests.graph.stack import Stack, metadata_of, variables_of
from upsert_platform_tests.local.maxcompute.server import maxcompute_server
from upsert_platform_tests.local.tablestore.server import tablestore_server

HISTORIES = (100_000, 2_000_000)
BATCH = 10_000
REPEATS = 3


def run(*, histories: tuple[int, int] = HISTORIES) -> Iterator[dict[str, Any]]:
    """Measures `idle_sync` and `increment_growth`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker(Path(folder) / "kafka", die_with_parent=True) as broker,
        tablestore_server(Path(folder) / "tablestore") as tablestore,
        maxcompute_server(Path(folder) / "maxcompute") as maxcompute,
    ):
        variables = variables_of(broker, tablestore, maxcompute)
        os.environ.update(variables)
        yield _idle(Path(folder), variables)
        yield _growth(Path(folder), variables, histories)


def _stack(folder: Path, variables: Mapping[str, str]) -> Stack:
    return Stack(folder / uuid.uuid4().hex, variables, f"bench-{uuid.uuid4().hex[:8]}")


def _idle(folder: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    stack = _stack(folder, variables)
    stack.declare()
    stack.produce(stack.users.first_wave(1000))
    first = stack.execute()
    assert first.returncode == 0, first.stderr[-3000:]
    times = []
    with watch_memory() as peak:
        for _ in range(REPEATS):
            started = time.monotonic()
            idle = stack.execute()
            times.append(time.monotonic() - started)
            assert idle.returncode == 0, idle.stderr[-3000:]
    return row(
        "idle_sync",
        rows=0,
        seconds=statistics.median(times),
        memory=peak,
        goal="<= 10 s, no JVM",
        jvm_memory_mb=round(peak.jvm),
    )


def _growth(folder: Path, variables: Mapping[str, str], histories: tuple[int, int]) -> dict[str, Any]:
    """A batch of BATCH records behind a short and a long history, in one session, in turn."""
    from upsert_platform.spark.session import open_session

    spark = open_session()
    stacks = []
    try:
        for keys in histories:
            stack = _stack(folder, variables)
            stack.declare(serving=None)
            _load(stack, keys)
            loaded = stack.run()
            assert loaded.success
            assert metadata_of(loaded, "changelogs", "users")["records"] == keys
            stacks.append(stack)
        times: dict[int, list[float]] = {0: [], 1: []}
        for turn in range(REPEATS + 1):
            for index, stack in enumerate(stacks):
                _increment(stack, histories[index])
                started = time.monotonic()
                result = stack.run()
                seconds = time.monotonic() - started
                assert result.success
                assert metadata_of(result, "tables", "users_warehouse")["batches"] == 1
                if turn:  # the first one warms up
                    times[index].append(seconds)
        small, large = (statistics.median(times[index]) for index in (0, 1))
        return row(
            "increment_growth",
            rows=BATCH,
            seconds=large,
            ratio=large / small,
            ratio_to=f"the same batch behind {histories[0]} keys",
            goal="<= 1.3",
            history=histories[1],
        )
    finally:
        spark.stop()


def _load(stack: Stack, keys: int) -> None:
    users = Users()
    stack.produce(_users(users, range(1, keys + 1)))


def _increment(stack: Stack, keys: int) -> None:
    users = Users(seed=int(time.time() * 1000))
    # Neighbours: the reduction, not the spread of keys, is what both histories share.
    first = int(time.time() * 1000) % (keys - BATCH)
    stack.produce(_users(users, range(first, first + BATCH)))


def _users(users: Users, ids: range) -> Iterator[tuple[bytes, bytes]]:
    for user_id in ids:
        made = users.make(user_id)
        yield encode_key(user_id), encode_value(made)
