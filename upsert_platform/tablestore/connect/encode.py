"""Row changes of one block to bytes, by the columnar encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from upsert_platform.tablestore.connect.change import RowChange
from upsert_platform.tablestore.connect.values import AutoIncrement
from upsert_platform.tablestore.encoder import Cells, EncodedRows, Mask, encode_rows
from upsert_platform.tablestore.types import StoredType, stored_arrow_type

_STORED: dict[type, StoredType] = {
    bool: StoredType.BOOLEAN,
    int: StoredType.INTEGER,
    float: StoredType.DOUBLE,
    str: StoredType.STRING,
    bytes: StoredType.BINARY,
    AutoIncrement: StoredType.GENERATED,
}


def encode_changes(changes: Sequence[RowChange]) -> EncodedRows:
    """Encodes changes that have the same key columns; a column may be of another type in every row."""
    rows = len(changes)
    operations = np.fromiter((change.operation for change in changes), np.uint8, rows)
    primary_key: list[Cells] = []
    for position, (name, _) in enumerate(changes[0].key if changes else ()):
        primary_key.extend(_columns(name, {row: change.key[position][1] for row, change in enumerate(changes)}, rows))
    values: dict[str, dict[int, Any]] = {}
    removals: dict[str, Mask] = {}
    for row, change in enumerate(changes):
        for name, value in change.cells.items():
            values.setdefault(name, {})[row] = value
        for name in change.removed:
            removals.setdefault(name, np.zeros(rows, bool))[row] = True
    attributes = [
        Cells(name, StoredType.STRING, pa.nulls(rows, pa.string()), removed) for name, removed in removals.items()
    ]
    for name, found in values.items():
        attributes.extend(_columns(name, found, rows))
    return encode_rows(operations, primary_key, attributes)


def _columns(name: str, values: dict[int, Any], rows: int) -> list[Cells]:
    """One column per type that the values have."""
    by_type: dict[StoredType, list[Any]] = {}
    for row, value in values.items():
        stored = _STORED[type(value)]
        column = by_type.setdefault(stored, [None] * rows)
        column[row] = True if stored is StoredType.GENERATED else value
    return [Cells(name, stored, pa.array(column, stored_arrow_type(stored))) for stored, column in by_type.items()]
