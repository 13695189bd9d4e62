"""Replays of topics: after each, the table is that of the offsets, whatever the clocks and the batches say."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from upsert_platform.changelog import compaction, rows
from upsert_platform.changelog.erasure import erase_rows
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.latest import latest_per_key
from upsert_platform.changelog.quarantine import discarded, quarantined_count
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.upkeep import note_erased, raise_floor
from upsert_platform.core.errors import ChangelogError
from upsert_platform.core.model import Table
from upsert_platform.core.source import Start
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.sync import replay_topic as replays
from upsert_platform.sync.binding import changelog_of
from upsert_platform.sync.changelog_hop import ChangelogHop
from upsert_platform.sync.discard import discard
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.replay import replay
from upsert_platform.sync.replay_start import start_of
from upsert_platform.sync.replay_topic import TopicReplay, replay_topic
from upsert_platform_tests.changelog.places import NOON, Placed, batches_of, last_values, random_records
from upsert_platform_tests.kafka.tables import declare, read
from upsert_platform_tests.sync.test_replay_order import delete_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

EARLIEST = Start()


class Topic:
    """A topic, its changelog, and what was sent."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, root: Path) -> None:
        self.spark, self.servers, self.topic, self.root = spark, servers, topic, root
        self.sent: list[Placed] = []
        self.table = declare(topic=topic, **{"properties.bootstrap.servers": servers})

    def declared(self, **options: str) -> TopicSource:
        table = declare(topic=self.topic, **{"properties.bootstrap.servers": self.servers, **options})
        return TopicSource(table, read(table))

    @property
    def store(self) -> ChangelogStore:
        return changelog_of(self.declared(), Lake(str(self.root)))

    def send(self, records: Iterable[Placed], *, broken: Iterable[Placed] = ()) -> None:
        """Sends records to their partitions; their offsets become those that the broker gives."""
        bad = set(broken)
        producer = Producer({"bootstrap.servers": self.servers})
        places: dict[int, tuple[int, int]] = {}
        told = list(records)
        for number, item in enumerate(told):
            value = None if item.value is None else json.dumps({"id": item.key, "name": item.value})
            if item in bad:
                value = json.dumps({"id": item.key, "extra": item.value})  # `name` is missing
            at = NOON if item.at is None else item.at

            def landed(error: Any, message: Any, number: int = number) -> None:
                assert error is None
                places[number] = message.partition(), message.offset()

            producer.produce(
                self.topic, key=json.dumps({"id": item.key}), value=value, partition=item.partition,
                timestamp=int(at.timestamp() * 1000), on_delivery=landed,
            )  # fmt: skip
        assert producer.flush(30) == 0
        for number, item in enumerate(told):
            partition, offset = places[number]
            self.sent.append(replace(item, partition=partition, offset=offset, at=NOON if item.at is None else item.at))

    def sync(self, **options: str) -> None:
        source = self.declared(**options)
        hop = ChangelogHop(source, changelog_of(source, Lake(str(self.root))), run="sync")
        hop.execute(OnDemand.dividing(self.spark), hop.plan())

    def replay(self, start: Start = EARLIEST, *, dry_run: bool = False, **options: str) -> TopicReplay:
        source = self.declared(**options)
        return replay_topic(
            self.spark, source, changelog_of(source, Lake(str(self.root))), start=start, run="replay", dry_run=dry_run
        )

    def shown(self) -> dict[int, str | None]:
        head = self.store.head()
        assert head is not None
        found = latest_per_key(self.store.read(self.spark, after=0, upto=head.batch), key=["id"], columns=["name"])
        return {row["id"]: None if row[rows.KIND] == rows.KIND_DELETE else row["name"] for row in found.collect()}


@pytest.fixture
def topic(spark: SparkSession, kafka_bootstrap: str, make_topic: Callable[..., str], tmp_path: Path) -> Topic:
    # The records' times are old: by the broker's own retention they would be gone at once.
    return Topic(spark, kafka_bootstrap, make_topic(partitions=2, config={"retention.ms": "-1"}), tmp_path)


def existing(values: dict[int, str | None]) -> dict[int, str | None]:
    return {key: value for key, value in values.items() if value is not None}


STRICT = {"value.json.fail-on-missing-field": "true", "value.fields-include": "ALL"}


