"""Rows of a change frame to Kafka records, in bulk. Runs in Spark workers.

The key holds the primary key columns in declared order, the value what `value.fields-include` says; a delete has a null
value, and nothing else has: a null that would be written as one (format raw) is refused. Bytes are those of Flink's
formats, since the key's bytes decide partition and compaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.destination import OPERATION, OPERATION_DELETE
from upsert_platform.core.errors import DestinationError
from upsert_platform.core.types import LogicalType, TypeName, arrow_type
from upsert_platform.formats import Decoder, Encoder, build_decoder, build_encoder
from upsert_platform.kafka.table import FormatSide, KafkaTable

_DATED: Final = (TypeName.DATE, TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)
_MILLIS: Final = 3
NULL_VALUE: Final = "value: it is null, and a record without a value deletes its key"


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """Records of a block of change rows.

    Attributes:
        keys: one per row; of refused rows it may be null.
        values: one per row; null for deletes.
        deletes: which rows are deletes.
        refused: index of a row to why no record can be made of it.
    """

    keys: pa.Array
    values: pa.Array
    deletes: np.ndarray
    refused: dict[int, str] = field(default_factory=dict)


class RecordEncoder:
    """Encodes change rows of one destination.

    Args:
        table: upserts; or, to send single rows, a `kafka` table, whose records may have no key and whose key is none.
    """

    def __init__(self, table: KafkaTable) -> None:
        self._table = table
        self._key, self._value = table.key, table.value
        topic = table.settings.topic[0]
        self._key_encoder: Encoder | None = None
        self._key_decoder: Decoder | None = None
        if self._key is not None:
            self._key_encoder = build_encoder(
                self._key.format, self._key.columns, self._key.options, topic=topic, side="key"
            )
        self._value_encoder: Encoder | None = None
        if self._value.columns:
            self._value_encoder = build_encoder(
                self._value.format, self._value.columns, self._value.options, topic=topic, side="value"
            )

    def encode(self, changes: pa.RecordBatch) -> EncodedBlock:
        """Encodes a block of a change frame (declared columns and `_op`)."""
        count = changes.num_rows
        operations = changes.column(OPERATION)
        deletes = np.array([text == OPERATION_DELETE for text in operations.to_pylist()], bool)
        refused: dict[int, str] = {}
        self._refuse_null_keys(changes, refused)
        keys: pa.Array = pa.nulls(count, pa.binary())
        if self._key is not None and self._key_encoder is not None:
            given = side_rows(changes, self._key)
            keys, errors = self._key_encoder.encode(given)
            for row, reason in (errors | self._folded(given, keys) | _unread(given, self._key, keys)).items():
                refused.setdefault(row, f"key: {reason}")
        puts = np.flatnonzero(~deletes)
        if self._value_encoder is None:
            texts: pa.Array = pa.repeat(pa.scalar(b"{}"), len(puts))  # only json may hold no column
        else:
            rows = changes if len(puts) == count else changes.take(pa.array(puts))
            given = side_rows(rows, self._value)
            texts, errors = self._value_encoder.encode(given)
            for row, reason in (errors | _unread(given, self._value, texts)).items():
                refused.setdefault(int(puts[row]), f"value: {reason}")
            if texts.null_count:
                for row in np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False)).tolist():
                    refused.setdefault(int(puts[row]), NULL_VALUE)
        if len(puts) == count:
            return EncodedBlock(keys, texts, deletes, refused)
        place = np.full(count, -1)
        place[puts] = np.arange(len(puts))
        return EncodedBlock(keys, texts.take(pa.array(place, mask=place < 0)), deletes, refused)

    def _folded(self, keys: pa.RecordBatch, messages: pa.Array) -> dict[int, str]:
        """Return rows whose key would not be read back as it is: another key may be written in the same bytes."""
        if self._key is None or not _may_fold(self._key):
            return {}
        if self._key_decoder is None:
            self._key_decoder = build_decoder(self._key.format, self._key.columns, self._key.options)
        sent = np.flatnonzero(messages.is_valid().to_numpy(zero_copy_only=False))
        found = self._key_decoder.decode([messages[at].as_py() for at in sent.tolist()])
        lost = f"format '{self._key.format}' does not keep its value, so keys would be one"
        refused = {int(sent[at]): f"it cannot be read back: {reason}" for at, reason in found.errors.items()}
        places = sent[found.message.to_numpy()]
        for name, column in zip(keys.schema.names, keys.columns, strict=True):
            written, read = column.take(pa.array(places)).to_pylist(), found.rows.column(name).to_pylist()
            for at, one, other in zip(places.tolist(), written, read, strict=True):
                if one != other and not (one != one and other != other):
                    refused.setdefault(at, f"column '{name}': {lost}")
        return refused

    def refuse_too_large(self, block: EncodedBlock) -> None:
        """Adds to the refused rows those whose record is larger than the client sends."""
        limit = int(str(self._table.properties.producer.get("message.max.bytes", 1_000_000)))
        key, value = (pc.coalesce(pc.binary_length(side), 0) for side in (block.keys, block.values))
        sizes = pc.add(key, value)
        for row in np.flatnonzero(pc.greater(sizes, limit).to_numpy(zero_copy_only=False)).tolist():
            reason = f"the record has {sizes[row].as_py()} bytes, more than {limit} ('properties.max.request.size')"
            block.refused.setdefault(row, reason)

    def _refuse_null_keys(self, changes: pa.RecordBatch, refused: dict[int, str]) -> None:
        for name in self._table.primary_key if self._table.is_upsert else ():
            column = changes.column(name)
            if column.null_count:
                for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                    refused.setdefault(row, f"primary key column '{name}' is null")


def _may_fold(side: FormatSide) -> bool:
    """Return whether a format may write several values in the same bytes, or one that it cannot read."""
    kinds = [kind for _, column in side.columns for kind in _parts(column)]
    match side.format:
        case "csv":
            return True
        case "raw":
            return "raw.charset" in side.options
        case "json":
            return any(kind.name is TypeName.TIME for kind in kinds)
    return any(kind.name in (*_DATED, TypeName.TIME) and (kind.precision or 0) > _MILLIS for kind in kinds)


def _parts(kind: LogicalType) -> Iterator[LogicalType]:
    """Yield a type, and those of which it is made."""
    yield kind
    for inner in (kind.key, kind.element, *(one.type for one in kind.fields)):
        if inner is not None:
            yield from _parts(inner)


def _unread(rows: pa.RecordBatch, side: FormatSide, messages: pa.Array) -> dict[int, str]:
    """Return rows whose message, as Flink writes it, no reader takes for a row; each with the reason."""
    found: dict[int, str] = {}

    def refuse(where: pa.Array, reason: str) -> None:
        for row in pc.indices_nonzero(pc.fill_null(where, False)).to_pylist():
            found.setdefault(row, reason)

    if side.format == "csv":
        refuse(pc.equal(pc.binary_length(messages), 0), "it would be an empty message, which is read as no row")
    for (name, kind), column in zip(side.columns, rows.columns, strict=True):
        if side.format == "csv" and kind.name in _DATED:
            years = pc.year(column)
            beyond = pc.or_(pc.less(years, 1), pc.greater(years, 9999))
            refuse(beyond, f"column '{name}': CSV has no date before the year 1 or after the year 9999")
    return found


def side_rows(changes: pa.RecordBatch, side: FormatSide) -> pa.RecordBatch:
    """The columns of a side, under the format's names and in the types that formats take."""
    arrays = []
    for name, (_, declared) in zip(side.names, side.columns, strict=True):
        column, wanted = changes.column(name), arrow_type(declared)
        try:
            arrays.append(column if column.type == wanted else column.cast(wanted))
        except pa.ArrowException as error:
            raise DestinationError(
                f"column '{name}' comes as {column.type} and cannot be written as {declared}: {error}"
            ) from None
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in side.columns])
