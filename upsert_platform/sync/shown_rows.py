"""Rows as JSON texts, one per row: what commands show, and what `send` takes back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from upsert_platform.changelog import rows
from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.masking import MASKED, Mask
from upsert_platform.core.model import Column, Options
from upsert_platform.core.types import LogicalType, TypeName, arrow_type
from upsert_platform.formats import build_encoder, validate_format

if TYPE_CHECKING:
    import pyarrow as pa

JSON_OPTIONS: Final = Options(
    {
        "json.timestamp-format.standard": "ISO-8601",
        "json.encode.decimal-as-plain-number": "true",
        "json.map-null-key.mode": "LITERAL",
    }
)
"""How the values of columns are spelled, on the way out and back."""
PLACE: Final = (rows.BATCH, rows.TOPIC, rows.PARTITION, rows.OFFSET, rows.TIMESTAMP)
"""System columns that tell where a row comes from."""
_RAW: Final = (rows.RAW_KEY, rows.RAW_VALUE)
_BYTES: Final = (*_RAW, rows.RAW_HEADERS)


def row_texts(table: pa.Table, columns: Sequence[Column], mask: Mask) -> list[str]:
    """One JSON object per row: its system columns, as far as they are there, then the declared ones.

    A quarantined record is shown by its raw key and value and the reason.

    Args:
        columns: of the declaration; those that the table lacks are left out.
        mask: what is not shown.
    """
    system = [name for name in (*PLACE, rows.KIND) if name in table.column_names]
    heads = table.select(system).to_pylist() if system else [{}] * table.num_rows
    raw = [name for name in (*_RAW, rows.REASON) if name in table.column_names]
    kept = table.select(raw).to_pylist() if raw else []
    texts = _declared(table, [column for column in columns if column.name in table.column_names], mask)
    found = []
    for index, (head, text) in enumerate(zip(heads, texts, strict=True)):
        shown = {name: _plain(value) for name, value in head.items() if value is not None}
        if shown.get(rows.KIND) == rows.KIND_QUARANTINED:
            found.append(_dumped({**shown, **masked_record({name: _plain(kept[index][name]) for name in raw}, mask)}))
            continue
        found.append(_joined(_dumped(shown), text))
    return found


def masked_record(record: Mapping[str, Any], mask: Mask) -> dict[str, Any]:
    """A quarantined record as it is shown: which of its bytes hold a masked column nobody can tell."""
    if not mask:
        return dict(record)
    hidden = {name: MASKED for name in _BYTES if record.get(name) is not None}
    reason = record.get(rows.REASON)
    told = {} if reason is None else {rows.REASON: mask.reason(reason)}
    return {**record, **hidden, **told}


def cell_texts(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """One JSON object per row that no declaration gives types to."""
    return [_dumped({name: _plain(value) for name, value in row.items()}) for row in found]


def _declared(table: pa.Table, columns: Sequence[Column], mask: Mask) -> list[str]:
    """Declared columns as JSON objects; a column of a type that JSON has no form of is told as text."""
    import pyarrow as pa

    fields: list[tuple[str, LogicalType]] = []
    arrays = []
    for column in columns:
        assert column.type is not None
        kind = column.type
        if column.name in mask.columns:
            arrays.append(pa.array([MASKED] * table.num_rows, pa.string()))
            fields.append((column.name, LogicalType(TypeName.STRING)))
            continue
        values = table.column(column.name).combine_chunks()
        problems = validate_format(
            "json", JSON_OPTIONS, [(column.name, kind)], side="value", direction="sink",
            subject=column.name, location=column.location or SourceLocation(column.name),
        )  # fmt: skip
        if any(problem.severity == "error" for problem in problems):
            kind = LogicalType(TypeName.STRING)
            values = pa.array([None if item is None else str(item) for item in values.to_pylist()], pa.string())
        arrays.append(values.cast(arrow_type(kind)))
        fields.append((column.name, kind))
    if not fields:
        return ["{}"] * table.num_rows
    batch = pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in fields])
    texts, refused = build_encoder("json", fields, JSON_OPTIONS).encode(batch)
    return [
        _dumped({rows.REASON: f"the row has no form in JSON: {mask.reason(refused[index])}"})
        if index in refused
        else text.decode()
        for index, text in enumerate(texts.to_pylist())
    ]


def _joined(head: str, text: str) -> str:
    """Two JSON objects as one."""
    if head == "{}" or text == "{}":
        return text if head == "{}" else head
    return f"{head[:-1]},{text[1:]}"


def _dumped(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
