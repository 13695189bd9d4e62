"""Format ``csv``, read side: one record per message, in bulk where Arrow splits and converts alike."""

from __future__ import annotations

from collections.abc import Sequence

from upsert_platform.formats.base import Columns, Decoded
from upsert_platform.formats.blocks import decode_blocks
from upsert_platform.formats.columns import schema_of
from upsert_platform.formats.csv.bulk import CsvBulk, plan_bulk
from upsert_platform.formats.csv.values import record_reader
from upsert_platform.formats.options import CsvSettings


class CsvDecoder:
    """Decodes CSV records into rows."""

    def __init__(self, columns: Columns, settings: CsvSettings) -> None:
        self._schema = schema_of(columns)
        self._read = record_reader(columns, settings)
        self._bulk: CsvBulk | None = plan_bulk(columns, settings)

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decodes a block; see `upsert_platform.formats.base.Decoder`."""
        read_bulk = self._bulk.read if self._bulk else None
        return decode_blocks(messages, self._schema, read_bulk, lambda message: [self._read(message)])
