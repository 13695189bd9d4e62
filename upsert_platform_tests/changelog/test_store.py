"""The changelog store: commits, positions, replays, races, quarantine, compaction."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from upsert_platform.changelog import compaction, rows
from upsert_platform.changelog.accounting import RangeAccount, total
from upsert_platform.changelog.latest import latest_per_key
from upsert_platform.changelog.quarantine import quarantined_count, quarantined_places, quarantined_records
from upsert_platform.changelog.rows import PARTITIONS_MET
from upsert_platform.changelog.store import ChangelogStore, Head, Positions
from upsert_platform.core.errors import ChangelogError, SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.types import parse_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "orders"


def declared(*extra: tuple[str, str], value_type: str = "STRING") -> Table:
    columns = [("id", "BIGINT"), ("value", value_type), ("price", "DECIMAL(12, 2)"), *extra]
    return Table(
        "orders",
        tuple(Column(name, parse_type(kind)) for name, kind in columns),
        ("id",),
        Options({}),
        SourceLocation("orders.sql", 1),
    )


def batch_frame(
    spark: SparkSession,
    batch: int,
    changes: Iterable[tuple[int, str | None]],
    *,
    table: Table | None = None,
    partition: int = 0,
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC),
    quarantined: int = 0,
) -> DataFrame:
    """A batch of upserts and deletes (value None) in one range, with its accounting row."""
    table = table or declared()
    found: list[dict[str, Any]] = []
    for offset, (key, value) in enumerate(changes):
        found.append(
            {
                rows.BATCH: batch,
                rows.KIND: rows.KIND_DELETE if value is None else rows.KIND_UPDATE_AFTER,
                rows.TOPIC: TOPIC,
                rows.PARTITION: partition,
                rows.OFFSET: batch * 1000 + offset,
                rows.TIMESTAMP: at,
                rows.ROW: 0,
                "id": key,
                "value": value,
            }
        )
    for index in range(quarantined):
        found.append(
            {
                rows.BATCH: batch,
                rows.KIND: rows.KIND_QUARANTINED,
                rows.TOPIC: TOPIC,
                rows.PARTITION: partition,
                rows.OFFSET: batch * 1000 + 900 + index,
                rows.REASON: "not JSON",
                rows.RAW_KEY: b"k",
                rows.RAW_VALUE: b"{",
            }
        )
    count = len(found)
    account = RangeAccount(
        TOPIC, partition, batch * 1000, batch * 1000 + count, count, 0, count - quarantined, 0, quarantined
    )
    found.append({rows.BATCH: batch, rows.KIND: rows.KIND_ACCOUNTING, rows.ACCOUNTING: account.to_json()})
    arrow = pa.Table.from_pylist(found, schema=rows.arrow_schema(table))
    return spark.createDataFrame(arrow, schema=rows.spark_schema(table))


def commit(spark: SparkSession, store: ChangelogStore, changes: Iterable[tuple[int, str | None]], **more: Any) -> Head:
    head = store.create()
    frame = batch_frame(spark, head.batch + 1, changes, table=store.table, **more)
    positions = head.positions.advanced({(TOPIC, 0): (head.batch + 1) * 10}, {TOPIC: "topic-id"})
    after = store.append(store.write(frame, batch=head.batch + 1), head=head, positions=positions, run="run")
    assert after is not None
    return after


@pytest.fixture
def store(tmp_path: Path) -> ChangelogStore:
    return ChangelogStore(str(tmp_path / "orders"), declared())


@pytest.fixture(scope="module")
def three_batches(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A changelog of three batches; tests take copies."""
    made = ChangelogStore(str(tmp_path_factory.mktemp("three") / "orders"), declared())
    commit(spark, made, [(1, "a"), (2, "b"), (3, "c")])
    commit(spark, made, [(1, "a2"), (2, None)])
    commit(spark, made, [(4, "d")])
    return Path(made.uri)


@pytest.fixture
def filled(store: ChangelogStore, three_batches: Path) -> ChangelogStore:
    """A store with three batches."""
    shutil.copytree(three_batches, store.uri)
    return store


