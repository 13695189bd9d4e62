"""Tablestore that answers 503, throttles rows, cuts connections and dies: every row arrives, and the counts add up."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.core.destination import BatchSpan
from upsert_platform.tablestore.destination import TablestoreDestination
from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server
from upsert_platform_tests.tablestore.declared import table_on
from upsert_platform_tests.tablestore.disturbance import DEATHS, FAULTS, dying

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "score": "DOUBLE"}
ROWS = 1_000_000
CHANGED = ROWS // 5
LONGEST_RATIO = 3.0


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_row_arrives_through_faults_and_restarts(spark: SparkSession, tmp_path: Path) -> None:
    with tablestore_server(tmp_path / "calm") as calm:
        destination = TablestoreDestination(_table(calm))
        destination.prepare()
        _write(destination, _rows(spark, 1000), 1000, batch=1)  # so that both measured writes find a warm session
        undisturbed = _write(destination, _rows(spark, ROWS), ROWS, batch=2)[0]
        destination.close()
    with tablestore_server(tmp_path / "disturbed", faults=FAULTS) as server:
        destination = TablestoreDestination(_table(server))
        destination.prepare()
        with dying(server, every=max(2.0, undisturbed / 2)) as deaths:
            seconds, metrics = _write(destination, _rows(spark, ROWS), ROWS, batch=1)
        # Of every fifth row a newer version, or its end: what was sent again before must not come after it.
        _write(destination, _changes(spark), CHANGED, batch=2)
        server.faults()
        _look(spark, destination)
    print(f"{ROWS} rows: {undisturbed:.1f} s, disturbed {seconds:.1f} s ({seconds / undisturbed:.2f} times)", metrics)  # noqa: T201
    assert len(deaths) == DEATHS
    assert metrics["retried_rows"] > ROWS // 10
    assert metrics["throttled"] > 0
    assert seconds <= LONGEST_RATIO * undisturbed


def _table(server: ServerHandle) -> TablestoreTable:
    return table_on(server, COLUMNS, ["id"], {"retry.deadline": "180 s"})


def _rows(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, 4).selectExpr(
        "id", "concat('name of ', id) AS name", "id / 4 AS score", "'U' AS _op", "1L AS _seq"
    )


def _changes(spark: SparkSession) -> DataFrame:
    """Every fifth row: the odd ones are put again, the even ones deleted."""
    return spark.range(0, ROWS, 5, 4).selectExpr(
        "id", "'newer' AS name", "CAST(NULL AS DOUBLE) AS score", "IF(id % 2 = 1, 'U', 'D') AS _op", "2L AS _seq"
    )


def _write(
    destination: TablestoreDestination, changes: DataFrame, count: int, *, batch: int
) -> tuple[float, dict[str, Any]]:
    """Writes a batch; the seconds of the write, and its metrics."""
    started = time.monotonic()
    with destination.lease(owner="soak", duration=timedelta(minutes=2)) as lease:
        report = destination.write(changes, span=BatchSpan(batch - 1, batch, "soak", "soak"), lease=lease)
    seconds = time.monotonic() - started
    assert (report.upserts + report.deletes, report.refused_count) == (count, 0)
    return seconds, dict(report.metrics)


def _look(spark: SparkSession, destination: TablestoreDestination) -> None:
    """Every row is there, once and right, and the batches are recorded as applied."""
    assert destination.state().applied_batch == 2
    found = destination.read(spark).selectExpr(
        "count(*) AS rows",
        "count(DISTINCT id) AS keys",
        "count_if(id % 5 <> 0 AND name = concat('name of ', id) AND score = id / 4) AS first",
        "count_if(id % 10 = 5 AND name = 'newer' AND score IS NULL) AS second",
    )
    assert found.collect()[0].asDict() == {
        "rows": ROWS - CHANGED // 2,
        "keys": ROWS - CHANGED // 2,
        "first": ROWS - CHANGED,
        "second": CHANGED // 2,
    }
    destination.close()
