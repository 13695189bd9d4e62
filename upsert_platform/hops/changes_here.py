"""The change frame of an insert in Arrow: `transform.change_frame` for few rows, where Arrow gives what Spark would.

Inserts that select columns as they are, constants, and conditions that Arrow evaluates alike, of a source with a
primary key into a table with one. Other inserts have no form here, and Spark computes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from upsert_platform.capabilities import StoresOtherValues, WritesHere
from upsert_platform.changelog.changes_here import can_be_told_apart, change_rows, last_rows
from upsert_platform.changelog.latest import PARTITIONS_MET
from upsert_platform.changelog.rows import BATCH, KIND, KIND_DELETE, stored_columns
from upsert_platform.connector import Writable
from upsert_platform.destination import OPERATION, OPERATION_DELETE, Destination
from upsert_platform.hops.binding import Target
from upsert_platform.hops.connectors import connector_of
from upsert_platform.model import Column
from upsert_platform.plan import Native
from upsert_platform.sql.insert import written_columns
from upsert_platform.sql.native import native_condition, native_form
from upsert_platform.sql.rendered import cut_fractions
from upsert_platform.types import LogicalType, TypeName, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

    from upsert_platform.changelog.store import ChangelogStore
    from upsert_platform.queries.native_insert import NativeInsert

_NULL = "NULL"


@dataclass(frozen=True)
class ChangesHere:
    """A change frame.

    Attributes:
        table: the target's columns, `_op` and `_seq`, one row per key.
        met: keys that came from more than one partition.
        unmatched: deletes of rows that do not meet the insert's WHERE.
    """

    table: pa.Table
    met: int
    unmatched: int


@dataclass(frozen=True)
class InsertHere:
    """An insert that is computed here.

    Attributes:
        native: what is computed.
    """

    target: Target
    native: NativeInsert

    @classmethod
    def of(cls, target: Target, destination: Destination) -> Self | None:
        """The form of an insert; None where Spark has to compute it, or to write it. After `Destination.prepare`."""
        from upsert_platform.queries.native_insert import NativeInsert

        source, insert = target.source.table, target.insert
        stored = {column.name: column.type for column in stored_columns(source) if column.type is not None}
        keyed = all(can_be_told_apart(stored.get(name)) for name in source.primary_key)
        if not (source.primary_key and keyed and target.table.primary_key and destination.primary_key):
            return None
        if insert.overwrite or insert.failure is not None or not _is_written_here(destination):
            return None
        condition = native_condition(insert.predicate, stored) if insert.predicate else None
        if insert.predicate and condition is None:
            return None
        columns = written_columns(target.table)
        connector = connector_of(target.table)
        digits = connector.fraction_digits(target.table) if isinstance(connector, Writable) else 0
        values: list[Native | None] = []
        for text, column in zip(insert.projections, columns, strict=True):
            found = None if text == _NULL else native_form(text, stored)
            if (found is None and text != _NULL) or not _is_carried(found, column, stored, digits):
                return None
            values.append(found)
        key = tuple(target.table.primary_key)
        return cls(target, NativeInsert(columns, key, tuple(values), condition, digits))

    def changes(self, store: ChangelogStore, files: Any, *, after: int, upto: int) -> ChangesHere:
        """The changes of the batches after `after` and up to `upto`.

        Args:
            files: of the changelog, that may hold them; they are small.
        """
        import pyarrow.compute as pc

        source = self.target.source.table
        names = [column.name for column in stored_columns(source)]
        rows = change_rows(store, files, columns=names, after=after, upto=upto)
        reduced = last_rows(rows, key=source.primary_key)
        table = self.native.changes(reduced, sequence=BATCH)
        deleted = pc.sum(pc.equal(reduced.column(KIND), KIND_DELETE)).as_py() or 0
        deletes = pc.sum(pc.equal(table.column(OPERATION), OPERATION_DELETE)).as_py() or 0
        met = pc.sum(pc.greater(reduced.column(PARTITIONS_MET), 1)).as_py() or 0
        return ChangesHere(table, met, max(0, deletes - deleted))


def _is_written_here(destination: Destination) -> bool:
    if not isinstance(destination, WritesHere) or not destination.writes_here():
        return False
    return not (isinstance(destination, StoresOtherValues) and destination.folded_key())


def _is_carried(value: Native | None, column: Column, stored: Mapping[str, LogicalType], digits: int) -> bool:
    """Whether a value needs nothing but `_cut` to be what the target's column takes."""
    if column.type is None:
        return False
    if value is None:
        return True
    if value[0] not in ("column", "literal"):
        return False
    given = stored[value[1]] if value[0] == "column" else value[2]
    if arrow_type(given) != arrow_type(column.type):
        return False
    cut = bool(digits) and cut_fractions("value", column.type, digits=digits) != "value"
    return not cut or column.type.name in (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ, TypeName.TIME)