def values(frame: DataFrame) -> dict[int, str | None]:
    return {row["id"]: None if row[rows.KIND] == rows.KIND_DELETE else row["value"] for row in frame.collect()}


def snapshot(
    spark: SparkSession, store: ChangelogStore, *, after: int = 0, upto: int | None = None
) -> dict[int, str | None]:
    head = store.head()
    assert head is not None
    changes = store.read(spark, after=after, upto=head.batch if upto is None else upto)
    return values(latest_per_key(changes, key=["id"], columns=["value", "price"]))


def test_head_of_a_changelog_that_does_not_exist_is_none(store: ChangelogStore) -> None:
    assert store.head() is None
    assert store.accounts(after=0, upto=10) == {}
    assert quarantined_records(store).num_rows == 0


def test_commit_carries_rows_accounting_quarantine_and_position(spark: SparkSession, store: ChangelogStore) -> None:
    head = commit(spark, store, [(1, "a"), (2, "b"), (3, None)], quarantined=2)
    assert (head.batch, head.positions.offsets, head.positions.topic_ids) == (1, {TOPIC: {0: 10}}, {TOPIC: "topic-id"})
    assert store.read(spark, after=0, upto=1).count() == 3
    summed = total(store.accounts(after=0, upto=1)[1])
    assert (summed.records, summed.kept, summed.quarantined, summed.imbalance()) == (5, 3, 2, None)
    kept = quarantined_records(store)
    assert kept.column(rows.REASON).to_pylist() == ["not JSON"] * 2
    assert kept.column(rows.RAW_VALUE).to_pylist() == [b"{"] * 2
    assert store.batches_of_run("run") == [1]
    assert store.batches_of_run("other") == []


def test_replayed_batch_changes_nothing_and_is_reported(spark: SparkSession, store: ChangelogStore) -> None:
    first = commit(spark, store, [(1, "a")])
    before = Head(first.changelog_id, 0, Positions())
    again = store.append(
        store.write(batch_frame(spark, 1, [(1, "other")]), batch=1), head=before, positions=Positions(), run="late"
    )
    assert again is None
    head = store.head()
    assert head is not None
    assert (head.batch, head.positions) == (1, first.positions)
    assert snapshot(spark, store) == {1: "a"}


def test_empty_range_commits_its_position(spark: SparkSession, store: ChangelogStore) -> None:
    head = commit(spark, store, [])
    assert head.batch == 1
    assert head.positions.offsets == {TOPIC: {0: 10}}


def test_later_batch_wins_whatever_its_record_time(spark: SparkSession, store: ChangelogStore) -> None:
    commit(spark, store, [(1, "a"), (2, "x")], at=datetime(2026, 6, 1, tzinfo=UTC))
    commit(spark, store, [(1, "b"), (2, None)], at=datetime(2026, 1, 1, tzinfo=UTC))
    assert snapshot(spark, store) == {1: "b", 2: None}


def test_key_in_two_partitions_of_a_batch_is_decided_by_time_and_flagged(
    spark: SparkSession, store: ChangelogStore
) -> None:
    head = store.create()
    late = batch_frame(spark, 1, [(1, "late"), (2, "alone")], partition=0, at=datetime(2026, 2, 1, tzinfo=UTC))
    early = batch_frame(spark, 1, [(1, "early")], partition=1, at=datetime(2026, 1, 1, tzinfo=UTC))
    store.append(store.write(late.unionByName(early), batch=1), head=head, positions=Positions(), run="run")
    latest = latest_per_key(store.read(spark, after=0, upto=1), key=["id"], columns=["value"]).collect()
    assert {row["id"]: (row["value"], row[PARTITIONS_MET]) for row in latest} == {1: ("late", 2), 2: ("alone", 1)}


