"""Reduction before decoding: of the records of an offset range, the last one per raw key is kept.

Knows neither Kafka's client nor formats: a record is anything with the methods of `Record`, so the rules are tested
without a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

RECORD_OVERHEAD: Final = 256
"""Bytes that a held record takes besides key and value (measured: client object, references, dict entry)."""


class Record(Protocol):
    """A record as Kafka's client hands it out. `len()` is the length of the value, 0 without one."""

    def key(self) -> bytes | None: ...

    def value(self) -> bytes | None: ...

    def offset(self) -> int: ...

    def __len__(self) -> int: ...


R = TypeVar("R", bound=Record)


class LatestByKey:
    """The last record per raw key, of records added in offset order.

    Adding is the hot loop of reading a topic: it runs in C, record by record, and touches nothing but the key.

    Attributes:
        records: how many were added.
        bytes: of their keys and values.
        without_key: records with a null key, which replace nothing.
    """

    def __init__(self, *, budget: int) -> None:
        self._budget = budget
        self._latest: dict[bytes | None, Record] = {}
        self._held = 0
        self._held_since = 0
        self.records = 0
        self.bytes = 0
        self.without_key: list[Record] = []

    def add(self, records: Sequence[Record]) -> None:
        """Adds records that follow those added before."""
        if not records:
            return
        kind = type(records[0])
        keys = list(map(kind.key, records))
        if None in keys:
            self.without_key += [record for record, key in zip(records, keys, strict=True) if key is None]
            kept = [(key, record) for key, record in zip(keys, records, strict=True) if key is not None]
            self._latest.update(kept)
            size = sum(len(key) for key in keys if key is not None) + sum(map(len, records))
        else:
            self._latest.update(zip(keys, records, strict=True))
            size = sum(map(len, keys)) + sum(map(len, records))  # type: ignore[arg-type]
        self.records += len(records)
        self.bytes += size
        self._held_since += size + RECORD_OVERHEAD * len(records)

    def is_full(self) -> bool:
        """Whether the records held have reached the budget. Replaced ones are not counted."""
        if self._held + self._held_since <= self._budget:
            return False
        held = [*self._latest.values(), *self.without_key]
        self._held = sum(map(len, self._latest)) + sum(map(len, held)) + RECORD_OVERHEAD * len(held)  # type: ignore[arg-type]
        self._held_since = 0
        # Above three quarters the next sums would come too soon to be worth it.
        return self._held * 4 >= self._budget * 3

    def survivors(self) -> list[Record]:
        """The last record of each key, in no particular order; records without a key are not among them."""
        return list(self._latest.values())

    @property
    def superseded(self) -> int:
        """Records that a later record of the same key replaced."""
        return self.records - len(self._latest) - len(self.without_key)


@dataclass(slots=True)
class Verdicts:
    """What decoding a block said of records that gave no change: their index in the block, and why.

    Attributes:
        refused: cannot be decoded; they go to quarantine.
        skipped: decodable, but a named rule passes over them (a value without rows).
    """

    refused: dict[int, str] = field(default_factory=dict)
    skipped: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class OlderValues:
    """Result of looking for the values that keys had before a record that cannot be decoded.

    Attributes:
        found: raw key to its highest record that can be decoded, below the one that cannot.
        passed_over: how many records lie between, which cannot be decoded either.
    """

    found: dict[bytes, Record] = field(default_factory=dict)
    passed_over: int = 0


def find_older(
    blocks: Iterable[Sequence[R]], before: dict[bytes, int], judge: Callable[[Sequence[R]], Verdicts]
) -> OlderValues:
    """Finds, per key, the highest record below an offset that can be decoded (a tombstone can).

    Args:
        blocks: the records of the range, read again in offset order.
        before: raw key to the offset of the record that could not be decoded.
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
    blocks: Iterable[Sequence[R]], before: dict[bytes, int], found: dict[bytes, Record]
) -> Iterator[list[R]]:
    """The records that `find_older` passed over: above the value found for their key, below the first refused one."""
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
