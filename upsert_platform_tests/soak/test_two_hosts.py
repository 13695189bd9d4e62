"""Two hosts that sync at once over one lake on object storage, many rounds: nothing is doubled, nothing is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.s3 import start_s3
from upsert_platform_tests.systems.hosts import sync_at_once

pytestmark = [pytest.mark.soak, pytest.mark.timeout(5400)]

ROUNDS = 50


def test_rounds_of_two_that_sync_at_once(stack: Stack, tmp_path: Path, scale: float) -> None:
    stack.declare()
    rounds = max(1, round(ROUNDS * scale))
    with start_s3(tmp_path / "s3", die_with_parent=True) as s3:
        made = sync_at_once(stack, s3, rounds=rounds, records=200)
    print(f"{rounds} rounds, {sum(made)} batches")  # noqa: T201
    assert len(made) == rounds
    assert all(batches >= 1 for batches in made)
