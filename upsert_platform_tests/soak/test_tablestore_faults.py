"""Tablestore that answers 503, throttles rows, cuts connections and dies: every row arrives, and the counts add up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.destination import BatchSpan
from upsert_platform.tablestore.destination import TablestoreDestination
from upsert_platform.tablestore.settings import TablestoreTable
from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server
from upsert_platform_tests.tablestore.declared import table_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "score": "DOUBLE"}
ROWS = 1_000_000
FAULTS = (
    "error:operation=BatchWriteRow,code=OTSServerUnavailable,probability=0.1",
    "row-error:code=OTSNotEnoughCapacityUnit,probability=0.1",
    "cut-before:operation=BatchWriteRow,probability=0.01",
    "cut-after:operation=BatchWriteRow,probability=0.01",
)
DEATHS = 2
LONGEST_RATIO = 30
"""How much longer the disturbed write may take; measured ratios are printed."""


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_every_row_arrives_through_faults_and_restarts(spark: SparkSession, tmp_path: Path) -> None:
    with tablestore_server(tmp_path / "calm") as calm:
        undisturbed = _write(spark, TablestoreDestination(_table(calm)), ROWS)[0]
    with tablestore_server(tmp_path / "disturbed", faults=FAULTS) as server:
        destination = TablestoreDestination(_table(server))
        with _dying(server, undisturbed) as deaths:
            seconds, metrics = _write(spark, destination, ROWS)
        server.faults()
        _look(spark, destination, ROWS)
    print(f"{ROWS} rows: {undisturbed:.1f} s, disturbed {seconds:.1f} s ({seconds / undisturbed:.1f} times)", metrics)  # noqa: T201
    assert len(deaths) == DEATHS
    assert metrics["retries"] > 0
    assert seconds < LONGEST_RATIO * undisturbed


def _table(server: ServerHandle) -> TablestoreTable:
    return table_on(server, COLUMNS, ["id"], {"retry.deadline": "180 s"})


def _write(spark: SparkSession, destination: TablestoreDestination, rows: int) -> tuple[float, dict[str, Any]]:
    """Writes so many rows as one batch; the seconds of the write, and its metrics."""
    destination.prepare()
    changes = spark.range(0, rows, 1, 4).selectExpr(
        "id", "concat('name of ', id) AS name", "id / 4 AS score", "'U' AS _op", "1L AS _seq"
    )
    started = time.monotonic()
    with destination.lease(owner="soak", duration=timedelta(minutes=2)) as lease:
        report = destination.write(changes, span=BatchSpan(0, 1, "soak", "soak"), lease=lease)
    seconds = time.monotonic() - started
    assert (report.upserts, report.deletes, report.refused_count) == (rows, 0, 0)
    return seconds, dict(report.metrics)


def _look(spark: SparkSession, destination: TablestoreDestination, rows: int) -> None:
    """Every row is there, once and right, and the batch is recorded as applied."""
    assert destination.state().applied_batch == 1
    found = destination.read(spark).selectExpr(
        "count(*) AS rows",
        "count(DISTINCT id) AS keys",
        "sum(id) AS ids",
        "count_if(name = concat('name of ', id) AND score = id / 4) AS right",
    )
    assert found.collect()[0].asDict() == {"rows": rows, "keys": rows, "ids": rows * (rows - 1) // 2, "right": rows}
    destination.close()


@contextmanager
def _dying(server: ServerHandle, seconds: float) -> Iterator[list[float]]:
    """Kills the server some times while the context is open, a while apart, and starts it again."""
    ended = threading.Event()
    deaths: list[float] = []

    def disturb() -> None:
        for _ in range(DEATHS):
            if ended.wait(max(2.0, seconds / 2)):
                return
            server.kill()
            ended.wait(1.0)
            server.start()
            deaths.append(time.monotonic())

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield deaths
    finally:
        ended.set()
        thread.join()
