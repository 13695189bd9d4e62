"""Canal's and Maxwell's messages in bulk: read as JSON rows of data, old values and kind, and taken apart by columns.

A null among the old values may be written or absent, which columns cannot tell: an update whose text has a null is left
to the way one by one, and so is whatever is not a plain insert, update or delete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import LogicalType, RowField, TypeName
from upsert_platform.formats.base import Columns
from upsert_platform.formats.json.bulk import JsonBulk, plan_bulk
from upsert_platform.formats.json.objects import JsonObjects
from upsert_platform.formats.json.values import JsonManner


@dataclass(frozen=True, slots=True)
class BulkChanges:
    """Rows of the messages that could be read.

    Attributes:
        columns: of the declared row.
        kinds: of the rows.
        message: of each row, ascending.
        handled: places of all messages read, also of those without rows.
        extra: for each row, the further fields of its message.
    """

    columns: list[pa.Array]
    kinds: pa.Array
    message: np.ndarray
    handled: np.ndarray
    extra: dict[str, pa.Array]


class ChangeListBulk:
    """Reads blocks of messages.

    Args:
        listed: whether data and old values are lists of rows (Canal) or one row (Maxwell).
        kinds: the words for insert, update and delete.
        extra: further fields of the message to read.
    """

    def __init__(
        self, columns: Columns, manner: JsonManner, *, listed: bool, kinds: tuple[str, str, str], extra: Columns
    ) -> None:
        row = LogicalType(TypeName.ROW, fields=tuple(RowField(name, logical) for name, logical in columns))
        image = LogicalType(TypeName.ARRAY, element=row) if listed else row
        root = [("data", image), ("old", image), ("type", LogicalType(TypeName.STRING)), *extra]
        self._bulk = plan_bulk(root, manner)
        self._listed = listed
        self._insert, self._update, self._delete = kinds
        self._extra = [name for name, _ in extra]

    def for_block(self, messages: Sequence[bytes]) -> Callable[[Sequence[bytes]], BulkChanges | None] | None:
        """The function that reads parts of a block, with an eye on its first messages; None if there is none."""
        if self._bulk is None or not messages:
            return None
        bulk = self._bulk.for_block(messages)
        return lambda part: self._read(bulk, part)

    def _read(self, bulk: JsonBulk | JsonObjects, messages: Sequence[bytes]) -> BulkChanges | None:
        found = bulk.read(messages)
        if found is None:
            return None
        batch, places = found
        places = np.arange(len(messages)) if places is None else places
        kind = batch.column("type")
        updates = _mask(pc.equal(kind, self._update))
        known = updates | _mask(pc.is_in(kind, pa.array([self._insert, self._delete])))
        plain = known & _mask(batch.column("data").is_valid())
        plain &= ~updates | (
            _mask(batch.column("old").is_valid())
            & np.array([b"null" not in messages[place] for place in places.tolist()], bool)
        )
        batch, places = batch.filter(pa.array(plain)), places[plain]
        return self._take_apart(batch, places)

    def _take_apart(self, batch: pa.RecordBatch, places: np.ndarray) -> BulkChanges | None:
        data, old = batch.column("data"), batch.column("old")
        updates = _mask(pc.equal(batch.column("type"), self._update))
        deletes = _mask(pc.equal(batch.column("type"), self._delete))
        count = len(places)
        if self._listed:
            sizes = pc.list_value_length(data).to_numpy(zero_copy_only=False).astype(np.int64)
            old_sizes = pc.fill_null(pc.list_value_length(old), 0).to_numpy(zero_copy_only=False).astype(np.int64)
            if (updates & (old_sizes != sizes)).any():
                return None
            element = np.repeat(np.arange(count), sizes)
            rows, old_rows = data.flatten(), old.flatten()
            old_starts = np.cumsum(old_sizes) - old_sizes
            old_index = old_starts[element] + np.arange(len(element)) - (np.cumsum(sizes) - sizes)[element]
        else:
            element = np.arange(count)
            rows, old_rows, old_index = data, old, element
        changed = updates[element]
        if rows.null_count or old_rows.filter(pa.array(_touched(old_rows, old_index[changed]))).null_count:
            return None

        # An update gives the row with its old values first.
        shown = np.repeat(np.arange(len(element)), np.where(changed, 2, 1))
        before = changed[shown] & np.append(True, shown[1:] != shown[:-1])[: len(shown)]
        index = pa.array(np.where(changed, old_index, 0), mask=~changed)
        pick = pa.array(shown + before * len(element))
        columns = []
        for new, was in zip(rows.flatten(), old_rows.flatten(), strict=True):
            was = was.take(index) if len(was) else pa.nulls(len(element), new.type)
            merged = pc.if_else(was.is_valid(), was, new)
            columns.append(pa.concat_arrays([new, merged]).take(pick))
        origin = element[shown]
        kinds = np.where(before, "-U", np.where(updates[origin], "+U", np.where(deletes[origin], "-D", "+I")))
        extra = {name: batch.column(name).take(pa.array(origin)) for name in self._extra}
        return BulkChanges(columns, pa.array(kinds, pa.string()), places[origin], places, extra)


def _mask(array: pa.Array) -> np.ndarray:
    return pc.fill_null(array, False).to_numpy(zero_copy_only=False).astype(bool)


def _touched(array: pa.Array, index: np.ndarray) -> np.ndarray:
    mask = np.zeros(len(array), bool)
    mask[index] = True
    return mask
