"""The shape of a changelog row: what readers of topics yield, what the lake stores, what destinations read.

A changelog table holds, in this order, the system columns below and then the declared physical and metadata columns.
One Delta commit carries a whole batch: changes, quarantined records and the accounting of the ranges, so they are
atomic together. System columns stand first so that Delta Lake keeps file statistics for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from upsert_platform.core.internal_columns import internal
from upsert_platform.core.model import Column, ColumnKind, Table
from upsert_platform.core.types import arrow_type, quote_name, spark_type

if TYPE_CHECKING:
    import pyarrow as pa

BATCH: Final = "_batch"
"""BIGINT, from 1; the batch that committed the row."""
KIND: Final = "_kind"
"""STRING: one of the kinds below."""
TOPIC: Final = "_topic"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
"""TIMESTAMP, the record's own time in UTC; null when the record has none."""
ROW: Final = "_row"
"""INT, from 0: which row of its record (a JSON array yields several)."""
RAW_KEY: Final = "_raw_key"
RAW_VALUE: Final = "_raw_value"
RAW_HEADERS: Final = "_raw_headers"
REASON: Final = "_reason"
ACCOUNTING: Final = "_accounting"
"""STRING, JSON of `upsert_platform.changelog.accounting.RangeAccount`; set on accounting rows only."""

KIND_ACCOUNTING: Final = "#"
KIND_INSERT: Final = "+I"
KIND_UPDATE_AFTER: Final = "+U"
KIND_DELETE: Final = "-D"
KIND_UPDATE_BEFORE: Final = "-U"
KIND_REPLAYED: Final = "="
"""Marks, by topic, partition and offset, a quarantined record that was replayed; the record itself stays."""
KIND_QUARANTINED: Final = "?"
"""The kinds + and - sort between # and ?, so file statistics tell files with quarantined rows apart."""

CHANGE_KINDS: Final = (KIND_INSERT, KIND_UPDATE_AFTER, KIND_DELETE, KIND_UPDATE_BEFORE)

DELETE_TOPIC: Final = "(erase)"
"""Topic of the row by which an erasure deletes a key: it stands in no partition, its offset is its batch, and so it is
later than every row of them."""

SYSTEM_COLUMNS: Final = {
    BATCH: "BIGINT",
    KIND: "STRING",
    TOPIC: "STRING",
    PARTITION: "INT",
    OFFSET: "BIGINT",
    TIMESTAMP: "TIMESTAMP",
    ROW: "INT",
    REASON: "STRING",
    ACCOUNTING: "STRING",
    RAW_KEY: "BINARY",
    RAW_VALUE: "BINARY",
    RAW_HEADERS: "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}

PLACE: Final = (TOPIC, PARTITION)
IN_PARTITION: Final = (BATCH, OFFSET, ROW)
"""What decides between rows of one partition. Offsets grow with batches, but for what a replay brought back, which
nothing had overtaken."""
BETWEEN_PARTITIONS: Final = (BATCH, TIMESTAMP, *PLACE)
"""What decides between the last rows of partitions."""
ORDER: Final = tuple(dict.fromkeys((*BETWEEN_PARTITIONS, *IN_PARTITION)))
"""Columns that decide which row of a key counts (`changelog/last_rows.py`)."""
PARTITIONS_MET: Final = internal("partitions")
"""INT column: 2 when the key was met in more than one topic-partition among the rows reduced, else 1."""


def stored_columns(table: Table) -> tuple[Column, ...]:
    """The declared columns that a changelog stores: physical and metadata; computed ones are evaluated when read."""
    return tuple(column for column in table.columns if column.kind is not ColumnKind.COMPUTED)


def spark_schema(table: Table) -> str:
    """Spark DDL of the changelog of a table."""
    parts = [f"`{name}` {ddl}" for name, ddl in SYSTEM_COLUMNS.items()]
    for column in stored_columns(table):
        assert column.type is not None
        parts.append(f"{quote_name(column.name)} {spark_type(column.type)}")
    return ", ".join(parts)


def system_schema() -> pa.Schema:
    """Arrow schema of the system columns."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    system = {
        BATCH: pa.int64(),
        KIND: pa.string(),
        TOPIC: pa.string(),
        PARTITION: pa.int32(),
        OFFSET: pa.int64(),
        TIMESTAMP: pa.timestamp("us", tz="UTC"),
        ROW: pa.int32(),
        REASON: pa.string(),
        ACCOUNTING: pa.string(),
        RAW_KEY: pa.binary(),
        RAW_VALUE: pa.binary(),
        RAW_HEADERS: pa.list_(header),
    }
    return pa.schema([pa.field(name, kind) for name, kind in system.items()])


def arrow_schema(table: Table) -> pa.Schema:
    """Arrow schema of the changelog of a table."""
    import pyarrow as pa

    fields = list(system_schema())
    for column in stored_columns(table):
        assert column.type is not None
        fields.append(pa.field(column.name, arrow_type(column.type)))
    return pa.schema(fields)
