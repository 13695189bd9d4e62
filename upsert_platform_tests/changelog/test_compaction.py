"""Compaction: what is worth doing, what it notes for readers, what it leaves behind, and what it meets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.changelog import compaction
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.upkeep import raise_floor, reduced_upto, remove_unused
from upsert_platform.core.errors import ChangelogError
from upsert_platform_tests.changelog.test_store import commit, declared, snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(tmp_path: Path) -> ChangelogStore:
    return ChangelogStore(str(tmp_path / "orders"), declared())


def test_compaction_is_worthwhile_once_per_batch_and_floor(spark: SparkSession, store: ChangelogStore) -> None:
    assert not compaction.is_worthwhile(store, applied_everywhere=0)
    commit(spark, store, [(2, "b"), (1, None)])
    assert compaction.is_worthwhile(store, applied_everywhere=0)
    assert compaction.compact(spark, store, applied_everywhere=0).rows_after == 2
    assert reduced_upto(store) == 1
    assert not compaction.is_worthwhile(store, applied_everywhere=0)
    assert compaction.is_worthwhile(store, applied_everywhere=1)
    assert compaction.compact(spark, store, applied_everywhere=1).rows_after == 1
    head = store.head()
    assert head is not None
    assert (head.batch, head.floor) == (1, 1)
    raise_floor(store, 0)
    assert store.head() == head
    assert remove_unused(store, hours=1) == 0
    before = set(Path(store.uri).glob("*.parquet"))
    removed = remove_unused(store, hours=0)
    assert 0 < removed == len(before - set(Path(store.uri).glob("*.parquet")))
    assert snapshot(spark, store) == {2: "b"}
    after = commit(spark, store, [(3, "c")])
    assert (after.batch, after.floor, after.positions.offsets) == (2, 1, {"orders": {0: 20}})
    assert sorted(store.accounts(after=0, upto=2)) == [1, 2]


def test_what_a_table_holds_that_lags_can_still_be_told(spark: SparkSession, store: ChangelogStore) -> None:
    """A table is compared with the last value per key up to the batch that it has applied, not up to the head."""
    told: list[dict[int, str | None]] = [{}]
    for changes in ([(1, "a"), (2, "b"), (3, "c")], [(1, "a2"), (2, None)], [(1, "a3"), (2, "b3")], [(3, None)]):
        commit(spark, store, changes)
        told.append({**told[-1], **dict(changes)})
    report = compaction.compact(spark, store, applied_everywhere=1, applied={1, 2})
    assert (report.rows_before, report.rows_after) == (8, 3 + 2 + 3)
    report = compaction.compact(spark, store, applied_everywhere=2, applied={3, 2, 1})
    for upto in (2, 3, 4):
        held = {key: value for key, value in snapshot(spark, store, upto=upto).items() if value is not None}
        assert held == {key: value for key, value in told[upto].items() if value is not None}, upto
    assert snapshot(spark, store, after=2, upto=3) == {1: "a3", 2: "b3"}
    assert compaction.compact(spark, store, applied_everywhere=4, applied={4}).rows_after == 2
    assert snapshot(spark, store) == {1: "a3", 2: "b3"}


def test_rows_behind_the_batch_that_history_is_reduced_to_stay(spark: SparkSession, store: ChangelogStore) -> None:
    """A table that is being written comes to hold one of those batches, and is compared with what was told up to it."""
    told: list[dict[int, str | None]] = [{}]
    for changes in ([(1, "a"), (2, "b")], [(1, "a2"), (2, None)], [(1, "a3"), (3, "c")], [(1, "a4"), (3, None)]):
        commit(spark, store, changes)
        told.append({**told[-1], **dict(changes)})
    assert compaction.merge_locally(store)  # rows of all batches stand in one file
    report = compaction.compact(spark, store, applied_everywhere=4, applied={4}, upto=2)
    assert (report.rows_before, report.rows_after) == (8, 1 + 4)
    for upto in (2, 3, 4):
        held = {key: value for key, value in snapshot(spark, store, upto=upto).items() if value is not None}
        assert held == {key: value for key, value in told[upto].items() if value is not None}, upto
    head = store.head()
    assert head is not None
    assert (head.floor, reduced_upto(store)) == (2, 2)
    assert not compaction.is_worthwhile(store, applied_everywhere=4, upto=2)
    assert compaction.is_worthwhile(store, applied_everywhere=4, upto=3)
    assert compaction.is_worthwhile(store, applied_everywhere=4)


def test_append_changelog_has_its_files_merged_and_every_row_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ChangelogStore(str(tmp_path / "orders"), declared(), mode="append")
    commit(spark, store, [(1, "a")])
    commit(spark, store, [(1, "b")])
    assert not compaction.is_worthwhile(store, applied_everywhere=2)
    monkeypatch.setattr(compaction, "FEW_FILES", 2)
    assert compaction.is_worthwhile(store, applied_everywhere=2)
    report = compaction.compact(spark, store, applied_everywhere=2)
    assert (report.files_after, report.rows_before, report.rows_after) == (1, 2, 2)


def test_batch_committed_meanwhile_is_kept_and_another_compaction_is_not_undone(
    spark: SparkSession, store: ChangelogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(spark, store, [(1, "a"), (2, "b")])
    commit(spark, store, [(1, "c")])
    real = ChangelogStore.commit_metadata
    met: list[str] = []

    def meanwhile(self: ChangelogStore, delta: Any, **more: Any) -> str:
        """Runs after the compaction has read the table and before it commits."""
        told = real(self, delta, **more)
        if more.get("reduced") and not met:
            met.append("append")
            commit(spark, store, [(2, None), (4, "d")])
        return told

    with monkeypatch.context() as patched:
        patched.setattr(ChangelogStore, "commit_metadata", meanwhile)
        assert compaction.compact(spark, store, applied_everywhere=1).rows_after == 2
    assert met
    head = store.head()
    assert head is not None
    assert (head.batch, head.positions.offsets) == (3, {"orders": {0: 30}})
    assert snapshot(spark, store) == {1: "c", 2: None, 4: "d"}
    assert snapshot(spark, store, after=2) == {2: None, 4: "d"}


def test_a_record_that_is_quarantined_meanwhile_brings_no_deleted_key_back(
    spark: SparkSession, store: ChangelogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key 1 was written in partition 0 and deleted in partition 1; meanwhile a sync sets a record aside."""
    commit(spark, store, [(1, "a"), (2, "b")])
    commit(spark, store, [(1, None)], partition=1)
    real, met = raise_floor, []

    def meanwhile(*args: Any, **more: Any) -> None:
        met.append(commit(spark, store, [(3, "c")], quarantined=1))
        real(*args, **more)

    monkeypatch.setattr(compaction, "raise_floor", meanwhile)
    compaction.compact(spark, store, applied_everywhere=2)
    assert [head.batch for head in met] == [3]
    held = {key: value for key, value in snapshot(spark, store).items() if value is not None}
    assert held == {2: "b", 3: "c"}


def test_what_another_compaction_replaced_is_left_to_it(
    spark: SparkSession, store: ChangelogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        commit(spark, store, [(number, "a")])
    write = store.write

    def late(*args: Any, **more: Any) -> Any:
        files = write(*args, **more)
        monkeypatch.undo()
        compaction.merge_files(spark, store)
        return files

    monkeypatch.setattr(store, "write", late)
    with pytest.raises(ChangelogError, match="another run rewrote files of the changelog of 'orders'"):
        compaction.reduce_history(spark, store, applied_everywhere=0)
    assert len(store.files()) == 1
    assert store.read(spark, after=0, upto=3).count() == 3
