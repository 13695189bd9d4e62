"""Rows about records that were kept aside, for an error table (specification section 1.4)."""

from __future__ import annotations

from typing import Any, Final

from upsert_platform.tablestore import limits
from upsert_platform.tablestore.connect.change import RowChange
from upsert_platform.tablestore.connect.record import SideFormat
from upsert_platform.tablestore.connect.refusals import RefusedRecord
from upsert_platform.tablestore.connect.reports import with_schema
from upsert_platform.tablestore.encoder import RowOperation

_ROW_BYTES: Final = 3 * 1024 * 1024
"""Bytes of key and value, so that the row fits into a request."""


def error_row(refused: RefusedRecord, key_side: SideFormat, value_side: SideFormat) -> RowChange:
    """The row of the connector's Tablestore reporter. Its text says when a side was too large to be kept in it."""
    record = refused.record
    information = refused.information
    cells: dict[str, Any] = {}
    room = _ROW_BYTES
    for name, data, side in (("key", record.key, key_side), ("value", record.value, value_side)):
        shown = with_schema(data, side)
        if shown is not None and len(shown) > min(room, limits.MAX_VALUE_BYTES):
            information += f" (the {name} has {len(data or b'')} bytes and is kept in the lake alone)"
        elif shown is not None:
            cells[name] = shown
            room -= len(shown)
    key = (("topic_partition", f"{record.topic}_{record.partition}"), ("offset", record.offset))
    return RowChange(RowOperation.PUT, key, {"error_info": information, **cells})
