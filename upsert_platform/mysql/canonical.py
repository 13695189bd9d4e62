"""One text per row that the server and this process make alike, and the hash of it.

A row's text is that of its columns in order: the length of a value in bytes, a colon and the value; ``-`` for a null.
Numbers, dates and times are whole numbers in it: unscaled digits, days and microseconds since 1970. So it does not
depend on how a server or Arrow spells them. The hash is the first half of its MD5, as a number of 64 bits; a CRC would
not show that two keys have exchanged their values, since it is linear.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.mysql.chunks import quoted
from upsert_platform.mysql.columns import MySqlColumn, TypeRules

_INTEGERS: Final = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint", "year"))
_TEXTS: Final = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"))
_BYTES: Final = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
_DIGITS: Final = 65
"""Of a DECIMAL, at most."""
_EPOCH: Final = 719_528
"""TO_DAYS of 1970-01-01."""
_SPACED: Final = re.compile(r'("(?:[^"\\]|\\.)*")|([:,])')
_UNSIGNED: Final = 1 << 64


def server_value(column: MySqlColumn, kind: pa.DataType) -> str | None:
    """Return the SQL of a column's value in a row's text; None where the server cannot make what Arrow has.

    Args:
        kind: of the declared column, in Arrow.
    """
    name = quoted(column.name)
    if column.kind in _INTEGERS:
        if pa.types.is_boolean(kind):
            return f"({name} <> 0)"
        whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
        return f"({name} + 0)" if whole else None
    match column.kind:
        case "bit" if pa.types.is_boolean(kind):
            return f"({name} + 0 <> 0)"
        case "bit" if _is_bytes(kind):
            return f"UNHEX(LPAD(HEX({name} + 0), {2 * (((column.length or 1) + 7) // 8)}, '0'))"
        case "decimal" if pa.types.is_decimal(kind) and (column.precision or 10) + kind.scale <= _DIGITS:
            exact = kind.scale >= column.fraction
            return f"CAST({name} * 1{'0' * kind.scale} AS DECIMAL({_DIGITS}, 0))" if exact else None
        case "date" if pa.types.is_date(kind):
            return f"IF({_exists(name)}, TO_DAYS({name}) - {_EPOCH}, NULL)"
        case "datetime" | "timestamp" if pa.types.is_timestamp(kind):
            clock = f"(TO_DAYS({name}) - {_EPOCH}) * 86400000000 + {_clock(name)}"
            return f"IF({_exists(name)}, {clock}, NULL)"
        case "time" if pa.types.is_integer(kind):
            return f"(IF(LEFT({name}, 1) = '-', -1, 1) * ({_clock(name)}))"
        case "json" if pa.types.is_string(kind):
            return f"CAST(CAST({name} AS CHAR) AS BINARY)"
        case _ if column.kind in _TEXTS and pa.types.is_string(kind):
            return f"CAST(CONVERT({name} USING utf8mb4) AS BINARY)"
        case "time" | "decimal" if pa.types.is_string(kind):
            return f"CAST(CAST({name} AS CHAR) AS BINARY)"
        case _ if column.kind in _BYTES and _is_bytes(kind):
            return name
    return None


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _exists(name: str) -> str:
    """Return whether a date is one of the calendar: servers hold others."""
    year, month, day = f"YEAR({name})", f"MONTH({name})", f"DAYOFMONTH({name})"
    leap = f"({year} % 4 = 0 AND ({year} % 100 <> 0 OR {year} % 400 = 0))"
    last = f"ELT({month}, 31, 28 + {leap}, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)"
    return f"{month} > 0 AND {day} > 0 AND {day} <= {last}"


def _clock(name: str) -> str:
    """The microseconds of a day, or of a TIME without its sign."""
    return f"(HOUR({name}) * 3600 + MINUTE({name}) * 60 + SECOND({name})) * 1000000 + MICROSECOND({name})"


def hash_sql(values: Sequence[str]) -> str:
    """Return the SQL of a row's hash, of values that `server_value` gave; null where a row is too long for a text."""
    cells = ", ".join(f"IFNULL(CONCAT(LENGTH({value}), ':', {value}), '-')" for value in values)
    return f"CAST(CONV(LEFT(MD5(CONCAT({cells})), 16), 16, 10) AS UNSIGNED)"


def row_hashes(
    batch: pa.RecordBatch, names: Sequence[str], *, spaced: Sequence[str] = (), rules: TypeRules | None = None
) -> np.ndarray:
    """Return the hash of each row over some columns, as the server computes it: ``uint64``.

    Args:
        spaced: of them, those of the server's JSON type.
        rules: the choices by which JSON became text.
    """
    compact = rules is not None and rules.legacy_json
    cells = [_cell(batch.column(name), spaced=compact and name in spaced) for name in names]
    texts = pc.binary_join_element_wise(*cells, pa.scalar(b"", pa.binary()))
    digests = b"".join([hashlib.md5(text, usedforsecurity=False).digest() for text in texts.to_pylist()])
    return np.frombuffer(digests, ">u8")[::2].astype(np.uint64)


def _cell(values: pa.Array, *, spaced: bool) -> pa.Array:
    raw = _bytes_of(_with_blanks(values) if spaced else values)
    lengths = pc.binary_length(raw).cast(pa.string()).cast(pa.binary())
    found = pc.binary_join_element_wise(lengths, raw, pa.scalar(b":", pa.binary()))
    return pc.fill_null(found, pa.scalar(b"-", pa.binary()))


def _bytes_of(values: pa.Array) -> pa.Array:
    """The bytes of values in a row's text."""
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_decimal(kind):
        # Arrow writes small fractions with an exponent; the same bytes without a scale are a whole number.
        whole = pa.decimal128(38, 0)
        values = pa.Array.from_buffers(whole, len(values), values.buffers(), values.null_count, values.offset)
    elif pa.types.is_floating(kind):
        values = values.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    elif pa.types.is_date(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if not (_is_bytes(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        values = values.cast(pa.string())
    return values.cast(pa.binary())


def _with_blanks(values: pa.Array) -> pa.Array:
    """JSON with the blanks that a server writes after ``:`` and ``,``."""
    return pa.array(
        [
            None if value is None else _SPACED.sub(lambda found: found[1] or f"{found[2]} ", value)
            for value in values.to_pylist()
        ],
        pa.string(),
    )


def sum_of(hashes: np.ndarray) -> int:
    """Return the sum of hashes, without the digits beyond 64 bits."""
    return int(hashes.sum(dtype=np.uint64))


def wrapped(total: int) -> int:
    """Return a sum of the server's without the digits beyond 64 bits."""
    return total % _UNSIGNED
