"""Continuous mode on real servers: rows within a second, tables that fail alone, an orderly end, `sync` after it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import dagster as dg
import pytest

from upsert_platform.changelog.lake import Lake
from upsert_platform.graph.keys import AS_DECLARED
from upsert_platform.graph.stream_events import events_of, version_of
from upsert_platform.sync.binding import Binding, bind, load
from upsert_platform.sync.streaming.loop import StreamLoop, StreamSettings
from upsert_platform.sync.streaming.measures import Numbers
from upsert_platform.sync.streaming.reports import Reporter
from upsert_platform_tests.graph.stack import Stack, checks_of

pytestmark = pytest.mark.whole_runs

PATIENCE = 60.0


def never() -> NoReturn:
    raise AssertionError("Spark is not needed")


def wait_until(holds: Callable[[], bool], *, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)


def bound(stack: Stack) -> Binding:
    return bind(*load(stack.project, root=str(stack.lake)))


@contextmanager
def streaming(stack: Stack, told: list[str], **settings: object) -> Iterator[StreamLoop]:
    chosen = StreamSettings(max_delay=0.5, **settings)  # type: ignore[arg-type]
    loop = StreamLoop(Lake(str(stack.lake)), chosen, open_session=never, tell=told.append)
    try:
        loop.declare(bound(stack))
        yield loop
    finally:
        loop.stop()
        loop.raise_if_died()


def test_rows_arrive_and_a_table_that_fails_backs_off_alone(
    stack: Stack, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then its declaration is mended while the others go on, and a sync finds nothing to do."""
    limits = ", 'freshness.max-delay' = '1 min'"
    stack.declare(serving=limits, warehouse=limits)
    monkeypatch.setenv("UPSERT_MAXCOMPUTE_ENDPOINT", "http://127.0.0.1:9/api")
    told: list[str] = []
    stack.produce(stack.users.first_wave(300))
    with streaming(stack, told, check_seconds=0.5) as loop:
        wait_until(lambda: loop.numbers()["table users_serving"].applied >= 1)
        wait_until(lambda: loop.numbers()["table users_warehouse"].retries >= 2)
        stack.produce(stack.users.second_wave(200))
        wait_until(lambda: not stack.serving_differences())
        serving = loop.numbers()["table users_serving"]
        assert (serving.retries, serving.error) == (0, "")
        assert serving.delays.count >= serving.records > 300
        wait_until(lambda: loop.numbers()["table users_serving"].passed is True)
        assert loop.numbers()["table users_warehouse"].error
        fresh = loop.judgements()
        assert fresh["users_serving"].passed, fresh["users_serving"].text
        assert fresh["users_warehouse"].fails
        assert "cannot be told" in fresh["users_warehouse"].text
        monkeypatch.setenv("UPSERT_MAXCOMPUTE_ENDPOINT", variables["UPSERT_MAXCOMPUTE_ENDPOINT"])
        loop.declare(bound(stack))
        wait_until(lambda: not stack.warehouse_differences())
        assert loop.numbers()["changelog users"].lag == 0
    assert any(re.match(r"table users_warehouse failed, trying again in 0\.5 s", line) for line in told)
    assert not any("users_serving" in line for line in told)
    done = stack.run()
    assert done.success
    assert all(checks_of(done).values())
    assert [item.metadata["batches"].value for item in tables_of(done)] == [0, 0]


def tables_of(result: dg.ExecuteInProcessResult) -> list[dg.AssetMaterialization]:
    found = (event.materialization for event in result.get_asset_materialization_events())
    return [item for item in found if item.asset_key.path[0] == "tables"]


def test_what_is_read_when_it_is_stopped_is_brought_to_the_tables_first(stack: Stack) -> None:
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(2000))
    with streaming(stack, []) as loop:
        wait_until(lambda: loop.numbers()["changelog users"].batches >= 1)
    assert not stack.serving_differences()
    hop = stack.hop("users_serving")
    try:
        plan = hop.plan()
        assert (plan.behind, plan.state.holder) == (0, None)
    finally:
        hop.destination.close()


def test_many_commits_leave_few_files(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upsert_platform.changelog.compaction.TIERS", ((1 << 20, 4), (2 << 20, 4)))
    monkeypatch.setattr("upsert_platform.sync.streaming.upkeep._LOOK_EVERY", 3)
    monkeypatch.setattr("upsert_platform.sync.streaming.upkeep._NEWEST", 2)
    stack.declare(warehouse=None)
    with streaming(stack, []) as loop:
        for turn in range(8):
            stack.produce(stack.users.first_wave(3) if turn == 0 else stack.users.second_wave(3))
            wait_until(lambda turn=turn: loop.numbers()["changelog users"].batches > turn)  # type: ignore[misc]
    assert len(stack.hop("users_serving").store.files()) < 8
    assert not stack.serving_differences()


def test_the_job_is_the_same_loop(stack: Stack) -> None:
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(100))
    job = stack.definitions().resolve_job_def("stream")
    config = {"last_seconds": 5.0, "report_every_seconds": 0.5, "max_delay_seconds": 0.5}
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(
            run_config={"ops": {"loop": {"config": config}}}, instance=instance, raise_on_error=False
        )
        assert done.success
        (written,) = tables_of(done)
        assert (written.metadata["records"].value, written.asset_key.path[-1]) == (100, "users_serving")
    assert not stack.serving_differences()


