"""Rows that Tablestore will not take, as text for the quarantine: nothing of them is lost or cut."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from upsert_platform.core.destination import OPERATION, RefusedRow
from upsert_platform.core.types import LogicalType
from upsert_platform.tablestore.json_text import json_text
from upsert_platform.tablestore.table import TablestoreTable


def refused_row(changes: pa.RecordBatch, row: int, table: TablestoreTable, reason: str) -> RefusedRow:
    """A row of a change frame as JSON text, with its operation, beside its primary key and the reason."""
    parts = {name: _text(changes.column(name)[row], logical) for name, logical in table.types.items()}
    key = {column.name: parts[column.name] for column in table.primary_key}
    operation = json.dumps(changes.column(OPERATION)[row].as_py())
    return RefusedRow(key=_object(key), row=_object({**parts, OPERATION: operation}), reason=reason)


def _object(parts: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in parts.items()) + "}"


def _text(scalar: Any, logical: LogicalType) -> str:
    """JSON of a value; of one that has none (NaN, broken UTF-8, a year beyond 9999) a JSON string that shows it."""
    if not scalar.is_valid:
        return "null"
    try:
        return json_text(scalar.as_py(), logical)
    except (ValueError, OverflowError, TypeError):
        if pa.types.is_string(scalar.type) or pa.types.is_large_string(scalar.type):
            return json.dumps(scalar.cast(pa.binary()).as_py().decode("utf-8", "backslashreplace"))
        return json.dumps(str(pa.array([scalar], scalar.type).cast(pa.string())[0].as_py()))
