"""Rows of a table, from a snapshot or from the log, as rows of its changelog. Runs in tasks and in the driver."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.landed_rows import account_row, change_rows
from upsert_platform.core.errors import ReplicationError
from upsert_platform.core.masking import MASKED, Mask
from upsert_platform.core.model import Table
from upsert_platform.mysql.binlog.changes import TableRows
from upsert_platform.mysql.progress import LOG

_BEFORE: Final = "-U"


class Landing:
    """Makes rows of the changelog of a declared table.

    Args:
        stream: name of the source table, as positions have it.

    Attributes:
        columns: names of the columns that the changelog stores.
    """

    def __init__(self, table: Table, stream: str) -> None:
        self.table = table
        self.stream = stream
        self.schema = rows.arrow_schema(table)
        self.columns = [column.name for column in rows.stored_columns(table)]
        self._last = (-1, 0)

    def snapshot(self, batch: pa.RecordBatch, *, offset: int, first: int) -> pa.RecordBatch:
        """Rows as they were found: each is the value of its key, and older than the log behind `offset`.

        Args:
            first: how many rows of the same offset there are already.
        """
        self._require_keys(batch)
        count = batch.num_rows
        now = pa.scalar(datetime.now(UTC), self.schema.field(rows.TIMESTAMP).type)
        return self._made(
            self._aligned(batch),
            pa.repeat(pa.scalar(rows.KIND_UPDATE_AFTER), count),
            pa.repeat(pa.scalar(offset, pa.int64()), count),
            pa.array(np.arange(first, first + count), pa.int32()),
            pa.repeat(now, count),
        )

    def changes(self, found: TableRows, *, start: int) -> tuple[pa.RecordBatch, int]:
        """Rows of the log: what a row became, and a delete of its key where it is gone or has another key.

        Args:
            start: the number of the first byte of the log that was read.

        Returns:
            The rows, and how many events of the log they are of (of a compressed transaction all are one).
        """
        batch, kinds = found.rows, np.array(found.kinds)
        self._require_keys(batch)
        before = kinds == _BEFORE
        keep = ~before
        moved = np.flatnonzero(before)
        if len(moved):
            keep[moved] = self._other_keys(batch, moved)
        deletes = before | (kinds == rows.KIND_DELETE)
        chosen = pa.array(np.flatnonzero(keep))
        deleted = pa.array(deletes[keep])
        aligned = self._aligned(batch.take(chosen))
        for index, name in enumerate(self.columns):
            if name not in self.table.primary_key:
                aligned[index] = pc.if_else(deleted, pa.scalar(None, aligned[index].type), aligned[index])
        offsets = start + np.array(found.ends, np.int64)[keep]
        times = np.array(found.times, np.int64)[keep] * 1_000_000
        events = len(np.unique(offsets)) - int(len(offsets) > 0 and self._last[0] == offsets[0])
        made = self._made(
            aligned,
            pc.if_else(deleted, rows.KIND_DELETE, rows.KIND_UPDATE_AFTER),
            pa.array(offsets),
            pa.array(self._numbered(offsets), pa.int32()),
            pa.array(times).cast(self.schema.field(rows.TIMESTAMP).type),
        )
        return made, events

    def account(
        self, lane: int, start: int, end: int, *, records: int = 0, changes: int = 0, deletes: int = 0
    ) -> pa.RecordBatch:
        """The accounting row of a lane: so many records gave so many changes, of which some are deletes."""
        account = RangeAccount(
            self.stream,
            lane,
            start,
            end,
            records=records,
            gaps=end - start - records,
            kept=records,
            rows=changes,
            tombstones=deletes,
        )
        return account_row(self.schema, account)

    def _made(
        self, values: list[pa.Array], kinds: pa.Array, offsets: pa.Array, numbers: pa.Array, times: pa.Array
    ) -> pa.RecordBatch:
        given = {rows.KIND: kinds, rows.OFFSET: offsets, rows.ROW: numbers, rows.TIMESTAMP: times}
        columns = dict(zip(self.columns, values, strict=True))
        return change_rows(self.schema, columns, stream=self.stream, lane=LOG, given=given)

    def _aligned(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The declared columns: a column that the row does not have is null, a narrower type becomes the declared one.

        Raises:
            ReplicationError: values do not fit what is declared.
        """
        found = []
        for name in self.columns:
            wanted = self.schema.field(name).type
            at = batch.schema.get_field_index(name)
            if at < 0:
                found.append(pa.nulls(batch.num_rows, wanted))
                continue
            column = batch.column(at)
            try:
                found.append(column if column.type == wanted else column.cast(wanted))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise ReplicationError(
                    f"table {self.stream}: column '{name}' holds {column.type} and is declared as {wanted}, which does"
                    f" not hold its values: {MASKED if name in Mask.of(self.table).columns else error}"
                ) from None
        return found

    def _require_keys(self, batch: pa.RecordBatch) -> None:
        for name in self.table.primary_key:
            at = batch.schema.get_field_index(name)
            if at < 0:
                raise ReplicationError(
                    f"table {self.stream}: the declared key column '{name}' is not a column of the table any more;"
                    " declare the new key with a topic of its own, and take a new snapshot (job 'rebuild')"
                )
            if pa.types.is_boolean(self.schema.field(name).type) and not pa.types.is_boolean(
                batch.schema.field(at).type
            ):
                raise ReplicationError(
                    f"table {self.stream}: key column '{name}' holds numbers (TINYINT(1) is one) and is declared as"
                    " BOOLEAN, which would make one row of all that are not 0; declare it as TINYINT, and take a new"
                    " snapshot (job 'rebuild')"
                )
            if batch.column(at).null_count:
                raise ReplicationError(
                    f"table {self.stream}: key column '{name}' holds dates that do not exist, such as 0000-00-00, which"
                    " no key can carry; mend these rows, or leave the table out by 'tables.exclude'"
                )

    def _other_keys(self, batch: pa.RecordBatch, before: np.ndarray) -> np.ndarray:
        """Return the rows before an update whose key differs from that of the row after it."""
        found = np.zeros(len(before), bool)
        first, then = pa.array(before), pa.array(before + 1)
        for name in self.table.primary_key:
            column = batch.column(name)
            found |= pc.not_equal(column.take(first), column.take(then)).to_numpy(zero_copy_only=False)
        return found

    def _numbered(self, offsets: np.ndarray) -> np.ndarray:
        """Numbers of rows among those of the same offset, which may go on from one call to the next."""
        numbers = np.arange(len(offsets))
        if len(offsets):
            starts = np.flatnonzero(np.r_[True, offsets[1:] != offsets[:-1]])
            firsts = np.repeat(starts, np.diff(np.r_[starts, len(offsets)]))
            numbers -= firsts
            if self._last[0] == offsets[0]:
                numbers[firsts == 0] += self._last[1]
            self._last = (int(offsets[-1]), int(numbers[-1]) + 1)
        return numbers
