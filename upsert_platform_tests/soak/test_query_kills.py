"""Processes of queries, and rebuilds of changed ones, under kill -9 at random moments; DuckDB judges."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from upsert_platform_tests.engine.killing import CHANGES, play_kills

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2700)]

WORLDS = 60
TURNS = 4
KILLS = 3


def test_queries_under_many_kills_end_equal(tmp_path: Path, seed: int, scale: float) -> None:
    counts: Counter[str] = Counter()
    for number in range(max(1, round(WORLDS * scale))):
        sql = list(CHANGES)[number % len(CHANGES)]
        chance = random.Random(f"{seed} {number}")
        counts += play_kills(tmp_path / str(number), sql, chance, turns=TURNS, kills=KILLS)
        counts["queries"] += 1
    for name, count in sorted(counts.items()):
        print(f"{count:>9} {name}")  # noqa: T201
    assert 2 * counts["killed on its way"] > counts["killed after the end"]
