"""The sensor requests a sync when there is work and nobody is at it, whatever has left it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import EngineEventData

from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.changelog.head import Applied, Head, Positions
from upsert_platform.core.errors import TopicError
from upsert_platform.graph import tables_behind
from upsert_platform.graph.build import build_definitions
from upsert_platform.graph.processes import HOST_TAG, started_at
from upsert_platform.graph.resources import KafkaResource, MaxComputeResource, PlatformResource, TablestoreResource
from upsert_platform.graph.sensor_state import SensorState
from upsert_platform.graph.tables_behind import TablesBehind
from upsert_platform.sync.binding import load
from upsert_platform.sync.changelog_hop import ChangelogPlan
from upsert_platform.sync.looks import Asked, Kind, Look
from upsert_platform_tests.graph.test_failures import USERS


@dataclass
class World:
    """What the plan of a changelog would find, or an error; and what tables say of themselves.

    Attributes:
        begins: whether nothing was committed yet, and reading begins at the end of the topic.
        batch: the last one of the changelog.
        noted: the one that the table has noted there.
        table: what it says when it is asked.
        asked: tables that were.
    """

    lag: int | Exception = 0
    begins: bool = False
    batch: int = 0
    noted: int = 0
    table: Look = field(default_factory=Look)
    asked: list[str] = field(default_factory=list)

    def plan(self) -> ChangelogPlan:
        if isinstance(self.lag, Exception):
            raise self.lag
        head = Head("changelog", self.batch, Positions(), held={"copies": Applied(self.noted)}) if self.batch else None
        new = (OffsetRange("users", 0, 100, 100 + self.lag),) if self.lag or self.begins else ()
        return ChangelogPlan(head, (), new)

    def of(self, wanted: Sequence[Asked], *, seconds: float | None = None) -> dict[Asked, Look]:
        self.asked += [item.table for item in wanted if item.kind is Kind.TABLE]
        return dict.fromkeys(wanted, self.table)


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
    monkeypatch.setattr(tables_behind, "Looks", lambda hops: found)
    return found


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Turns the clock on, by seconds."""
    now, shift = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: now() + shift[0])

    def turn(seconds: float) -> None:
        shift[0] += seconds

    return turn


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
    remembered: list[str | None] = [None]

    def tick() -> Any:
        with dg.build_sensor_context(
            instance=instance, cursor=remembered[0], definitions=definitions, resources={"platform": platform}
        ) as context:
            found = sensor.evaluate_tick(context)
        remembered[0] = found.cursor or remembered[0]
        return found

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


CHANGELOG, TABLE = dg.AssetKey(["changelogs", "users"]), dg.AssetKey(["tables", "copies"])
BEHIND = Look(batch=1, work="1 batch to apply")
STATUS = dg.DagsterRunStatus
RUNS: dict[str, list[tuple[dg.DagsterRunStatus, int | None]]] = {
    "none": [],
    "succeeded": [(STATUS.SUCCESS, None)],
    "failed": [(STATUS.FAILURE, None)],
    "terminated": [(STATUS.CANCELED, None)],
    "killed": [(STATUS.STARTED, ENDED)],
    "killed, and another succeeded": [(STATUS.STARTED, ENDED), (STATUS.SUCCESS, None)],
    "terminated, and another succeeded": [(STATUS.CANCELED, None), (STATUS.SUCCESS, None)],
}


@pytest.mark.parametrize("lag", [0, TopicError("the topic is gone")])
@pytest.mark.parametrize("runs", RUNS)
def test_a_table_that_is_behind_is_asked_for_by_itself(
    runs: str, lag: int | Exception, instance: dg.DagsterInstance, evaluate: Evaluate, world: World
) -> None:
    assert evaluate().run_requests == []  # of a table that is not behind
    for status, pid in RUNS[runs]:
        add_run(instance, status, pid=pid)
    world.lag, world.table, world.batch = lag, BEHIND, 7
    if runs in ("none", "succeeded"):  # somebody has committed a batch to the changelog alone
        world.lag = 0
    else:
        world.noted = 7
    (request,) = evaluate().run_requests
    assert request.asset_selection == [TABLE]
    assert dg.AssetCheckKey(TABLE, "last_value_per_key") in request.asset_check_keys


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize(
    ("table", "told"),
    [
        (Look(batch=7), "no new offsets"),
        (Look(batch=6, work="1 batch to apply", note="paused since yesterday"), "no new offsets"),
        (Look(work="Tablestore: not reachable", failed=True), "copies: Tablestore: not reachable"),
    ],
    ids=["equal", "paused", "away"],
)
def test_nothing_is_asked_for_unless_a_run_would_bring_a_table_further(
    table: Look, told: str, runs: str, instance: dg.DagsterInstance, evaluate: Evaluate, world: World
) -> None:
    for status, pid in RUNS[runs]:
        add_run(instance, status, pid=pid)
    world.table = table
    found = evaluate()
    assert (found.run_requests, found.skip_message) == ([], told)
    assert world.asked == ["copies"]


