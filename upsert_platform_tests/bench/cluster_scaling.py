"""Topic to changelog on a standalone cluster of this machine, with one worker of one core, and with two."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from upsert_platform.local.kafka import start_broker
from upsert_platform_tests.bench.changelog import fill, read_all, source_of
from upsert_platform_tests.bench.measure import row
from upsert_platform_tests.systems.spark_cluster import SparkCluster

RECORDS = 1_000_000
KEYS = 250_000
REPEATS = 2


def run(*, records: int = RECORDS, keys: int = KEYS) -> Iterator[dict[str, Any]]:
    """Measures `cluster_scaling`: how much of a second core's work arrives.

    Broker, driver and workers are on this machine: with no more cores than workers, they take from each other.
    """
    from upsert_platform.spark.session import open_session

    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    with (
        tempfile.TemporaryDirectory() as made,
        start_broker(Path(made) / "kafka", die_with_parent=True) as broker,
        SparkCluster(Path(made) / "cluster", Path(spec.origin).parent, os.environ) as cluster,
    ):
        servers, lake = broker.bootstrap_servers, Path(made) / "lake"
        warm, topic = fill(servers, records=20_000, keys=5_000), fill(servers, records=records, keys=keys)
        rates: dict[int, float] = {}
        for cores in (1, 2):
            settings = {
                "spark.master": cluster.url,
                "spark.cores.max": str(cores),
                "spark.executor.cores": "1",
                "spark.executor.memory": "800m",
            }
            spark = open_session(settings)
            try:
                read_all(spark, source_of(servers, warm), lake)
                best = min((read_all(spark, source_of(servers, topic), lake) for _ in range(REPEATS)), key=_seconds)
            finally:
                spark.stop()
            assert best.account.records == records
            rates[cores] = records / best.seconds
            yield row(
                "cluster_scaling",
                rows=records,
                seconds=best.seconds,
                cores=cores,
                rows_per_s_and_core=round(rates[cores] / cores),
                share_lost=round(1 - rates[cores] / (cores * rates[1]), 3),
                cores_of_machine=os.cpu_count(),
            )


def _seconds(done: Any) -> float:
    return float(done.seconds)
