"""A store that keeps its table open sees what one that opens it anew sees, whatever others do to the table."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from upsert_platform.changelog import compaction, rows
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.head import Positions
from upsert_platform.changelog.kept_table import KeptTable
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.upkeep import applied_before, note_applied, prune_log, raise_floor, remove_unused
from upsert_platform_tests.kafka.tables import declare


@dataclass
class Writer:
    """Whoever else commits to a changelog."""

    store: ChangelogStore

    def commit(self) -> None:
        head = self.store.create()
        batch = head.batch + 1
        row = {rows.KIND: "+U", rows.TOPIC: "users", rows.PARTITION: 0, rows.OFFSET: batch, "id": batch}
        account = {rows.KIND: "#", rows.TOPIC: "users", rows.PARTITION: 0, rows.OFFSET: batch}
        account[rows.ACCOUNTING] = f'{{"batch": {batch}}}'
        schema = rows.arrow_schema(self.store.table)
        made = pa.RecordBatch.from_pylist([row, account], schema=schema)
        files = write_rows([made], location=self.store.location, schema=schema, batch=batch)
        after = Positions({"users": {0: batch + 1}}, {"users": "id"})
        assert self.store.append(files, head=head, positions=after, run="run") is not None

    def merge(self) -> None:
        compaction.merge_locally(self.store)

    def note(self) -> None:
        note_applied(self.store, "table", self.store.create().batch)

    def floor(self) -> None:
        raise_floor(self.store, self.store.create().batch)

    def prune(self) -> None:
        prune_log(self.store, hours=0)

    def vacuum(self) -> None:
        remove_unused(self.store, hours=0)


def told(store: ChangelogStore) -> object:
    head = store.head()
    upto = head.batch if head else 0
    first = max(0, upto - 2)
    return (
        head,
        sorted(item.path for item in store.files()),
        applied_before(store, "table"),
        [
            store.read_arrow([rows.BATCH, rows.ACCOUNTING], kind=kind, after=after, upto=upto)
            .sort_by(rows.BATCH)
            .to_pylist()
            for kind in ("#", "+U")
            for after in (0, first)
        ],
    )


@pytest.mark.parametrize("seed", range(3))
def test_it_sees_what_others_commit(tmp_path: Path, seed: int) -> None:
    place = str(tmp_path / "users")
    writer = Writer(ChangelogStore(place, declare()))
    kept = ChangelogStore(place, declare())
    kept.keep_open()
    chance = random.Random(seed)
    rare: list[Callable[[], None]] = [writer.merge, writer.note, writer.floor, writer.prune, writer.vacuum]
    assert kept.head() is None
    for _ in range(30):
        action = chance.choice(rare) if chance.random() < 0.4 else writer.commit
        action()
        if chance.random() < 0.7:
            assert told(kept) == told(ChangelogStore(place, declare())), action


def test_a_table_in_the_place_of_another_is_noticed(tmp_path: Path) -> None:
    """Its commits have the same numbers."""
    place = tmp_path / "users"
    kept = ChangelogStore(str(place), declare())
    kept.keep_open()
    found = []
    for _ in range(2):
        Writer(ChangelogStore(str(place), declare())).commit()
        head = kept.head()
        assert head is not None
        found.append(head.changelog_id)
        shutil.rmtree(place)
        assert kept.head() is None
    assert found[0] != found[1]
    Writer(ChangelogStore(str(place), declare())).commit()
    before = kept.head()
    shutil.rmtree(place)
    Writer(ChangelogStore(str(place), declare())).commit()
    assert kept.head() != before


def test_it_is_opened_anew_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upsert_platform.changelog.kept_table._UPDATES", 3)
    writer = Writer(ChangelogStore(str(tmp_path / "users"), declare()))
    writer.commit()
    kept = KeptTable(writer.store.location)
    handles = [kept.table() for _ in range(9)]
    assert len({id(handle) for handle in handles}) == 3


def test_a_look_shows_one_version_until_the_next_one_begins(tmp_path: Path) -> None:
    place = str(tmp_path / "users")
    writer, looked = Writer(ChangelogStore(place, declare())), ChangelogStore(place, declare())
    writer.commit()
    looked.begin_look()
    first = told(looked)
    writer.commit()
    assert told(looked) == first
    looked.begin_look()
    assert told(looked) == told(ChangelogStore(place, declare())) != first
