"""Records that come back from quarantine stand where they would be had each been decoded at once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from upsert_platform.changelog import compaction, rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.erasure import KeyRows, erase_rows
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.latest import latest_per_key
from upsert_platform.changelog.quarantine import discarded, quarantined_records
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.cli import quarantine
from upsert_platform.core.capabilities import StoresOtherValues
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.model import Insert, Project, SourceLocation
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.sync import replay as replays
from upsert_platform.sync.binding import Binding, Target, changelog_of
from upsert_platform.sync.comparison import Comparison
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.discard import discard
from upsert_platform.sync.erase import Erasure
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.replay import replay
from upsert_platform.sync.verify import check_batch, check_everything
from upsert_platform_tests.changelog.places import NOON, Placed, batches_of, last_values, random_records
from upsert_platform_tests.kafka.tables import declare, read
from upsert_platform_tests.writing.in_memory import MemoryDestination, Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs


def row_of(record: Placed, *, quarantined: bool) -> dict[str, Any]:
    place = {
        rows.BATCH: record.batch,
        rows.TOPIC: "users",
        rows.PARTITION: record.partition,
        rows.OFFSET: record.offset,
        rows.TIMESTAMP: record.at,
    }
    if not quarantined:
        kind = rows.KIND_DELETE if record.value is None else rows.KIND_UPDATE_AFTER
        return {**place, rows.KIND: kind, rows.ROW: 0, "id": record.key, "name": record.value}
    value = None if record.value is None else json.dumps({"id": record.key, "name": record.value}).encode()
    key = json.dumps({"id": record.key}).encode()
    return {**place, rows.KIND: rows.KIND_QUARANTINED, rows.RAW_KEY: key, rows.RAW_VALUE: value, rows.REASON: "then"}


def filled(spark: SparkSession, source: TopicSource, root: Path, records: list[Placed], unread: set[Placed]) -> None:
    store = changelog_of(source, Lake(str(root)))
    head = store.create()
    for batch, of_batch in batches_of(records):
        found = [row_of(record, quarantined=record in unread) for record in of_batch]
        for partition in {record.partition for record in of_batch}:
            start = min(record.offset for record in of_batch if record.partition == partition)
            text = RangeAccount("users", partition, start, start + 1).to_json()
            found.append({rows.BATCH: batch, rows.KIND: rows.KIND_ACCOUNTING, rows.ACCOUNTING: text})
        table = pa.Table.from_pylist(found, schema=rows.arrow_schema(source.table))
        frame = spark.createDataFrame(table, schema=rows.spark_schema(source.table))
        after = store.append(store.write(frame, batch=batch), head=head, positions=head.positions, run="run")
        assert after is not None
        head = after


def table_from(spark: SparkSession, store: ChangelogStore) -> dict[int, str | None]:
    head = store.head()
    assert head is not None
    found = latest_per_key(store.read(spark, after=0, upto=head.batch), key=["id"], columns=["name"])
    return {row["id"]: None if row[rows.KIND] == rows.KIND_DELETE else row["name"] for row in found.collect()}


def test_a_table_after_replays_is_that_of_the_offsets(spark: SparkSession, tmp_path: Path) -> None:
    """In two replays, the first of which takes half of what is in quarantine; between them history is compacted."""
    chance = random.Random(7)
    records = random_records(chance, keys=60, batches=2, partitions=2, each=150)
    unread = set(chance.sample(records, 120))
    source = TopicSource((table := declare()), read(table))
    filled(spark, source, tmp_path, records, unread)
    store = changelog_of(source, Lake(str(tmp_path)))
    first = [("users", item.partition, item.offset) for item in records if item in unread][::2]
    done = replay(spark, source, store, run="first", offsets=first)
    assert done.replayed > 10
    assert done.superseded > 10
    assert done.replayed + done.superseded == len(first)
    compaction.reduce_history(spark, store, applied_everywhere=2)
    replay(spark, source, store, run="second")
    assert quarantined_records(store).num_rows == 0
    assert table_from(spark, store) == last_values(records)


def delete_of(store: ChangelogStore, key: int) -> KeyRows:
    """Commits the batch by which an erasure deletes a key, as long as the lake holds it still."""
    kind = rows.arrow_schema(store.table).field("id").type
    erasure = Erasure.__new__(Erasure)
    erasure.store = store
    raw = json.dumps({"id": key}).encode()
    erasure.key = KeyRows(
        pa.RecordBatch.from_pydict({"id": pa.array([key], kind)}), lambda found: pc.equal(found, pa.scalar(raw))
    )
    erasure._delete("erase")
    return erasure.key


def test_an_erased_key_does_not_come_back_between_its_delete_and_its_erasure_from_the_lake(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Older records of it are in quarantine; the delete is later than all of them, whichever batch replays them."""
    older, person = Placed(1, 0, 3, NOON, 1, "older"), Placed(2, 0, 6, NOON, 1, "person")
    other = Placed(2, 1, 0, NOON, 2, "other")
    moved = Placed(1, 1, 1, NOON, 1, "of another partition")
    source = TopicSource((table := declare()), read(table))
    filled(spark, source, tmp_path, [older, moved, person, other], {older, moved})
    store = changelog_of(source, Lake(str(tmp_path)))
    delete_of(store, 1)
    assert table_from(spark, store) == {1: None, 2: "other"}
    done = replay(spark, source, store, run="drain")
    assert (done.replayed, done.superseded) == (0, 2)
    assert table_from(spark, store) == {1: None, 2: "other"}


