"""Timestamps and headers of written records, from metadata columns that are not VIRTUAL. Runs in Spark workers.

Flink's Kafka connector, "Available Metadata", column R/W: `timestamp`, `headers` and `header-list` can be written.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.model import Column
from upsert_platform.kafka.metadata import metadata_key
from upsert_platform.kafka.table import KafkaTable

Header = tuple[str, bytes | None]
NO_TIMESTAMP: Final = 0
"""What the client takes for "now"; so a record cannot carry the time 0."""


class RecordMetadata:
    """Reads the written metadata columns of change frames.

    Args:
        headers: put before those of a row, on every record.
    """

    def __init__(self, table: KafkaTable, *, headers: tuple[Header, ...] = ()) -> None:
        written = {metadata_key(column): column for column in table.written_metadata}
        self._timestamp = written.get("timestamp")
        self._map = written.get("headers")
        self._list = written.get("header-list")
        self._fixed = list(headers)

    def timestamps(self, changes: pa.RecordBatch, refused: dict[int, str]) -> list[int] | None:
        """Record times in ms since 1970, NO_TIMESTAMP where the client decides; None when there is no such column.

        Args:
            refused: is given the rows whose time no record can carry.
        """
        if self._timestamp is None:
            return None
        column = changes.column(self._timestamp.name)
        millis = pc.divide(column.cast(pa.int64()), 1000).to_pylist()  # of microseconds; whole, toward 1970
        for row, stamp in enumerate(millis):
            if stamp is None:
                millis[row] = NO_TIMESTAMP
            elif stamp <= 0:
                refused.setdefault(
                    row, f"column '{self._timestamp.name}' is not after 1970-01-01, and a record's timestamp must be"
                )
        return millis

    def headers(self, changes: pa.RecordBatch) -> list[list[Header]] | None:
        """Headers in order, one list per row; None when no record has any."""
        column = self._map or self._list
        if column is None:
            return [self._fixed] * changes.num_rows if self._fixed else None
        values = changes.column(column.name).to_pylist()
        if self._map is not None:
            return [[*self._fixed, *(value or ())] for value in values]
        name, content = _names(column)
        return [
            [
                *self._fixed,
                *((item[name], item[content]) for item in value or () if item is not None and item[name] is not None),
            ]
            for value in values
        ]


def _names(column: Column) -> tuple[str, str]:
    """Names of the two fields of a header-list's rows."""
    assert column.type is not None
    assert column.type.element is not None
    name, content = column.type.element.fields
    return name.name, content.name


def table_id_headers(name: str) -> tuple[Header, ...]:
    """Headers that name the table a record belongs to: parts of a dotted name, the missing ones empty."""
    parts = name.split(".", 2)
    namespace, schema, table = [""] * (3 - len(parts)) + parts
    named = (("namespace", namespace), ("schemaName", schema), ("tableName", table))
    return tuple((header, text.encode()) for header, text in named)
