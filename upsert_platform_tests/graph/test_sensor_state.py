"""What the sensor remembers: runs that end in another order than they began, and waits that double."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta

import dagster as dg
import pytest

from upsert_platform.graph.own_runs import OwnRuns
from upsert_platform.graph.sensor_state import LONGEST, Failures, SensorState


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def begin(instance: dg.DagsterInstance, job: str) -> dg.DagsterRun:
    return instance.add_run(dg.DagsterRun(job_name=job, run_id=str(uuid.uuid4()), status=dg.DagsterRunStatus.STARTED))


def end(instance: dg.DagsterInstance, run: dg.DagsterRun, kind: dg.DagsterEventType) -> None:
    instance.report_dagster_event(dg.DagsterEvent(kind.value, run.job_name), run.run_id)


def look(instance: dg.DagsterInstance, cursor: str | None) -> SensorState:
    state = SensorState.read(cursor)
    state.learn(OwnRuns(instance, None, ""), job="sync", mended_by=("reconcile", "replay"), steps={}, landing={})
    return state


@pytest.mark.parametrize("later", ["reconcile", "replay", "sync"])
def test_a_repair_that_ends_after_a_later_run_is_not_passed_over(instance: dg.DagsterInstance, later: str) -> None:
    failing = SensorState(failing={"users": Failures(3, 3.0)})
    repair = begin(instance, "reconcile")
    other = begin(instance, later)
    end(instance, other, dg.DagsterEventType.RUN_FAILURE)
    state = look(instance, failing.text())
    assert state.failing == failing.failing
    state = look(instance, state.text())
    end(instance, repair, dg.DagsterEventType.RUN_SUCCESS)
    state = look(instance, state.text())
    assert state.failing == {}
    assert state.running == []


def test_a_repair_counts_once(instance: dg.DagsterInstance) -> None:
    end(instance, begin(instance, "reconcile"), dg.DagsterEventType.RUN_SUCCESS)
    state = look(instance, None)
    state.failing["users"] = Failures(1, 3.0)  # of a later sync
    assert look(instance, state.text()).failing == state.failing


def test_waits_double_up_to_the_longest_and_a_strange_cursor_begins_anew() -> None:
    second = timedelta(seconds=1)
    assert [Failures(count, 100.0).until(second) for count in (1, 2, 3)] == [101.0, 102.0, 104.0]
    assert Failures(60, 100.0).until(second) == 100.0 + LONGEST.total_seconds()
    state = SensorState(
        {"users": 1.0},
        {"t": Failures(2, 3.0)},
        {"sync": 7},
        [5],
        {"u": Failures(1, 4.0)},
        {"u": (5.0, 6)},
        8.0,
        {"v": Failures(3, 9.0)},
    )
    assert SensorState.read(state.text()) == state
    for strange in (None, "", "[]", "7", '{"since": {}}', "users:12", '{"since": 3}'):
        assert SensorState.read(strange) == SensorState()


def test_what_a_cursor_of_before_does_not_have_begins_empty() -> None:
    """As the version before wrote it: the waits of failing tables go on after an upgrade."""
    before = '{"since": {"u": 1.0}, "failing": {"t": {"count": 2, "at": 3.0}}, "seen": {"sync": 7}, "running": [5]}'
    read = SensorState.read(before)
    assert read == SensorState({"u": 1.0}, {"t": Failures(2, 3.0)}, {"sync": 7}, [5])


@pytest.mark.parametrize("shows", [True, False])
def test_a_repair_that_only_shows_ends_no_wait(instance: dg.DagsterInstance, *, shows: bool) -> None:
    waits = SensorState(failing={"users": Failures(3, 3.0)}, tried={"users": Failures(1, 3.0)})
    config = {"ops": {"repair": {"config": {"tables": [], "dry_run": shows}}}}
    made = dg.DagsterRun(
        job_name="reconcile", run_id=str(uuid.uuid4()), status=dg.DagsterRunStatus.STARTED, run_config=config
    )
    end(instance, instance.add_run(made), dg.DagsterEventType.RUN_SUCCESS)
    state = look(instance, waits.text())
    assert (bool(state.failing), bool(state.tried)) == (shows, shows)
