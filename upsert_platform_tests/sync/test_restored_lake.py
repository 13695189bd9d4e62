"""A lake restored from an older copy reads other records into batch numbers that its consumers have applied."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from upsert_platform.changelog.upkeep import note_applied, prune_log, trim_log
from upsert_platform.core.destination import BatchSpan, DestinationState
from upsert_platform.core.errors import DestinationError, EndpointError
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.position import check_position
from upsert_platform.sync.streaming.steps import DestinationStep
from upsert_platform_tests.changelog.places import Placed
from upsert_platform_tests.sync.test_one_task import append, hop_to, never
from upsert_platform_tests.writing.in_memory import MemoryDestination, Place

SPARK = OnDemand(never)
HOURS_AGO = time.time() - 100 * 3600


def sync(hop: DestinationHop) -> None:
    hop.execute(SPARK, hop.plan())


def land(hop: DestinationHop, *, batches: int = 1, told: str = "before") -> None:
    """Commits batches of two keys each; no two calls with different texts have the same rows."""
    head = hop.store.create()
    for number in range(head.batch + 1, head.batch + 1 + batches):
        keys = (number, 1000 + len(told) * 100 + number)
        append(hop.store, number, [Placed(number, 0, key, None, key, told) for key in keys])


def put_back(tmp_path: Path) -> None:
    """Restores the lake from its copy."""
    shutil.rmtree(tmp_path / "lake")
    shutil.move(tmp_path / "copy", tmp_path / "lake")


def refuses_each_turn(step: DestinationStep, hop: DestinationHop) -> None:
    """Turns of a table with three batches over a restored lake of one: before, at and behind the third."""
    for _ in range(4):
        with pytest.raises(DestinationError, match="has applied batch 3 of commit 'run/"):
            step.run(drains=False)
        land(hop, told="after the restore")


def restored(tmp_path: Path, *, on: int) -> tuple[DestinationHop, Place]:
    """A table that applied some batches more than the lake has, each in a sync of its own."""
    place = Place()
    hop = hop_to(place, tmp_path)
    land(hop, batches=3)
    sync(hop)
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    for _ in range(on):
        land(hop)
        sync(hop)
    put_back(tmp_path)
    return hop, place


@pytest.mark.parametrize("on", [1, 2, 10])
def test_every_later_sync_is_refused_by_name_and_nothing_is_written(tmp_path: Path, on: int) -> None:
    hop, place = restored(tmp_path, on=on)
    held = dict(place.rows)
    for number in range(1, on + 3):
        with pytest.raises(DestinationError, match="restored from an older copy") as found:
            hop.plan()
        text = str(found.value)
        assert f"has applied batch {3 + on} of commit 'run/" in text
        assert "table 'memory' (memory://)" in text
        assert "'upsert-platform reconcile memory'" in text
        if number > on + 1:
            assert f"has applied batch {3 + on} of commit" in text
            assert f"is another one of commit '{hop.store.commit_of(3 + on)}'" in text
        land(hop, told="after the restore")
    assert place.rows == held


def test_the_refusal_outlives_the_log_of_the_restored_lake(tmp_path: Path) -> None:
    """The identity of the table's batch ages out of the log: nothing proves any more that it is the same."""
    hop, _ = restored(tmp_path, on=2)
    land(hop, batches=6, told="after the restore")
    age_log(tmp_path / "lake")
    assert trim_log(hop.store, minutes=15) > 0
    with pytest.raises(DestinationError, match="does not know any more which commit made that batch"):
        hop.plan()


def age_log(lake: Path) -> None:
    for file in (lake / "_delta_log").glob("*.json"):
        os.utime(file, (HOURS_AGO, HOURS_AGO))


@pytest.mark.parametrize("prune", [False, True])
def test_a_table_that_lags_goes_on_when_the_log_has_lost_its_batch(tmp_path: Path, *, prune: bool) -> None:
    place = Place()
    hop = hop_to(place, tmp_path)
    land(hop, batches=2)
    sync(hop)
    land(hop, batches=5)
    age_log(tmp_path / "lake")
    if prune:
        prune_log(hop.store, hours=1)
    else:
        assert trim_log(hop.store, minutes=15) > 0
    assert hop.store.commit_of(1) is None or prune, "no table holds it"
    assert place.state.commit
    assert hop.store.commit_of(2) == place.state.commit
    land(hop)
    sync(hop)
    assert place.state.applied_batch == 8
    assert len(place.rows) == 16


def test_a_position_without_identity_is_of_an_earlier_version_and_goes_on(tmp_path: Path) -> None:
    place = Place()
    hop = hop_to(place, tmp_path)
    land(hop)
    sync(hop)
    head = hop.store.head()
    assert head is not None
    place.state = DestinationState(1, head.changelog_id)
    land(hop)
    sync(hop)
    found = hop.store.head()
    assert found is not None
    assert (place.state.applied_batch, place.state.commit) == (2, found.run)


