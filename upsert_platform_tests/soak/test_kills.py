"""Runs of the real command under kill -9 at random moments, on several projects in turn; the referee judges."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxComputeServer
from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer
from upsert_platform_tests.referee.judging import told
from upsert_platform_tests.soak.killing import Timeline, run_killed, run_timed
from upsert_platform_tests.soak.worlds import World, make_world

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2700)]

KILLS = 100
WORLDS: Mapping[str, list[str]] = {
    "json": ["tablestore put", "maxcompute storage"],
    "csv": ["tablestore update", "maxcompute moves"],
    "avro": ["maxcompute tunnel", "kafka exactly once"],
    "raw": ["kafka at least once", "tablestore where"],
}
"""Format to modes. While a project is killed the leases of the others end, so that runs do more than wait."""
COUNT = 200
"""Histories of a world."""
WHOLE_ONE_IN = 6
"""After so many kills of a world a run is left alone, and the tables are judged."""


def test_runs_under_many_kills_end_equal(
    variables: Mapping[str, str],
    tablestore: TablestoreServer,
    maxcompute: MaxComputeServer,
    make_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    scale: float,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    chance = random.Random(seed)
    worlds: list[tuple[World, Timeline]] = []
    for format_id, modes in WORLDS.items():
        path = tmp_path / format_id
        path.mkdir()
        world = make_world(
            path, variables, (tablestore, maxcompute), make_topic, None,
            chance=random.Random(f"{seed} {format_id}"), format_id=format_id, modes=modes, count=COUNT,
        )  # fmt: skip
        world.source["batch.max-records"] = str(COUNT)
        world.source.pop("value.json.fail-on-missing-field", None)
        world.declare()
        world.histories.produce(share=3)
        worlds.append((world, run_timed(world.stack)))
    wanted = max(len(worlds), round(KILLS * scale))
    kills: Counter[str] = Counter()
    started = time.monotonic()
    runs = 0
    while sum(kills.values()) < wanted:
        world, timeline = worlds[runs % len(worlds)]
        runs += 1
        world.histories.produce(share=1)
        step = chance.choice(["", *timeline.steps])
        start, end = timeline.steps.get(step, (1.0, timeline.seconds))
        kill = run_killed(world.stack, step, chance.uniform(0, max(end - start, 1.0)))
        if kill.alive:
            kills[f"{world.format} {kill.step}"] += 1
        if runs // len(worlds) % WHOLE_ONE_IN == WHOLE_ONE_IN - 1:
            _judge_whole(world)
        print(f"{runs} runs, {sum(kills.values())} killed, {time.monotonic() - started:.0f} s: {world.format} {kill}")  # noqa: T201
    for world, _ in worlds:
        _judge_whole(world)
        print(world.format, dict(world.histories.counts))  # noqa: T201
    for name, count in sorted(kills.items()):
        print(f"{count:>9} killed: {name}")  # noqa: T201
    print(f"{sum(kills.values())} kills of {runs} runs in {time.monotonic() - started:.0f} s")  # noqa: T201


def _judge_whole(world: World) -> None:
    """A run that is left alone makes every table equal."""
    run_timed(world.stack)
    found = {name: told(verdict) for name, verdict in world.judge().items()}
    assert not any(found.values()), found
