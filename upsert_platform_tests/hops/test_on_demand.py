"""When Spark is asked, and for how much at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from upsert_platform.hops.on_demand import OnDemand, times_a_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(master: str, cores: int) -> SparkSession:
    return cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(master=master, defaultParallelism=cores)))


def never() -> Any:
    raise AssertionError("Spark was opened")


@pytest.mark.parametrize(
    ("master", "cores", "times"),
    [("local[64]", 64, 1), ("spark://h:7077", 2, 1), ("spark://h:7077", 8, 2), ("yarn", 400, 100)],
)
def test_batches_follow_the_cores_of_a_cluster(master: str, cores: int, times: int) -> None:
    opened = session(master, cores)
    assert times_a_batch(opened, 1) == times
    assert times_a_batch(OnDemand(lambda: opened, rows=10, on_cluster=True), 11) == times


def test_no_session_opens_for_what_is_little_or_local() -> None:
    assert times_a_batch(OnDemand(never, rows=10, on_cluster=True), 10) == 1
    assert times_a_batch(OnDemand(never, rows=10), 1_000_000) == 1
