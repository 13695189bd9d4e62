"""Nexmark's queries: all are planned as they are written, and give what DuckDB computes, batch after batch."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from upsert_platform.engine import engine
from upsert_platform.engine.runners import LocalRunner, SparkRunner
from upsert_platform.sql.evaluation import flink_sql, prepared
from upsert_platform.sql.variables import Variables
from upsert_platform_tests.bench.query_load import Load
from upsert_platform_tests.campaign import first_of
from upsert_platform_tests.engine.nexmark import (
    CLOCKED,
    QUERIES,
    TABLES,
    events,
    events_table,
    prepare,
    tables,
    upsert_tables,
)
from upsert_platform_tests.sql.reading import read_scripts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KAFKA = "WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json', 'properties.bootstrap.servers' = 'b:1')"
UPSERT = (
    "WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'key.format' = 'json', 'value.format' = 'json',"
    " 'properties.bootstrap.servers' = 'b:1')"
)
COUNT = 3000
_ALL_COLUMNS = 'price DESC, auction, bidder, channel, url, "dateTime", extra)'
ONE_ROW = ("q0", "q1", "q2", "q10", "q14", "q21", "q22")
"""Queries that look at one row at a time."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a project with what some queries find beside their statements."""
    found = tmp_path_factory.mktemp("project")
    prepare(found)
    return found


def _insert(name: str, sources: str, folder: Path) -> str:
    query = QUERIES[name]
    target = query.target(UPSERT if query.key else KAFKA)
    return f"{sources}\n{CLOCKED}\n{query.beside.format(folder=folder)}\n{target}\nINSERT INTO target {query.flink};"


@pytest.mark.parametrize("name", QUERIES)
def test_all_queries_are_planned_over_the_topic_of_all_events(name: str, folder: Path) -> None:
    scripts, problems = read_scripts(
        {str(folder / "n.sql"): _insert(name, events_table(KAFKA), folder)}, Variables({}, {}, {})
    )
    assert [item.message for item in problems if item.severity == "error"] == []
    (insert,) = scripts.inserts
    assert (insert.query is None) is (name in ONE_ROW)


def _parts(columns: dict[str, Any], pieces: int) -> list[dict[str, Any]]:
    count = len(next(iter(columns.values())))
    edges = [count * at // pieces for at in range(pieces + 1)]
    return [{name: values[start:end] for name, values in columns.items()} for start, end in pairwise(edges)]


@pytest.mark.parametrize("name", first_of((name for name in QUERIES if name not in (*ONE_ROW, "q12")), every=2))
def test_results_over_added_rows_equal_those_of_a_database(
    name: str, spark: SparkSession, tmp_path: Path, folder: Path
) -> None:
    load = Load(tmp_path, _insert(name, tables(KAFKA), folder), LocalRunner(lambda: prepared(spark)))
    given = {table: _parts(columns, 3) for table, columns in events(COUNT).items()}
    for at in range(3):
        for table in load.query.tables:
            load.append(table, given[table][at])
        load.advance()
        load.judge(QUERIES[name].judged)


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in (*ONE_ROW, "q12")])
def test_results_over_upserts_and_deletes_equal_those_of_a_database(
    name: str, spark: SparkSession, tmp_path: Path, folder: Path
) -> None:
    """Every third row of a batch is written anew with another's values, and every fifth is deleted."""
    load = Load(tmp_path, _insert(name, upsert_tables(UPSERT), folder), LocalRunner(lambda: prepared(spark)))
    given = {table: _parts(_with_numbers(table, columns), 2) for table, columns in events(COUNT).items()}
    for at in range(2):
        for table in load.query.tables:
            load.append(table, given[table][at])
        load.advance()
        load.judge(_of_upserts(name))
        for table in load.query.tables:
            ids = np.asarray(given[table][at]["id"])
            if table == "bid":
                changed = {key: values[::3] for key, values in given[table][at].items()}
                load.append(table, {**changed, "price": np.asarray(changed["price"]) // 2 + 1})
            gone = {key: values[1::5] for key, values in given[table][at].items()}
            load.append(table, gone, deletes=np.ones(len(ids[1::5]), dtype=bool))
        load.advance()
        load.judge(_of_upserts(name))


def _with_numbers(table: str, columns: dict[str, Any]) -> dict[str, Any]:
    return columns if "id" in TABLES[table] else {"id": np.arange(len(columns["auction"])), **columns}


def _of_upserts(name: str) -> str:
    """Rows that change have no order of arrival: what q19 leaves equal comes in the order of all columns."""
    judged = QUERIES[name].judged
    return judged.replace('price DESC, "dateTime")', _ALL_COLUMNS) if name == "q19" else judged


def test_queries_of_one_row_equal_those_of_a_database(spark: SparkSession, folder: Path) -> None:
    table = pa.table(events(COUNT)["bid"])
    spark.createDataFrame(table.to_pandas()).createOrReplaceTempView("nexmark_bid")
    connection = duckdb.connect()
    connection.register("bid", table)
    for name in ONE_ROW:
        scripts, problems = read_scripts(
            {str(folder / "n.sql"): _insert(name, tables(KAFKA), folder)}, Variables({}, {}, {})
        )
        assert not [item for item in problems if item.severity == "error"]
        (insert,) = scripts.inserts
        where = f" WHERE {insert.predicate}" if insert.predicate else ""
        found = flink_sql(spark, f"SELECT {', '.join(insert.projections)} FROM nexmark_bid{where}").toArrow()
        expected = connection.execute(QUERIES[name].judged).to_arrow_table()
        assert found.num_rows == expected.num_rows > 0, name
        shown = [sorted(map(str, zip(*(item.to_pylist() for item in part.columns), strict=True))) for part in
                 (found.rename_columns(expected.column_names).cast(expected.schema), expected)]  # fmt: skip
        assert shown[0] == shown[1], name


@pytest.mark.parametrize("workers", [False, True])
def test_processing_time_windows_are_those_of_the_batch(
    workers: bool, spark: SparkSession, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No stage passes through Spark SQL; a later batch of the same ten seconds adds to the counts."""
    runner = SparkRunner(lambda: spark) if workers else LocalRunner()
    load = Load(tmp_path, _insert("q12", tables(KAFKA), folder), runner)
    assert not any(stage.needs_spark for stage in load.store.stages())
    monkeypatch.setattr(engine, "_FEW_ROWS", 200)
    parts = _parts(events(COUNT)["bid"], 3)
    begun, windows = 0, []
    for part, at in zip(parts, ("12:00:10.000", "12:00:19.999", "12:00:20.000"), strict=True):
        now = datetime.fromisoformat(f"2003-03-03T{at}+00:00")
        monkeypatch.setattr(engine, "now_in_milliseconds", partial(round, now.timestamp() * 1000))
        load.append("bid", part)
        load.advance()
        count = len(part["bidder"])
        window = f"TIMESTAMP '2003-03-03 {at[:-5]}0'"
        windows.append(f"SELECT bidder, {window} AS s FROM bid WHERE rowid BETWEEN {begun} AND {begun + count - 1}")
        begun += count
        rows = " UNION ALL ".join(windows)
        load.judge(f"SELECT bidder, COUNT(*), s, s + INTERVAL 10 SECOND FROM ({rows}) GROUP BY bidder, s")
