"""The sensor asks for a sync when there is work and nobody is at it, also after runs that were killed or failed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import EngineEventData

from upsert_platform.core.errors import TopicError
from upsert_platform.graph import sensors
from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.processes import HOST_TAG, started_at
from upsert_platform.graph.resources import KafkaResource, MaxComputeResource, PlatformResource, TablestoreResource
from upsert_platform.sync.binding import load
from upsert_platform_tests.graph.test_failures import USERS


@dataclass
class World:
    """What the plan of a changelog would find: offsets not read, or an error."""

    lag: int | Exception = 0

    def plan(self) -> SimpleNamespace:
        if isinstance(self.lag, Exception):
            raise self.lag
        return SimpleNamespace(lag=self.lag)


with subprocess.Popen([sys.executable, "-c", ""]) as _ended:
    ENDED = _ended.pid
"""A process that is gone."""
HERE = socket.gethostname()
Evaluate = Callable[[], Any]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()

    def changelog_hop(self: PlatformResource, name: str, *, run: str) -> World:
        return found

    monkeypatch.setattr(PlatformResource, "changelog_hop", changelog_hop)
    monkeypatch.setattr(sensors, "RETRY_SECONDS", 0.0)
    return found


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture
def evaluate(tmp_path: Path, world: World, instance: dg.DagsterInstance) -> Evaluate:
    (tmp_path / "users.sql").write_text(USERS)
    project, _ = load(tmp_path, root=str(tmp_path / "lake"))
    platform = PlatformResource(
        project=str(tmp_path),
        home=str(tmp_path / "lake"),
        kafka=KafkaResource(),
        tablestore=TablestoreResource(),
        maxcompute=MaxComputeResource(),
    )
    definitions = build_definitions(project, platform=platform)
    sensor = definitions.resolve_sensor_def("new_offsets")

    def tick() -> Any:
        with dg.build_sensor_context(
            instance=instance, definitions=definitions, resources={"platform": platform}
        ) as context:
            return sensor.evaluate_tick(context)

    return tick


def add_run(
    instance: dg.DagsterInstance,
    status: dg.DagsterRunStatus,
    *,
    pid: int | None = None,
    host: str | None = HERE,
    job: str = "sync",
) -> None:
    tags = {} if host is None else {HOST_TAG: host}
    run = instance.add_run(dg.DagsterRun(job_name=job, run_id=str(uuid.uuid4()), status=status, tags=tags))
    if pid is not None:
        instance.report_engine_event("Executing steps in process", run, EngineEventData.in_process(pid))


def test_run_that_was_killed_holds_nothing_up(instance: dg.DagsterInstance, evaluate: Evaluate, world: World) -> None:
    """Dagster counts it as started for ever."""
    world.lag = 3
    add_run(instance, dg.DagsterRunStatus.STARTED, pid=ENDED)
    (request,) = evaluate().run_requests
    assert request.asset_selection == [dg.AssetKey(["changelogs", "users"]), dg.AssetKey(["tables", "copies"])]
    add_run(instance, dg.DagsterRunStatus.STARTED, pid=os.getpid())
    assert f"running: {instance.get_runs()[0].run_id} on {HERE}" in evaluate().skip_message


def test_continuous_mode_needs_no_sync_beside_it(
    instance: dg.DagsterInstance, evaluate: Evaluate, world: World
) -> None:
    world.lag = 3
    add_run(instance, dg.DagsterRunStatus.STARTED, pid=os.getpid(), job="stream")
    assert "run of job 'stream'" in evaluate().skip_message


def test_run_of_another_host_is_not_taken_for_dead(
    instance: dg.DagsterInstance, evaluate: Evaluate, world: World
) -> None:
    world.lag = 3
    add_run(instance, dg.DagsterRunStatus.STARTED, pid=ENDED, host="elsewhere")
    assert "on elsewhere" in evaluate().skip_message


def test_run_that_was_killed_before_it_named_its_host_holds_nothing_up_for_long(
    instance: dg.DagsterInstance, evaluate: Evaluate, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.lag = 3
    add_run(instance, dg.DagsterRunStatus.STARTED, pid=ENDED, host=None)
    assert "running" in evaluate().skip_message
    monkeypatch.setattr("upsert_platform.graph.processes._NAMING_SECONDS", -1.0)
    assert len(evaluate().run_requests) == 1


def test_a_run_names_its_host(instance: dg.DagsterInstance) -> None:
    platform = PlatformResource(kafka=KafkaResource(), tablestore=TablestoreResource(), maxcompute=MaxComputeResource())

    @dg.job(resource_defs={"platform": platform})
    def one() -> None:
        @dg.op(required_resource_keys={"platform"})
        def nothing() -> None:
            pass

        nothing()

    run = one.execute_in_process(instance=instance)
    assert instance.get_run_by_id(run.run_id).tags[HOST_TAG] == HERE


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED])
def test_run_that_names_no_process_yet_counts(
    status: dg.DagsterRunStatus, instance: dg.DagsterInstance, evaluate: Evaluate, world: World
) -> None:
    world.lag = 3
    add_run(instance, status)
    assert "queued or running" in evaluate().skip_message


def test_process_number_that_went_to_another_is_not_taken_for_the_run(
    instance: dg.DagsterInstance, evaluate: Evaluate, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.lag = 3
    add_run(instance, dg.DagsterRunStatus.STARTED, pid=os.getpid())
    began = started_at(os.getpid())
    assert began is not None
    monkeypatch.setattr("upsert_platform.graph.processes.started_at", lambda pid: began + 1e6)
    assert len(evaluate().run_requests) == 1


@pytest.mark.parametrize("lag", [0, TopicError("the topic is gone")])
def test_tables_of_a_failed_sync_are_asked_for_by_themselves(
    lag: int | Exception, instance: dg.DagsterInstance, evaluate: Evaluate, world: World
) -> None:
    world.lag = lag
    add_run(instance, dg.DagsterRunStatus.FAILURE)
    (request,) = evaluate().run_requests
    assert request.asset_selection == [dg.AssetKey(["tables", "copies"])]


@pytest.mark.parametrize("status", [None, dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.CANCELED])
def test_nothing_is_asked_for_unless_the_last_sync_failed(
    status: dg.DagsterRunStatus | None, instance: dg.DagsterInstance, evaluate: Evaluate
) -> None:
    add_run(instance, dg.DagsterRunStatus.FAILURE)
    if status is None:
        instance.delete_run(instance.get_runs()[0].run_id)
    else:
        add_run(instance, status)
    assert evaluate().skip_message == "no new offsets"


def test_every_failure_in_a_row_doubles_the_wait(
    instance: dg.DagsterInstance, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs of the test have no times: they count as ended in 1970."""
    monkeypatch.setattr(sensors, "RETRY_SECONDS", time.time() * 0.6)
    add_run(instance, dg.DagsterRunStatus.FAILURE)
    assert len(evaluate().run_requests) == 1
    add_run(instance, dg.DagsterRunStatus.FAILURE)
    assert evaluate().run_requests == []


def test_trouble_is_told(evaluate: Evaluate, world: World) -> None:
    world.lag = TopicError("no topic")
    assert evaluate().skip_message == "users: no topic [UP-1300]"
