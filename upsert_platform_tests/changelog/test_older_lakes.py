"""Lakes of earlier versions: a changelog whose compactions Spark's Delta Lake committed goes on as it is.

``lake_of_spark.tar.gz`` holds three batches (one with a quarantined record) that were reduced, two that were merged
with them, and a last one, as the version of 2026-11-21 wrote them.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from upsert_platform.changelog import compaction
from upsert_platform.changelog.quarantine import quarantined_records
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform_tests.changelog.test_store import commit, declared

ARCHIVE = Path(__file__).parent / "lake_of_spark.tar.gz"
KEPT = {(3, None), (1, "a2"), (2, None), (4, "d"), (5, "e"), (6, "f"), (7, "g")}


@pytest.fixture
def older(tmp_path: Path) -> ChangelogStore:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return ChangelogStore(str(tmp_path / "orders"), declared())


def values(spark: SparkSession, store: ChangelogStore, *, after: int = 0) -> list[tuple[int, int, str | None]]:
    head = store.head()
    assert head is not None
    found = store.read(spark, after=after, upto=head.batch).select("_batch", "id", "value").collect()
    return sorted(((row[0], row[1], row[2]) for row in found), key=str)


def test_it_is_read_and_written_on(spark: SparkSession, older: ChangelogStore) -> None:
    head = older.head()
    assert head is not None
    assert (head.batch, head.positions.offsets) == (6, {"orders": {0: 60}})
    assert values(spark, older, after=3) == [(4, 3, None), (4, 5, "e"), (5, 6, "f"), (6, 7, "g")]
    assert quarantined_records(older).num_rows == 1
    assert commit(spark, older, [(7, "g2")]).batch == 7
    assert values(spark, older, after=6) == [(7, 7, "g2")]


def test_it_is_reduced_and_merged_by_the_present_version(spark: SparkSession, older: ChangelogStore) -> None:
    compaction.reduce_history(spark, older, applied_everywhere=0)
    assert {(key, value) for _, key, value in values(spark, older)} == KEPT
    commit(spark, older, [(8, "h")])
    compaction.merge_files(spark, older)
    assert len(older.files()) == 1
    assert {(key, value) for _, key, value in values(spark, older)} == {*KEPT, (8, "h")}
    assert quarantined_records(older).num_rows == 1
