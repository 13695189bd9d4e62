"""A changelog that is committed to every second: its log and its files stay few, and nothing that counts is lost."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from upsert_platform.changelog import compaction, rows
from upsert_platform.changelog.accounting import OffsetRange
from upsert_platform.changelog.commit_times import TIMES_PROPERTY, last_batch_before
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.head import Positions
from upsert_platform.changelog.live_files import LiveFile
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.upkeep import (
    applied_before,
    note_applied,
    note_times,
    prune_log,
    remove_unused,
    trim_log,
)
from upsert_platform.sync.changelog_hop import ChangelogHop, ChangelogPlan
from upsert_platform.sync.streaming import upkeep
from upsert_platform_tests.kafka.tables import declare

pytestmark = pytest.mark.whole_runs


def commit(store: ChangelogStore, batch: int, *, rows_of_batch: int = 1) -> None:
    schema = rows.arrow_schema(store.table)
    row = {rows.KIND: rows.KIND_UPDATE_AFTER, rows.TOPIC: "users", rows.PARTITION: 0, rows.OFFSET: batch, "id": batch}
    given = [{**row, "id": batch + number, "name": uuid.uuid4().hex} for number in range(rows_of_batch)]
    found = [pa.RecordBatch.from_pylist(given, schema=schema)]
    head = store.create()
    files = write_rows(found, location=store.location, schema=schema, batch=batch)
    after = store.append(files, head=head, positions=Positions({"users": {0: batch + 1}}, {}), run="run")
    assert after is not None
    note_applied(store, "table", batch)


def test_old_log_entries_go_and_the_position_stays(tmp_path: Path) -> None:
    store = ChangelogStore(str(tmp_path / "users"), declare())
    for batch in range(1, 26):
        commit(store, batch)
    log = tmp_path / "users" / "_delta_log"
    long_ago = time.time() - 5 * 3600
    for file in log.iterdir():
        os.utime(file, (long_ago, long_ago))
    before = len(list(log.glob("*.json")))
    prune_log(store, hours=2)
    commit(store, 26)
    assert before > 50
    assert len(list(log.glob("*.json"))) < 10
    head = store.head()
    assert head is not None
    assert (head.batch, head.positions.offsets, applied_before(store, "table")) == (26, {"users": {0: 27}}, 26)
    assert len(store.files()) == 26
    kept = ChangelogStore(str(tmp_path / "users"), declare())
    kept.keep_open()
    assert kept.head() == head
    for batch in range(27, 47):
        commit(store, batch)
    for file in sorted(log.glob("*.json"))[:-5]:
        os.utime(file, (long_ago, long_ago))
    assert trim_log(store, minutes=15) > 30
    assert 5 <= len(list(log.glob("*.json"))) <= 7
    for looks in (store, kept, ChangelogStore(str(tmp_path / "users"), declare())):
        found = looks.head()
        assert found is not None
        assert (found.batch, found.positions.offsets, applied_before(looks, "table")) == (46, {"users": {0: 47}}, 46)
        assert len(looks.files()) == 46
    commit(store, 47)
    assert trim_log(store, minutes=15) == 0
    prune_log(store, hours=2)  # young entries stay: a process that began a while ago still reads them
    assert len(list(log.glob("*.json"))) > 2


@pytest.mark.parametrize("shorten", [partial(prune_log, hours=2), partial(trim_log, minutes=15)])
def test_when_batches_were_committed_is_known_when_the_log_is_gone(
    tmp_path: Path, shorten: Callable[[ChangelogStore], object]
) -> None:
    """A row that a table with a time to live lacks is missed, unless it is old enough to have gone by itself."""
    store = ChangelogStore(str(tmp_path / "users"), declare())
    for batch in range(1, 13):
        commit(store, batch)
    now = datetime.now(UTC)

    def hours_ago(batch: int) -> int:
        return 40 - 3 * batch  # 37 hours ago the first, 4 the last

    log = tmp_path / "users" / "_delta_log"
    made_older(log, {batch: now - timedelta(hours=hours_ago(batch)) for batch in range(13)})
    for path in log.iterdir():
        os.utime(path, (now.timestamp() - 5 * 3600,) * 2)
    asked = [hours + 0.5 for hours in range(45)]
    exact = {age: sum(hours_ago(batch) > age for batch in range(1, 13)) for age in asked}
    assert {age: last_batch_before(store, now - timedelta(hours=age)) for age in asked} == exact
    shorten(store)
    commit(store, 13)
    shorten(store)
    commit(store, 14)
    assert len(store.opened().history()) < 20
    assert {age: last_batch_before(store, now - timedelta(hours=age)) for age in asked} == exact
    found = {age: last_batch_before(store, now - timedelta(hours=age), as_noted=True) for age in asked}
    assert all(exact[age] <= found[age] <= exact[age] + 1 for age in asked), found


def made_older(log: Path, times: Mapping[int, datetime]) -> None:
    """Sets the time of the commits of each batch, and of the table with batch 0."""
    for file in log.glob("*.json"):
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        told = [json.loads(line["commitInfo"].get("userMetadata") or "{}") for line in lines if "commitInfo" in line]
        at = int(times[told[0].get("upsert_platform", {}).get("batch", 0)].timestamp() * 1000)
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] = at
            if "metaData" in line:
                line["metaData"]["createdTime"] = at
        file.write_text("\n".join(map(json.dumps, lines)) + "\n", "utf-8")


def cut(store: ChangelogStore) -> None:
    """As Delta Lake by itself: without a look at what is noted."""
    delta = store.opened()
    delta.create_checkpoint()
    for file in Path(store.uri, "_delta_log").glob("*.json"):
        if int(file.stem) < delta.version():
            file.unlink()


@pytest.mark.parametrize("noted", [False, True])
def test_a_batch_whose_time_is_not_known_counts_as_later(tmp_path: Path, noted: bool) -> None:
    """What is older than a time may be compacted, and is excused where a table lacks it: nothing younger may."""
    store = ChangelogStore(str(tmp_path / "users"), declare())
    now = datetime.now(UTC)
    for batch in range(1, 5):  # before Delta Lake's first checkpoint
        commit(store, batch)
    days_ago = {batch: 45 - 10 * batch for batch in range(5)}  # 35 days ago the first, 5 the last
    made_older(tmp_path / "users" / "_delta_log", {batch: now - timedelta(days=age) for batch, age in days_ago.items()})
    before = store.opened().version()
    if noted:
        note_times(store)
        assert store.opened().version() == before + 1
        note_times(store)
        assert store.opened().version() == before + 1, "once a day"
    cut(store)
    commit(store, 5)
    for age in range(1, 50):
        exact = sum(days_ago[batch] > age for batch in range(1, 5))
        known = noted or age < days_ago[4]  # of batch 4 the last entry of the log tells
        assert last_batch_before(store, now - timedelta(days=age, minutes=1)) == (exact if known else 0), age


def test_a_sync_notes_times_before_it_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ChangelogStore(str(tmp_path / "users"), declare())
    commit(store, 1)
    assert times_of(store) == []
    made_older(tmp_path / "users" / "_delta_log", dict.fromkeys(range(2), datetime.now(UTC) - timedelta(days=2)))
    hop = ChangelogHop(None, store, run="run")  # type: ignore[arg-type]
    ranges = (OffsetRange("users", 0, 2, 3),)
    monkeypatch.setattr(hop, "_next_ranges", lambda *_, **__: ranges)
    seen = []

    def committed(*_: object) -> None:
        seen.append(times_of(store))
        raise KeyboardInterrupt

    monkeypatch.setattr(hop, "_commit", committed)
    with pytest.raises(KeyboardInterrupt):
        hop.execute(None, ChangelogPlan(None, (), ()))  # type: ignore[arg-type]
    assert [[batch for batch, _ in times] for times in seen] == [[1]]


def times_of(store: ChangelogStore) -> list[list[int]]:
    found: list[list[int]] = json.loads(store.opened().metadata().configuration.get(TIMES_PROPERTY, "[]"))
    return found


def test_files_that_a_run_has_not_committed_yet_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction of hours, say, whose commit would name files that are gone."""
    monkeypatch.setattr(upkeep, "KEEP_HOURS", 0)
    monkeypatch.setattr(upkeep, "_PRUNE_SECONDS", 0.0)
    store = ChangelogStore(str(tmp_path / "users"), declare())
    for batch in range(1, 4):
        commit(store, batch)
    schema = rows.arrow_schema(store.table)
    row = {rows.KIND: rows.KIND_UPDATE_AFTER, rows.TOPIC: "users", rows.PARTITION: 0, rows.OFFSET: 9, "id": 9}
    waiting = write_rows(
        [pa.RecordBatch.from_pylist([row], schema=schema)], location=store.location, schema=schema, batch=4
    )
    assert compaction.merge_locally(store)
    before = {path.name for path in (tmp_path / "users").glob("*.parquet")}
    assert len(before) == 3 + 1 + 1
    keeps = upkeep.Upkeep(store)
    keeps.note(1)
    keeps.do_due()
    after = {path.name for path in (tmp_path / "users").glob("*.parquet")}
    assert after == {item.path for item in [*store.files(), *waiting]}
    head = store.create()
    assert store.append(waiting, head=head, positions=head.positions, run="run") is not None
    assert store.dataset().to_table().num_rows == 4
    remove_unused(store, hours=0)
    assert store.dataset().to_table().num_rows == 4


