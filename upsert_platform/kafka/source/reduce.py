"""Reduction before decoding: of the records of an offset range, the last one per raw key is kept.

Runs in Spark workers. Knows neither Kafka's client nor formats: a record is anything with the methods of `Record`, so
the rules are tested without a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from upsert_platform.changelog.row_hashes import hash_cells
from upsert_platform.kafka.source.records import RECORD_OBJECT_BYTES, Record, RecordBlock

R = TypeVar("R", bound=Record)

FIRST_REDUCTION_BYTES: Final = 32 << 20
"""Held before the first reduction; each further one waits until twice of what the last one left is held."""
_DISTINCT: Final = 0.9
"""Of this share of different keys on, records are held up to the budget before they are reduced again."""
_MANY_KEYS: Final = 150_000
"""Above, the texts of keys no longer fit the processor's cache, and are told apart by hashes of them."""


class LatestByKey:
    """The last record per raw key, of records added in offset order, within a memory budget.

    Args:
        budget: bytes; more is held for a moment while records are reduced. Less is held where keys are repeated: memory
            follows the keys, not the records.
        keep: keep the client's objects, see RecordBlock.records.

    Attributes:
        records: how many were added.
        bytes: of their keys and values.
        without_key: records with a null key, which replace nothing.
    """

    def __init__(self, *, budget: int, keep: bool = False) -> None:
        self._budget = budget
        self._keep = keep
        self._blocks: list[RecordBlock] = []
        self._held = 0
        self._is_reduced = True
        self._reduces_at = min(budget, FIRST_REDUCTION_BYTES)
        self.records = 0
        self.bytes = 0
        self.without_key: list[Record] = []

    def add(self, records: Sequence[Record]) -> None:
        """Adds records that follow those added before; at least one."""
        block = RecordBlock.of(records, keep=self._keep)
        self.records += len(block)
        self.bytes += block.payload
        if block.keys.null_count:
            null = block.keys.is_null().to_numpy(zero_copy_only=False)
            lone = [records[row] for row in np.flatnonzero(null).tolist()]
            self.without_key += lone
            self._held += sum(map(len, lone)) + RECORD_OBJECT_BYTES * len(lone)
            block = block.take(np.flatnonzero(~null))
        if len(block):
            self._blocks.append(block)
            self._held += block.held
            self._is_reduced = False

    def is_full(self) -> bool:
        """Return whether what is held, without replaced records, has reached three quarters of the budget."""
        if self._held <= self._reduces_at:
            return False
        lone = self._held - sum(block.held for block in self._blocks)
        before = sum(map(len, self._blocks))
        reduced = self.survivors()
        self._held = lone + (reduced.held if reduced is not None else 0)
        wanted = 2 * self._held
        if reduced is not None and len(reduced) >= _DISTINCT * before:
            wanted = self._budget  # another look before would cost as much, and free as little
        self._reduces_at = min(self._budget, max(FIRST_REDUCTION_BYTES, wanted))
        return self._held * 4 >= self._budget * 3

    def survivors(self) -> RecordBlock | None:
        """The last record of each key, in offset order, or None when no record has a key."""
        if not self._blocks:
            return None
        whole = RecordBlock.concat(self._blocks)
        if not self._is_reduced:
            last = last_of_keys(whole.keys)
            whole = whole if len(last) == len(whole) else whole.take(last)
            self._is_reduced = True
        self._blocks = [whole]
        return whole

    def superseded(self, survivors: RecordBlock | None) -> int:
        """Records that a later record of the same key replaced."""
        return self.records - len(self.without_key) - (len(survivors) if survivors is not None else 0)


def last_of_keys(keys: pa.BinaryArray) -> np.ndarray:
    """The place of the last occurrence of each key, ascending; no key is null."""
    if len(keys) > _MANY_KEYS:
        last, codes = _last(pa.array(hash_cells(keys)))
        followed = np.flatnonzero(last[codes] != np.arange(len(keys)))
        if keys.take(pa.array(followed)).equals(keys.take(pa.array(last[codes[followed]]))):
            return np.sort(last)  # else two keys share a hash
    return np.sort(_last(keys)[0])


def _last(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The last place of each different value, by its number, and the number of each value."""
    encoded = values.dictionary_encode()
    numbers = encoded.indices.to_numpy()
    last = np.empty(len(encoded.dictionary), np.int64)
    last[numbers] = np.arange(len(values))  # of a repeated place the last assignment stays
    return last, numbers


@dataclass(slots=True)
class Verdicts:
    """The decoder's verdict on records of a block that gave no change: their index in the block, and the reason.

    Attributes:
        refused: cannot be decoded; they go to quarantine.
        skipped: decodable, but a named rule passes over them (a value without rows).
    """

    refused: dict[int, str] = field(default_factory=dict)
    skipped: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class OlderValues:
    """Result of looking for the values that keys had before a record that gave nothing.

    Attributes:
        found: raw key to its highest record that can be decoded, below the one that gave nothing.
        passed_over: how many records lie between, which give nothing either.
    """

    found: dict[bytes, Any] = field(default_factory=dict)
    passed_over: int = 0


def find_older(
    blocks: Iterable[Sequence[R]], before: dict[bytes, int], judge: Callable[[Sequence[R]], Verdicts]
) -> OlderValues:
    """Finds, per key, the highest record below an offset that can be decoded (a tombstone can).

    Args:
        blocks: the records of the range, read again in offset order.
        before: raw key to the offset of the record that gave nothing.
        judge: decodes records and tells which of them give nothing.
    """
    older = OlderValues()
    between: dict[bytes, int] = {}
    for block in blocks:
        candidates = _candidates(block, before)
        verdicts = judge(candidates) if candidates else Verdicts()
        for index, record in enumerate(candidates):
            key = record.key()
            assert key is not None
            if index in verdicts.refused or index in verdicts.skipped:
                between[key] = between.get(key, 0) + 1
            else:
                older.found[key] = record
                between[key] = 0
    older.passed_over = sum(between.values())
    return older


def between_older_and_refused(
    blocks: Iterable[Sequence[R]], before: dict[bytes, int], found: dict[bytes, Any]
) -> Iterator[list[R]]:
    """The records that `find_older` passed over: above the value found for their key, below the one without rows."""
    for block in blocks:
        passed = [
            record
            for record in _candidates(block, before)
            if (other := found.get(record.key() or b"")) is None or record.offset() > other.offset()
        ]
        if passed:
            yield passed


def _candidates(block: Sequence[R], before: dict[bytes, int]) -> list[R]:
    return [
        record
        for record in block
        if (key := record.key()) is not None and (limit := before.get(key)) is not None and record.offset() < limit
    ]
