"""Change data in an envelope of two images: formats ``debezium-json``, ``debezium-avro-confluent`` and ``ogg-json``.

A message has the row before, the row after and an operation. It is read as one row of these, and taken
apart by columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import LogicalType, RowField, TypeName
from upsert_platform.formats.base import Columns, Decoded, Decoder
from upsert_platform.formats.blocks import decode_blocks
from upsert_platform.formats.change.metadata import MetadataPlan
from upsert_platform.formats.change.options import ChangeSettings, DebeziumJsonSettings
from upsert_platform.formats.columns import schema_of
from upsert_platform.formats.json.bulk import plan_bulk
from upsert_platform.formats.json.decoder import json_manner
from upsert_platform.formats.json.tree import parse_tree
from upsert_platform.formats.json.values import convert_row

INSERT: Final = "+I"
UPDATE_BEFORE: Final = "-U"
UPDATE_AFTER: Final = "+U"
DELETE: Final = "-D"
_NO_BEFORE: Final = "the image before is missing; a source that is PostgreSQL needs REPLICA IDENTITY FULL"


@dataclass(frozen=True, slots=True)
class Envelope:
    """Names in the messages of a format.

    Attributes:
        operation: the field of the operation.
        inserts: operations that put a new row.
        update: the operation that changes one.
        delete: the operation that removes one.
    """

    operation: str
    inserts: tuple[str, ...]
    update: str
    delete: str


DEBEZIUM: Final = Envelope("op", ("c", "r"), "u", "d")
OGG: Final = Envelope("op_type", ("I",), "U", "D")


def row_of(columns: Columns) -> LogicalType:
    """Columns as one ROW."""
    return LogicalType(TypeName.ROW, fields=tuple(RowField(name, logical) for name, logical in columns))


class JsonRoot:
    """Reads whole messages as JSON rows of some fields."""

    def __init__(self, columns: Columns, settings: ChangeSettings) -> None:
        manner = json_manner(settings.json_settings(), columns)
        convert = convert_row([name for name, _ in columns], [logical for _, logical in columns], manner)
        self._schema = schema_of(columns)
        self._read_one = lambda message: [convert(parse_tree(message))]
        self._bulk = plan_bulk(columns, manner)

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """A row per message that can be read."""
        read_bulk = self._bulk.for_block(messages).read if self._bulk is not None else None
        return decode_blocks(messages, self._schema, read_bulk, self._read_one)


def image_columns(columns: Columns, envelope: Envelope) -> Columns:
    """The fields of an envelope: the row before, the row after, and the operation."""
    image = row_of(columns)
    return [("before", image), ("after", image), (envelope.operation, LogicalType(TypeName.STRING))]


def json_envelope(
    columns: Columns, settings: ChangeSettings, envelope: Envelope, metadata: MetadataPlan
) -> EnvelopeDecoder:
    """The decoder of an envelope in JSON, which may stand as the payload beside its schema."""
    inner = [*image_columns(columns, envelope), *metadata.needed(root=False)]
    in_payload = isinstance(settings, DebeziumJsonSettings) and settings.schema_include
    root: Columns = [("payload", row_of(inner))] if in_payload else inner
    root = [*root, *metadata.needed(root=True)]
    return EnvelopeDecoder(columns, JsonRoot(root, settings), envelope, metadata)


class EnvelopeDecoder:
    """Decodes messages with the images before and after; gives rows with kinds.

    Args:
        root: reads the fields of the envelope, or these in a field ``payload``.
    """

    def __init__(self, columns: Columns, root: Decoder, envelope: Envelope, metadata: MetadataPlan) -> None:
        self._root = root
        self._envelope = envelope
        self._metadata = metadata
        self._schema = schema_of([*columns, *metadata.columns])

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decodes a block; see `upsert_platform.formats.base.Decoder`. An empty message gives no row."""
        places = [place for place, message in enumerate(messages) if message]
        present = messages if len(places) == len(messages) else [messages[place] for place in places]
        found = self._root.decode(present)
        errors = {places[at]: reason for at, reason in found.errors.items()}
        sources = np.asarray(places, np.int32)[found.message.to_numpy()]
        read = dict(zip(found.rows.schema.names, found.rows.columns, strict=True))
        payload = read.pop("payload", None)
        if payload is not None:
            names = [payload.type.field(at).name for at in range(payload.type.num_fields)]
            read |= dict(zip(names, payload.flatten(), strict=True))
        return self._take_apart(read, sources, errors)

    def _take_apart(self, read: Mapping[str, pa.Array], sources: np.ndarray, errors: dict[int, str]) -> Decoded:
        before, after = read["before"], read["after"]
        operation = read[self._envelope.operation]
        has_before, has_after = _mask(before.is_valid()), _mask(after.is_valid())
        is_insert = _mask(pc.is_in(operation, pa.array(self._envelope.inserts)))
        is_update = _mask(pc.fill_null(pc.equal(operation, self._envelope.update), False))
        is_delete = _mask(pc.fill_null(pc.equal(operation, self._envelope.delete), False))
        unknown = ~(is_insert | is_update | is_delete)
        no_before = (is_update | is_delete) & ~has_before
        no_after = (is_insert | is_update) & ~has_after
        for at in np.nonzero(unknown)[0]:
            shown = operation[int(at)].as_py()
            errors[int(sources[at])] = (
                f"field {self._envelope.operation}: {shown!r} is not an operation that changes rows"
            )
        for at in np.nonzero(no_before)[0]:
            errors[int(sources[at])] = f"field before: {_NO_BEFORE}"
        for at in np.nonzero(no_after & ~no_before)[0]:
            errors[int(sources[at])] = "field after: the image after is missing"
        good = ~(unknown | no_before | no_after)
        metadata, refused = self._metadata.held(read)
        for row, reason in refused.items():
            errors.setdefault(int(sources[row]), reason)
            good[row] = False

        # Each message gives its image before, then its image after, where it has them.
        count = len(sources)
        wanted = np.zeros((count, 2), bool)
        wanted[:, 0] = good & (is_update | is_delete)
        wanted[:, 1] = good & (is_insert | is_update)
        rows, image = np.nonzero(wanted)
        images = pa.concat_arrays([before, after]).take(pa.array(rows + image * count))
        update = is_update[rows]
        kinds = np.where(image == 0, np.where(update, UPDATE_BEFORE, DELETE), np.where(update, UPDATE_AFTER, INSERT))
        origin = pa.array(rows)
        extra = [array.take(origin) for array in metadata]
        batch = pa.RecordBatch.from_arrays([*images.flatten(), *extra], schema=self._schema)
        return Decoded(batch, pa.array(sources[rows]), errors, pa.array(kinds, pa.string()))


def _mask(array: pa.Array) -> np.ndarray:
    return array.to_numpy(zero_copy_only=False).astype(bool)
