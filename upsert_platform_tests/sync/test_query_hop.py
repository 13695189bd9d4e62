"""Queries in sessions of Spark that know nothing yet: as each run of a job has one."""

from __future__ import annotations

import random
from pathlib import Path

from pyspark.sql import SparkSession

from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.query_hop import QueryHop
from upsert_platform_tests.engine.world import Kept, World, plan_query


def test_a_rebuild_computes_with_the_functions_of_flink(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(5))
    world.change("orders", 40)
    sql = "SELECT uid, MAX(JSON_VALUE('{\"a\": 1}', '$.a')) AS a, COUNT(*) AS n FROM orders GROUP BY uid"
    kept = Kept(world, plan_query(sql))
    hop = QueryHop(kept.store, {"orders": world.stores["orders"]}, run="test")

    def fresh() -> OnDemand:
        session = spark.newSession()
        return OnDemand(lambda: session, rows=0)

    assert hop.execute(fresh()).batches == 1
    before = sorted(map(str, hop.result(spark).collect()))
    rebuilt = hop.rebuild(fresh(), tell=lambda _: None)
    assert rebuilt is not None
    assert sorted(map(str, hop.result(spark).collect())) == before
    assert len(before) > 5
