"""Format ``avro``, read side: one datum per message, of the schema derived from the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from upsert_platform.formats.avro.bulk import AvroBulk, has_bulk_form
from upsert_platform.formats.avro.json import json_row_reader
from upsert_platform.formats.avro.options import AvroSettings
from upsert_platform.formats.avro.plan import resolve
from upsert_platform.formats.avro.reader import row_reader
from upsert_platform.formats.avro.schema import derive_schema
from upsert_platform.formats.base import Columns, Decoded
from upsert_platform.formats.blocks import decode_blocks
from upsert_platform.formats.columns import schema_of


class AvroDecoder:
    """Decodes Avro data into rows."""

    def __init__(self, columns: Columns, settings: AvroSettings) -> None:
        self._schema = schema_of(columns)
        avro = derive_schema(columns, legacy=settings.legacy_timestamps)
        node = resolve(avro, columns, millis_always=True)
        text = settings.encoding == "json"
        self._read: Callable[[bytes], list[Any]] = json_row_reader(node) if text else row_reader(node)
        self._bulk = AvroBulk(node, self._schema) if not text and has_bulk_form(node) else None

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decodes a block; see `upsert_platform.formats.base.Decoder`."""
        read_bulk = self._bulk.read if self._bulk else None
        return decode_blocks(messages, self._schema, read_bulk, lambda message: [self._read(message)])
