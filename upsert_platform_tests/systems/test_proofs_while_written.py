"""A proof of a table that is written names no row that is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.proofs.copying import prove_while_written

pytestmark = [pytest.mark.systems, pytest.mark.timeout(900)]


@pytest.mark.soak
def test_no_row_is_named_while_both_topics_are_written(
    stack: Stack, spark: SparkSession, make_topic: Callable[..., str]
) -> None:
    alarms, rate = prove_while_written(stack, spark, make_topic, runs=2)
    assert not alarms
    assert rate > 1000