class Process:
    """`upsert-platform stream` as a user starts it."""

    def __init__(self, stack: Stack, *options: str) -> None:
        command = [str(Path(sys.executable).parent / "upsert-platform"), "stream", "--max-delay", "500ms", *options]
        self.lines: list[str] = []
        environment = {**stack.environment(), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        self.popen = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        self.lines.extend(self.popen.stderr)

    def end(self, number: int) -> int:
        self.popen.send_signal(number)
        code = self.popen.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def found(self, pattern: str) -> re.Match[str] | None:
        return re.search(pattern, "".join(self.lines))


@contextmanager
def process(stack: Stack, *options: str) -> Iterator[Process]:
    running = Process(stack, *options)
    try:
        yield running
    finally:
        running.popen.kill()
        running.popen.wait()


@pytest.mark.soak
def test_the_command_serves_metrics_tells_dagster_takes_up_tables_and_ends_in_order(stack: Stack) -> None:
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(200))
    with process(stack, "--metrics-port", "0", "--report-every", "1s") as running:
        wait_until(lambda: running.found(r"metrics on (\S+)") is not None)
        wait_until(lambda: running.found(r"check of \d+ keys passed") is not None)
        assert not stack.serving_differences()
        address = running.found(r"metrics on (\S+)")
        assert address is not None
        with urllib.request.urlopen(address[1], timeout=10) as answer:
            page = answer.read().decode()
        count = re.search(r'upsert_platform_delay_seconds_count\{kind="table",table="users_serving"\} (\S+)', page)
        assert count is not None
        assert float(count[1]) == 200
        assert re.search(r'upsert_platform_lag\{kind="changelog",table="users"\} 0\.0', page)
        assert 'upsert_platform_memory_bytes{process="loop"}' in page
        assert 'upsert_platform_memory_bytes{process="jvm"} 0.0' in page
        stack.declare()
        running.popen.send_signal(signal.SIGHUP)
        wait_until(lambda: running.found("table users_warehouse: .*check of") is not None)
        assert not stack.warehouse_differences()
        assert running.end(signal.SIGTERM) == 0
    assert "stopped" in running.lines[-1]
    instance = dg.DagsterInstance.from_config(str(stack.path / "dagster"))
    with instance:
        event = instance.get_latest_materialization_event(dg.AssetKey(["tables", "users_serving"]))
        assert event is not None
        told = event.asset_materialization
        assert told is not None
        assert told.metadata["records"].value == 200
        delay = told.metadata["delay_p95"].value
        assert isinstance(delay, float)
        assert delay > 0


@pytest.mark.systems
def test_a_killed_loop_loses_nothing(stack: Stack) -> None:
    """Killed while it writes, then a sync; its leases end by themselves."""
    stack.produce(stack.users.first_wave(3000))
    with process(stack) as running:
        wait_until(lambda: (stack.lake / "changelogs" / "users" / "_delta_log").is_dir())
        stack.produce(stack.users.second_wave(1500))
        assert running.end(signal.SIGKILL) == -signal.SIGKILL
    done = stack.execute()
    assert done.returncode == 0, done.stderr[-3000:]
    assert (stack.serving_differences(), stack.warehouse_differences()) == ([], [])


def test_continuous_mode_gives_the_data_versions_of_runs(stack: Stack) -> None:
    """Or automation downstream of it would be asked once, and then never."""
    stack.declare(warehouse=None)
    stack.produce(stack.users.first_wave(20))
    with dg.DagsterInstance.ephemeral() as instance:
        assert stack.run(instance=instance).success
        for kind, name, group in (("changelog", "users", "changelogs"), ("table", "users_serving", "tables")):
            (report,) = Reporter().reports({f"{kind} {name}": Numbers(kind, batches=1, applied=1)})
            version = version_of(report, bound(stack), Lake(str(stack.lake)))
            (event,) = events_of(report, run="r", names=AS_DECLARED, version=version)
            run = instance.get_latest_materialization_event(dg.AssetKey([group, name]))
            assert run is not None
            assert run.asset_materialization is not None
            assert isinstance(event, dg.AssetMaterialization)
            own, others = event.tags or {}, run.asset_materialization.tags or {}
            tags = ("dagster/data_version", "dagster/data_version_is_user_provided")
            assert [own[tag] for tag in tags] == [others[tag] for tag in tags]
