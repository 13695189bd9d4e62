"""Turns of continuous mode: what the check of an interval looked at, and what it leaves to the next sync."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from upsert_platform.changelog import compaction
from upsert_platform.core.capabilities import PacesCommits
from upsert_platform.core.destination import DestinationState
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.streaming import steps
from upsert_platform.sync.streaming.steps import DestinationStep
from upsert_platform.sync.verify import check_batch
from upsert_platform_tests.changelog.places import Placed
from upsert_platform_tests.sync.test_one_task import TaskMemory, append, hop_to, never
from upsert_platform_tests.writing.in_memory import Place

SPARK = OnDemand(never)


def step_of(hop: DestinationHop) -> DestinationStep:
    return DestinationStep("memory", lambda: hop, SPARK, run="run", check_seconds=0.0)


def grow(hop: DestinationHop, batch: int, keys: range) -> None:
    append(hop.store, batch, [Placed(batch, 0, 1000 * batch + key, None, key, f"in {batch}") for key in keys])


def checked_by_sync(hop: DestinationHop) -> bool:
    """What the check of the next sync says: it looks at the batches behind the verdict."""
    state = hop.plan().state
    after = state.verdict.batch if state.verdict else 0
    return check_batch(SPARK, hop, after=after, upto=state.applied_batch).passed


def test_batches_that_a_check_passed_over_are_looked_at_by_the_next_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "CHECKED_ROWS", 5)
    monkeypatch.setattr("upsert_platform.sync.comparison.SAMPLE_BATCHES", 0)
    place = Place()
    hop = hop_to(place, tmp_path)
    step = step_of(hop)
    grow(hop, 1, range(3))
    assert step.run(drains=False)
    assert place.state.verdict is not None
    assert (place.state.verdict.batch, step.measures.read().compared) == (1, 3)
    grow(hop, 2, range(10, 30))  # more than a check of an interval looks at
    assert step.run(drains=False)
    del place.rows[20]
    grow(hop, 3, range(40, 43))
    assert step.run(drains=False)
    assert (step.measures.read().checks, step.measures.read().passed) == (2, True)
    assert place.state.verdict.batch == 1
    step.run(drains=False)
    assert step.measures.read().checks == 2  # nothing new since it looked
    step.reset()
    assert not checked_by_sync(hop)


class Paced(TaskMemory, PacesCommits):
    """A table that wants an hour between commits."""

    least_interval = timedelta(hours=1)


def test_what_waits_for_a_paced_table_is_written_before_the_end(tmp_path: Path) -> None:
    place = Place()
    hop = hop_to(place, tmp_path)
    hop.destination = Paced(place)
    step = step_of(hop)
    grow(hop, 1, range(3))
    assert step.run(drains=False)
    grow(hop, 2, range(3, 6))
    assert not step.run(drains=False)
    assert (place.state.applied_batch, step.measures.read().lag) == (1, 1)
    assert step.run(drains=True)
    assert not step.run(drains=True)
    assert (place.state.applied_batch, len(place.rows)) == (2, 6)
    step.reset()


def test_a_table_that_lost_what_was_applied_is_told_and_written_again(tmp_path: Path) -> None:
    place, told = Place(), list[str]()
    hop = hop_to(place, tmp_path)
    grow(hop, 1, range(3))
    for _ in range(2):
        step = DestinationStep("memory", lambda: hop, SPARK, run="run", check_seconds=3600.0, tell=told.append)
        assert step.run(drains=False)
        step.reset()
        assert (place.state.applied_batch, len(place.rows)) == (1, 3)
        place.state, place.rows = DestinationState(), {}
    (line,) = told
    assert "the batches up to 1 were applied to memory://, but it tells of none of them" in line


def test_a_difference_is_recorded_whatever_was_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "CHECKED_ROWS", 5)
    place = Place()
    hop = hop_to(place, tmp_path)
    step = step_of(hop)
    grow(hop, 1, range(10, 30))
    assert step.run(drains=False)
    assert place.state.verdict is None
    grow(hop, 2, range(3))
    monkeypatch.setattr(step, "_check_seconds", 3600.0)
    assert step.run(drains=False)
    place.rows[1] = (1, "of another writer")
    monkeypatch.setattr(step, "_check_seconds", 0.0)
    step.run(drains=False)
    step.reset()
    verdict = place.state.verdict
    assert verdict is not None
    assert (verdict.batch, verdict.passed) == (2, False)


def test_a_new_batch_among_many_merged_rows_opens_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upsert_platform.sync.comparison.SAMPLE_BATCHES", 0)
    place = Place()
    hop = hop_to(place, tmp_path)
    step = DestinationStep("memory", lambda: hop, OnDemand(never, rows=10), run="run", check_seconds=0.0)
    for batch in range(1, 12):
        grow(hop, batch, range(3 * batch, 3 * batch + 3))
        if batch == 11:
            assert compaction.merge_locally(hop.store)
            assert len(hop.store.files()) == 1
        assert step.run(drains=False)
    assert len(place.rows) == 33
    assert step.measures.read().passed
    step.reset()


def test_a_sample_in_large_files_is_passed_over_and_opens_no_spark(tmp_path: Path) -> None:
    place = Place()
    hop = hop_to(place, tmp_path)
    step = step_of(hop)
    for batch in range(1, 11):
        grow(hop, batch, range(100 * batch, 100 * batch + 50))
        assert step.run(drains=False)
    assert compaction.merge_locally(hop.store)
    (merged,) = hop.store.files()
    grow(hop, 11, range(3))
    step.reset()
    step = DestinationStep("memory", lambda: hop, OnDemand(never, size=merged.size), run="run", check_seconds=0.0)
    assert step.run(drains=False)
    assert place.state.verdict is not None
    assert (place.state.verdict.batch, step.measures.read().compared) == (11, 3)
    step.reset()


def test_batches_are_counted_where_the_ages_of_their_rows_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told by a later turn, which fails by it; no batch is left out of the numbers by that."""

    def unreadable(*_: object, **__: object) -> object:
        raise OSError("the file is gone")

    hop = hop_to(Place(), tmp_path)
    step = DestinationStep("memory", lambda: hop, SPARK, run="run", check_seconds=3600.0)
    monkeypatch.setattr(steps, "change_times", unreadable)
    grow(hop, 1, range(3))
    assert step.run(drains=False)
    grow(hop, 2, range(5))
    failures = 0
    for _ in range(4):
        try:
            step.run(drains=False)
        except OSError:
            failures += 1
            step.reset()
    step.reset()
    numbers = step.measures.read()
    assert (numbers.batches, numbers.records) == (2, 8)
    assert failures >= 1