@pytest.mark.soak
def test_no_replay_makes_an_older_value_win(topic: Topic) -> None:
    """Clocks go back, keys are in two partitions, batches follow each other; part of the records do not decode."""
    chance = random.Random(11)
    records = random_records(chance, keys=40, batches=3, partitions=2, each=70)
    live = [item for item in records if item.value is not None]
    broken = set(chance.sample(live, 40))
    undecoded: set[tuple[int, int]] = set()
    for _, of_batch in batches_of(records):
        before = len(topic.sent)
        topic.send(of_batch, broken=broken)
        undecoded |= {
            (sent.partition, sent.offset)
            for sent, item in zip(topic.sent[before:], of_batch, strict=True)
            if item in broken
        }
        topic.sync(**STRICT)
    decoded = [item for item in topic.sent if (item.partition, item.offset) not in undecoded]
    assert topic.shown() == last_values(decoded)
    # Nothing was declared otherwise, so nothing changes, and nothing is committed.
    again = topic.replay(**STRICT)
    assert (again.records, again.rows, again.batch) == (len(records), 0, None)
    # A record of each half of a partition on: fewer records, the same answer.
    assert topic.replay(Start(offsets=((0, 30), (1, 40))), **STRICT).batch is None
    # What lacked a field decodes now, with null: the model knows the records by their places.
    mended = [replace(item, value=item.value) for item in topic.sent]
    nulls = {(item.partition, item.offset) for item in mended if (item.partition, item.offset) in undecoded}
    expected = last_places(topic.sent)
    shown_before = topic.shown()
    dry = topic.replay(dry_run=True)
    assert (dry.batch, topic.shown()) == (None, shown_before)
    done = topic.replay()
    assert done.batch is not None
    assert (dry.rows, dry.recovered) == (done.rows, done.recovered)
    wanted = {
        key: None if item.value is None or (item.partition, item.offset) in nulls else item.value
        for key, item in expected.items()
    }
    assert topic.shown() == wanted
    assert topic.replay().batch is None
    # What is left in quarantine was overtaken, and a replay of it changes nothing.
    source = topic.declared()
    replay(topic.spark, source, topic.store, run="quarantine")
    assert quarantined_count(topic.store) == 0
    assert topic.shown() == wanted
    # Later records win over what was replayed, also after a compaction.
    compaction.reduce_history(topic.spark, topic.store, applied_everywhere=3)
    topic.send([Placed(9, 0, 0, NOON, key, f"later {key}") for key in range(5)])
    topic.sync()
    assert {key: topic.shown()[key] for key in range(5)} == {key: f"later {key}" for key in range(5)}


def last_places(records: Iterable[Placed]) -> dict[int, Placed]:
    """The record of each key that counts, by the model of values: each record is told apart by its value."""
    marked = [replace(item, value=f"{item.partition}@{item.offset}") for item in records]
    by_place = {f"{item.partition}@{item.offset}": item for item in records}
    return {key: by_place[str(value)] for key, value in last_values(marked).items()}


@pytest.mark.soak
def test_what_was_never_read_stands_before_everything(topic: Topic) -> None:
    """The changelog began at the topic's end: older records give keys that have no later one, and only those."""
    topic.send([Placed(1, key % 2, 0, NOON, key, f"old {key}") for key in range(10)])
    topic.send([Placed(1, 0, 0, NOON, 20, "bad")], broken=[Placed(1, 0, 0, NOON, 20, "bad")])
    topic.sync(**{"scan.startup.mode": "latest-offset"})
    # Keys 0 to 3 come again, in the other partition, with an older time, and one is deleted.
    topic.send([Placed(2, 1 - key % 2, 0, NOON.replace(hour=1), key, f"new {key}") for key in range(3)])
    topic.send([Placed(2, 0, 0, NOON.replace(hour=1), 3, None)])
    topic.sync()
    done = topic.replay(**STRICT)
    assert (done.quarantined, done.recovered) == (1, 0)
    expected = {key: f"old {key}" for key in range(4, 10)} | {key: f"new {key}" for key in range(3)}
    assert existing(topic.shown()) == expected
    assert quarantined_count(topic.store) == 1
    assert topic.replay(**STRICT).batch is None
    # The record that was set aside is the oldest of its key, whichever batch brought it.
    topic.send([Placed(3, 1, 0, NOON.replace(hour=1), 20, "newer")])
    topic.sync()
    assert replay(topic.spark, topic.declared(), topic.store, run="quarantine").superseded == 1
    assert existing(topic.shown()) == {**expected, 20: "newer"}


def test_a_deleted_key_does_not_come_back_where_its_delete_may_be_lost(topic: Topic) -> None:
    """The delete came in another partition and was compacted away; its place is not read again."""
    topic.send([Placed(1, 0, 0, NOON, 1, "was here"), Placed(1, 0, 0, NOON, 2, "stays")])
    topic.sync()
    topic.send([Placed(2, 1, 0, NOON, 1, None), Placed(2, 1, 0, NOON, 3, "more")])
    topic.sync()
    raise_floor(topic.store, 2)
    compaction.reduce_history(topic.spark, topic.store, applied_everywhere=2)
    assert topic.shown() == {2: "stays", 3: "more"}
    done = topic.replay(Start(offsets=((1, 1),)))
    assert (done.uncertain, done.batch) == (1, None)
    assert "left alone" in done.warning()
    assert topic.shown() == {2: "stays", 3: "more"}
    # From the first record on, the delete is met.
    assert topic.replay().uncertain == 0
    assert existing(topic.shown()) == {2: "stays", 3: "more"}


