"""Selection of the last rows of a span of batches from keys and order columns alone, for spans where few keys repeat.

Every task finds the same, so that each can read the other columns of files of its own, and nothing is reduced but the
rows of the few keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from upsert_platform.changelog import rows
from upsert_platform.changelog.last_rows import last_rows
from upsert_platform.changelog.row_hashes import hash_rows, mix
from upsert_platform.changelog.rows import PARTITIONS_MET
from upsert_platform.core.internal_columns import internal

_FEW: Final = 0.25
"""Part of the rows that may belong to keys which come more than once: these rows are reduced by every task."""
_FILE, _ROW_OF_FILE = internal("file"), internal("row_of_file")
Mask = npt.NDArray[np.bool_]


class Changes(Protocol):
    """Gives the change rows of a file, always the same in the same order."""

    def __call__(
        self, paths: Sequence[str], columns: Sequence[str], *, ordered: bool = True
    ) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True)
class Drawn:
    """A sample of the keys: about one in `one_in` of those that no batch after `after` contains, with other keys for
    each batch.

    A row of an earlier batch counts for nothing where a later batch has its key, so each row is judged by itself.
    """

    after: int
    one_in: int

    def holds(self, batch: pa.RecordBatch, hashes: npt.NDArray[np.uint64]) -> Mask:
        """Return a mask of the change rows that count.

        Args:
            hashes: of their keys.
        """
        drawn = mix(hashes ^ np.uint64(self.after)) % np.uint64(self.one_in) == 0
        return np.asarray(drawn | (batch.column(rows.BATCH).to_numpy() > self.after))

    def of(self, batch: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
        """The change rows that count."""
        return batch.filter(pa.array(self.holds(batch, key_hashes(batch, key))))


@dataclass(frozen=True)
class Counting:
    """The rows that count.

    Attributes:
        masks: per file, of each of its change rows whether it counts.
        met: per file, of each row whether its key came from several partitions; only of files that have such a row.
    """

    masks: Mapping[str, Mask]
    met: Mapping[str, Mask]

    def of(self, path: str, first: int, part: pa.RecordBatch) -> pa.RecordBatch:
        """Those of some rows of a file, with `PARTITIONS_MET`.

        Args:
            first: place of the first of them among the change rows of the file.
        """
        places = slice(first, first + part.num_rows)
        several = self.met[path][places] if path in self.met else np.zeros(part.num_rows, bool)
        told = part.append_column(PARTITIONS_MET, pa.array(np.where(several, 2, 1), pa.int32()))
        mask = self.masks[path][places]
        return told if mask.all() else told.filter(pa.array(mask))


def counting_rows(
    paths: Sequence[str], key: Sequence[str], changes: Changes, *, drawn: Drawn | None = None
) -> Counting | None:
    """The rows that count of files; None where so many come more than once that their keys should be divided.

    Args:
        key: names of the key columns; `can_be_told_apart` holds for each.
        drawn: which rows count at all; None: all of them.
    """
    hashes, masks = _read_keys(paths, key, changes, drawn)
    counted = [hashes[path][masks[path]] for path in paths]
    every = np.sort(np.concatenate(counted)) if counted else np.empty(0, np.uint64)
    again = np.append(False, every[1:] == every[:-1])[: len(every)]
    repeated = every[again & ~np.append(again[1:], False)[: len(every)]]  # of each the last one
    if not len(repeated):
        return Counting(masks, {})
    # Two keys of one hash are judged as two keys, below; it only costs time to look at them.
    looked_at = {path: masks[path] & _is_one_of(hashes[path], repeated) for path in paths}
    if sum(int(mask.sum()) for mask in looked_at.values()) > _FEW * len(every):
        return None
    reduced = last_rows(_rows_of(looked_at, key, changes), key=key)
    several = reduced.column(PARTITIONS_MET).to_numpy() > 1
    files, places = reduced.column(_FILE).to_numpy(), reduced.column(_ROW_OF_FILE).to_numpy()
    met: dict[str, Mask] = {}
    for number, path in enumerate(paths):
        mine = files == number
        masks[path] &= ~looked_at[path]
        masks[path][places[mine]] = True
        if several[mine].any():
            met[path] = np.zeros(len(masks[path]), bool)
            met[path][places[mine & several]] = True
    return Counting(masks, met)


def key_hashes(batch: pa.RecordBatch, key: Sequence[str]) -> npt.NDArray[np.uint64]:
    """A hash of 64 bits per row, of its key."""
    return np.asarray(hash_rows(pa.Table.from_batches([batch]), key))


def _read_keys(
    paths: Sequence[str], key: Sequence[str], changes: Changes, drawn: Drawn | None
) -> tuple[dict[str, npt.NDArray[np.uint64]], dict[str, Mask]]:
    """Per file the hashes of keys, and which rows count at all."""
    hashes, masks = {}, {}
    for path in paths:
        found = [(batch, key_hashes(batch, key)) for batch in changes([path], key, ordered=False)]
        held = [np.ones(len(part), bool) if drawn is None else drawn.holds(batch, part) for batch, part in found]
        hashes[path] = np.concatenate([part for _, part in found]) if found else np.empty(0, np.uint64)
        masks[path] = np.concatenate(held) if held else np.empty(0, bool)
    return hashes, masks


def _is_one_of(hashes: npt.NDArray[np.uint64], chosen: npt.NDArray[np.uint64]) -> Mask:
    """Return a mask of the hashes that occur in `chosen`, which is sorted."""
    places = np.minimum(np.searchsorted(chosen, hashes), len(chosen) - 1)
    return np.asarray(chosen[places] == hashes)


def _rows_of(masks: Mapping[str, Mask], key: Sequence[str], changes: Changes) -> pa.Table:
    """Keys of chosen rows, what orders them, and where they stand."""
    parts: list[Any] = []
    for number, (path, mask) in enumerate(masks.items()):
        if not mask.any():
            continue
        first = 0
        for batch in changes([path], key):
            places = np.arange(first, first + batch.num_rows)
            first += batch.num_rows
            told = batch.append_column(_FILE, pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows))
            parts.append(told.append_column(_ROW_OF_FILE, pa.array(places)).filter(pa.array(mask[places])))
    return pa.Table.from_batches(parts)
