"""Two workers, a lake on object storage, executors with an interpreter of their own: the same tables."""

from __future__ import annotations

import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from upsert_platform_tests.s3 import S3
from upsert_platform_tests.systems.clustered import Clustered, cluster_of, project_on, settings_of
from upsert_platform_tests.systems.disturbing import Disturber, kill_an_executor
from upsert_platform_tests.systems.installed import Installed
from upsert_platform_tests.systems.spark_cluster import SparkCluster

pytestmark = [pytest.mark.systems, pytest.mark.timeout(1200)]

STREAM_SECONDS = 60.0
"""In which records are sent to a topic that is streamed."""
STREAM_PATIENCE = 480.0
"""How long a busy machine may take to open a session, and to catch up."""


@pytest.fixture(scope="module")
def cluster(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers, for the module."""
    with cluster_of(installed, tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def clustered(
    cluster: SparkCluster,
    installed: Installed,
    s3_server: S3,
    variables: Mapping[str, str],
    make_topic: Callable[..., str],
    tmp_path: Path,
) -> Clustered:
    """A project on the cluster, whose executors run the Python of the wheel's environment."""
    topic = make_topic(name=f"users-{uuid.uuid4().hex[:8]}", partitions=4, config={"cleanup.policy": "compact"})
    return project_on(cluster, installed, s3_server, tmp_path, variables, topic)


@pytest.mark.soak
def test_sync_query_and_stream_with_a_packed_interpreter(
    clustered: Clustered, cluster: SparkCluster, archive: Path
) -> None:
    clustered.settings = settings_of(cluster, spark__archives=f"{archive}#environment")
    clustered.declare_all()
    clustered.produce(clustered.users.first_wave(3000))
    steps: list[str] = []
    clustered.run_watched(seen=lambda step, event: steps.append(step) if event == "STEP_SUCCESS" else None)
    assert clustered.differences() == []
    assert {"changelogs__users", "tables__users_serving", "tables__users_warehouse", "tables__regions"} <= set(steps)
    assert len(cluster.unpacked()) == 2  # both executors had one of their own
    assert not list(clustered.path.rglob("*.parquet"))
    unpacked = len(cluster.unpacked())

    with (clustered.path / "stream.log").open("wb") as log:
        process = subprocess.Popen(
            clustered.command("stream"), env=clustered.environment(), cwd=clustered.path, stdout=log, stderr=log
        )
        for _ in range(8):
            clustered.produce(clustered.users.second_wave(150))
            time.sleep(STREAM_SECONDS / 8)
        try:
            wrong = clustered.differences_after(STREAM_PATIENCE)
        finally:
            process.send_signal(signal.SIGINT)
            ended = process.wait(STREAM_PATIENCE)
    told = (clustered.path / "stream.log").read_text("utf-8")
    assert wrong == [], told[-4000:]
    assert ended >= 0, told[-4000:]  # it drained, and was not killed
    assert clustered.differences() == []
    assert len(cluster.unpacked()) > unpacked  # the stream's executors did the work


@pytest.mark.soak
def test_an_executor_that_is_killed_in_each_step_changes_nothing(clustered: Clustered, cluster: SparkCluster) -> None:
    clustered.declare_all(source=", 'batch.max-records' = '2000'")
    clustered.produce(clustered.users.first_wave(6000))
    disturber = Disturber(cluster, kill_an_executor)
    clustered.run_watched(seen=disturber.see)
    assert clustered.differences() == []
    assert {"changelogs__users", "tables__users_serving", "tables__users_warehouse"} <= set(disturber.hit)


@pytest.mark.soak
def test_a_worker_that_is_killed_and_replaced_changes_nothing(clustered: Clustered, cluster: SparkCluster) -> None:
    clustered.declare_all(source=", 'batch.max-records' = '2000'")
    clustered.produce(clustered.users.first_wave(6000))
    replaced = iter(range(10, 20))

    def replace(cluster: SparkCluster) -> None:
        cluster.kill_worker(min(cluster.workers))
        cluster.add_worker(next(replaced), wait=False)

    disturber = Disturber(cluster, replace, steps=("changelogs__users", "tables__users_warehouse"))
    clustered.run_watched(seen=disturber.see)
    assert clustered.differences() == []
    assert disturber.hit == ["changelogs__users", "tables__users_warehouse"]
    assert len(cluster.workers) == 2
