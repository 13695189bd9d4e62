"""Runs that end in the middle, and runs that meet: the next run ends where an undisturbed one would."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dagster as dg
import pytest

from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.tablestore.destination import TablestoreDestination
from upsert_platform_tests.graph.stack import Stack, checks_of


class KilledError(Exception):
    """Stands for the end of the process at this point."""


def before(cls: type, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """The process ends when the method is called."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        def killed(*_: Any, **__: Any) -> None:
            raise KilledError(f"before {name}")

        monkeypatch.setattr(cls, name, killed)

    return patch


def after(cls: type, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """The process ends when the method has done its work and nobody knows yet."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        real = getattr(cls, name)

        def killed(*arguments: Any, **named: Any) -> None:
            real(*arguments, **named)
            raise KilledError(f"after {name}")

        monkeypatch.setattr(cls, name, killed)

    return patch


POINTS = {
    "before-changelog-commit": before(ChangelogStore, "append"),
    "after-changelog-commit": after(ChangelogStore, "append"),
    "before-offsets-are-published": before(TopicSource, "publish"),
    "before-tablestore-write": before(TablestoreDestination, "write"),
    "after-tablestore-write": after(TablestoreDestination, "write"),
    "before-maxcompute-write": before(MaxComputeDestination, "write"),
    "after-maxcompute-write": after(MaxComputeDestination, "write"),
    "before-verdict": before(TablestoreDestination, "swap_verdict"),
}


@pytest.mark.soak
@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(600)
def test_runs_that_end_in_the_middle_are_made_good_by_the_next(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wave per point and a whole run after every two, all on one pair of tables, so that crashes meet what others
    left behind."""
    stack.declare(source=", 'batch.max-records' = '60'")
    stack.produce(stack.users.first_wave(60))
    for number, (name, point) in enumerate(POINTS.items()):
        stack.produce(stack.users.second_wave(40))
        with monkeypatch.context() as patched:
            point(patched)
            assert not stack.run().success, name
        if number % 2 == 0:
            continue
        result = stack.run()
        assert result.success, name
        assert stack.serving_differences() == [], name
        assert stack.warehouse_differences() == [], name
        assert all(checks_of(result).values()), name
    assert stack.run("verify").success
    # A commit that the driver did not live to see is found by the next run: offsets are read once.
    store = stack.platform().changelog_hop("users", run="test").store
    head = store.head()
    assert head is not None
    accounts = store.accounts(after=0, upto=head.batch)
    assert sum(account.records for ranges in accounts.values() for account in ranges) == stack.users.produced


@pytest.mark.soak
@pytest.mark.systems
@pytest.mark.timeout(600)
def test_killed_processes_are_made_good_by_the_next(stack: Stack) -> None:
    """kill -9 of the real command at two moments; its JVM lives on for seconds, as in the field."""
    chance = random.Random(int(os.environ.get("PYTEST_RANDOM_SEED", "11")))
    stack.produce(stack.users.first_wave(2000))
    for _ in range(2):
        kill_during_sync(stack, chance.uniform(4.0, 16.0))
        stack.produce(stack.users.second_wave(300))
    assert stack.run().success
    assert stack.serving_differences() == []
    assert stack.warehouse_differences() == []


def kill_during_sync(stack: Stack, seconds: float) -> bool:
    """Starts a sync and kills it after a while; whether it was still running then."""
    with subprocess.Popen(
        stack.command(), env=stack.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        alive = process.poll() is None
        if alive:
            process.send_signal(signal.SIGKILL)
        return alive


@pytest.mark.soak
@pytest.mark.systems
@pytest.mark.timeout(600)
def test_two_syncs_at_once_end_equal_and_none_interleaves(stack: Stack) -> None:
    stack.produce(stack.users.first_wave(1500))
    with dg.DagsterInstance.from_config(stack.environment()["DAGSTER_HOME"]) as instance:
        assert instance.get_runs_count() == 0  # Dagster's own tables, which two new processes would both make
        assert instance.event_log_storage.get_records_for_run("none").records == []
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: stack.execute(timeout=300), range(2)))
    for run in both:
        # The one that found the destination taken says by whom; the other did the work.
        assert run.returncode == 0 or "lease ends" in run.stderr, run.stderr[-3000:]
    assert any(run.returncode == 0 for run in both)
    assert stack.run().success
    assert stack.serving_differences() == []
    assert stack.warehouse_differences() == []
