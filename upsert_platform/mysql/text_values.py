"""Values as a SELECT gives them, in text, to the Arrow that the log's bytes of the same value become.

What the two give for a value of every type is compared in a test, so that a row is the same whether a snapshot or the
log told it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.errors import ReplicationError
from upsert_platform.mysql.binlog.temporal import dated, days_of
from upsert_platform.mysql.chunks import quoted
from upsert_platform.mysql.columns import MySqlColumn, TypeRules, sql_type
from upsert_platform.mysql.geometry import geometry_text
from upsert_platform.types import arrow_type

_TIME: Final = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_BLANKS: Final = re.compile(r'("(?:[^"\\]|\\.)*")|([:,]) ')
_SECOND: Final = 1_000_000
Values: TypeAlias = Sequence[Any] | pa.Array
"""Of one column: texts, or bytes where the type has no character set; None for NULL. An array holds texts."""


@dataclass(frozen=True, slots=True)
class TextReader:
    """One column.

    Attributes:
        select: what stands for it in a SELECT.
        read: makes an Arrow array of `type` from what that gives.
        hexadecimal: the same as hexadecimal text, where what it gives are bytes; else empty.
    """

    name: str
    select: str
    type: pa.DataType
    read: Callable[[Values], pa.Array]
    hexadecimal: str = ""

    @property
    def has_bytes(self) -> bool:
        """Whether values are bytes, not texts."""
        return bool(self.hexadecimal)


def text_reader(column: MySqlColumn, rules: TypeRules, *, table: str) -> TextReader:
    """How one column is selected and read.

    Args:
        table: for messages.

    Raises:
        ReplicationError: the platform does not read its type.
    """
    told = f"{table}: column '{column.name}'"
    logical = sql_type(column, rules)
    if logical is None:
        raise ReplicationError(f"{told} has the type {column.declared or column.kind}, which is not read")
    kind, name = arrow_type(logical), quoted(column.name)
    select = name
    read: Callable[[Values], pa.Array] = partial(_cast, kind=kind)
    dates: dict[str, Any] = {"kind": kind, "policy": rules.zero_dates, "column": told}
    match column.kind:
        case "bit" if pa.types.is_boolean(kind):
            select, read = f"{name} + 0", _booleans
        case "tinyint" if pa.types.is_boolean(kind):
            read = _booleans
        case "float" | "double":
            # Declared digits would round the text, and a FLOAT's own has six.
            select, read = f"{name} + 0e0", partial(_floats, kind=kind)
        case "date":
            read = partial(_dates, **dates)
        case "datetime" | "timestamp":
            read = partial(_moments, digits=column.fraction, **dates)
        case "time":
            read = partial(_times, column=told)
        case "json" if rules.legacy_json:
            read = _compact
        case _ if column.is_geometry:
            read = partial(_shapes, column=told)
    hexadecimal = f"HEX({name})" if pa.types.is_binary(kind) or column.is_geometry else ""
    if hexadecimal and column.kind == "bit":
        # Of a number servers leave out the zeros in front.
        hexadecimal = f"LPAD(HEX({name} + 0), {((column.length or 1) + 7) // 8 * 2}, '0')"
    return TextReader(column.name, select, kind, read, hexadecimal)


def _texts(values: Values) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, pa.string())


def unhex(values: pa.Array) -> list[bytes | None]:
    """Bytes of hexadecimal texts."""
    return [None if value is None else bytes.fromhex(value) for value in values.to_pylist()]


def _cast(values: Values, kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        return pa.array([value.encode() if isinstance(value, str) else value for value in values], pa.binary())
    return _texts(values).cast(kind)


def _booleans(values: Values) -> pa.Array:
    return pc.not_equal(_texts(values).cast(pa.int64()), 0)


def _floats(values: Values, kind: pa.DataType) -> pa.Array:
    return _texts(values).cast(pa.float64()).cast(kind)


def _numbers(texts: pa.Array, start: int, stop: int) -> np.ndarray:
    return pc.utf8_slice_codeunits(texts, start, stop).cast(pa.int64()).to_numpy(zero_copy_only=False)


def _present(texts: pa.Array) -> np.ndarray | None:
    return None if texts.null_count == 0 else texts.is_valid().to_numpy(zero_copy_only=False)


def _dates(values: Values, kind: pa.DataType, **rules: Any) -> pa.Array:
    texts = _texts(values)
    filled = texts.fill_null("1970-01-01")
    days, good = days_of(_numbers(filled, 0, 4), _numbers(filled, 5, 7), _numbers(filled, 8, 10))
    return dated(days.astype(np.int32), good, kind, present=_present(texts), **rules)


def _moments(values: Values, kind: pa.DataType, *, digits: int, **rules: Any) -> pa.Array:
    """DATETIME, and TIMESTAMP in a session whose zone is UTC."""
    texts = _texts(values)
    filled = texts.fill_null("1970-01-01 00:00:00" + ("." + "0" * digits if digits else ""))
    days, good = days_of(_numbers(filled, 0, 4), _numbers(filled, 5, 7), _numbers(filled, 8, 10))
    clock = _numbers(filled, 11, 13) * 3600 + _numbers(filled, 14, 16) * 60 + _numbers(filled, 17, 19)
    micros = (days * 86_400 + clock) * _SECOND
    if digits:
        micros = micros + _numbers(filled, 20, 20 + digits) * 10 ** (6 - digits)
    return dated(micros, good, kind, present=_present(texts), **rules)


def _times(values: Values, *, column: str) -> pa.Array:
    encoded = _texts(values).dictionary_encode()
    found = []
    for text in encoded.dictionary.to_pylist():
        match = _TIME.fullmatch(text)
        if match is None:
            raise ReplicationError(f"{column}: '{text}' is not a time")
        sign, hours, minutes, seconds, fraction = match.groups()
        micros = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * _SECOND
        micros += int((fraction or "0").ljust(6, "0"))
        found.append(-micros if sign else micros)
    return pa.array(found, pa.int64()).take(encoded.indices)


def _compact(values: Values) -> pa.Array:
    """JSON without the blanks that a server writes after ``:`` and ``,``."""
    return pa.array(
        [None if value is None else _BLANKS.sub(lambda found: found[1] or found[2], value) for value in values],
        pa.string(),
    )


def _shapes(values: Values, *, column: str) -> pa.Array:
    return pa.array([None if value is None else geometry_text(value, column=column) for value in values], pa.string())
