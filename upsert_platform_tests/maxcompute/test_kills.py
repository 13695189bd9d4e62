"""Three writers die as under kill -9; the soak tests kill more of them, each with a JVM of its own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.soak.partition_kills import Kills, kill_and_compare, written_sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.systems
def test_invariant_4_killed_writers_of_many_partitions_lose_and_double_nothing(
    spark: SparkSession, maxcompute: ServerHandle, tmp_path: Path
) -> None:
    open_before = written_sessions(maxcompute)
    kills = Kills(count=3, lines=3, seconds=1.0, lease=timedelta(seconds=2), environment=_of_jvm(spark))
    seed = uuid.uuid4().int % 1_000_000
    print(f"seed {seed}: {kill_and_compare(maxcompute, tmp_path, seed, kills)}")  # noqa: T201 - shown with a failure
    assert written_sessions(maxcompute) == open_before


def _of_jvm(spark: SparkSession) -> Mapping[str, str]:
    """What lets a process use this test's JVM: it starts at once, and its tasks outlive it as a lost driver's do."""
    parameters = spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
    return {
        **os.environ,
        "PYSPARK_GATEWAY_PORT": str(parameters.port),
        "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
    }
