"""The change frame of a span of batches, made by one task of the files of its changelog. Runs in Spark's workers."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.changelog.change_rows import changes_of_files
from upsert_platform.changelog.last_rows import last_rows
from upsert_platform.changelog.rows import BATCH, KIND, KIND_DELETE, PARTITIONS_MET, stored_columns
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.destination import OPERATION, OPERATION_DELETE
from upsert_platform.model import Table
from upsert_platform.queries.native_insert import NativeInsert


@dataclass(frozen=True)
class ChangesOfSpan:
    """Makes the change frame of a span of batches, in a task: it reads their files, and can be pickled.

    Attributes:
        table: of the source, as declared.
        location: of its changelog.
        paths: of the files that may hold the batches after `after` and up to `upto`.
    """

    native: NativeInsert
    table: Table
    location: TableLocation
    paths: tuple[str, ...]
    after: int
    upto: int

    def __call__(self) -> tuple[pa.Table, dict[str, int]]:
        """The target's columns, `_op` and `_seq`, one row per key; and two counts.

        Those are ``met``, keys that came from more than one partition, and ``unmatched``, deletes of rows that do not
        meet the insert's WHERE.
        """
        names = [column.name for column in stored_columns(self.table)]
        rows = changes_of_files(self.table, self.location, self.paths, columns=names, after=self.after, upto=self.upto)
        reduced = last_rows(rows, key=self.table.primary_key)
        changes = self.native.changes(reduced, sequence=BATCH)
        deleted = pc.sum(pc.equal(reduced.column(KIND), KIND_DELETE)).as_py() or 0
        deletes = pc.sum(pc.equal(changes.column(OPERATION), OPERATION_DELETE)).as_py() or 0
        met = pc.sum(pc.greater(reduced.column(PARTITIONS_MET), 1)).as_py() or 0
        return changes, {"met": met, "unmatched": max(0, deletes - deleted)}
