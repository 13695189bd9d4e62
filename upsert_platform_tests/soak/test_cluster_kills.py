"""Executors and workers of a cluster are killed again and again, while runs go on: tables are what the topic says."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.s3 import start_s3
from upsert_platform_tests.systems.clustered import cluster_of, project_on
from upsert_platform_tests.systems.disturbing import Disturber, kill_an_executor
from upsert_platform_tests.systems.installed import install_wheel
from upsert_platform_tests.systems.spark_cluster import SparkCluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(5400)]

KILLS = 20


def test_kills_of_executors_and_workers(
    stack: Stack, variables: Mapping[str, str], tmp_path: Path, seed: int, scale: float
) -> None:
    chance, numbers = random.Random(seed), count(10)

    def disturb(cluster: SparkCluster) -> None:
        if chance.random() < 0.7:
            kill_an_executor(cluster)
        else:
            cluster.kill_worker(chance.choice(sorted(cluster.workers)))
            cluster.add_worker(next(numbers), wait=False)

    kills, wanted = 0, max(1, round(KILLS * scale))
    (tmp_path / "installed").mkdir()
    installed = install_wheel(tmp_path / "installed")
    with (
        start_s3(tmp_path / "s3", die_with_parent=True) as s3,
        cluster_of(installed, tmp_path / "cluster") as cluster,
    ):
        project = project_on(cluster, installed, s3, tmp_path / "project", variables, stack.topic)
        project.declare_all(source=", 'batch.max-records' = '2000'")
        project.produce(project.users.first_wave(6000))
        for number in range(1, 4 * wanted + 1):
            disturber = Disturber(cluster, disturb)
            project.run_watched(seen=disturber.see, timeout=1200)
            assert project.differences() == [], (seed, number, disturber.hit)
            kills += len(disturber.hit)
            if kills >= wanted:
                break
            project.produce(project.users.second_wave(4000))
    print(f"{kills} kills in {number} runs")  # noqa: T201
    assert kills >= wanted
