"""The first rows of a table as CSV, without any session."""

from __future__ import annotations

import pyarrow as pa

from upsert_platform.local.maxcompute.http import Request, Response
from upsert_platform.local.maxcompute.rest.csv import to_csv
from upsert_platform.local.maxcompute.schema import Table
from upsert_platform.local.maxcompute.service import Service

_MOST_ROWS = 10_000


def preview(service: Service, request: Request, table: Table) -> Response:
    """``GET .../tables/T?data&linenum=N[&partition=...][&cols=...]``."""
    limit = min(int(request.query.get("linenum") or _MOST_ROWS), _MOST_ROWS)
    partition = request.query.get("partition")
    if partition or not table.partition_keys:
        partitions = [service.store.leaf(table, partition)]
    else:
        partitions = service.catalogue.partitions(table.table_id)
    parts = []
    for found in partitions:
        rows = service.store.rows(table, found).live_table()
        for key in table.partition_keys:
            values = pa.array([found.values[key.name]] * rows.num_rows, pa.string()).cast(key.type.arrow)
            rows = rows.append_column(key.name, values)
        parts.append(rows)
    wanted = request.query.get("cols")
    columns = [(c.name, c.type) for c in (*table.columns, *table.partition_keys)]
    if wanted:
        chosen = [name.strip().lower() for name in wanted.split(",")]
        columns = [(name, data_type) for name, data_type in columns if name in chosen]
    if not parts:
        return Response(200, (",".join(name for name, _ in columns) + "\n").encode(), {"Content-Type": "text/csv"})
    rows = pa.concat_tables(parts).slice(0, limit).select([name for name, _ in columns])
    return Response(200, to_csv(rows, columns).encode(), {"Content-Type": "text/csv"})
