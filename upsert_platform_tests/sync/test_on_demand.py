"""When Spark is asked, and for how much at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from upsert_platform.core.errors import EndpointError
from upsert_platform.sync.on_demand import OnDemand, local_rows, stream_local_rows
from upsert_platform.sync.streaming.loop import StreamSettings

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
    assert OnDemand.dividing(opened).times_a_batch(1) == times
    assert OnDemand(lambda: opened, rows=10, on_cluster=True).times_a_batch(11) == times


def test_no_session_opens_for_what_is_local() -> None:
    assert OnDemand(never, rows=10, on_cluster=True).times_a_batch(10) == 1
    assert OnDemand(never, rows=10).times_a_batch(1_000_000) == 1


def test_jobs_leave_nothing_to_this_process_unless_they_are_given_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UPSERT_SPARK_LOCAL_ROWS", raising=False)
    monkeypatch.delenv("UPSERT_STREAM_LOCAL_ROWS", raising=False)
    assert (local_rows(), stream_local_rows(), StreamSettings().local_rows) == (0, 250_000, 250_000)
    assert not OnDemand(never).is_local(1, 0)
    monkeypatch.setenv("UPSERT_SPARK_LOCAL_ROWS", "1000000")
    assert (local_rows(), stream_local_rows()) == (1_000_000, 250_000)
    assert OnDemand(never).is_local(1_000_000, 100 << 20), "a bound of more rows is one of more bytes"
    assert not OnDemand(never).is_local(1_000_001, 0)
    assert not OnDemand(never).is_local(1_000_000, 1 << 30)
    assert local_rows(7) == 7
    monkeypatch.setenv("UPSERT_STREAM_LOCAL_ROWS", "0")
    assert StreamSettings().local_rows == 0
    monkeypatch.setenv("UPSERT_SPARK_LOCAL_ROWS", "few")
    with pytest.raises(EndpointError, match="UPSERT_SPARK_LOCAL_ROWS is 'few': give a number of rows, 0 or more"):
        local_rows()
