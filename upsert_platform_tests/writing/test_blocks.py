"""Blocks of rows that a system refuses: every row comes once, in order, and those that are the reason by themselves."""

from __future__ import annotations

from collections.abc import Set

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.writing.blocks import by_halves


@settings(deadline=None)
@given(count=st.integers(1, 40), wrong=st.frozensets(st.integers(0, 39)))
def test_rows_that_are_refused_come_alone_and_all_others_are_taken(count: int, wrong: Set[int]) -> None:
    def take(batch: pa.RecordBatch) -> list[int]:
        rows: list[int] = batch.column("n").to_pylist()
        if found := wrong.intersection(rows):
            raise ValueError(f"refuses {sorted(found)}")
        return rows

    whole = pa.record_batch({"n": list(range(count))})
    found = [(part.column("n").to_pylist(), done) for part, done in by_halves(whole, take, _is_refusal)]
    assert [row for rows, _ in found for row in rows] == list(range(count))
    assert [rows for rows, done in found if isinstance(done, ValueError)] == [[n] for n in sorted(wrong) if n < count]
    assert all(done == rows for rows, done in found if not isinstance(done, ValueError))


def test_places_of_rows_are_divided_as_rows_are() -> None:
    def apply(places: range) -> None:
        if 5 in places:
            raise ValueError

    found = [(part, done is None) for part, done in by_halves(range(4, 12), apply, _is_refusal)]
    assert found == [(range(4, 5), True), (range(5, 6), False), (range(6, 8), True), (range(8, 12), True)]


def test_an_error_that_no_row_is_the_reason_of_ends_it() -> None:
    asked: list[int] = []

    def take(batch: pa.RecordBatch) -> None:
        asked.append(batch.num_rows)
        raise OSError("the server is gone")

    with pytest.raises(OSError, match="is gone"):
        list(by_halves(pa.record_batch({"n": [1, 2, 3, 4]}), take, _is_refusal))
    assert asked == [4]


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, ValueError)
