"""Rows of a change frame to records of a change topic, in bulk. Runs in Spark workers.

The key is the name of the table and the primary key, of deletes too; the value has both images.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from upsert_platform.core.destination import BEFORE, OPERATION, OPERATION_DELETE
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.formats import build_encoder, build_images_encoder
from upsert_platform.kafka.change_topic import TABLE_ID, ChangeTopicSettings
from upsert_platform.kafka.sink.encode import EncodedBlock, RecordEncoder, side_rows
from upsert_platform.kafka.table import KafkaTable


class ChangeRecordEncoder(RecordEncoder):
    """Encodes change rows of a `kafka-changes` table.

    Rows of frames without `BEFORE` (a refused row that is written again, a row that is compared) have no image before:
    an upsert is an insert, and a delete tells its key alone.
    """

    def __init__(self, table: KafkaTable) -> None:
        super().__init__(table)
        assert table.key is not None
        columns = ((TABLE_ID, LogicalType(TypeName.STRING, nullable=False)), *table.key.columns)
        self._whole_key = build_encoder(table.key.format, columns, table.key.options, side="key")
        self._images = build_images_encoder(
            table.value.format, table.value.columns, table.value.options, name=table.name, key=table.primary_key
        )

    def encode(self, changes: pa.RecordBatch) -> EncodedBlock:
        """Encodes a block of a change frame (declared columns, `_op`, and perhaps `BEFORE`)."""
        count, key, value = changes.num_rows, self._table.key, self._table.value
        assert key is not None
        deletes = np.array([text == OPERATION_DELETE for text in changes.column(OPERATION).to_pylist()], bool)
        refused: dict[int, str] = {}
        self._refuse_null_keys(changes, refused)
        bare = side_rows(changes, key)
        names = pa.repeat(pa.scalar(self._table.name), count)
        told = pa.RecordBatch.from_arrays([names, *bare.columns], names=[TABLE_ID, *bare.schema.names])
        keys, errors = self._whole_key.encode(told)
        for row, reason in errors.items():
            refused.setdefault(row, f"key: {reason}")
        after = side_rows(changes, value)
        before, known = after, np.zeros(count, bool)
        at = changes.schema.get_field_index(BEFORE)
        if at >= 0:
            images = changes.column(at)
            known = images.is_valid().to_numpy(zero_copy_only=False)
            columns = dict(zip((field.name for field in images.type), images.flatten(), strict=True))
            mixed = [
                column if name in self._table.primary_key else columns[name]
                for name, column in zip(changes.schema.names, changes.columns, strict=True)
                if name in columns
            ]
            before = side_rows(
                pa.RecordBatch.from_arrays(mixed, names=[name for name in changes.schema.names if name in columns]),
                value,
            )
        values, errors = self._images.encode(before, after, was=known | deletes, remains=~deletes)
        for row, reason in errors.items():
            refused.setdefault(row, f"value: {reason}")
        return EncodedBlock(keys, values, deletes, refused)


def encoder_of(table: KafkaTable) -> RecordEncoder:
    """The encoder of a table that is written."""
    return ChangeRecordEncoder(table) if isinstance(table.settings, ChangeTopicSettings) else RecordEncoder(table)
