"""Tables as DuckDB sees them: one view per table, a branch per partition."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from upsert_platform.local.maxcompute.errors import semantic_error
from upsert_platform.local.maxcompute.schema import Partition, Table
from upsert_platform.local.maxcompute.sql.travel import Travel
from upsert_platform.local.maxcompute.storage.compute import literal, quoted
from upsert_platform.local.maxcompute.storage.snapshot import Rows
from upsert_platform.local.maxcompute.storage.store import Store
from upsert_platform.local.maxcompute.types import DataType

_DUCKDB = {
    "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "boolean": "BOOLEAN", "string": "VARCHAR", "char": "VARCHAR", "varchar": "VARCHAR",
    "json": "VARCHAR", "binary": "BLOB", "date": "DATE", "datetime": "TIMESTAMP_MS", "timestamp": "TIMESTAMP_NS",
    "timestamp_ntz": "TIMESTAMP_NS",
}  # fmt: skip
_LIVE = "__live"


def duckdb_type(data_type: DataType) -> str:
    """The DuckDB type that holds values of a MaxCompute type."""
    match data_type.name:
        case "decimal":
            return f"DECIMAL({data_type.arguments[0]}, {data_type.arguments[1]})"
        case "array":
            return f"{duckdb_type(data_type.children[0])}[]"
        case "map":
            return f"MAP({duckdb_type(data_type.children[0])}, {duckdb_type(data_type.children[1])})"
        case "struct":
            members = zip(data_type.fields, data_type.children, strict=True)
            return f"STRUCT({', '.join(f'{quoted(name)} {duckdb_type(child)}' for name, child in members)})"
    return _DUCKDB[data_type.name]


def _rows(store: Store, table: Table, partition: Partition, travel: Travel | None) -> Rows:
    if travel is None or travel.after is None:
        return store.rows(table, partition, travel.version if travel else None)
    found = store.changes(partition, travel.after, travel.version)
    start = max((index for index, segment in enumerate(found) if segment.resets), default=0)
    return store.snapshots.rows(table, [segment for segment in found[start:] if segment.file.rows])


def create_view(
    store: Store, cursor: duckdb.DuckDBPyConnection, table: Table, view: str, *, travel: Travel | None = None
) -> None:
    """Creates a temporary view with the table's columns and partition columns, of now or of its history."""
    branches = []
    for number, partition in enumerate(store.catalogue.partitions(table.table_id)):
        rows = _rows(store, table, partition, travel)
        if not rows.table.num_rows:
            continue
        name = f"{view}_{number}"
        live = rows.live
        cursor.register(name, rows.table if live is None else rows.table.append_column(_LIVE, pa.array(live)))
        columns = [quoted(column.name) for column in table.columns]
        values = partition.values
        columns += [
            f"CAST({literal(values[key.name])} AS {duckdb_type(key.type)}) AS {quoted(key.name)}"
            for key in table.partition_keys
        ]
        branches.append(f"SELECT {', '.join(columns)} FROM {name}" + ("" if live is None else f" WHERE {_LIVE}"))
    if not branches:
        columns = [
            f"CAST(NULL AS {duckdb_type(column.type)}) AS {quoted(column.name)}"
            for column in (*table.columns, *table.partition_keys)
        ]
        branches.append(f"SELECT {', '.join(columns)} WHERE false")
    try:
        cursor.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(view)} AS {' UNION ALL '.join(branches)}")
    except duckdb.Error as error:
        raise semantic_error(f"table {table.name} cannot be read: {error}") from error
