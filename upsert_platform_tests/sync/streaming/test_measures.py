"""Delays by classes, and what is told of an interval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from upsert_platform.sync.streaming.measures import DELAY_BOUNDS, Histogram, Measures
from upsert_platform.sync.streaming.reports import Reporter


def test_quantiles_are_ends_of_classes() -> None:
    measures = Measures("users", "table")
    assert measures.read().delays.quantile(0.5) is None
    measures.add(delays=[np.array([-0.5, 0.05, 0.2, 0.2, 4.0])])
    measures.add(delays=[np.array([10_000.0])])
    delays = measures.read().delays
    assert (delays.count, delays.greatest, delays.counts[0], delays.counts[-1]) == (6, 10_000.0, 2, 1)
    assert [delays.quantile(part) for part in (0.3, 0.5, 0.8, 1.0)] == [0.1, 0.25, 5.0, 10_000.0]
    assert delays.since(Histogram()).counts == delays.counts
    assert len(delays.counts) == len(DELAY_BOUNDS) + 1


def test_whoever_reads_while_a_batch_is_counted_finds_all_of_it_or_nothing() -> None:
    users, seen = Measures("users", "table"), []

    def delays() -> Iterator[Any]:
        for _ in range(2):
            seen.append(users.read())
            yield np.full(3, 0.2)

    users.add(batches=1, records=6, delays=delays())
    assert [(numbers.batches, numbers.records, numbers.delays.count) for numbers in seen] == [(0, 0, 0)] * 2
    found = users.read()
    assert (found.batches, found.records, found.delays.count) == (1, 6, 6)


def test_a_batch_is_counted_where_its_delays_cannot_be_told() -> None:
    users = Measures("users", "table")

    def delays() -> Iterator[Any]:
        yield np.full(2, 0.2)
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="gone"):
        users.add(batches=1, records=6, delays=delays())
    found = users.read()
    assert (found.batches, found.records, found.delays.count) == (1, 6, 2)


def test_a_batch_ends_the_failure_before_it() -> None:
    users = Measures("users", "table")
    users.set(error="another run holds the lease")
    users.add(retries=1)
    assert users.read().error
    users.add(batches=1, records=6)
    assert users.read().error == ""
    assert "failing" not in Reporter().reports({"table users": users.read()})[0].line()


def test_a_report_tells_what_came_since_the_one_before() -> None:
    users, reporter = Measures("users", "table"), Reporter()
    users.add(batches=2, records=30, delays=[np.full(10, 0.2), np.full(20, 0.2)])
    first = reporter.reports({"table users": users.read()})[0]
    assert (first.batches, first.records, first.delays.count, first.checked) == (2, 30, 30, False)
    users.add(batches=1, records=5, retries=1, checks=1, delays=[np.full(5, 4.0)])
    users.set(lag=3, passed=False, compared=5, error="the table is gone")
    second = reporter.reports({"table users": users.read()})[0]
    assert (second.batches, second.records, second.retries, second.delays.count, second.checked) == (1, 5, 1, 5, True)
    told = second.line()
    for part in (
        ", 1 batch, ",
        "p95 4 s",
        "3 batches behind",
        "1 retries",
        "of 5 keys FAILED",
        "failing: the table is gone",
    ):
        assert part in told
    assert "p50 0.2 s" in first.line()
    anew = Measures("users", "table")  # a worker that was made anew by another declaration
    anew.add(batches=1, records=7)
    assert reporter.reports({"table users": anew.read()})[0].records == 7
