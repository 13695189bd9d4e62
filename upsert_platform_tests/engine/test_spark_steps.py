"""Expressions that Spark alone evaluates as Flink does: rows pass through it with all that operators need of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from upsert_platform.engine.runners import LocalRunner
from upsert_platform.sql.evaluation import prepared
from upsert_platform_tests.engine.world import Kept, World, plan_query, same_rows

WINDOW = "FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' MINUTES))"
BUCKETS = "FROM (SELECT *, time_bucket(INTERVAL 10 MINUTE, ts) AS window_start FROM orders WHERE ts IS NOT NULL) t"
NEXT_MONTH, MINUTES = "TIMESTAMPADD(MONTH, uid % 3, ts)", "TIMESTAMPDIFF(MINUTE, TIMESTAMP '2024-05-01 00:00:00', ts)"
IN_DUCKDB = {
    WINDOW: BUCKETS,
    NEXT_MONTH: "ts + TO_MONTHS(CAST(uid % 3 AS INT))",
    MINUTES: "DATE_DIFF('minute', TIMESTAMP '2024-05-01 00:00:00', ts)",
}
PAGE, KIND, SMALL = "REPEAT(UPPER(page), 1)", "REPEAT(UPPER(kind), 1)", "REPEAT(LOWER(kind), 1)"
STATEMENTS = {
    "rows that are only added": f"SELECT {PAGE} AS p, COUNT(*) AS n FROM views GROUP BY {PAGE}",
    "upserts": f"SELECT {KIND} AS k, uid, COUNT(*) AS n, SUM(amount) AS s FROM orders WHERE {KIND} <> 'B'"
    f" GROUP BY {KIND}, uid",
    "groupings": f"SELECT {KIND} AS k, GROUPING({KIND}) AS g, COUNT(*) AS n FROM orders GROUP BY CUBE"
    f" ({KIND}) HAVING COUNT(*) > 0",
    "windows": f"SELECT window_start, {SMALL} AS k, COUNT(*) AS n {WINDOW} GROUP BY window_start, {SMALL}",
    "a join": "SELECT o.oid, REPEAT(UPPER(u.region), 1) AS r FROM orders o JOIN users u ON o.uid = u.id WHERE"
    " REPEAT(LOWER(u.region), 1) <> 'us'",
    "times": f"SELECT {NEXT_MONTH} AS d, COUNT(*) AS n, MAX({MINUTES}) AS m FROM orders WHERE {MINUTES} > 9"
    f" GROUP BY {NEXT_MONTH}",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_steps_in_spark_give_what_a_computation_from_nothing_gives(
    name: str, tmp_path: Path, spark: SparkSession
) -> None:
    sql = STATEMENTS[name]
    world = World(tmp_path, random.Random(name))
    kept = Kept(world, plan_query(sql), runner=LocalRunner(lambda: prepared(spark)))
    for _ in range(2):
        for table in kept.query.tables:
            world.change(table, 20)
        kept.advance()
        asked = sql
        for text, other in IN_DUCKDB.items():
            asked = asked.replace(text, other)
        assert same_rows(kept.result(), world.judge(asked))
