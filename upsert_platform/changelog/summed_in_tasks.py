"""The two sides of a comparison in Spark's tasks: what rows must be, and what a destination gives, each as sums.

Runs in Spark's workers, through ``mapInArrow``. Rows stay in the task that made or read them; the driver gets sums
(`row_sums`), and hashes of keys where the destination gives rows of other keys too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.latest_in_tasks import ManyRepeatedKeysError
from upsert_platform.changelog.row_hashes import mix
from upsert_platform.changelog.row_sums import Hashes, RowSums, row_hashes
from upsert_platform.core.destination import OPERATION, OPERATION_UPSERT, SEQUENCE

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]
TOLD_DDL: Final = "told STRING, keys BINARY"
"""What a task yields: one row with its sums as JSON, and hashes of keys."""
_SIDES: Final = ("expected", "found", "deleted", "found_deleted")
_PROBED_ROWS: Final = 256


@dataclass(slots=True)
class Told:
    """The sums that tasks report.

    Attributes:
        rows: of the expected side, deletes too.
        expected: the rows that the destination has to have.
        found: the rows that it has.
        deleted: the keys that it must not have.
        found_deleted: those that it tells as deleted, if it does.
        divided: whether a task found that keys have to be divided among tasks first, and told nothing.
        met: rows of the expected side whose key ends with a delete in one share.
    """

    rows: int = 0
    expected: RowSums = field(default_factory=RowSums)
    found: RowSums = field(default_factory=RowSums)
    deleted: RowSums = field(default_factory=RowSums)
    found_deleted: RowSums = field(default_factory=RowSums)
    divided: bool = False
    met: int = 0

    def add(self, text: str) -> None:
        """Adds what another task told."""
        other = json.loads(text)
        self.rows += other["rows"]
        self.met += other["met"]
        self.divided |= other["divided"]
        for name in _SIDES:
            getattr(self, name).add_sums(RowSums.from_json(other[name]))

    def to_batch(self, keys: Hashes | None = None) -> pa.RecordBatch:
        """The row of `TOLD_DDL`."""
        numbers = {"rows": self.rows, "divided": self.divided, "met": self.met}
        told = {**numbers, **{name: getattr(self, name).to_json() for name in _SIDES}}
        given = None if keys is None else keys.tobytes()
        return pa.record_batch({"told": pa.array([json.dumps(told)]), "keys": pa.array([given], pa.binary())})


@dataclass(frozen=True)
class KeysOfRows:
    """Hashes of the keys of change rows, by the task that wants them: sooner made anew than sent to it.

    Attributes:
        rows: gives all change rows for any number, those that a later one of their key replaced too.
        key: columns of the primary key, in their types.
    """

    rows: Task
    key: pa.Schema

    def __call__(self) -> Hashes:
        anybody = pa.record_batch({"id": pa.array([0], pa.int64())})
        parts = [key_hashes(batch, self.key) for batch in self.rows(iter([anybody]))]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)


@dataclass(frozen=True)
class GivenKeys:
    """Hashes of keys that are known where the task is made."""

    hashes: Hashes

    def __call__(self) -> Hashes:
        return self.hashes


@dataclass(frozen=True)
class Sample:
    """About one in so many of the keys that no batch after `after` wrote: of another batch other keys."""

    after: int
    one_in: int


@dataclass(frozen=True)
class ExpectedRows:
    """The task of the expected side; it gets change rows, one per key.

    Attributes:
        fields: columns of the table, in its types.
        key: those of its primary key.
        sample: which rows are looked at; None: all of them.
        held: rows as the destination's formats hold them; None where they hold every value.
        read: reads the rows of keys, which are then the found side; None where others do.
        tells_keys: whether hashes of the keys are told.
        ended: gives hashes of keys that end with a delete in one share of the found side; rows of them are counted.
    """

    fields: pa.Schema
    key: pa.Schema
    sample: Sample | None = None
    held: Task | None = None
    read: Task | None = None
    tells_keys: bool = False
    ended: Callable[[], Hashes] | None = None

    def __call__(self, batches: Batches) -> Batches:
        told = Told()
        keys: list[Hashes] = []
        looked_at = self._looked_at(batches, told)
        try:
            if self.read is not None:
                for found in self.read(batch.select(self.key.names) for batch in looked_at):
                    told.found.add(found, self.fields)
            else:
                for batch in looked_at:
                    if self.tells_keys:
                        keys.append(key_hashes(batch, self.key))
        except ManyRepeatedKeysError:
            told = Told(divided=True)
        yield told.to_batch(np.concatenate(keys) if keys else None)

    def _looked_at(self, batches: Batches, told: Told) -> Batches:
        ended = None if self.ended is None else KeySet(self.ended())
        changes, probed_at = False, 1
        for number, every in enumerate(batches, 1):
            batch = self._sampled(every)
            if not batch.num_rows:
                continue
            if number >= probed_at:
                changes, probed_at = changes or self._changes(batch), 2 * number
            if changes:
                assert self.held is not None
                (batch,) = self.held(iter([batch]))
            told.rows += batch.num_rows
            wanted = pc.equal(batch.column(OPERATION), OPERATION_UPSERT)
            put = _filtered(batch, wanted)
            told.expected.add(put, self.fields)
            if ended is not None:
                told.met += int(ended.holds(key_hashes(put, self.key)).sum())
            told.deleted.add(_filtered(batch, pc.invert(wanted)), self.key)
            yield batch

    def _sampled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.sample is None or not batch.num_rows:
            return batch
        hashes = mix(key_hashes(batch, self.key) ^ np.uint64(self.sample.after))
        drawn = pa.array(hashes % np.uint64(self.sample.one_in) == 0)
        return _filtered(batch, pc.or_(pc.greater(batch.column(SEQUENCE), self.sample.after), drawn))

    def _changes(self, batch: pa.RecordBatch) -> bool:
        """Return whether the destination's formats hold the first rows of a batch otherwise than they are.

        Where only later rows, or those of batches in between, lose something, both sides differ, and whoever looks
        closer finds out.
        """
        if self.held is None:
            return False
        first = batch.slice(0, _PROBED_ROWS)
        return not pa.Table.from_batches(self.held(iter([first]))).equals(pa.Table.from_batches([first]))


@dataclass(frozen=True)
class FoundRows:
    """The task of the found side, where rows are read by shares; it gets numbers of shares.

    Attributes:
        fields: columns of the table, in its types.
        key: those of its primary key.
        read: gives the rows of shares.
        among: gives hashes of the keys whose rows count; None: all count.
        tells_deletes: whether rows have `_op`.
        replaced: whether a share gives rows that others of their keys in it, of a greater `_seq`, replaced. Its hashes
            are held then.
        most_ended: of how many keys that end with a delete hashes are told, of all shares of a task; above, nothing is.
    """

    fields: pa.Schema
    key: pa.Schema
    read: Task
    among: Callable[[], Hashes] | None = None
    tells_deletes: bool = False
    replaced: bool = False
    most_ended: int = 0

    def __call__(self, numbers: Batches) -> Batches:
        if self.replaced:
            yield self._last_of_shares(numbers)
            return
        told = Told()
        wanted = None if self.among is None else KeySet(self.among())
        for every in self.read(numbers):
            batch = every if wanted is None else wanted.rows_of(every, self.key)
            if self.tells_deletes:
                put = pc.equal(batch.column(OPERATION), OPERATION_UPSERT)
                told.found_deleted.add(_filtered(batch, pc.invert(put)), self.key)
                batch = _filtered(batch, put)
            told.found.add(batch, self.fields)
        yield told.to_batch()

    def _last_of_shares(self, numbers: Batches) -> pa.RecordBatch:
        """The sums of all rows that are put, without those that are replaced in their share, and the keys that end with
        a delete there."""
        told = Told()
        ended: list[Hashes] = []
        for batch in numbers:
            for place in range(batch.num_rows):
                parts = [self._hashed(part) for part in self.read(iter([batch.slice(place, 1)])) if part.num_rows]
                if not parts:
                    continue
                keys, other, places, put, *hashes = (np.concatenate(column) for column in zip(*parts, strict=True))
                last = last_of_keys(keys, other, places)
                told.found.add_hashes(*(side[last & put] for side in hashes))
                if self.most_ended:
                    ended.append(keys[last & ~put])
                    if sum(map(len, ended)) > self.most_ended:
                        return Told(divided=True).to_batch()
        return told.to_batch(np.concatenate(ended) if ended else None)

    def _hashed(self, batch: pa.RecordBatch) -> tuple[Any, ...]:
        """Hashes of keys, what orders rows, whether they are put, and hashes of rows."""
        count = batch.num_rows
        put = pc.equal(batch.column(OPERATION), OPERATION_UPSERT) if self.tells_deletes else pa.repeat(True, count)
        places = batch.column(SEQUENCE).to_numpy(zero_copy_only=False)
        return (
            *row_hashes(batch, self.key), places, put.to_numpy(zero_copy_only=False), *row_hashes(batch, self.fields)
        )  # fmt: skip


def last_of_keys(keys: Hashes, other: Hashes, places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return a mask of the last row of each key: of the greatest place, and of equal places of the one that came last.

    Args:
        keys, other: two hashes of each row's key. Where two keys share the first alone, more of their rows may be in
            the mask; then both sides of a comparison differ. Two texts of one hash share both (2^-64 for a pair), and
            count as one key.
    """
    is_ordered = bool((places[1:] >= places[:-1]).all())
    order = np.argsort(keys, kind="stable") if is_ordered else np.lexsort((places, keys))
    ordered, others = keys[order], other[order]
    replaced = np.append((ordered[1:] == ordered[:-1]) & (others[1:] == others[:-1]), False)[: len(order)]
    last = np.ones(len(order), bool)
    last[order[replaced]] = False
    return last


