"""The catalogue of faults: after each the next run heals, or a run refuses by name; the referee judges the tables."""

from __future__ import annotations

import pytest

from upsert_platform_tests.systems.faults.tally import Tally
from upsert_platform_tests.systems.faults.world import World
from upsert_platform_tests.systems.test_faults import FAULTS, maxcompute, tablestore, tally, world

__all__ = ["maxcompute", "tablestore", "tally", "world"]

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_lost_or_doubled(world: World, tally: Tally, name: str) -> None:
    FAULTS[name](world)
    tally.add(name, world.told, world.stack)
