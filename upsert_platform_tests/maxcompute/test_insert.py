"""Mode `insert`: rows are appended once, whatever is replayed (section 2.8, catalogue 6.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from upsert_platform.errors import DestinationError
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.frames import stored, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Opened = Callable[..., MaxComputeDestination]


def test_52_duplicates_are_kept_and_replays_are_not(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened({"name": "STRING", "n": "INT"}, key=())
    rows = [("U", (name, n)) for name, n in [("Bob", 1), ("Tom", 22), ("Kim", 42), ("Kim", 42), ("Bob", 1)]]
    assert write(spark, destination, 1, rows).upserts == 5
    assert write(spark, destination, 2, rows).upserts == 5
    assert write(spark, destination, 2, rows).metrics == {"already_applied": 1}
    assert len(stored(maxcompute, destination.table)) == 10
    assert destination.primary_key == ()
    assert destination.read(spark).count() == 10


def test_a_span_that_overlaps_is_refused_rather_than_doubled(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened({"n": "INT"}, key=())
    write(spark, destination, 1, [("U", (1,))])
    with pytest.raises(DestinationError, match="Nothing was written; run again"):
        write(spark, destination, 2, [("U", (1,)), ("U", (2,))], after=0)
    assert stored(maxcompute, destination.table) == [(1,)]


def test_a_delete_cannot_be_appended(spark: SparkSession, maxcompute: ServerHandle, opened: Opened) -> None:
    destination = opened({"n": "INT"}, key=())
    report = write(spark, destination, 1, [("U", (1,)), ("D", (2,))])
    assert (report.upserts, report.refused_count) == (1, 1)
    assert "cannot be appended" in report.refused[0].reason
    assert stored(maxcompute, destination.table) == [(1,)]