def test_tables_are_asked_for_a_reason_alone(
    instance: dg.DagsterInstance, evaluate: Evaluate, world: World, later: Callable[[float], None]
) -> None:
    def asked() -> int:
        world.asked.clear()
        assert evaluate().run_requests == []
        return len(world.asked)

    world.batch = world.noted = 3
    assert asked() == 1, "nothing is known yet"
    assert [asked() for _ in range(3)] == [0, 0, 0]
    add_run(instance, STATUS.SUCCESS)
    assert asked() == 0, "a success leaves nothing behind"
    world.batch = world.noted = 4
    assert asked() == 0, "the table has noted the batch"
    world.batch = 5
    assert asked() == 1, "the table has not"
    assert asked() == 0, "it has said that it has applied the batch, as continuous mode leaves it"
    for status in (STATUS.FAILURE, STATUS.CANCELED):
        add_run(instance, status)
        assert [asked() for _ in range(2)] == [1, 0]
    add_run(instance, STATUS.STARTED, pid=ENDED)
    assert [asked() for _ in range(2)] == [1, 0]
    add_run(instance, STATUS.SUCCESS, job="stream")
    assert [asked() for _ in range(2)] == [1, 0], "continuous mode ended between a changelog and its table"
    later(500)
    assert asked() == 0
    later(101)
    assert asked() == 1, "ten minutes after its last answer"


def test_every_run_that_does_not_help_doubles_the_wait(
    instance: dg.DagsterInstance, evaluate: Evaluate, world: World, later: Callable[[float], None]
) -> None:
    """Such as one that is killed each time, for want of memory."""
    world.table = BEHIND
    for wait in (300, 600, 1200):
        (request,) = evaluate().run_requests
        assert request.asset_selection == [TABLE]
        add_run(instance, STATUS.STARTED, pid=ENDED)
        assert "copies is behind its changelog, and is tried again at" in evaluate().skip_message
        later(wait - 10)
        assert evaluate().run_requests == []
        later(11)
    world.table = Look()
    assert evaluate().skip_message == "no new offsets"
    later(601)
    world.table = BEHIND
    assert len(evaluate().run_requests) == 1, "it was level in between"
    add_run(instance, STATUS.CANCELED)
    later(301)
    assert len(evaluate().run_requests) == 1, "the wait is the first one again"


def test_a_look_asks_few_of_many_tables_and_all_in_turn(tmp_path: Path, world: World) -> None:
    tables = [f"t{number}" for number in range(50)]
    sql = USERS.replace("INSERT INTO copies SELECT id FROM users;", "")
    sql, copies = sql[: sql.index("CREATE TABLE copies")], sql[sql.index("CREATE TABLE copies") :]
    sql += "".join(copies.replace("copies", name) + f"INSERT INTO {name} SELECT id FROM users;\n" for name in tables)
    (tmp_path / "users.sql").write_text(sql)
    project, problems = load(tmp_path, root=str(tmp_path / "lake"))
    assert problems == []
    platform = PlatformResource(kafka=KafkaResource(), tablestore=TablestoreResource(), maxcompute=MaxComputeResource())
    behind, state = TablesBehind(project, tables), SensorState()
    rounds = []
    for look in range(4):
        world.asked = []
        state.unsettled = 1000.0 + look / 100  # runs fail one after the other meanwhile
        behind.ask(platform, {"users": None}, state, now=1000.0 + look)
        rounds.append(list(world.asked))
    assert [len(asked) for asked in rounds[:2]] == [20, 20]
    assert len({name for asked in rounds[:3] for name in asked}) == len(tables)


def test_where_reading_begins_is_fixed_before_any_record_comes(evaluate: Evaluate, world: World) -> None:
    """Or each look of the sensor would find the beginning at the topic's new end."""
    world.begins = True
    (request,) = evaluate().run_requests
    assert request.asset_selection == [CHANGELOG, TABLE]


def test_a_project_that_cannot_be_read_is_told_and_ends_no_look(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hops(self: PlatformResource) -> None:
        raise TopicError("no project")

    monkeypatch.setattr(PlatformResource, "hops", hops)
    assert evaluate().skip_message.startswith("copies: no project")


def test_trouble_is_told(evaluate: Evaluate, world: World) -> None:
    world.lag = TopicError("no topic")
    assert evaluate().skip_message == "users: no topic [UP-1300]"
