"""Format ``avro``, write side: one datum per row, of the schema derived from the table."""

from __future__ import annotations

import pyarrow as pa

from upsert_platform.core.types import LogicalType, RowField, TypeName
from upsert_platform.formats.avro.json_writer import write_json
from upsert_platform.formats.avro.options import AvroSettings
from upsert_platform.formats.avro.writer import write_row
from upsert_platform.formats.base import Columns
from upsert_platform.formats.fragments import Refusals, drop_refused, without_bad_times


def row_type(columns: Columns) -> LogicalType:
    """The columns as one ROW that is never null."""
    fields = tuple(RowField(name, logical) for name, logical in columns)
    return LogicalType(TypeName.ROW, fields=fields, nullable=False)


class AvroEncoder:
    """Encodes rows into Avro data."""

    def __init__(self, columns: Columns, settings: AvroSettings) -> None:
        self._columns = list(columns)
        self._row = row_type(columns)
        self._settings = settings

    def encode(self, rows: pa.RecordBatch) -> tuple[pa.Array, Refusals]:
        """Encodes a block; see `upsert_platform.formats.base.Encoder`.

        In JSON encoding each message begins with its datum. (Flink's writer puts a line feed before all but its first.)
        """
        refusals: Refusals = {}
        arrays = without_bad_times(rows.columns, self._columns, refusals)
        if self._settings.encoding == "json":
            messages = write_json(arrays, self._row, refusals).view(pa.binary())
        else:
            messages = write_row(arrays, self._row, refusals)
        return drop_refused(messages, refusals), refusals
