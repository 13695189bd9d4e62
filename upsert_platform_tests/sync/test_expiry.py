"""Rows that a table lets go of after its time to live are not missed; younger ones are."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from upsert_platform.changelog.commit_times import last_batch_before
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.capabilities import ExpiresRows
from upsert_platform.core.model import Insert, SourceLocation
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.sync.binding import Target, changelog_of
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.reconcile import reconcile
from upsert_platform.sync.verify import check_batch, check_everything
from upsert_platform_tests.changelog.places import Placed
from upsert_platform_tests.kafka.tables import declare, read
from upsert_platform_tests.sync.test_replay_order import filled
from upsert_platform_tests.writing.in_memory import MemoryDestination, Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

DAY = 86_400
NOW = datetime(2026, 1, 1, tzinfo=UTC)
RECORDS = [Placed(batch, 0, 10 * batch + key, NOW, 10 * batch + key, "n") for batch in (1, 2, 3) for key in range(4)]
"""Four keys a batch: 10 to 13, 20 to 23, 30 to 33."""


class ExpiringDestination(MemoryDestination, ExpiresRows):
    def __init__(self, place: Place, seconds: int | None) -> None:
        super().__init__(place)
        self._seconds = seconds

    def time_to_live(self) -> int | None:
        return self._seconds


def made_older(store: ChangelogStore, batch: int, age: timedelta) -> None:
    """Sets the time of the commit of a batch back."""
    for path in Path(store.uri, "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        if not any(line.get("txn", {}).get("version") == batch for line in lines):
            continue
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] = int((datetime.now(UTC) - age).timestamp() * 1000)
        path.write_text("\n".join(map(json.dumps, lines)) + "\n", "utf-8")
        return
    raise AssertionError(f"batch {batch} has no commit")


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> ChangelogStore:
    """Batches that were committed three days, half a day and a moment ago."""
    source = TopicSource((table := declare()), read(table))
    filled(spark, source, tmp_path, RECORDS, set())
    found = changelog_of(source, Lake(str(tmp_path)))
    made_older(found, 1, timedelta(days=3))
    made_older(found, 2, timedelta(hours=12))
    return found


def hop_of(store: ChangelogStore, place: Place, seconds: int | None) -> DestinationHop:
    insert = Insert("users", "memory", ("`id`", "`name`"), None, "", SourceLocation("tables.sql", 1))
    source = TopicSource((table := declare()), read(table))
    target = Target(declare(), insert, source, None, None)  # type: ignore[arg-type]
    refused = RefusedStore(f"{store.uri}-refused")
    return DestinationHop(target, store, ExpiringDestination(place, seconds), refused=refused, run="run")


def test_rows_older_than_the_time_to_live_may_be_gone(spark: SparkSession, store: ChangelogStore) -> None:
    place = Place()
    hop = hop_of(store, place, DAY)
    assert hop.execute(OnDemand.dividing(spark), hop.plan()) is not None
    del place.rows[10]
    place.rows[11] = (11, None)
    found = check_everything(spark, hop, upto=3)
    assert (found.passed, found.compared, found.expired) == (True, 12, 1)
    assert check_batch(OnDemand.dividing(spark), hop, after=0, upto=3).passed
    place.rows[12] = (12, "other")
    del place.rows[20]
    place.rows[21] = (21, None)
    found = check_everything(spark, hop, upto=3)
    assert (found.missing, found.stale, found.expired) == (1, 2, 1)
    done = reconcile(spark, hop, dry_run=False)
    assert done.report is not None
    assert (done.report.upserts, done.last.passed, done.last.expired) == (3, True, 1)
    assert 10 not in place.rows
    del place.rows[13]
    assert check_everything(spark, hop_of(store, place, None), upto=3).missing == 2


def test_the_last_batch_before_a_moment(store: ChangelogStore) -> None:
    now = datetime.now(UTC)
    ages = (timedelta(days=4), timedelta(days=2), timedelta(hours=1), -timedelta(minutes=1))
    assert [last_batch_before(store, now - age) for age in ages] == [0, 1, 2, 3]