def test_added_column_is_stored_and_changed_type_is_refused(spark: SparkSession, store: ChangelogStore) -> None:
    commit(spark, store, [(1, "a")])
    wider = ChangelogStore(store.uri, declared(("note", "ARRAY<STRING>"), ("at", "TIMESTAMP(3)")))
    commit(spark, wider, [(2, "b")])
    assert "note" in wider.read(spark, after=0, upto=2).columns
    other = ChangelogStore(store.uri, declared(value_type="BIGINT"))
    with pytest.raises(ChangelogError, match=r"column 'value' is declared as int64, stored as string"):
        other.create()


def test_two_runs_may_create_it_at_once(tmp_path: Path) -> None:
    def create(_: int) -> str:
        return ChangelogStore(str(tmp_path / "raced"), declared()).create().changelog_id

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(create, range(8)))) == 1


def test_foreign_delta_table_is_refused(spark: SparkSession, store: ChangelogStore) -> None:
    write_deltalake(store.uri, pa.table({"id": [1]}))
    with pytest.raises(ChangelogError, match="not a changelog"):
        store.head()


def test_other_mode_is_refused(spark: SparkSession, store: ChangelogStore) -> None:
    store.create()
    with pytest.raises(ChangelogError, match="mode 'upsert'"):
        ChangelogStore(store.uri, store.table, mode="append").head()


def test_race_for_a_batch_number_leaves_one_winner(spark: SparkSession, store: ChangelogStore) -> None:
    """Two runs plan the same batch; the slower one commits nothing and is told so."""
    head = store.create()
    fast = store.append(
        store.write(batch_frame(spark, 1, [(1, "fast")]), batch=1), head=head, positions=Positions(), run="fast"
    )
    slow = store.append(
        store.write(batch_frame(spark, 1, [(1, "slow")]), batch=1), head=head, positions=Positions(), run="slow"
    )
    assert fast is not None
    assert slow is None
    assert snapshot(spark, store) == {1: "fast"}


def test_merging_files_keeps_position_and_batches(spark: SparkSession, filled: ChangelogStore) -> None:
    head = filled.head()
    assert head is not None
    assert len(filled.files()) > 1
    compaction.merge_files(spark, filled)
    merged = filled.head()
    assert merged is not None
    assert (merged.batch, merged.positions) == (head.batch, head.positions)
    assert len(filled.files()) == 1
    assert snapshot(spark, filled, after=1) == {1: "a2", 2: None, 4: "d"}
    assert commit(spark, filled, [(9, "z")]).batch == 4


@pytest.mark.parametrize(("applied", "tombstone_stays"), [(0, True), (2, False)])
def test_reduced_history_serves_laggards_and_newcomers(
    spark: SparkSession, filled: ChangelogStore, applied: int, tombstone_stays: bool
) -> None:
    report = compaction.reduce_history(spark, filled, applied_everywhere=applied)
    assert report.rows_before == 6
    assert report.rows_after == (4 if tombstone_stays else 3)
    lagging = {1: "a2", 2: None, 4: "d"} if tombstone_stays else {1: "a2", 4: "d"}
    assert snapshot(spark, filled, after=1) == lagging
    whole = {1: "a2", 3: "c", 4: "d"}
    assert {key: value for key, value in snapshot(spark, filled).items() if value is not None} == whole
    assert len(filled.accounts(after=0, upto=3)) == 3
    assert commit(spark, filled, [(5, "e")]).batch == 4


def test_reduced_history_keeps_quarantine_and_the_tombstones_it_needs(
    spark: SparkSession, store: ChangelogStore
) -> None:
    commit(spark, store, [(1, "a")], quarantined=1)
    commit(spark, store, [(1, None)])
    compaction.reduce_history(spark, store, applied_everywhere=2)
    assert quarantined_records(store).num_rows == 1
    assert snapshot(spark, store) == {1: None}


def test_lost_log_is_named(spark: SparkSession, store: ChangelogStore) -> None:
    commit(spark, store, [(1, "a")])
    broken = ChangelogStore(f"{store.uri}-{uuid.uuid4().hex[:4]}", store.table)
    shutil.copytree(store.uri, broken.uri)
    log = Path(broken.uri, "_delta_log", "00000000000000000001.json")
    log.write_text(log.read_text().replace("upsert_platform", "someone_else"))
    with pytest.raises(ChangelogError, match="none of its last 200 commits"):
        broken.head()


