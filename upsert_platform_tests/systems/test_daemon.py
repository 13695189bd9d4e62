"""Dagster's daemon on a real broker: what arrives starts runs by itself, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest

from upsert_platform_tests.graph.stack import Stack

pytestmark = [pytest.mark.systems, pytest.mark.timeout(600)]
NOWHERE = ", 'odps.tunnel.end.point' = 'http://127.0.0.1:1', 'upsert.writer.max-retries' = '0'"
BIN = Path(sys.executable).parent


@pytest.fixture
def stack(variables: Mapping[str, str], make_topic: Callable[..., str], tmp_path: Path) -> Stack:
    """A project whose warehouse cannot be written, and which no process of the test runs."""
    topic = make_topic(name=f"users-{uuid.uuid4().hex[:8]}", partitions=2, config={"cleanup.policy": "compact"})
    found = Stack(tmp_path, variables, topic)
    found.declare(warehouse=f"{NOWHERE}, 'sync.retry-after' = '1 h'")
    return found


@pytest.fixture
def instance(stack: Stack) -> Iterator[dg.DagsterInstance]:
    """The instance of a daemon, whose sensor is started."""
    environment = stack.environment()
    module = ["-m", "upsert_platform.definitions"]
    subprocess.run(
        [BIN / "dagster", "sensor", "start", *module, "new_offsets"], env=environment, check=True, capture_output=True
    )
    with (stack.path / "daemon.log").open("wb") as log:
        daemon = subprocess.Popen([BIN / "dagster-daemon", "run", *module], env=environment, stdout=log, stderr=log)
        try:
            with dg.DagsterInstance.from_config(environment["DAGSTER_HOME"]) as found:
                yield found
        finally:
            daemon.terminate()
            daemon.wait(60)


def wait_for(what: Callable[[], bool], *, seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(1)


def looks(instance: dg.DagsterInstance) -> float:
    """When the sensor looked last."""
    (state,) = instance.all_instigator_state()
    return float(getattr(state.instigator_data, "last_tick_timestamp", None) or 0.0)


def look_again(instance: dg.DagsterInstance) -> None:
    """Waits for a whole look of the sensor after now."""
    now = time.time()
    wait_for(lambda: looks(instance) > now)
    time.sleep(5)


def ended(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    return [run for run in instance.get_runs() if run.is_finished]


def test_what_arrives_is_written_and_a_table_that_fails_backs_off_alone(
    instance: dg.DagsterInstance, stack: Stack
) -> None:
    look_again(instance)
    assert instance.get_runs() == [], "nothing has arrived"

    stack.produce(stack.users.first_wave(50))
    wait_for(lambda: len(ended(instance)) == 1)
    assert stack.serving_differences() == []
    assert ended(instance)[0].status is dg.DagsterRunStatus.FAILURE  # of the warehouse

    look_again(instance)
    assert len(instance.get_runs()) == 1, "nothing has arrived, and the table that failed is left alone"

    stack.produce(stack.users.second_wave(30))
    wait_for(lambda: len(ended(instance)) == 2)
    second = ended(instance)[0]
    assert second.status is dg.DagsterRunStatus.SUCCESS
    assert dg.AssetKey(["tables", "users_warehouse"]) not in (second.asset_selection or ())
    assert stack.serving_differences() == []
