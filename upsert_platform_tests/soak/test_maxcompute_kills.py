"""MaxCompute under kill -9: many partitions, upserts that converge and appends that are never doubled."""

from __future__ import annotations

import json
import random
import re
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.conftest import options_for
from upsert_platform_tests.maxcompute.frames import stored
from upsert_platform_tests.soak.partition_batches import inserted, table_of, upserted
from upsert_platform_tests.soak.writers import Writer

MODULE = "upsert_platform_tests.soak.partition_batches"
KILL_LINES = 5
KILL_SECONDS = 1.5
"""A writer is killed so soon after one of its first so many writes; a write of a warm process takes about a second."""
FEW_KILLS = 4
MANY_KILLS = 40


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(FEW_KILLS, marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
        pytest.param(MANY_KILLS, marks=[pytest.mark.soak, pytest.mark.timeout(3000)]),
    ],
)
def test_killed_writers_of_many_partitions_lose_and_double_nothing(
    maxcompute: ServerHandle, tmp_path: Path, seed: int, kills: int
) -> None:
    chance = random.Random(seed)
    options = [_options(maxcompute, mode) for mode in ("upsert", "insert")]
    arguments = [*map(json.dumps, options), str(seed)]
    for number in range(kills):
        writer = Writer(MODULE, *arguments, "0", log=tmp_path / f"{number}.log")
        writer.kill_after(chance, lines=KILL_LINES, seconds=KILL_SECONDS)
    destinations = [MaxComputeDestination(table_of(values)) for values in options]
    last = max(destination.state().applied_batch for destination in destinations) + 1
    Writer(MODULE, *arguments, str(last), log=tmp_path / "last.log").finish()
    upserts, inserts = (destination.table for destination in destinations)
    assert {row[0]: row for row in stored(maxcompute, upserts)} == upserted(seed, last)
    assert Counter(stored(maxcompute, inserts)) == inserted(seed, last)
    assert [destination.state().applied_batch for destination in destinations] == [last, last]
    assert _open_sessions(maxcompute) == 0
    print(f"{kills} kills, {last} batches, {len(upserted(seed, last))} keys")  # noqa: T201
    for destination in destinations:
        destination.close()


def _options(server: ServerHandle, mode: str) -> dict[str, str]:
    more: dict[str, Any] = {"sink.operation": mode, "auto.create": "true"}
    if mode == "upsert":
        more["upsert.write.bucket.num"] = "2"
    return options_for(server, f"{mode}s_{uuid.uuid4().hex[:8]}") | more


def _open_sessions(server: ServerHandle) -> int:
    """Write sessions of the server that are neither committed nor aborted."""
    found = re.findall(r'^maxcompute_sessions\{kind="([^"]*)",status="normal"\} (\d+)', _metrics(server), re.M)
    return sum(int(count) for kind, count in found if "read" not in kind)


def _metrics(server: ServerHandle) -> str:
    import urllib.request

    with urllib.request.urlopen(f"{server.endpoint}/metrics", timeout=30) as response:
        return str(response.read().decode())
