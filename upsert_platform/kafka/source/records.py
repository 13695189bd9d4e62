"""Records of a topic as columns. Runs in Spark workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

RECORD_OBJECT_BYTES: Final = 400
"""What a record of Kafka's client takes in memory besides key and value."""
NO_TIME: Final = -1


class Record(Protocol):
    """A record as Kafka's client hands it out. `len()` is the length of the value, 0 without one."""

    def key(self) -> bytes | None: ...

    def value(self) -> bytes | None: ...

    def offset(self) -> int: ...

    def timestamp(self) -> tuple[int, int]: ...

    def topic(self) -> str: ...

    def partition(self) -> int: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Records of one partition as columns, in offset order.

    Columns and not the client's objects, since those are scattered in memory: keeping half a million of them costs more
    than reading them.

    Attributes:
        keys: binary, null where a record has no key.
        values: binary, null in tombstones.
        offsets: int64.
        times: int64, ms since 1970, NO_TIME where a record has none.
        records: the client's objects, where something else of them is needed (headers); None otherwise.
    """

    topic: str
    partition: int
    keys: pa.Array
    values: pa.Array
    offsets: np.ndarray
    times: np.ndarray
    records: np.ndarray | None

    def __len__(self) -> int:
        return len(self.offsets)

    @staticmethod
    def of(records: Sequence[Record], *, keep: bool) -> RecordBlock:
        """The columns of records, of which there is at least one.

        Every line is a loop in C over one attribute; this is the hot path of reading a topic.
        """
        kind = type(records[0])
        count = len(records)
        first, last = records[0].offset(), records[-1].offset()
        if last - first + 1 == count:
            offsets = np.arange(first, last + 1, dtype=np.int64)
        else:
            offsets = np.fromiter(map(kind.offset, records), np.int64, count)
        kinds, times = zip(*map(kind.timestamp, records), strict=True)
        stamps = np.array(times, np.int64)
        if 0 in kinds:
            stamps[np.array(kinds) == 0] = NO_TIME
        return RecordBlock(
            records[0].topic(),
            records[0].partition(),
            pa.array(list(map(kind.key, records)), pa.binary()),
            pa.array(list(map(kind.value, records)), pa.binary()),
            offsets,
            stamps,
            _objects(records) if keep else None,
        )

    @staticmethod
    def concat(blocks: Sequence[RecordBlock]) -> RecordBlock:
        """Blocks of one partition that follow each other, as one."""
        if len(blocks) == 1:
            return blocks[0]
        return RecordBlock(
            blocks[0].topic,
            blocks[0].partition,
            pa.concat_arrays([block.keys for block in blocks]),
            pa.concat_arrays([block.values for block in blocks]),
            np.concatenate([block.offsets for block in blocks]),
            np.concatenate([block.times for block in blocks]),
            None if blocks[0].records is None else np.concatenate([block.records for block in blocks]),
        )

    def take(self, rows: np.ndarray) -> RecordBlock:
        """The rows at ascending places."""
        places = pa.array(rows)
        return RecordBlock(
            self.topic,
            self.partition,
            self.keys.take(places),
            self.values.take(places),
            self.offsets[rows],
            self.times[rows],
            None if self.records is None else self.records[rows],
        )

    def slices(self, *, most_records: int, most_bytes: int) -> Iterator[RecordBlock]:
        """The block in pieces of bounded size (a piece is never empty, so one huge record is a piece)."""
        ends = np.cumsum(_lengths(self.keys) + _lengths(self.values))
        start = 0
        while start < len(self):
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + most_bytes, side="right"))
            stop = max(start + 1, min(stop, start + most_records, len(self)))
            yield RecordBlock(
                self.topic,
                self.partition,
                self.keys.slice(start, stop - start),
                self.values.slice(start, stop - start),
                self.offsets[start:stop],
                self.times[start:stop],
                None if self.records is None else self.records[start:stop],
            )
            start = stop

    @property
    def payload(self) -> int:
        """Bytes of keys and values."""
        return int(self.keys.total_values_length) + int(self.values.total_values_length)

    @property
    def held(self) -> int:
        """Bytes of memory."""
        size = int(self.keys.nbytes) + int(self.values.nbytes) + self.offsets.nbytes + self.times.nbytes
        return size if self.records is None else size + self.payload + RECORD_OBJECT_BYTES * len(self)


def _objects(records: Sequence[Record]) -> np.ndarray:
    column = np.empty(len(records), object)
    column[:] = records  # not np.array(records): a record has a length, so numpy would take it for a sequence
    return column


def _lengths(column: pa.Array) -> np.ndarray:
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return np.diff(offsets).astype(np.int64)