def test_a_table_whose_lake_is_gone_is_not_compared(tmp_path: Path) -> None:
    place = Place()
    hop = hop_to(place, tmp_path)
    land(hop)
    sync(hop)
    shutil.move(tmp_path / "lake", tmp_path / "away")
    with pytest.raises(DestinationError, match="has applied batch 1, but there is no changelog at"):
        hop.plan()
    shutil.move(tmp_path / "away", tmp_path / "lake")
    assert hop.plan().state.applied_batch == 1


def test_a_write_that_broke_off_is_compared_too(tmp_path: Path) -> None:
    hop = hop_to(Place(), tmp_path)
    land(hop, batches=2)
    head = hop.store.head()
    assert head is not None
    for begun, expected in [
        ((head.changelog_id, 2, head.run), None),
        ((head.changelog_id, 2, "run/another"), "has applied batch 2 of commit 'run/another'"),
        ((head.changelog_id, 3, "run/later"), "has applied batch 3 of commit 'run/later'"),
        (("of another changelog", 7, "run/other"), None),
    ]:
        state = DestinationState(1, head.changelog_id, commit=hop.store.commit_of(1) or "", begun=begun)
        if expected is None:
            check_position(hop.store, head, state, table="memory", uri="memory://")
        else:
            with pytest.raises(DestinationError, match=expected):
                check_position(hop.store, head, state, table="memory", uri="memory://")


@pytest.mark.parametrize("prune", [False, True])
def test_a_write_that_broke_off_goes_on_when_the_log_has_lost_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, prune: bool
) -> None:
    place = Place()
    hop = hop_to(place, tmp_path)
    land(hop)
    sync(hop)
    land(hop, batches=2)

    def broken(changes: object, *, span: BatchSpan, **_: object) -> None:
        place.state = replace(place.state, begun=(span.changelog_id, span.upto, span.commit))
        raise EndpointError("the brokers went away")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryDestination, "commits_in_parts", True)
        patched.setattr(hop.destination, "write", broken)
        with pytest.raises(EndpointError):
            sync(hop)
    assert place.state.begun is not None
    assert place.state.begun[1] == 3
    land(hop, batches=5)
    age_log(tmp_path / "lake")
    if prune:
        prune_log(hop.store, hours=1)
    else:
        assert trim_log(hop.store, minutes=15) > 0
    sync(hop)
    assert place.state.applied_batch == 8


def test_continuous_mode_notices_a_restore_before_and_after_the_batch_is_reached(tmp_path: Path) -> None:
    place = Place()
    hop = hop_to(place, tmp_path)
    step = DestinationStep("memory", lambda: hop, SPARK, run="run", check_seconds=3600.0)
    land(hop)
    assert step.run(drains=False)
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    land(hop, batches=2)
    assert step.run(drains=False)
    assert not step.run(drains=False)
    put_back(tmp_path)
    refuses_each_turn(step, hop)
    step.reset()


def test_a_count_that_failed_with_the_restored_lake_does_not_hide_the_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ages of rows are read beside the next turn, which may be from files that the restore took away."""
    place = Place()
    hop = hop_to(place, tmp_path)
    step = DestinationStep("memory", lambda: hop, SPARK, run="run", check_seconds=3600.0)
    land(hop)
    assert step.run(drains=False)
    assert not step.run(drains=False)
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")

    def gone(*_: object, **__: object) -> Iterator[object]:
        raise FileNotFoundError("no such part")

    monkeypatch.setattr("upsert_platform.sync.streaming.steps.change_times", gone)
    land(hop, batches=2)
    assert step.run(drains=False)
    put_back(tmp_path)
    refuses_each_turn(step, hop)
    assert step.measures.read().batches == 2
    step.reset()


def test_a_commit_does_not_follow_another_commit_of_the_same_number(tmp_path: Path) -> None:
    """A run that planned before the restore commits nothing behind it."""
    hop = hop_to(Place(), tmp_path)
    land(hop, batches=2)
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    land(hop)
    head = hop.store.head()
    assert head is not None
    put_back(tmp_path)
    land(hop, told="after the restore")
    assert hop.store.append([], head=head, positions=head.positions, run="run") is None


def test_a_note_of_another_consumer_is_kept_beside(tmp_path: Path) -> None:
    hop = hop_to(Place(), tmp_path)
    land(hop, batches=2)
    note_applied(hop.store, "one", 1)
    note_applied(hop.store, "other", 2)
    land(hop)
    head = hop.store.head()
    assert head is not None
    assert {name: item.batch for name, item in head.held.items()} == {"one": 1, "other": 2}
    assert all(item.commit == hop.store.commit_of(item.batch) for item in head.held.values())
