"""The check of a large batch reads a table by splits, in tasks, and finds what was changed in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from odps.maxstorage.models.enums import SessionStats

from upsert_platform.core.capabilities import RowsByShare
from upsert_platform.maxcompute import read_back
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.maxstorage import told_rows
from upsert_platform.sync import verify
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.verify import check_batch
from upsert_platform_tests.changelog.places import Placed
from upsert_platform_tests.sync.test_one_task import append, hop_to, never
from upsert_platform_tests.writing.in_memory import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_large_batch_is_compared_by_the_tasks_that_read_the_table(
    spark: SparkSession, tmp_path: Path, opened: Callable[..., MaxComputeDestination], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_back, "MOST_PREDICATE_KEYS", 0)  # so that thirty rows are many
    destination = opened({"id": "INT", "name": "STRING"})
    in_memory = hop_to(Place(), tmp_path)
    hop = DestinationHop(in_memory.target, in_memory.store, destination, refused=in_memory.refused, run="run")
    append(hop.store, 1, [Placed(1, 0, key, None, key, f"old {key}") for key in range(50)])
    hop.execute(OnDemand(never), hop.plan())
    records = [Placed(2, 0, 100 + key, None, key, None if key < 5 else f"name {key}") for key in range(30)]
    append(hop.store, 2, records)
    hop.execute(OnDemand(never), hop.plan())
    assert isinstance(destination.reads_in_tasks(since=1, rows=30), RowsByShare)
    look = Mock(wraps=verify._compare)
    monkeypatch.setattr(verify, "_compare", look)
    found = check_batch(OnDemand.dividing(spark), hop, after=1, upto=2)
    assert (found.passed, found.compared, look.call_count) == (True, 50, 0)  # with all of the first batch as its sample
    target = destination.table.target.sql
    destination._client.run_sql(f"DELETE FROM {target} WHERE id IN (7, 8)")
    destination._client.run_sql(f"UPDATE {target} SET name = 'x' WHERE id IN (9, 40)")
    destination._client.run_sql(f"INSERT INTO {target} (id, name) VALUES (3, 'back'), (1000, 'of nobody')")
    found = check_batch(OnDemand.dividing(spark), hop, after=1, upto=2)
    assert (found.missing, found.stale, found.extra, look.call_count) == (2, 2, 1, 1)


@pytest.mark.parametrize(
    ("told", "rows"), [(7, 7), ("7", 7), (0, 0), (None, None), ("", None), (-1, None), ("many", None), (1.5, None)]
)
def test_rows_are_known_where_the_service_tells_a_number(told: object, rows: int | None) -> None:
    assert told_rows(SessionStats.from_dict({"EstimatedRowCount": told})) == rows


def test_rows_are_not_known_without_statistics() -> None:
    assert told_rows(None) is None
