"""Topic to changelog: speed against bare consumers, and memory against the length of the topic."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upsert_platform.changelog.lake import Lake
from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.types import parse_type
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.kafka.table import read_kafka_table
from upsert_platform.local.kafka import start_broker
from upsert_platform.sync.binding import changelog_of
from upsert_platform.sync.changelog_hop import ChangelogHop, ChangelogRun
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform_tests.bench.kafka import bare_consumers_rate, create_topic, produce_json_users
from upsert_platform_tests.bench.measure import row, watch_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 2_000_000
KEYS = 500_000
PARTITIONS = 4
COLUMNS = {
    "id": "BIGINT",
    "name": "STRING",
    "email": "STRING",
    "score": "DECIMAL(10, 2)",
    "updated": "BIGINT",
}


def source_of(servers: str, topic: str, **options: str) -> TopicSource:
    """A declared table over a topic of bench records."""
    table = Table(
        topic.replace("-", "_"),
        tuple(Column(name, parse_type(kind)) for name, kind in COLUMNS.items()),
        ("id",),
        Options(
            {
                "connector": "upsert-kafka",
                "topic": topic,
                "properties.bootstrap.servers": servers,
                "key.format": "json",
                "value.format": "json",
                **options,
            }
        ),
        SourceLocation("bench.sql", 1),
    )
    kafka, problems = read_kafka_table(table)
    assert kafka is not None, problems
    return TopicSource(table, kafka)


def fill(servers: str, *, records: int, keys: int) -> str:
    """A new topic with bench records."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    create_topic(servers, topic, partitions=PARTITIONS)
    produce_json_users(servers, topic, records=records, keys=keys)
    return topic


def read_all(spark: SparkSession, source: TopicSource, lake: Path) -> ChangelogRun:
    """Everything in the topic, committed."""
    hop = ChangelogHop(source, changelog_of(source, Lake(str(lake / uuid.uuid4().hex))), run="bench")
    return hop.execute(OnDemand.dividing(spark), hop.plan())


def run(*, records: int = RECORDS, keys: int = KEYS) -> Iterator[dict[str, Any]]:
    """Measures `topic_to_changelog` and `reader_memory`."""
    from upsert_platform.spark.session import open_session

    with tempfile.TemporaryDirectory() as folder, start_broker(Path(folder) / "kafka", die_with_parent=True) as broker:
        lake = Path(folder) / "lake"
        servers = broker.bootstrap_servers
        spark = open_session()
        try:
            read_all(spark, source_of(servers, fill(servers, records=20_000, keys=5_000)), lake)
            topic = fill(servers, records=records, keys=keys)
            bare = []
            ours = []
            # In turn, so that both see the same machine; the best of each is compared.
            for _ in range(3):
                count, seconds = bare_consumers_rate(servers, topic)
                bare.append(count / seconds)
                with watch_memory() as peak:
                    done = read_all(spark, source_of(servers, topic), lake)
                assert done.account.records == count == records
                ours.append((done.seconds, peak))
            seconds, peak = min(ours, key=lambda item: item[0])
            yield row(
                "topic_to_changelog",
                rows=records,
                seconds=seconds,
                memory=peak,
                ratio=records / seconds / max(bare),
                ratio_to="bare consumer processes",
                goal=">= 0.2 (aim 0.3)",
                bare_rows_per_s=round(max(bare)),
            )
            yield from _memory(spark, servers, lake, records=records, keys=keys)
        finally:
            spark.stop()


def _memory(spark: SparkSession, servers: str, lake: Path, *, records: int, keys: int) -> Iterator[dict[str, Any]]:
    peaks = {}
    for times in (1, 4):
        topic = fill(servers, records=records * times, keys=keys)
        options = {"batch.max-records": str(records * times), "batch.max-bytes": "16 gb"}
        restart_workers(spark)
        with watch_memory() as peak:
            done = read_all(spark, source_of(servers, topic, **options), lake)
        assert done.batches == 1
        peaks[times] = (peak, done)
    small, large = peaks[1], peaks[4]
    yield row(
        "reader_memory",
        rows=records * 4,
        seconds=large[1].seconds,
        memory=large[0].workers,
        ratio=large[0].workers / small[0].workers,
        ratio_to=f"Python workers over {records} records",
        goal="<= 1.2",
        small_memory_mb=round(small[0].workers),
    )


def restart_workers(spark: SparkSession) -> None:
    """Ends idle Python workers: what an earlier read left in them must not count."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        try:
            if "pyspark.daemon" in " ".join(child.cmdline()) and child.ppid() != psutil.Process().pid:
                for worker in child.children():
                    worker.kill()
        except psutil.Error:
            continue
    spark.range(1).collect()
