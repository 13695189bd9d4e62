"""MaxCompute under kill -9: many partitions, upserts that converge and appends that are never doubled.

`maxcompute/test_kills.py` is the short form of this test.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.soak.partition_kills import Kills, kill_and_compare, written_sessions

KILLS = Kills(count=30, lines=4, seconds=2.5, lease=timedelta(seconds=8))
"""The first write of a process takes two to three seconds, later ones about one."""


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_kills_lose_and_double_nothing_in_many_partitions(maxcompute: ServerHandle, tmp_path: Path, seed: int) -> None:
    print(kill_and_compare(maxcompute, tmp_path, seed, KILLS))  # noqa: T201
    assert written_sessions(maxcompute) == 0