class Folding(MemoryDestination, StoresOtherValues):
    """A table that stores the keys 1 and 01 as one, say."""

    def folded_key(self) -> tuple[str, ...]:
        return ("id",)

    def stored_value(self, name: str, value: Any) -> Any:
        return value


def test_no_caller_replays_records_whose_keys_a_table_stores_as_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Placed(1, 0, 0, NOON, 1, "one")
    source = TopicSource((table := declare()), read(table))
    filled(spark, source, tmp_path, [record], {record})
    place = Place()
    connector = SimpleNamespace(open=lambda _: Folding(place))
    insert = Insert("users", "memory", ("`id`", "`name`"), None, "", SourceLocation("tables.sql", 1))
    target = Target(table, insert, source, connector, None)  # type: ignore[arg-type]
    binding = Binding(Project(tmp_path), {"users": source}, {"memory": target})
    place.state = replace(place.state, applied_batch=1)
    monkeypatch.setattr(quarantine, "spark_session", lambda _: nullcontext((spark, None)))
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(tmp_path))
    with pytest.raises(ChangelogError, match="'memory' stores several values of id as one"):
        quarantine._replay_records(binding, "users", ())
    store = changelog_of(source, Lake(str(tmp_path)))
    place.state = replace(place.state, applied_batch=0)
    assert replays.replay_in_turn(spark, source, store, binding=binding, run="run").replayed == 1, "it holds no row"


def set_aside(spark: SparkSession, root: Path) -> tuple[TopicSource, ChangelogStore, list[Placed]]:
    """A table without a key, all of whose records are in quarantine."""
    declared = declare(connector="kafka", key=(), **{"key.format": None, "value.format": None, "format": "json"})
    source = TopicSource(declared, read(declared))
    records = random_records(random.Random(1), keys=3, batches=1, partitions=2, each=20)
    records = [item for item in records if item.value is not None]
    store = changelog_of(source, Lake(str(root)))
    head = store.create()
    found = [{**row_of(item, quarantined=True), rows.RAW_KEY: None} for item in records]
    table = pa.Table.from_pylist(found, schema=rows.arrow_schema(declared))
    frame = spark.createDataFrame(table, schema=rows.spark_schema(declared))
    assert store.append(store.write(frame, batch=1), head=head, positions=head.positions, run="run") is not None
    return source, store, records


