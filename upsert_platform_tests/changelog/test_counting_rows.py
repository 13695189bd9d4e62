"""Files are read by a task each where few keys come more than once, and give just the rows that count."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from upsert_platform.changelog import counting_rows, latest_in_tasks, rows
from upsert_platform.changelog.counting_rows import Drawn
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.latest_in_tasks import SpanReduction, SpanRows, reduction_in_tasks
from upsert_platform.changelog.rows import PARTITIONS_MET
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform_tests.changelog.places import Placed, last_values, random_records
from upsert_platform_tests.changelog.test_latest import row_of
from upsert_platform_tests.changelog.test_store import declared

AGAIN = random_records(random.Random(6), keys=40, batches=3, partitions=3, each=50)
ONCE = [Placed(1 + key % 3, key % 4, 100_000 + key, None, key, f"once {key}") for key in range(1000, 3000)]
"""Beside many records of few keys, one of each of many."""


@pytest.fixture
def store(tmp_path: Path) -> ChangelogStore:
    """A changelog of three batches, each of four files, in which records stand as they come."""
    found = ChangelogStore(str(tmp_path / "orders"), declared())
    schema = rows.arrow_schema(found.table)
    for batch in (1, 2, 3):
        head, files = found.create(), []
        records = [item for item in (*AGAIN, *ONCE) if item.batch == batch]
        random.Random(batch).shuffle(records)
        for part in range(4):
            made = [
                pa.RecordBatch.from_pylist(
                    [row_of(item) for item in records[part::4][start : start + 60]], schema=schema
                )
                for start in range(0, len(records), 60)
            ]
            files += write_rows(made, location=found.location, schema=schema, batch=batch)
        assert found.append(files, head=head, positions=head.positions, run="run") is not None
    return found


def reduction(
    store: ChangelogStore, monkeypatch: pytest.MonkeyPatch, *, after: int, upto: int, drawn: Drawn | None = None
) -> SpanReduction:
    monkeypatch.setattr(latest_in_tasks, "_WORTHWHILE_ROWS", 1)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=3))
    span = reduction_in_tasks(spark, store, after=after, upto=upto, key=["id"], columns=["value"], drawn=drawn)
    assert span is not None
    assert span.shares
    return span


def given(task: SpanReduction | SpanRows, numbers: Sequence[int]) -> list[dict[str, Any]]:
    return [row for part in task(iter([pa.record_batch({"id": pa.array(numbers)})])) for row in part.to_pylist()]


def told(rows_given: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["value"] or "", row["_seq"], row[PARTITIONS_MET]) for row in rows_given)


def wanted(records: Sequence[Placed]) -> list[tuple[Any, ...]]:
    places: dict[int, set[int]] = defaultdict(set)
    for item in records:
        places[item.key].add(item.partition)
    return sorted(
        (key, value or "", max(item.batch for item in records if item.key == key), min(len(places[key]), 2))
        for key, value in last_values(records).items()
    )


@pytest.mark.parametrize(("after", "upto"), [(0, 3), (1, 3), (2, 3), (0, 1)])
def test_few_keys_that_come_again_give_the_row_that_counts(
    store: ChangelogStore, monkeypatch: pytest.MonkeyPatch, after: int, upto: int
) -> None:
    span = reduction(store, monkeypatch, after=after, upto=upto)
    monkeypatch.setattr(
        "upsert_platform.changelog.last_rows.last_rows", None
    )  # which reduces where many keys come again
    records = [item for item in (*AGAIN, *ONCE) if after < item.batch <= upto]
    assert told(given(span, range(span.tasks))) == wanted(records)
    for number in range(span.tasks):
        paths = set(span.shares[number])
        assert len(paths) < len(span.paths)
        assert len(given(span, [number])) < len(records)


def test_keys_of_one_hash_are_still_two(store: ChangelogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    once = {item.key for item in ONCE[:100]}

    def hashes(batch: pa.RecordBatch, key: Sequence[str]) -> Any:
        return np.array([7 if item in once else item + 100 for item in batch.column("id").to_pylist()], np.uint64)

    monkeypatch.setattr(counting_rows, "key_hashes", hashes)
    span = reduction(store, monkeypatch, after=0, upto=3)
    assert told(given(span, range(span.tasks))) == wanted([*AGAIN, *ONCE])


def test_of_earlier_batches_only_drawn_keys_count(store: ChangelogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [*AGAIN, *ONCE]
    last = {item.key for item in records if item.batch == 3}
    every = {row[0]: row for row in wanted(records)}
    drawn_keys = []
    for few in (1.0, 0.0):  # by files and by keys
        monkeypatch.setattr(counting_rows, "_FEW", few)
        span = reduction(store, monkeypatch, after=0, upto=3, drawn=Drawn(2, 10))
        found = told(given(span, range(span.tasks)))
        keys = {row[0] for row in found}
        assert len(keys) == len(found)
        assert last < keys
        assert [row[:3] for row in found] == [every[row[0]][:3] for row in found]
        assert 60 < len(keys - last) < 220  # about one in ten of those before
        drawn_keys.append(keys)
        assert {row["id"] for row in given(SpanRows(span, ("id",)), [0])} == keys
    assert drawn_keys[0] == drawn_keys[1]
    again = reduction(store, monkeypatch, after=0, upto=3, drawn=Drawn(1, 10))
    assert {row["id"] for row in given(again, range(again.tasks))} - drawn_keys[0]
