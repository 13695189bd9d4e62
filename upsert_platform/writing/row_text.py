"""Refused rows as JSON text: nothing of them is lost or cut. Runs in Spark workers.

Text of a key is read back as declared types by Spark's ``from_json``: bytes are base64, moments ISO 8601.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from upsert_platform.core.destination import OPERATION, RefusedRow


def refused_row(
    changes: pa.RecordBatch, row: int, *, columns: Sequence[str], key: Sequence[str], reason: str
) -> RefusedRow:
    """A row of a change frame, with its operation, beside its primary key and the reason.

    Args:
        columns: names of those that are kept.
        key: names of the primary key columns, among them.
    """
    values = {name: _plain(changes.column(name), row) for name in dict.fromkeys((*columns, OPERATION))}
    own = {name: values[name] for name in key if name in values}
    return RefusedRow(key=json_object(own), row=json_object(values), reason=reason)


def key_text(rows: pa.RecordBatch, row: int, names: Sequence[str]) -> str:
    """The key of a row as `refused_row` writes it."""
    return json_object({name: _plain(rows.column(name), row) for name in names})


def json_object(values: dict[str, Any]) -> str:
    """JSON text of a row's values."""
    return json.dumps(values, ensure_ascii=False, default=_shown)


def _plain(column: pa.Array, row: int) -> Any:
    """The value as Python has it, or its text where Python has none (a year beyond 9999)."""
    try:
        return column[row].as_py()
    except (ValueError, OverflowError, UnicodeDecodeError):
        one = column.slice(row, 1)
        return str(one.cast(pa.binary() if pa.types.is_string(one.type) else pa.string())[0].as_py())


def _shown(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if isoformat else str(value)
