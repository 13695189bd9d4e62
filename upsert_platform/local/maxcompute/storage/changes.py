"""Change data: what each commit did to the rows of a table (spec 2.7).

A key that a commit touches had a row before, has one after, or both; this gives a delete, an insert, or an update as
the row before and the row after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.local.maxcompute.schema import Column, Partition, Table
from upsert_platform.local.maxcompute.storage.compute import quoted
from upsert_platform.local.maxcompute.storage.segments import Segment
from upsert_platform.local.maxcompute.storage.store import Store
from upsert_platform.local.maxcompute.types import DataType
from upsert_platform.local.maxcompute.wire.hasher import buckets_of
from upsert_platform.local.maxcompute.wire.records import plain_values

INSERT, DELETE, BEFORE, AFTER = 2, 4, 16, 32
OPERATION_TYPE, TIMESTAMP = "__meta_op_type", "__meta_timestamp"
SYSTEM_COLUMNS = (
    Column(TIMESTAMP, DataType("timestamp"), column_id=-1),
    Column(OPERATION_TYPE, DataType("tinyint"), column_id=-2),
)
_ORDER = "__order"


def changes_of(store: Store, table: Table, partition: Partition, after: int, to: int) -> pa.Table:
    """The change rows of commits after one version up to another, in the order of the commits.

    Returns:
        The table's columns, and those of `SYSTEM_COLUMNS`. The caller has seen that the partition's history goes back
        to `after`.
    """
    parts = []
    for version, segments in _by_version(store.changes(partition, after, to)):
        rows = _changes_of_version(store, table, partition, version, segments)
        committed = store.catalogue.execute(
            "SELECT committed FROM versions WHERE table_id = ? AND version = ?", table.table_id, version
        )
        moment = pa.scalar(int(committed[0][0] * 1_000_000_000), pa.int64()).cast(pa.timestamp("ns"))
        index = rows.column_names.index(OPERATION_TYPE)
        parts.append(rows.add_column(index, TIMESTAMP, pa.repeat(moment, rows.num_rows)))
    if parts:
        return pa.concat_tables(parts)
    schema = table.arrow_schema
    for column in SYSTEM_COLUMNS:
        schema = schema.append(pa.field(column.name, column.type.arrow))
    return schema.empty_table()


def _by_version(segments: Sequence[Segment]) -> Iterator[tuple[int, list[Segment]]]:
    for version in sorted({segment.version for segment in segments}):
        yield version, [segment for segment in segments if segment.version == version]


def _changes_of_version(
    store: Store, table: Table, partition: Partition, version: int, segments: Sequence[Segment]
) -> pa.Table:
    before = store.rows(table, partition, version - 1).live_table()
    resets = any(segment.resets for segment in segments)
    if not table.primary_key:
        added = [
            store.files.aligned(segment.file, table.columns, operations=False)
            for segment in segments
            if segment.file.rows
        ]
        gone = [_marked(before, DELETE)] if resets else []
        return pa.concat_tables(
            [*gone, *(_marked(rows, INSERT) for rows in added)] or [_marked(before.slice(0, 0), INSERT)]
        )
    after = store.rows(table, partition, version).live_table()
    keys = [table.column(name) for name in table.primary_key]
    touched = [store.files.aligned(s.file, keys, operations=False) for s in segments if s.file.rows]
    if resets:
        touched.append(before.select([key.name for key in keys]))
    return _compared(store, table, pa.concat_tables(touched), before, after)


def _compared(store: Store, table: Table, touched: pa.Table, before: pa.Table, after: pa.Table) -> pa.Table:
    keys = ", ".join(quoted(name) for name in table.primary_key)
    columns = ", ".join(quoted(column.name) for column in table.columns)
    with store.compute.cursor() as cursor:
        for name, rows in (("touched", touched), ("earlier", before), ("later", after)):
            cursor.register(name, rows)
        return cursor.sql(
            f"WITH e AS (SELECT * FROM earlier SEMI JOIN touched USING ({keys})),"
            f" l AS (SELECT * FROM later SEMI JOIN touched USING ({keys})),"
            f" rows AS ("
            f" SELECT {columns}, CAST({DELETE} AS TINYINT) AS {OPERATION_TYPE}, 0 AS {_ORDER}"
            f"   FROM e ANTI JOIN l USING ({keys})"
            f" UNION ALL SELECT {columns}, {BEFORE}, 0 FROM e SEMI JOIN l USING ({keys})"
            f" UNION ALL SELECT {columns}, {AFTER}, 1 FROM l SEMI JOIN e USING ({keys})"
            f" UNION ALL SELECT {columns}, {INSERT}, 0 FROM l ANTI JOIN e USING ({keys}))"
            f" SELECT {columns}, {OPERATION_TYPE} FROM rows ORDER BY {keys}, {_ORDER}"
        ).to_arrow_table()


def _marked(rows: pa.Table, operation: int) -> pa.Table:
    return rows.append_column(OPERATION_TYPE, pa.repeat(pa.scalar(operation, pa.int8()), rows.num_rows))


def split_by_bucket(table: Table, rows: pa.Table) -> list[tuple[int, pa.Table]]:
    """The rows of each bucket that has some, in their order; a table without primary key has one bucket."""
    if not table.primary_key:
        return [(0, rows)] if rows.num_rows else []
    keys = [table.column(name) for name in table.primary_key]
    values = [plain_values(rows.column(key.name), key.type) for key in keys]
    buckets = pa.array(buckets_of(values, [key.type for key in keys], table.buckets), pa.int32())
    return [(bucket, rows.filter(pc.equal(buckets, bucket))) for bucket in sorted(set(buckets.to_pylist()))]
