"""Random histories through every destination and mode, with everything going wrong that can; the referee judges.

Histories are packed, as disjoint keys, into few topics (worlds): every record, every key and every order is its own,
while settings, batches and faults are drawn once per world and round. `SOAK_WORLD` plays one of them alone.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from upsert_platform_tests.local.maxcompute.server import ServerHandle as MaxComputeServer
from upsert_platform_tests.local.tablestore.server import ServerHandle as TablestoreServer
from upsert_platform_tests.referee.judging import told
from upsert_platform_tests.soak.history_records import ENCODINGS
from upsert_platform_tests.soak.modes import MODES
from upsert_platform_tests.soak.worlds import World, make_world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2700)]

HISTORIES = 20_000
WORLD = 1_250
"""Histories of a world."""
TABLES = 3
ROUNDS = 4
SHOWN = 50
EXPLAINED = 2
"""Differences of a table whose records and rows are shown."""
RECORDS = 3.0
"""Records of a history in a round, on average."""


def test_random_histories_end_equal(
    variables: Mapping[str, str],
    tablestore: TablestoreServer,
    maxcompute: MaxComputeServer,
    make_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
    seed: int,
    scale: float,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    worlds = max(1, round(HISTORIES * scale / WORLD))
    counts: Counter[str] = Counter()
    formats, modes = _in_turn(seed, list(ENCODINGS), ["json"]), _in_turn(seed, list(MODES))
    wrong: list[str] = []
    started = time.monotonic()
    for number in range(worlds):
        chance = random.Random(f"{seed} {number}")
        format_id = next(formats)
        chosen: list[str] = []
        while len(chosen) < TABLES:
            mode = next(modes)
            if mode not in chosen and set(MODES[mode].needs) <= set(ENCODINGS[format_id].columns):
                chosen.append(mode)
        if os.environ.get("SOAK_WORLD", str(number)) != str(number):
            continue
        path = tmp_path / str(number)
        path.mkdir()
        world = make_world(
            path, variables, (tablestore, maxcompute), make_topic, spark,
            chance=chance, format_id=format_id, modes=chosen, count=WORLD,
        )  # fmt: skip
        _play(world)
        for name, verdict in world.judge().items():
            counts[f"histories judged: {world.modes[name]}"] += WORLD
            counts["rows equal"] += verdict.equal_rows
            lines = [f"world {number} ({format_id}, {world.modes[name]}): {line}" for line in told(verdict)]
            wrong += lines
            counts[f"keys that differ: {world.modes[name]}"] += verdict.differing
            lines += [line for item in verdict.differences[:EXPLAINED] for line in world.explain(item.key)]
            print(*lines[:SHOWN], sep="\n", end="\n" * bool(lines))  # noqa: T201
        counts += world.counts + world.histories.counts
        counts["histories"] += WORLD
        print(f"world {number}: {format_id}, {chosen}, {time.monotonic() - started:.0f} s, {len(wrong)} wrong")  # noqa: T201
    for name, count in sorted(counts.items()):
        print(f"{count:>9} {name}")  # noqa: T201
    assert wrong == []


def _in_turn(seed: int, *choices: list[str]) -> itertools.cycle[str]:
    """All choices again and again, in an order of the seed."""
    every = [item for items in choices for item in items]
    random.Random(seed).shuffle(every)
    return itertools.cycle(every)


def _play(world: World) -> None:
    """Rounds of records, faults, upkeep and changes; at the end all is well and every table up to date."""
    chance, histories = world.chance, world.histories
    may_widen = not histories.missing
    for round_number in range(ROUNDS):
        histories.produce(share=RECORDS)
        with world.faults():
            behind = tuple(name for name in world.modes if chance.random() < 0.8)
            world.sync(tables=behind, may_fail=True)
        if round_number == 1 and world.format == "json" and chance.random() < 0.6:
            histories.extra = True  # the records from now on have a column that the declaration gets now, too
            world.declare()
            world.counts["schema changes"] += 1
        if may_widen and chance.random() < 0.25:
            world.widen()
        if round_number == 2 and histories.missing:
            del world.source["value.json.fail-on-missing-field"]
            world.declare()
            world.settle()
            world.replay()
        if chance.random() < 0.5:
            world.compact()
    world.settle()
    if chance.random() < 0.5:
        world.compact()
        world.settle()
