"""The key of a written row, of the key of the row that is read: computed without Spark, where that can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from upsert_platform.changelog import rows
from upsert_platform.changelog.erasure import KeyRows
from upsert_platform.core.plan import form_at
from upsert_platform.core.types import arrow_type
from upsert_platform.sql.insert import written_columns
from upsert_platform.sql.native import native_form
from upsert_platform.sync.binding import Target
from upsert_platform.sync.connectors import stored_fraction_digits

if TYPE_CHECKING:
    import pyarrow as pa


def written_key(target: Target, key: KeyRows) -> pa.Table | None:
    """The primary key columns of a target, of one row; None where Spark alone computes them.

    Args:
        target: has a key, and is written from the table of `key` without a query.
    """
    import pyarrow as pa

    from upsert_platform.engine.native_insert import NativeInsert

    stored = {item.name: item.type for item in rows.stored_columns(target.source.table) if item.type is not None}
    columns, values = [], []
    for text, column in zip(target.insert.projections, written_columns(target.table), strict=True):
        if column.name in target.table.primary_key:
            columns.append(column)
            values.append(native_form(text, stored))
    if any(value is None or form_at(value, 0) != value for value in values):  # by the clock it is another one each time
        return None
    digits = stored_fraction_digits(target.table)
    wanted = tuple(target.table.primary_key)
    insert = NativeInsert(tuple(columns), wanted, tuple(values), None, None, digits)
    if not set(insert.reads()) <= set(key.key.schema.names):
        return None
    row = pa.Table.from_batches([key.key])
    row = row.append_column(rows.KIND, pa.array([rows.KIND_DELETE])).append_column(rows.BATCH, pa.array([0]))
    found = insert.changes(row, sequence=rows.BATCH)
    kinds = {column.name: arrow_type(column.type) for column in columns if column.type is not None}
    return pa.table({name: found.column(name).cast(kinds[name]) for name in wanted})