@pytest.mark.soak
def test_a_record_whose_row_is_left_alone_does_not_leave_the_quarantine(topic: Topic) -> None:
    """It was discarded, so that a compaction removed the delete that came behind it in another partition."""
    topic.send([(old := Placed(1, 0, 0, NOON, 1, "was here")), Placed(1, 0, 0, NOON, 2, "stays")], broken=[old])
    topic.sync(**STRICT)
    topic.send([Placed(2, 1, 0, NOON, 1, None), Placed(2, 1, 0, NOON, 3, "more")])
    topic.sync(**STRICT)
    discard(topic.store, by="ann", why="tests", run="discard")
    compaction.reduce_history(topic.spark, topic.store, applied_everywhere=3)
    done = topic.replay(Start(offsets=((1, 1),)))
    assert (done.uncertain, done.recovered, done.batch) == (1, 0, None)
    assert [place for place, _ in discarded(topic.store)] == [(topic.topic, 0, 0)]
    assert topic.replay().recovered == 1, "from the first record on, the delete is met"
    assert existing(topic.shown()) == {2: "stays", 3: "more"}


def test_a_record_that_was_never_read_does_not_bring_back_a_key_whose_delete_was_removed(topic: Topic) -> None:
    """A replay of the topic set it aside, after its key had come, had been deleted and had been compacted away."""
    topic.send([(old := Placed(1, 0, 0, NOON, 1, "old"))], broken=[old])
    topic.sync(**{"scan.startup.mode": "latest-offset"})
    topic.send([Placed(1, 1, 0, NOON, 1, "came"), Placed(1, 1, 0, NOON, 2, "stays"), Placed(1, 1, 0, NOON, 1, None)])
    topic.sync()
    batch = topic.store.create().batch
    compaction.reduce_history(topic.spark, topic.store, applied_everywhere=batch)
    assert topic.shown() == {2: "stays"}
    assert topic.replay(Start(offsets=((1, 3),)), **STRICT).quarantined == 1
    done = replay(topic.spark, topic.declared(), topic.store, run="quarantine")
    assert (done.replayed, done.superseded, done.batch) == (0, 0, None)
    assert "a compaction may have removed its delete" in done.refused[topic.topic, 0, 0]
    assert topic.shown() == {2: "stays"}
    assert quarantined_count(topic.store) == 1


@pytest.mark.parametrize("other", ["a compaction", "an erasure"])
def test_a_key_that_goes_while_the_topic_is_read_does_not_come_back(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    topic.send([Placed(1, 0, 0, NOON, 1, "was here"), Placed(1, 0, 0, NOON, 2, "stays")])
    topic.sync()
    topic.send([Placed(2, 1, 0, NOON, 1, None), Placed(2, 1, 0, NOON, 3, "more")])
    topic.sync()
    real = replays._Judged

    def goes(*arguments: Any) -> Any:
        monkeypatch.setattr(replays, "_Judged", real)
        if other == "a compaction":
            compaction.reduce_history(topic.spark, topic.store, applied_everywhere=2)
        else:
            key = delete_of(topic.store, 1)
            note_erased(topic.store, 3)
            erase_rows(topic.store, key, upto=3)
        return real(*arguments)

    monkeypatch.setattr(replays, "_Judged", goes)
    if other == "a compaction":
        done = topic.replay(Start(offsets=((1, 1),)))
        assert (done.uncertain, done.batch) == (1, None)
    else:
        with pytest.raises(ChangelogError, match="was erased while its topics were read"):
            topic.replay(Start(offsets=((1, 1),)))
    assert topic.shown() == {2: "stays", 3: "more"}


def test_an_erased_key_does_not_come_back_before_it_is_out_of_the_lake(topic: Topic) -> None:
    topic.send([Placed(1, 0, 0, NOON, 1, "person"), Placed(1, 1, 0, NOON, 2, "stays")])
    topic.sync()
    delete_of(topic.store, 1)
    assert topic.replay().batch is None
    assert topic.shown() == {1: None, 2: "stays"}


def test_where_every_record_counts_a_replay_into_the_same_table_is_refused(topic: Topic) -> None:
    appended: Table = declare(
        connector="kafka", key=(), topic=topic.topic,
        **{"properties.bootstrap.servers": topic.servers, "key.format": None, "value.format": None, "format": "json"},
    )  # fmt: skip
    source = TopicSource(appended, read(appended))
    with pytest.raises(ChangelogError, match="would be there twice; replay it into a new table"):
        replay_topic(topic.spark, source, changelog_of(source, Lake(str(topic.root))), start=EARLIEST, run="replay")
    with pytest.raises(ChangelogError, match="was not read yet"):
        topic.replay()


def test_starts_are_read_as_people_write_them() -> None:
    assert start_of() == EARLIEST
    assert (
        start_of(timestamp="2026-11-01T12:00:00Z") == start_of(timestamp="2026-11-01 12:00:00") == Start(1793534400000)
    )
    assert start_of(timestamp="1793534400000").label == "timestamp-1793534400000"
    assert start_of(offsets={"1": 7, "0": 42}) == Start(offsets=((0, 42), (1, 7)))
    for wrong in ({"timestamp": "soon"}, {"offsets": {"a": 1}}, {"timestamp": "1", "offsets": {"0": 1}}):
        with pytest.raises(ChangelogError):
            start_of(**wrong)  # type: ignore[arg-type]
