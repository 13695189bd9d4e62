"""Rows as the CSV text of a result."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from upsert_platform.local.maxcompute.types import DataType
from upsert_platform.local.maxcompute.wire.records import plain_values

NULL = "\\N"


def to_csv(rows: pa.Table, columns: Sequence[tuple[str, DataType]]) -> str:
    """Header and rows; null is ``\\N``, times are in UTC."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    writer.writerow([name for name, _ in columns])
    texts = [
        [NULL if value is None else _text(value, data_type) for value in plain_values(rows.column(index), data_type)]
        for index, (_, data_type) in enumerate(columns)
    ]
    writer.writerows(zip(*texts, strict=True))
    return out.getvalue()


def _text(value: Any, data_type: DataType) -> str:
    match data_type.name:
        case "boolean":
            return "true" if value else "false"
        case "date":
            return datetime.fromtimestamp(value * 86400, UTC).strftime("%Y-%m-%d")
        case "datetime":
            seconds, millis = divmod(value, 1000)
            moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
            return f"{moment}.{millis:03d}" if millis else moment
        case "timestamp" | "timestamp_ntz":
            seconds, nanos = divmod(value, 1_000_000_000)
            moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
            return f"{moment}.{nanos:09d}".rstrip("0").rstrip(".") if nanos else moment
        case "array":
            return "[" + ", ".join(_nested(item, data_type.children[0]) for item in value) + "]"
        case "map":
            key_type, item_type = data_type.children
            return "{" + ", ".join(f"{_nested(k, key_type)}:{_nested(v, item_type)}" for k, v in value) + "}"
        case "struct":
            members = zip(data_type.fields, data_type.children, strict=True)
            return "{" + ", ".join(f"{name}:{_nested(value[name], child)}" for name, child in members) + "}"
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _nested(value: Any, data_type: DataType) -> str:
    return NULL if value is None else _text(value, data_type)
