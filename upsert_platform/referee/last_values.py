"""The last value per key of records, where within a partition the offset alone decides.

Between partitions the later batch decides, where batches are told, then the time of the records, then the partition's
number. What is not decodable has no part: the value of a key is its highest decodable record or tombstone.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from upsert_platform.referee.errors import UndecodableError, UnjudgedError
from upsert_platform.referee.formats import Side
from upsert_platform.referee.kinds import texts_of
from upsert_platform.referee.topic import Ends, Record

_IN_MEMORY = 100_000
_SHOWN = 20
_INSERT = """
INSERT INTO last VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET offset = excluded.offset, time = excluded.time, doubt = max(doubt, excluded.doubt),
  raw_key = excluded.raw_key, value = excluded.value WHERE excluded.offset > last.offset
"""
_DOUBT = "UPDATE last SET doubt = max(doubt, ?) WHERE key = ? AND topic = ? AND partition = ?"


@dataclass
class Counts:
    """The counts of records: records = values + tombstones + undecodable + unjudged + set_aside.

    Attributes:
        set_aside: values and tombstones that were told to have been set aside, so that they have no part; a key
            that ends with one is left open.
        unjudged: values or keys that the referee's decoders leave open.
        lost_keys: of these, records whose key is left open, so that nobody knows whose value it is.
        several: keys with records in more than one partition.
        first: some records that are undecodable or unjudged, in words.
    """

    records: int = 0
    values: int = 0
    tombstones: int = 0
    undecodable: int = 0
    unjudged: int = 0
    set_aside: int = 0
    lost_keys: int = 0
    several: int = 0
    first: list[str] = field(default_factory=list)

    def note(self, record: Record, what: str) -> None:
        """Keeps a record for the report, if there are few."""
        if len(self.first) < _SHOWN:
            self.first.append(f"{record.topic}-{record.partition}@{record.offset}: {what}")


@dataclass(frozen=True)
class Form:
    """The form in which the records of a topic are read.

    Attributes:
        primary_key: columns of the table; all of them columns of the key.
        key_counts: whether a value's own copy of the key is passed over where it differs, or makes it undecodable.
    """

    key: Side
    value: Side
    primary_key: tuple[str, ...]
    key_counts: bool = False


@dataclass(frozen=True, slots=True)
class Last:
    """The last state of a key.

    Attributes:
        key: the columns of the key.
        row: all columns, or None where the key ends deleted.
        is_open: whether a later record of the key is unjudged, so that the row may be another.
    """

    key: dict[str, Any]
    row: dict[str, Any] | None
    is_open: bool


class LastValues:
    """Collects records in any order; keeps the last of every key and partition, on disk where they are many.

    Args:
        batches: ends of the batches in which the topic was read, in order; what decides between partitions first.
        set_aside: topic, partition and offset of records that have no part, whether they can be decoded or not.
        in_memory: keys that are kept before they are spilled.
    """

    def __init__(
        self,
        form: Form,
        *,
        batches: Sequence[Ends] = (),
        set_aside: Collection[tuple[str, int, int]] = (),
        in_memory: int = _IN_MEMORY,
    ) -> None:
        self.form = form
        self.counts = Counts()
        self._batches = batches
        self._set_aside = frozenset(set_aside)
        self._ends: dict[tuple[str, int], list[int]] = {}
        self._in_memory = in_memory
        self._key_decoder, self._value_decoder = form.key.decoder(), form.value.decoder()
        self._key_kinds = [form.key.kinds[name] for name in form.primary_key]
        self._key_places = [form.key.names.index(name) for name in form.primary_key]
        self._shared = [
            (form.value.names.index(name), form.key.names.index(name), form.key.kinds[name])
            for name in form.key.names
            if name in form.value.names
        ]
        self._texts: dict[bytes, str] = {}
        self._last: dict[tuple[str, str, int], tuple[int, int, bytes, bytes | None]] = {}
        self._doubts: dict[tuple[str, str, int], tuple[int, bytes]] = {}
        # A database without a name lives on disk as soon as it outgrows its cache, and is gone with the connection.
        self._database = sqlite3.connect("")
        self._database.execute(
            "CREATE TABLE last (key TEXT, topic TEXT, partition INT, offset INT, time INT, raw_key BLOB, value BLOB,"
            " doubt INT, PRIMARY KEY (key, topic, partition)) WITHOUT ROWID"
        )

    def close(self) -> None:
        """Lets go of what is kept."""
        self._database.close()

    def add(self, records: Iterable[Record]) -> None:
        """Takes records in."""
        for record in records:
            self._add(record)

    def _add(self, record: Record) -> None:
        counts = self.counts
        counts.records += 1
        try:
            key = self._key_text(record.key)
        except UndecodableError as error:
            counts.undecodable += 1
            counts.note(record, f"key: {error}")
            return
        except UnjudgedError as error:
            counts.unjudged += 1
            counts.lost_keys += 1
            counts.note(record, f"key: {error}")
            return
        place = (key, record.topic, record.partition)
        if record.value is not None:
            try:
                self._row(record.key or b"", record.value)
            except UndecodableError as error:
                counts.undecodable += 1
                counts.note(record, f"value: {error}")
                return
            except UnjudgedError as error:
                counts.unjudged += 1
                counts.note(record, f"value: {error}")
                self._doubt(place, record)
                return
        if self._set_aside and (record.topic, record.partition, record.offset) in self._set_aside:
            counts.set_aside += 1
            counts.note(record, "set aside, though it can be decoded")
            self._doubt(place, record)
            return
        if record.value is None:
            counts.tombstones += 1
        else:
            counts.values += 1
        known = self._last.get(place)
        if known is None or record.offset > known[0]:
            self._last[place] = (record.offset, record.time, record.key or b"", record.value)
            if len(self._last) >= self._in_memory:
                self._spill()

    def _doubt(self, place: tuple[str, str, int], record: Record) -> None:
        """Leaves a key open from this record on."""
        known = self._doubts.get(place)
        if known is None or record.offset > known[0]:
            self._doubts[place] = (record.offset, record.key or b"")

    def _key_text(self, raw: bytes | None) -> str:
        if raw is None:
            raise UndecodableError("no key")
        found = self._texts.get(raw)
        if found is None:
            values = self._key_decoder(raw)
            found = texts_of([values[place] for place in self._key_places], self._key_kinds)
            if len(self._texts) >= _IN_MEMORY:
                self._texts.clear()
            self._texts[raw] = found
        return found

    def _row(self, key: bytes, value: bytes) -> dict[str, Any]:
        """The columns of a record that is not a tombstone."""
        keys, values = self._key_decoder(key), self._value_decoder(value)
        for place, key_place, kind in self._shared:
            copy = values[place]
            if copy is None:
                continue
            if not self.form.key_counts and texts_of([copy], [kind]) != texts_of([keys[key_place]], [kind]):
                raise UndecodableError("the value's copy of the key differs")
        row = dict(zip(self.form.value.names, values, strict=True))
        return row | dict(zip(self.form.key.names, keys, strict=True))

    def _spill(self) -> None:
        rows = (
            (key, topic, partition, offset, time, raw_key, value, -1)
            for (key, topic, partition), (offset, time, raw_key, value) in self._last.items()
        )
        self._database.executemany(_INSERT, rows)
        self._last.clear()
        # A key that was never readable has no row yet; it gets one that is older than any record.
        missing = (
            (key, topic, partition, -1, -1, raw, None, -1) for (key, topic, partition), (_, raw) in self._doubts.items()
        )
        self._database.executemany("INSERT OR IGNORE INTO last VALUES (?, ?, ?, ?, ?, ?, ?, ?)", missing)
        self._database.executemany(_DOUBT, ((offset, *place) for place, (offset, _) in self._doubts.items()))
        self._doubts.clear()

    def results(self) -> Iterator[Last]:
        """Every key met."""
        self._spill()
        self.counts.several = 0
        group: list[tuple[Any, ...]] = []
        for found in self._database.execute("SELECT * FROM last ORDER BY key"):
            if group and group[0][0] != found[0]:
                yield self._final(group)
                group = []
            group.append(found)
        if group:
            yield self._final(group)

    def _final(self, group: list[tuple[Any, ...]]) -> Last:
        self.counts.several += len(group) > 1
        _, _, _, _, _, raw_key, value, _ = max(group, key=self._rank)
        key = dict(zip(self.form.key.names, self._key_decoder(raw_key), strict=True))
        is_open = any(item[7] > item[3] for item in group)
        return Last(key, None if value is None else self._row(raw_key, value), is_open)

    def _rank(self, found: tuple[Any, ...]) -> tuple[int, int, str, int]:
        _, topic, partition, offset, time, _, _, _ = found
        if offset < 0:
            return (-1, -1, topic, partition)
        return (self._batch(topic, partition, offset), time, topic, partition)

    def _batch(self, topic: str, partition: int, offset: int) -> int:
        """The number of the batch that read an offset, from 0."""
        ends = self._ends.get((topic, partition))
        if ends is None:
            ends = [batch.get((topic, partition), 0) for batch in self._batches]
            for number in range(1, len(ends)):
                ends[number] = max(ends[number], ends[number - 1])
            self._ends[topic, partition] = ends
        return bisect_right(ends, offset)
