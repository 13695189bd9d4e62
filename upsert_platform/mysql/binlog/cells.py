"""Cells of a column in binlog rows and their conversion to Arrow: one `ColumnReader` per column of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from upsert_platform.core.errors import ReplicationError
from upsert_platform.core.types import arrow_type
from upsert_platform.mysql.binlog import decimals, numbers, temporal, texts
from upsert_platform.mysql.binlog.gather import Cells, binary
from upsert_platform.mysql.binlog.json_binary import JsonText
from upsert_platform.mysql.binlog.json_diff import JsonPatch
from upsert_platform.mysql.binlog.table_map import Wire, WireColumn
from upsert_platform.mysql.columns import MySqlColumn, TypeRules, sql_type
from upsert_platform.mysql.geometry import geometry_text

_BLOBS: Final = (Wire.BLOB, Wire.TINY_BLOB, Wire.MEDIUM_BLOB, Wire.LONG_BLOB)
_TEXTS: Final = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"))
_INTEGERS: Final = {
    Wire.TINY: ("tinyint", 1), Wire.SHORT: ("smallint", 2), Wire.INT24: ("mediumint", 3), Wire.LONG: ("int", 4),
    Wire.LONGLONG: ("bigint", 8),
}  # fmt: skip
_KINDS: Final = {
    Wire.YEAR: ("year",), Wire.FLOAT: ("float",), Wire.DOUBLE: ("double",), Wire.NEWDECIMAL: ("decimal",),
    Wire.DATE: ("date",), Wire.NEWDATE: ("date",), Wire.TIME: ("time",), Wire.TIME2: ("time",),
    Wire.DATETIME: ("datetime",), Wire.DATETIME2: ("datetime",), Wire.TIMESTAMP: ("timestamp",),
    Wire.TIMESTAMP2: ("timestamp",), Wire.BIT: ("bit",), Wire.ENUM: ("enum",), Wire.SET: ("set",), Wire.JSON: ("json",),
    Wire.VARCHAR: ("varchar", "varbinary"), Wire.VAR_STRING: ("varchar", "varbinary"), Wire.STRING: ("char", "binary"),
    Wire.VECTOR: ("vector",),
    **dict.fromkeys(_BLOBS, ("tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob",
                             "json", "vector")),
}  # fmt: skip
"""Kinds of the catalogue that stand in rows as a type."""


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """One column.

    Attributes:
        width: bytes of every value; 0 where it varies.
        prefix: bytes of the length that stands before a value of varying length.
        read: makes an Arrow array of `type` from where values stand.
        patch: of JSON in binary form, which an update may tell in part: makes the value from the one before.
    """

    name: str
    width: int
    prefix: int
    type: pa.DataType
    read: Callable[[Cells], pa.Array]
    patch: Callable[[bytes | None, bytes], str] | None = None


def column_reader(wire: WireColumn, column: MySqlColumn, rules: TypeRules, *, table: str) -> ColumnReader:
    """Return the reader of a column.

    Args:
        wire: as the log tells it.
        column: as the catalogue tells it.
        table: for messages.

    Raises:
        ReplicationError: the two do not tell the same type, or the platform does not read it.
    """
    told = f"{table}: column '{column.name}'"
    logical = sql_type(column, rules)
    if logical is None:
        raise ReplicationError(f"{told} has the type {column.declared or column.kind}, which is not read")
    kind = arrow_type(logical)
    make = partial(ColumnReader, column.name)
    if wire.type in _INTEGERS:
        name, width = _INTEGERS[wire.type]
        _require(told, column, wire, column.kind == name)
        return make(width, 0, kind, partial(numbers.integers, kind=kind, width=width, signed=not column.unsigned))
    geometric = wire.type is Wire.GEOMETRY and column.is_geometry
    _require(told, column, wire, geometric or column.kind in _KINDS.get(wire.type, ()))
    dated: dict[str, Any] = {"policy": rules.zero_dates, "column": told}
    match wire.type, wire.metadata:
        case Wire.YEAR, _:
            return make(1, 0, kind, partial(numbers.years, kind=kind))
        case ((Wire.FLOAT | Wire.DOUBLE), (width,)):
            return make(width, 0, kind, partial(numbers.floats, kind=kind, width=width))
        case Wire.NEWDECIMAL, (precision, scale):
            _require(told, column, wire, (precision, scale) == (column.precision, column.fraction))
            read = partial(decimals.read, kind=kind, precision=precision, scale=scale)
            return make(decimals.width(precision, scale), 0, kind, read)
        case ((Wire.DATE | Wire.NEWDATE), _):
            return make(3, 0, kind, partial(temporal.dates, kind=kind, **dated))
        case ((Wire.TIME2 | Wire.DATETIME2 | Wire.TIMESTAMP2), (digits,)):
            _require(told, column, wire, digits == column.fraction)
            extra = temporal.fraction_bytes(digits)
            if wire.type is Wire.TIME2:
                times = partial(temporal.times, digits=digits)
                return make(3 + extra, 0, kind, _time_reader(times, kind, digits=digits))
            if wire.type is Wire.DATETIME2:
                return make(5 + extra, 0, kind, partial(temporal.datetimes, kind=kind, digits=digits, **dated))
            return make(4 + extra, 0, kind, partial(temporal.timestamps, kind=kind, digits=digits, **dated))
        case ((Wire.TIME | Wire.DATETIME | Wire.TIMESTAMP), _):
            if column.fraction:
                raise ReplicationError(
                    f"{told} is stored in MariaDB's own form of {column.declared or column.kind}, which is not read;"
                    " ALTER TABLE ... FORCE under 'mysql56_temporal_format' = ON stores it anew"
                )
            if wire.type is Wire.TIME:
                return make(3, 0, kind, _time_reader(temporal.old_times, kind, digits=0))
            if wire.type is Wire.DATETIME:
                return make(8, 0, kind, partial(temporal.old_datetimes, kind=kind, **dated))
            return make(4, 0, kind, partial(temporal.old_timestamps, kind=kind, **dated))
        case Wire.BIT, (bits, whole):
            _require(told, column, wire, bits + 8 * whole == column.length)
            width = whole + (bits > 0)
            return make(width, 0, kind, partial(numbers.bits, kind=kind, width=width))
        case Wire.ENUM, (width,):
            read = partial(numbers.enums, elements=column.elements, width=width, column=told)
            return make(width, 0, kind, read)
        case Wire.SET, (width,):
            read = partial(numbers.sets, elements=column.elements, width=width, column=told)
            return make(width, 0, kind, read)
        case ((Wire.VARCHAR | Wire.VAR_STRING | Wire.STRING), (longest,)):
            return make(0, 1 if longest < 256 else 2, kind, _of_bytes(column, kind, told))
        case Wire.JSON, (prefix,):
            writer = JsonText(told, rules.legacy_json)
            return make(0, prefix, kind, partial(_each, write=writer.write), patch=JsonPatch(writer).write)
        case Wire.GEOMETRY, (prefix,):
            return make(0, prefix, kind, partial(_each, write=partial(geometry_text, column=told)))
        case _, (prefix,):
            return make(0, prefix, kind, _of_bytes(column, kind, told))
    raise AssertionError(wire)


def _time_reader(read: Callable[..., pa.Array], kind: pa.DataType, *, digits: int) -> Callable[[Cells], pa.Array]:
    if not pa.types.is_string(kind):
        return partial(read, kind=kind)
    return partial(_time_texts, read=partial(read, kind=pa.int64()), digits=digits)


def _time_texts(cells: Cells, *, read: Callable[[Cells], pa.Array], digits: int) -> pa.Array:
    return temporal.time_texts(read(cells), digits=digits)


def _require(told: str, column: MySqlColumn, wire: WireColumn, fits: bool) -> None:
    if not fits:
        numbers_told = f" {wire.metadata}" if wire.metadata else ""
        raise ReplicationError(
            f"{told} is {column.declared or column.kind} in the catalogue and {wire.type.name}{numbers_told} in the"
            " log; the table was changed between the two"
        )


def _of_bytes(column: MySqlColumn, kind: pa.DataType, told: str) -> Callable[[Cells], pa.Array]:
    if column.kind == "binary":
        return partial(_padded, width=column.length or 0)
    if column.kind in _TEXTS or column.kind == "json":
        # MariaDB's JSON is text.
        charset = column.charset or "utf8mb4"
        if not texts.is_known(charset):
            raise ReplicationError(f"{told} has the character set {charset}, which is not read; utf8mb4 is")
        return partial(texts.texts, charset=charset, column=told)
    return binary


def _padded(cells: Cells, width: int) -> pa.Array:
    """BINARY: zero bytes at the end are not in the log, and belong to the value."""
    found = binary(cells)
    return pa.array([None if value is None else value.ljust(width, b"\0") for value in found.to_pylist()], pa.binary())


def _each(cells: Cells, write: Callable[[bytes], str]) -> pa.Array:
    values = binary(cells).to_pylist()
    return pa.array([None if value is None else write(value) for value in values], pa.string())


def null_cells(raw: np.ndarray, rows: int) -> Cells:
    """Cells of a column that is NULL in every row."""
    zeros = np.zeros(rows, np.int64)
    return Cells(raw, zeros, zeros, np.zeros(rows, bool))
