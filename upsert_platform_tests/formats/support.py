"""Loads the vectors, turns their values into Arrow and Arrow back into comparable values."""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from upsert_platform.core.types import LogicalType, TypeName, arrow_type, parse_type

FOLDER = Path(__file__).parent / "vectors"
Columns = list[tuple[str, LogicalType]]

_TEXT = (TypeName.CHAR, TypeName.VARCHAR, TypeName.STRING)
_BYTES = (TypeName.BINARY, TypeName.VARBINARY, TypeName.BYTES)
_STAMPS = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)


@dataclass(frozen=True)
class Vector:
    """One vector, its columns parsed and its bytes decoded."""

    id: str
    format: str
    options: dict[str, str]
    columns: Columns
    error: str | None
    message: bytes | None
    rows: list[Any]
    kind: str
    values: list[Any]
    raw: dict[str, Any]


@cache
def load(name: str) -> tuple[Vector, ...]:
    """All vectors of a file, by its name without extension."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(_vector(json.loads(line)) for line in lines)


def _vector(raw: dict[str, Any]) -> Vector:
    whole = parse_type(f"ROW<{raw['type']}>")
    text = raw.get("input") if raw["direction"] == "decode" else raw.get("output")
    return Vector(
        id=raw["id"],
        format=raw["format"],
        options=raw["options"],
        columns=[(item.name, item.type) for item in whole.fields],
        error=raw.get("error"),
        message=None if text is None else base64.b64decode(text),
        rows=raw.get("rows") or [],
        kind=raw.get("kind", "+I"),
        values=raw.get("values") or [],
        raw=raw,
    )


def columns_of(text: str) -> Columns:
    """Columns as written in a declaration: ``id BIGINT, name STRING``."""
    return [(item.name, item.type) for item in parse_type(f"ROW<{text}>").fields]


def comparable(value: Any, logical: LogicalType) -> Any:
    """A vector's value in the form of `plain`: what can be compared with `==`."""
    if value is None:
        return None
    match logical.name:
        case TypeName.BIGINT:
            return int(value)
        case TypeName.DECIMAL:
            return Decimal(value)
        case TypeName.FLOAT | TypeName.DOUBLE:
            wide = logical.name is TypeName.DOUBLE
            number = struct.unpack(">d" if wide else ">f", bytes.fromhex(value["bits"]))[0]
            return "NaN" if number != number else value["bits"]
        case TypeName.DATE:
            return value if isinstance(value, int) else date.fromisoformat(value).toordinal() - 719_163
        case TypeName.TIME:
            return value * 1000
        case TypeName.ARRAY:
            assert logical.element
            return [comparable(item, logical.element) for item in value]
        case TypeName.MAP | TypeName.MULTISET:
            return sorted(
                ((_key(key, logical), comparable(item, _map_value(logical))) for key, item in value), key=repr
            )
        case TypeName.ROW:
            return [comparable(item, part.type) for item, part in zip(value, logical.fields, strict=True)]
    if logical.name in _TEXT:
        return base64.b64decode(value["utf8"]) if isinstance(value, dict) else value.encode()
    if logical.name in _BYTES:
        return base64.b64decode(value["b64"])
    if logical.name in _STAMPS:
        return value["ms"] * 1000 + value["ns"] // 1000
    return value


def _map_value(logical: LogicalType) -> LogicalType:
    if logical.name is TypeName.MULTISET:
        return LogicalType(TypeName.INT)
    assert logical.element
    return logical.element


def _key(value: Any, logical: LogicalType) -> Any:
    inner = logical.element if logical.name is TypeName.MULTISET else logical.key
    assert inner
    return comparable(value, inner)


