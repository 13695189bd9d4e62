"""Proofs of a table that is written at 5,000 records a second: no row that is right is named in 50 of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.proofs.copying import prove_while_written

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


def test_fifty_proofs_name_no_row_that_is_right(
    stack: Stack,
    spark: SparkSession,
    make_topic: Callable[..., str],
    scale: float,
    record_property: Callable[[str, object], None],
) -> None:
    runs = max(2, round(50 * scale))
    alarms, rate = prove_while_written(stack, spark, make_topic, runs=runs)
    record_property("records a second", round(rate))
    assert not alarms
    assert rate >= 4500, "the machine was too slow to tell"
