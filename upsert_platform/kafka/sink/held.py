"""Change rows as reading the topic gives them: what a format cannot hold is not missed by a check.

CSV without a null literal has no null, JSON no fraction in some times. Rows are encoded and decoded again by the
table's own formats. Runs in Spark workers, through ``mapInArrow``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from upsert_platform.changelog import rows
from upsert_platform.core.destination import OPERATION, OPERATION_DELETE, OPERATION_UPSERT
from upsert_platform.kafka.sink.encode import RecordEncoder
from upsert_platform.kafka.sink.encode_changes import encoder_of
from upsert_platform.kafka.source.decode import RecordDecoder
from upsert_platform.kafka.source.records import NO_TIME, RecordBlock
from upsert_platform.kafka.table import KafkaTable


@dataclass(frozen=True, slots=True)
class HeldRows:
    """The function for ``mapInArrow``.

    A row whose record cannot be read back becomes a delete, as reading the topic does not find it; one that no record
    can be made of stays as it is.

    Attributes:
        read_as: what reads the topic that `table` writes.
    """

    table: KafkaTable
    read_as: KafkaTable

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        declared = self.read_as.table
        bare = replace(self.read_as, table=replace(declared, columns=declared.physical_columns))
        encoder, decoder = encoder_of(self.table), RecordDecoder(bare)
        for batch in batches:
            yield _held(batch, encoder, decoder) if batch.num_rows else batch


def _held(batch: pa.RecordBatch, encoder: RecordEncoder, decoder: RecordDecoder) -> pa.RecordBatch:
    count = batch.num_rows
    encoded = encoder.encode(batch)
    written = np.ones(count, bool)
    written[list(encoded.refused)] = False
    places = np.flatnonzero(written)
    chosen = pa.array(places)
    times = np.full(len(places), NO_TIME)
    block = RecordBlock("", 0, encoded.keys.take(chosen), encoded.values.take(chosen), places, times, None)
    read = decoder.decode(block).batch if len(places) else None
    # Each row is taken from the frame, or from what was read for it.
    source = np.arange(count)
    found = np.empty(0, np.int64) if read is None else read.column(rows.OFFSET).to_numpy()
    source[found] = count + np.arange(len(found))
    unread = written.copy()
    unread[found] = False
    columns = []
    for field in batch.schema:
        own = batch.column(field.name)
        if field.name == OPERATION:
            operations = np.array(own.to_pylist(), object)
            operations[unread & (operations == OPERATION_UPSERT)] = OPERATION_DELETE
            columns.append(pa.array(operations, field.type))
        elif read is not None and field.name in read.schema.names:
            other = read.column(field.name)
            both = [own, other if other.type == field.type else other.cast(field.type)]
            columns.append(pa.concat_arrays(both).take(pa.array(source)))
        else:
            columns.append(own)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