def _physical(kind: pa.DataType) -> pa.DataType:
    # What to_pylist can always show: no invalid UTF-8, no year beyond datetime.
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return kind
    if pa.types.is_list(kind):
        return pa.list_(_physical(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_physical(kind.key_type), _physical(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(item.name, _physical(item.type)) for item in kind])
    return kind


def plain_rows(batch: pa.RecordBatch, columns: Columns) -> list[list[Any]]:
    """Rows of a batch in the form of `comparable`."""
    assert [field.type for field in batch.schema] == [arrow_type(logical) for _, logical in columns]
    batch.validate(full=True)
    lists = [
        [plain(value, logical) for value in array.cast(_physical(array.type)).to_pylist(maps_as_pydicts=None)]
        for array, (_, logical) in zip(batch.columns, columns, strict=True)
    ]
    return [list(row) for row in zip(*lists, strict=True)]


def plain(value: Any, logical: LogicalType) -> Any:
    """A value of a physical column, as `to_pylist` gives it, in comparable form."""
    if value is None:
        return None
    match logical.name:
        case TypeName.FLOAT:
            return "NaN" if value != value else struct.pack(">f", value).hex()
        case TypeName.DOUBLE:
            return "NaN" if value != value else struct.pack(">d", value).hex()
        case TypeName.ARRAY:
            assert logical.element
            return [plain(item, logical.element) for item in value]
        case TypeName.MAP | TypeName.MULTISET:
            key = logical.element if logical.name is TypeName.MULTISET else logical.key
            assert key
            return sorted(((plain(one, key), plain(item, _map_value(logical))) for one, item in value), key=repr)
        case TypeName.ROW:
            return [plain(value[part.name], part.type) for part in logical.fields]
    return value


def build(values: list[Any], logical: LogicalType, unit: str = "us") -> pa.Array:
    """Vector values to an Arrow array, also what conversion from Python refuses: null map keys (as a
    list of entries, for Arrow maps have none), invalid UTF-8, nanoseconds."""
    target = arrow_type(logical)
    absent = pa.array([value is None for value in values], pa.bool_())
    present = [value for value in values if value is not None]
    match logical.name:
        case TypeName.ARRAY:
            assert logical.element
            inner = build([item for value in present for item in value], logical.element, unit)
            return pa.ListArray.from_arrays(_offsets(values), inner, mask=absent)
        case TypeName.MAP | TypeName.MULTISET:
            key = logical.element if logical.name is TypeName.MULTISET else logical.key
            assert key
            keys = build([one for value in present for one, _ in value], key, unit)
            items = build([item for value in present for _, item in value], _map_value(logical), unit)
            if keys.null_count:
                entries = pa.StructArray.from_arrays([keys, items], names=["key", "value"])
                return pa.ListArray.from_arrays(_offsets(values), entries, mask=absent)
            starts = [
                None if null else start
                for start, null in zip(_offsets(values).to_pylist(), absent.to_pylist(), strict=False)
            ]
            return pa.MapArray.from_arrays(pa.array([*starts, len(keys)], pa.int32()), keys, items)
        case TypeName.ROW:
            parts = [
                build([None if value is None else value[place] for value in values], part.type, unit)
                for place, part in enumerate(logical.fields)
            ]
            fields = [pa.field(part.name, array.type) for part, array in zip(logical.fields, parts, strict=True)]
            return pa.StructArray.from_arrays(parts, fields=fields, mask=absent)
        case TypeName.FLOAT | TypeName.DOUBLE:
            code = ">d" if logical.name is TypeName.DOUBLE else ">f"
            return pa.array(
                [_map_null(value, lambda one: struct.unpack(code, bytes.fromhex(one["bits"]))[0]) for value in values],
                target,
            )
    if logical.name in _STAMPS:
        scale = 1_000_000 if unit == "ns" else 1000
        counts = [_map_null(value, lambda one: one["ms"] * scale + one["ns"] * scale // 1_000_000) for value in values]
        return pa.array(counts, pa.timestamp(unit, target.tz))
    if logical.name in _TEXT:
        return pa.array([comparable(value, logical) for value in values], pa.binary()).view(pa.string())
    return pa.array([comparable(value, logical) for value in values], target)


def _map_null(value: Any, function: Any) -> Any:
    return None if value is None else function(value)


def _offsets(values: list[Any]) -> pa.Array:
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value or ()))
    return pa.array(offsets, pa.int32())


def batch_of_vector(vector: Vector) -> tuple[pa.RecordBatch, bool]:
    """The row of an encode vector as a batch of one, and whether timestamps had to be cut to microseconds."""
    stamps = [
        part
        for value, (_, logical) in zip(vector.values, vector.columns, strict=True)
        for part, kind in parts_of(value, logical)
        if kind.name in _STAMPS and part is not None
    ]
    finer = any(part["ns"] % 1000 for part in stamps)
    fits = all(abs(part["ms"]) < 9_223_372_036_854 for part in stamps)
    unit = "ns" if finer and fits else "us"
    arrays = [build([value], logical, unit) for value, (_, logical) in zip(vector.values, vector.columns, strict=True)]
    names = [name for name, _ in vector.columns]
    return pa.RecordBatch.from_arrays(arrays, names=names), finer and not fits


def parts_of(value: Any, logical: LogicalType) -> Iterator[tuple[Any, LogicalType]]:
    """A vector's value and all values inside it, with their types."""
    yield value, logical
    if value is None:
        return
    if logical.name is TypeName.ARRAY:
        assert logical.element
        for item in value:
            yield from parts_of(item, logical.element)
    elif logical.name in (TypeName.MAP, TypeName.MULTISET):
        for key, item in value:
            yield key, LogicalType(TypeName.STRING)
            yield from parts_of(item, _map_value(logical))
    elif logical.name is TypeName.ROW:
        for item, part in zip(value, logical.fields, strict=True):
            yield from parts_of(item, part.type)


def expected(vector: Vector) -> list[list[Any]] | None:
    """Rows that a decode vector must give in comparable form; None when the message belongs in quarantine.

    That is where Flink fails, where it hands on null in the place of a row, and where it drops a message silently (an
    empty JSON array is not a dropped message: it holds no row).
    """
    if vector.error is not None or any(row is None for row in vector.rows):
        return None
    if not vector.rows and not (vector.message or b"").lstrip().startswith(b"["):
        return None
    return [
        [comparable(value, logical) for value, (_, logical) in zip(row["values"], vector.columns, strict=True)]
        for row in vector.rows
    ]


def differing(outcomes: dict[str, tuple[Any, Any]], prefix: str) -> tuple[int, ...]:
    """Numbers of the vectors whose two outcomes differ, in order."""
    return tuple(sorted(int(name.removeprefix(f"{prefix}-")) for name, (got, want) in outcomes.items() if got != want))


def cut_nanoseconds(message: bytes) -> bytes:
    """A message as it would be written with timestamps cut to microseconds."""
    return re.sub(rb"(:\d\d\.\d{6})\d{1,3}", lambda match: re.sub(rb"\.?0+$", b"", match[1]), message)