@pytest.mark.soak
def test_files_stay_few_and_a_row_is_written_anew_once_per_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ChangelogStore(str(tmp_path / "users"), declare())
    store.keep_open()
    commit(store, 1, rows_of_batch=300)
    one = store.files()[0].size
    monkeypatch.setattr(compaction, "TIERS", ((one * 3, 8), (one * 20, 4)))
    monkeypatch.setattr(upkeep, "_LOOK_EVERY", 3)
    monkeypatch.setattr(upkeep, "_NEWEST", 5)
    merge, anew = compaction._merge, Counter[int]()

    def counted(store: ChangelogStore, files: Sequence[LiveFile]) -> None:
        for item in files:
            assert item.first_batch is not None
            assert item.last_batch is not None
            anew.update(range(item.first_batch, item.last_batch + 1))
        merge(store, files)

    monkeypatch.setattr(compaction, "_merge", counted)
    keeps, most = upkeep.Upkeep(store), 0
    for batch in range(2, 101):
        commit(store, batch, rows_of_batch=300)
        keeps.note(1)
        keeps.do_due()
        keeps.wait()
        files = store.files()
        most = max(most, len(files))
        newest = [item for item in files if item.last_batch is not None and item.last_batch > batch - 5]
        assert len(newest) == min(batch, 5)
        assert all(item.first_batch == item.last_batch for item in newest)
    assert 0 < max(anew.values()) <= 2
    assert most <= 5 + 3 + 8 + 4 + 100 // 32
    assert Counter(store.dataset().to_table().column(rows.BATCH).to_pylist()) == dict.fromkeys(range(1, 101), 300)


@pytest.mark.parametrize(
    ("after", "upto", "wanted"),
    [(0, 9, 0), (9, 10, 10), (0, 19, 100), (0, 50, 100), (14, 16, 20), (18, 40, 10), (19, 20, 0)],
)
def test_rows_of_a_span_are_estimated_by_batches(after: int, upto: int, wanted: int) -> None:
    file = LiveFile("f", 1, rows=100, first_batch=10, last_batch=19, least_kind=None, greatest_kind=None)
    assert file.rows_between(after=after, upto=upto) == wanted
    unknown = LiveFile("f", 1, rows=100, first_batch=None, last_batch=None, least_kind=None, greatest_kind=None)
    assert unknown.rows_between(after=after, upto=upto) == 100