def meanwhile(monkeypatch: pytest.MonkeyPatch, step: str, other: Callable[[], object], *, before: bool = True) -> None:
    """Lets another run do something, once, before a step of a replay or behind it."""
    real = getattr(replays, step)

    def met(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(replays, step, real)
        if before:
            other()
        found = real(*arguments, **named)
        if not before:
            other()
        return found

    monkeypatch.setattr(replays, step, met)


def test_what_another_run_replays_meanwhile_is_replayed_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one ends while this one decodes what it has read: without a key each row would be there twice."""
    source, store, records = set_aside(spark, tmp_path)
    meanwhile(monkeypatch, "_decode", lambda: replay(spark, source, store, run="other"))
    with pytest.raises(ChangelogError, match=r"replayed, discarded or erased records of 'users' during the replay"):
        replay(spark, source, store, run="replay")
    assert store.read(spark, after=0, upto=9).count() == len(records)
    assert replay(spark, source, store, run="replay").batch is None


def test_what_is_discarded_meanwhile_stays_discarded(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, store, records = set_aside(spark, tmp_path)
    one = ("users", records[0].partition, records[0].offset)
    meanwhile(monkeypatch, "_decode", lambda: discard(store, by="ann", why="tests", run="other", places=[one]))
    with pytest.raises(ChangelogError, match="replay again"):
        replay(spark, source, store, run="replay")
    assert replay(spark, source, store, run="replay").replayed == len(records) - 1
    assert [place for place, _ in discarded(store)] == [one]


@pytest.mark.parametrize(("step", "before"), [("_decode", True), ("_judge", True), ("_judge", False)])
def test_what_is_erased_meanwhile_does_not_come_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, *, before: bool
) -> None:
    """An erasure takes the record, and the delete that had overtaken it, out of the lake without a batch of its own."""
    record = Placed(1, 0, 0, NOON, 1, "person")
    source = TopicSource((table := declare()), read(table))
    filled(spark, source, tmp_path, [record], {record})
    store = changelog_of(source, Lake(str(tmp_path)))
    key = delete_of(store, 1)
    meanwhile(monkeypatch, step, lambda: erase_rows(store, key, upto=3), before=before)
    with pytest.raises(ChangelogError, match="replay again"):
        replay(spark, source, store, run="replay")
    assert store.read(spark, after=0, upto=9).count() == 0
    assert replay(spark, source, store, run="replay").batch is None


def test_records_of_a_table_without_a_key_are_replayed_each(spark: SparkSession, tmp_path: Path) -> None:
    """They may have no key at all, and none overtakes another."""
    source, store, records = set_aside(spark, tmp_path)
    done = replay(spark, source, store, run="replay")
    assert (done.replayed, done.superseded, dict(done.refused)) == (len(records), 0, {})
    kept = store.read(spark, after=1, upto=2).collect()
    assert sorted((row["_partition"], row["_offset"], row["id"], row["name"]) for row in kept) == sorted(
        (item.partition, item.offset, item.key, item.value) for item in records
    )
    assert quarantined_records(store).num_rows == 0


@pytest.mark.soak
def test_of_a_source_without_a_key_no_replayed_record_takes_the_place_of_a_newer_row_of_the_target(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The target has a key: in sync with every batch, and after each of two replays, it is that of the offsets."""
    declared = declare(connector="kafka", key=(), **{"key.format": None, "value.format": None, "format": "json"})
    source = TopicSource(declared, read(declared))
    chance = random.Random(3)
    records = [
        item for item in random_records(chance, keys=25, batches=2, partitions=2, each=60) if item.value is not None
    ]
    unread = set(chance.sample(records, 60))
    filled(spark, source, tmp_path, records, unread)
    store = changelog_of(source, Lake(str(tmp_path)))
    insert = Insert("users", "memory", ("`id`", "`name`"), None, "", SourceLocation("tables.sql", 1))
    place = Place()
    target = Target(declare(), insert, source, None, None)  # type: ignore[arg-type]
    refused = RefusedStore(str(tmp_path / "refused"))
    hop = DestinationHop(target, store, MemoryDestination(place), refused=refused, run="run")

    def synced() -> Comparison:
        after = hop.plan().state.applied_batch
        assert hop.execute(OnDemand.dividing(spark), hop.plan()) is not None
        return check_batch(OnDemand.dividing(spark), hop, after=after, upto=hop.plan().state.applied_batch)

    assert synced().passed
    first = [("users", item.partition, item.offset) for item in records if item in unread][::2]
    for offsets in (first, None):
        replay(spark, source, store, run="replay", offsets=offsets)
        decoded = [item for item in records if item not in unread or offsets is None]
        decoded += [item for item in records if item in unread and ("users", item.partition, item.offset) in first]
        found = synced()
        assert dict(place.rows.values()) == last_values(decoded)
        assert (found.passed, check_everything(spark, hop, upto=found.batch).passed) == (True, True)
