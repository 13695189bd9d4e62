"""The operations of the protocol by name: one file per group of operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from upsert_platform.local.tablestore.instance import Instance
from upsert_platform.local.tablestore.operations import (
    batches,
    indexes,
    ranges,
    rows,
    sql,
    tables,
    timeseries_data,
    timeseries_meta,
    timeseries_tables,
    transactions,
)


@dataclass(frozen=True, slots=True)
class Operation:
    """A handler from request body to response body, and whether it changes what is stored."""

    handle: Callable[[Instance, bytes], bytes]
    writes: bool = False


OPERATIONS: dict[str, Operation] = {
    "CreateTable": Operation(tables.create_table, writes=True),
    "ListTable": Operation(tables.list_table),
    "DescribeTable": Operation(tables.describe_table),
    "UpdateTable": Operation(tables.update_table, writes=True),
    "DeleteTable": Operation(tables.delete_table, writes=True),
    "CreateIndex": Operation(indexes.create, writes=True),
    "DropIndex": Operation(indexes.drop, writes=True),
    "ListSearchIndex": Operation(indexes.list_search),
    "PutRow": Operation(rows.put_row, writes=True),
    "UpdateRow": Operation(rows.update_row, writes=True),
    "DeleteRow": Operation(rows.delete_row, writes=True),
    "GetRow": Operation(rows.get_row),
    "BatchWriteRow": Operation(batches.batch_write_row, writes=True),
    "BulkImport": Operation(batches.bulk_import, writes=True),
    "BatchGetRow": Operation(batches.batch_get_row),
    "GetRange": Operation(ranges.get_range),
    "ComputeSplitPointsBySize": Operation(ranges.compute_split_points),
    "StartLocalTransaction": Operation(transactions.start),
    "CommitTransaction": Operation(transactions.commit, writes=True),
    "AbortTransaction": Operation(transactions.abort),
    "SQLQuery": Operation(sql.query, writes=True),
    "CreateTimeseriesTable": Operation(timeseries_tables.create, writes=True),
    "ListTimeseriesTable": Operation(timeseries_tables.list_tables),
    "DescribeTimeseriesTable": Operation(timeseries_tables.describe),
    "UpdateTimeseriesTable": Operation(timeseries_tables.update, writes=True),
    "DeleteTimeseriesTable": Operation(timeseries_tables.delete, writes=True),
    "PutTimeseriesData": Operation(timeseries_data.put, writes=True),
    "GetTimeseriesData": Operation(timeseries_data.get),
    "QueryTimeseriesMeta": Operation(timeseries_meta.query),
    "UpdateTimeseriesMeta": Operation(timeseries_meta.update, writes=True),
    "DeleteTimeseriesMeta": Operation(timeseries_meta.delete, writes=True),
}
