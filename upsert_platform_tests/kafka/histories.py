"""Random histories of a topic, what readers meet of them, and what a table of them must be.

A history is a list of steps: records, offsets that hold none (aborted transactions, control records), further
partitions, compactions, and the ends of batches. `Log` plays it as brokers do; its model of the table knows nothing of
how the platform reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

from upsert_platform.changelog.accounting import OffsetRange, RangeAccount
from upsert_platform.kafka.sink.encode import RecordEncoder
from upsert_platform.kafka.source.read_range import RangeReader
from upsert_platform.kafka.source.source import share_ranges
from upsert_platform.kafka.table import KafkaTable
from upsert_platform_tests.formats.proto import shop, write_set
from upsert_platform_tests.kafka.answering import Asked, answering
from upsert_platform_tests.kafka.tables import FakeRecord, declare, read

COLUMNS: Final = {"id": "INT", "number": "INT"}
FORMATS: Final[Mapping[str, bytes]] = {
    "json": b"xx",
    "csv": b"xx",
    "raw": b"\0\0\0",
    "avro": b"\x08",
    "avro-confluent": b"\x05",
    "protobuf": b"\xff",
}
"""Formats that serve both sides of a table, each with a value that it cannot decode."""
KEYS: Final = 4


@dataclass(frozen=True)
class Put:
    """A record; `number` None is a tombstone, BAD cannot be decoded.

    Attributes:
        late: how far its time lies back.
        spelling: which of the forms that a format has for a key; all of them are one key.
    """

    key: int
    number: int | None
    late: int = 0
    spelling: int = 0


BAD: Final = -1
Step = Put | str | int
"""A record, ``partition`` (one more), ``compact``, ``batch``, or a number of offsets without records."""

_PUT: Final = st.builds(
    Put,
    st.integers(1, KEYS),
    st.one_of(st.none(), st.just(BAD), st.integers(0, 99)),
    st.sampled_from([0, 0, 0, 3, 30]),
    st.integers(0, 1),
)
_RESPELLED: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "json": lambda key: key.replace(b":", b": "),
    "csv": lambda key: b'"' + key + b'"',
}
"""Another form of the same key, where a format has one."""
STEPS: Final = st.lists(
    st.one_of(_PUT, _PUT, _PUT, st.sampled_from(["partition", "compact", "batch"]), st.integers(1, 3)), max_size=40
)


@dataclass
class PlacedRecord(FakeRecord):
    """A record of any partition, and what was meant by it."""

    _partition: int = 0
    meant: Put = field(default_factory=lambda: Put(0, None))

    def partition(self) -> int:
        return self._partition


class Codec:
    """Key and value bytes of a format, by the encoder of the sink."""

    def __init__(self, table: KafkaTable, bad: bytes) -> None:
        numbers = range(100)
        rows = {"id": [*numbers, *numbers], "number": [*numbers] * 2, "_op": ["U"] * 100 + ["D"] * 100}
        schema = pa.schema([("id", pa.int32()), ("number", pa.int32()), ("_op", pa.string())])
        made = RecordEncoder(table).encode(pa.RecordBatch.from_pydict(rows, schema=schema))
        assert made.refused == {}
        self._keys: list[bytes] = made.keys.to_pylist()[:100]
        self._values: list[bytes] = made.values.to_pylist()[:100]
        assert made.values.to_pylist()[100:] == [None] * 100
        self._bad = bad
        self._respelled = _RESPELLED.get(table.key.format if table.key else "", lambda key: key)

    def pair(self, put: Put) -> tuple[bytes, bytes | None]:
        """What a producer sends."""
        key = self._respelled(self._keys[put.key]) if put.spelling else self._keys[put.key]
        if put.number is None:
            return key, None
        return key, self._bad if put.number == BAD else self._values[put.number]


def table_of(format_id: str, formats: Mapping[str, str], **options: str) -> KafkaTable:
    """A table with the same format on both sides; every value can be decoded without its key.

    Args:
        formats: of `schema_server`.
    """
    declared = {"key.format": format_id, "value.format": format_id, "value.fields-include": "EXCEPT_KEY", **options}
    declared |= {name: value for name, value in formats.items() if name.partition(".")[2].startswith(f"{format_id}.")}
    return read(declare(COLUMNS, **declared))


@contextmanager
def schema_server() -> Iterator[dict[str, str]]:
    """A schema registry that keeps what it is given, and a file of messages; the options that lead to them."""
    schemas: list[str] = []

    def answer(asked: Asked) -> tuple[int, bytes]:
        if asked.method == "POST":
            schema = json.loads(asked.body)["schema"]
            if schema not in schemas:
                schemas.append(schema)
            return 200, json.dumps({"id": schemas.index(schema) + 1}).encode()
        number = int(asked.path.partition("?")[0].rsplit("/", 1)[1])
        return 200, json.dumps({"schema": schemas[number - 1]}).encode()

    with answering(answer) as server, TemporaryDirectory() as folder:
        path = write_set(Path(folder) / "shop.desc", shop())
        yield {
            f"{side}.{name}": value
            for side, message in (("key", "shop.Key"), ("value", "shop.Value"))
            for name, value in (
                ("avro-confluent.url", server.url),
                ("protobuf.descriptor-file", path),
                ("protobuf.message-class-name", message),
            )
        }


@dataclass
class Log:
    """A topic that a history is played into, batch after batch.

    Attributes:
        piece: records that a fetch gives at once.
        tasks: that share a range, each reducing its part by itself.
        rows: of the changelog so far.
        model: the table that must come of it.
    """

    table: KafkaTable
    codec: Codec
    piece: int = 7
    tasks: int = 1
    partitions: list[list[PlacedRecord]] = field(default_factory=lambda: [[]])
    ends: list[int] = field(default_factory=lambda: [0])
    positions: list[int] = field(default_factory=lambda: [0])
    rows: list[dict[str, Any]] = field(default_factory=list)
    model: dict[int, int] = field(default_factory=dict)
    batch: int = 0
    clock: int = 1_700_000_000_000

    def play(self, steps: Sequence[Step]) -> None:
        """Plays a history, and ends the last batch."""
        for step in [*steps, "batch"]:
            self.clock += 1
            match step:
                case Put():
                    self._append(step)
                case "partition":
                    self.partitions.append([])
                    self.ends.append(0)
                    self.positions.append(0)
                case "compact":
                    self.partitions = [_compacted(records) for records in self.partitions]
                case "batch":
                    self._read()
                case int():
                    self.ends[self.clock % len(self.ends)] += step

    def _append(self, put: Put) -> None:
        place = put.key % len(self.partitions)
        key, value = self.codec.pair(put)
        time = self.clock - put.late
        record = PlacedRecord(self.ends[place], key, value, None, time, "users", place, put)
        self.partitions[place].append(record)
        self.ends[place] += 1

    def _read(self) -> None:
        self.batch += 1
        best: dict[int, tuple[tuple[int, int], Put]] = {}
        for place, records in enumerate(self.partitions):
            start, end = self.positions[place], self.ends[place]
            if start == end:
                continue
            whole = [record for record in records if start <= record.offset() < end]
            for part in share_ranges([OffsetRange("users", place, start, end)], self.tasks):
                self._read_part(*part)
            for key, record in _last_good(whole).items():
                found = (record.timestamp()[1], place), record.meant
                best[key] = max(best.get(key, found), found, key=lambda item: item[0])
            self.positions[place] = end
        for key, (_, put) in best.items():
            if put.number is None:
                self.model.pop(key, None)
            else:
                self.model[key] = put.number

    def _read_part(self, wanted: OffsetRange) -> None:
        records = self.partitions[wanted.partition]
        part = [record for record in records if wanted.start <= record.offset() < wanted.end]
        rows, account = self._read_range(wanted.partition, wanted.start, wanted.end, part)
        assert account.imbalance() is None
        assert account.records == len(part)
        assert account.gaps == wanted.offsets - len(part)
        _check_places(rows, part)
        self.rows += [{**row, "_batch": self.batch} for row in rows]

    def _read_range(
        self, place: int, start: int, end: int, part: list[PlacedRecord]
    ) -> tuple[list[dict[str, Any]], RangeAccount]:
        def fetch(wanted: OffsetRange) -> Iterator[list[PlacedRecord]]:
            chosen = [record for record in part if wanted.start <= record.offset() < wanted.end]
            for at in range(0, len(chosen), self.piece):
                yield chosen[at : at + self.piece]

        reader = RangeReader(self.table, reduces=True, fetch=fetch)
        rows = pa.Table.from_batches(list(reader.read(OffsetRange("users", place, start, end)))).to_pylist()
        return rows, RangeAccount.from_json(rows.pop()["_accounting"])


def _last_good(records: Iterable[PlacedRecord]) -> dict[int, PlacedRecord]:
    """The record at the highest offset of each key that can be decoded, whatever its time and its spelling."""
    last: dict[int, PlacedRecord] = {}
    for record in records:
        met = last.get(record.meant.key)
        if record.meant.number != BAD and (met is None or record.offset() > met.offset()):
            last[record.meant.key] = record
    return last


def _compacted(records: list[PlacedRecord]) -> list[PlacedRecord]:
    """The last record of every key stays, tombstones among them, each at its offset."""
    last = {record.key(): record for record in records}
    return [record for record in records if last[record.key()] is record]


def _check_places(rows: list[dict[str, Any]], part: list[PlacedRecord]) -> None:
    """What is quarantined is what cannot be decoded and no later good record replaced; nothing else is."""
    good = {record.key(): record.offset() for record in part if record.meant.number != BAD}
    left = {record.offset() for record in part if record.meant.number == BAD}
    left = {at for at in left if at > good.get(next(r.key() for r in part if r.offset() == at), -1)}
    assert {row["_offset"] for row in rows if row["_kind"] == "?"} == left
    assert {row["_offset"] for row in rows if row["_kind"] != "?"} == set(good.values())
