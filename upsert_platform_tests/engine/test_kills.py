"""A query's process that is killed anywhere leaves what the next one needs, and nothing that it must not see."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from upsert_platform_tests.engine.killing import CHANGES, play_kills

pytestmark = pytest.mark.whole_runs


def test_query_killed_anywhere_goes_on_where_it_was(tmp_path: Path) -> None:
    counts = play_kills(tmp_path, list(CHANGES)[1], random.Random(4), turns=3, kills=4)
    assert counts["killed on its way"] >= 3, counts
