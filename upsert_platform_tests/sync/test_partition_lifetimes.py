"""Which rows may be gone with a partition that nobody wrote for long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from upsert_platform.core.capabilities import PartitionLifetimes
from upsert_platform.sync import partition_lifetimes

DAY = 86_400
NOW = datetime(2026, 11, 27, 10, 30, tzinfo=UTC)


def test_rows_are_gone_where_the_partition_is_or_was_made_anew_long_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch a day, the hundredth of today; partitions live for 30 days."""

    def last_batches_before(store: object, moments: Sequence[datetime], *, as_noted: bool) -> list[int]:
        assert as_noted
        return [max(0, 99 - (NOW - moment) // timedelta(days=1)) for moment in moments]

    monkeypatch.setattr(partition_lifetimes, "last_batches_before", last_batches_before)

    def ago(days: float) -> float:
        return NOW.timestamp() - days * DAY

    store: Any = None
    made = {"ds=old": ago(90.5), "ds=anew": ago(10.5), "ds=first": ago(400)}
    absent, present = partition_lifetimes.gone_upto(store, PartitionLifetimes(30 * DAY, made), now=NOW)
    assert absent == 70, "30 days, but for the hour that reading takes"
    # One that was made 10 days ago may have been gone for what was written 40 days ago or before.
    assert present == {"ds=old": 0, "ds=anew": 59, "ds=first": 0}
    # Nothing is gone of a table that was made anew 20 days ago, and filled with rows of a hundred days.
    since = ago(20)
    lately = partition_lifetimes.gone_upto(store, PartitionLifetimes(30 * DAY, made, since), now=NOW)
    assert lately == (0, dict.fromkeys(made, 0))
    # One that was made 35 days ago may have lost, by now, what was written into it in the first five.
    since = ago(35)
    absent, present = partition_lifetimes.gone_upto(store, PartitionLifetimes(30 * DAY, made, since), now=NOW)
    assert (absent, present) == (70, dict.fromkeys(made, 0))