_POOL = pa.proxy_memory_pool(pa.default_memory_pool())
"""Of one test; Arrow's threads may give memory back to it when the test has ended."""


def test_one_quarantined_record_is_read_without_holding_the_others(store: ChangelogStore) -> None:
    """A thousand records of 100 kB: what is held for one of them, and for their places, is a small part of that."""
    from deltalake import write_deltalake

    store.create()
    schema = rows.arrow_schema(store.table)
    fixed = {rows.BATCH: 1, rows.KIND: rows.KIND_QUARANTINED, rows.TOPIC: TOPIC, rows.PARTITION: 0}
    records = [{**fixed, rows.OFFSET: offset, rows.RAW_VALUE: bytes(100_000)} for offset in range(1000)]
    marks = [{**fixed, rows.KIND: rows.KIND_REPLAYED, rows.OFFSET: offset} for offset in (0, 2)]
    write_deltalake(store.uri, pa.Table.from_pylist(records + marks, schema=schema), mode="append")
    del records
    before, pool = pa.default_memory_pool(), _POOL
    pa.set_memory_pool(pool)
    try:
        assert quarantined_records(store, limit=2)[rows.OFFSET].to_pylist() == [1, 3]
        (found,) = quarantined_records(store, places={(TOPIC, 0, 999), (TOPIC, 0, 0), (TOPIC, 1, 5)}).to_pylist()
        assert (found[rows.OFFSET], len(found[rows.RAW_VALUE])) == (999, 100_000)
        assert quarantined_count(store) == quarantined_places(store).num_rows == 998
        assert pool.max_memory() < 40_000_000
    finally:
        pa.set_memory_pool(before)


@pytest.mark.parametrize("lost", ["nothing", "kinds", "batches", "nulls", "everything"])
def test_rows_are_found_whatever_statistics_their_files_have(filled: ChangelogStore, lost: str) -> None:
    """Every filter of the changelog, against rows that are picked from all of them by hand."""
    names = {
        "kinds": [("minValues", rows.KIND), ("maxValues", rows.KIND), ("nullCount", rows.KIND)],
        "batches": [("minValues", rows.BATCH), ("maxValues", rows.BATCH)],
        "nulls": [("nullCount", rows.KIND), ("nullCount", rows.BATCH)],
    }.get(lost, [])
    for log in Path(filled.uri, "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "stats" not in action.get("add", {}):
                continue
            told = json.loads(action["add"]["stats"])
            for part, name in names:
                told[part].pop(name, None)
            if lost == "everything":
                del action["add"]["stats"]
            else:
                action["add"]["stats"] = json.dumps(told)
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    whole = [
        row
        for path in Path(filled.uri).glob("*.parquet")
        for row in pq.read_table(path).select([rows.BATCH, rows.KIND, rows.TOPIC, rows.OFFSET]).to_pylist()
    ]
    for kind in {row[rows.KIND] for row in whole}:
        for after, upto in ((0, None), (1, 2), (2, 9)):
            wanted = [row for row in whole if row[rows.KIND] == kind and after < row[rows.BATCH] <= (upto or 99)]
            found = filled.read_arrow([rows.OFFSET], kind=kind, after=after, upto=upto)[rows.OFFSET].to_pylist()
            assert sorted(map(str, found)) == sorted(str(row[rows.OFFSET]) for row in wanted)
    of_topic = filled.dataset().to_table(filter=pc.field(rows.TOPIC) == TOPIC)
    assert of_topic.num_rows == sum(row[rows.TOPIC] == TOPIC for row in whole)
    assert filled.dataset().to_table(filter=pc.field(rows.TOPIC).is_null()).num_rows == len(whole) - of_topic.num_rows


def test_files_are_passed_over_by_their_statistics(filled: ChangelogStore) -> None:
    data = filled.dataset()
    everything = len(list(data.get_fragments()))
    assert 0 < len(list(data.get_fragments(pc.field(rows.BATCH) > 2))) < everything