class KeySet:
    """Keys by their hashes, of which many are asked for at once.

    Hashes are spread evenly, so the first bits of one tell where it stands among the sorted ones; a search for it would
    go to memory twenty times.
    """

    def __init__(self, hashes: Hashes) -> None:
        ordered = np.sort(hashes)
        self._sorted = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
        bits = max(1, len(self._sorted).bit_length())
        self._shift = np.uint64(64 - bits)
        counts = np.bincount((self._sorted >> self._shift).astype(np.int64), minlength=1 << bits)
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts

    def holds(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return a mask of the hashes that are in the set."""
        found = np.zeros(len(hashes), bool)
        groups = (hashes >> self._shift).astype(np.int64)
        left, places, ends = np.arange(len(hashes)), self._starts[groups], self._ends[groups]
        while True:
            more = places < ends
            left, places, ends = left[more], places[more], ends[more]
            if not len(left):
                return found
            same = self._sorted[places] == hashes[left]
            found[left[same]] = True
            left, places, ends = left[~same], places[~same] + 1, ends[~same]

    def rows_of(self, batch: pa.RecordBatch, key: pa.Schema) -> pa.RecordBatch:
        """The rows with these keys. Another key of the same hash makes both sides differ, and hides no row."""
        return _filtered(batch, pa.array(self.holds(key_hashes(batch, key))))


def key_hashes(batch: pa.RecordBatch, key: pa.Schema) -> Hashes:
    """A hash of 64 bits per row, of its key."""
    return row_hashes(batch, key)[0]


def _filtered(batch: pa.RecordBatch, wanted: Any) -> pa.RecordBatch:
    return batch if pc.all(wanted, min_count=0).as_py() else batch.filter(wanted)
