"""Commits beside batches: whatever comes first, the last commit has the positions of the last batch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.upkeep import (
    applied_before,
    note_applied,
    note_erased,
    prune_log,
    raise_floor,
    remove_unused,
    trim_log,
)
from upsert_platform_tests.changelog.test_kept_table import Writer
from upsert_platform_tests.kafka.tables import declare

BESIDE: dict[str, Callable[[ChangelogStore], object]] = {
    "note": lambda store: note_applied(store, "table", 2),
    "floor": lambda store: raise_floor(store, 2),
    "erased": lambda store: note_erased(store, 2),
    "times": lambda store: prune_log(store, hours=100),
    "trim": lambda store: trim_log(store, minutes=100),
    "unused": lambda store: remove_unused(store, hours=0),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_batch_that_comes_first_keeps_its_positions(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that the store is opened to be changed, another process commits a batch before that change."""
    place = str(tmp_path / "users")
    store, other = ChangelogStore(place, declare()), Writer(ChangelogStore(place, declare()))
    for _ in range(2):
        other.commit()
    Writer(store).merge()  # leaves files that nothing needs
    real, left = ChangelogStore.opened, [3]

    def overtaken(self: ChangelogStore) -> object:
        delta = real(self)
        if self is store and left[0]:
            left[0] -= 1
            other.commit()
        return delta

    with monkeypatch.context() as patched:
        patched.setattr(ChangelogStore, "opened", overtaken)
        BESIDE[name](store)
    assert left[0] < 3
    delta = store.opened()
    head = store.head()
    assert head is not None
    assert head.batch == delta.transaction_version(head.changelog_id) == 2 + 3 - left[0]
    assert head.positions.offsets == {"users": {0: head.batch + 1}}
    (last,) = delta.history(1)
    assert f'"batch":{head.batch}' in last["userMetadata"]
    old = time.time() - 100 * 3600
    for file in (tmp_path / "users" / "_delta_log").glob("*.json"):
        os.utime(file, (old, old))
    assert trim_log(store, minutes=1) > 0
    assert store.head() == head, "behind the pruned log too"
    if name == "note":
        assert applied_before(store, "table") == 2
        assert head.held["table"].commit == store.commit_of(2)
    if name in ("floor", "erased"):
        assert (head.floor, head.erased, head.needed) == ((2, 0, 2) if name == "floor" else (0, 2, 2))


def test_unused_files_are_deleted_without_a_commit(tmp_path: Path) -> None:
    writer = Writer(ChangelogStore(str(tmp_path / "users"), declare()))
    for _ in range(3):
        writer.commit()
    writer.merge()
    version = writer.store.opened().version()
    before = {path.name for path in (tmp_path / "users").glob("*.parquet")}
    live = {item.path for item in writer.store.files()}
    assert remove_unused(writer.store, hours=0) == len(before - live) > 0
    assert {path.name for path in (tmp_path / "users").glob("*.parquet")} == live
    assert writer.store.opened().version() == version
