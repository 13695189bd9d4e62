"""Values as a SELECT gives them, in text, to the Arrow that the log's bytes of the same value become.

What the two give for a value of every type is compared in a test, so that a row is the same whether a snapshot or the
log told it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.errors import ReplicationError
from upsert_platform.core.types import arrow_type
from upsert_platform.mysql.binlog.temporal import dated, days_of
from upsert_platform.mysql.chunks import quoted
from upsert_platform.mysql.columns import MySqlColumn, TypeRules, sql_type
from upsert_platform.mysql.geometry import geometry_text

_TIME: Final = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_BLANKS: Final = re.compile(r'("(?:[^"\\]|\\.)*")|([:,]) ')
_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class TextReader:
    """One column.

    Attributes:
        select: what stands for it in a SELECT.
        read: makes an Arrow array of `type` from the texts, or the bytes, that this gives.
        has_bytes: whether values are bytes, not texts.
        is_ascii: whether they are texts that the server writes of numbers and times alone.
    """

    name: str
    select: str
    type: pa.DataType
    read: Callable[[pa.Array], pa.Array]
    has_bytes: bool = False
    is_ascii: bool = False


def text_reader(column: MySqlColumn, rules: TypeRules, *, table: str) -> TextReader:
    """Return the selection and the reader of a column.

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
    read: Callable[[pa.Array], pa.Array] = partial(_cast, kind=kind)
    dates: dict[str, Any] = {"kind": kind, "policy": rules.zero_dates, "column": told}
    match column.kind:
        case "bit" if pa.types.is_boolean(kind):
            select, read = f"{name} + 0", _booleans
        case "float" | "double":
            # Declared digits would round the text, and a FLOAT's own has six.
            select, read = f"{name} + 0e0", partial(_floats, kind=kind)
        case "date":
            read = partial(_dates, **dates)
        case "datetime" | "timestamp":
            read = partial(_moments, digits=column.fraction, **dates)
        case "time" if not rules.time_as_text:
            read = partial(_times, column=told)
        case "json" if rules.legacy_json:
            read = _compact
        case _ if column.is_geometry:
            read = partial(_shapes, column=told)
    bytes_given = pa.types.is_binary(kind) or column.is_geometry
    ascii_given = not bytes_given and not pa.types.is_string(kind)
    return TextReader(column.name, select, kind, read, bytes_given, ascii_given)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else values.cast(kind)


def _booleans(values: pa.Array) -> pa.Array:
    return pc.not_equal(values.cast(pa.int64()), 0)


def _floats(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values.cast(pa.float64()).cast(kind)


def _digits(texts: pa.Array, blank: str, column: str) -> np.ndarray:
    """Digits of texts that have the length of `blank`, which stands for null: a row each, a column per character.

    Raises:
        ReplicationError: one has another length.
    """
    filled, width = texts.fill_null(blank), len(blank)
    offsets = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset :][: len(filled) + 1]
    if (np.diff(offsets) != width).any():
        raise ReplicationError(f"{column}: the server gives a value that is not of the form {blank}")
    data = np.frombuffer(filled.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return data.reshape(len(filled), width) - np.uint8(ord("0"))


def _number(digits: np.ndarray, start: int, stop: int) -> np.ndarray:
    found = digits[:, start].astype(np.int64)
    for at in range(start + 1, stop):
        found = found * 10 + digits[:, at]
    return found


def _present(texts: pa.Array) -> np.ndarray | None:
    return None if texts.null_count == 0 else texts.is_valid().to_numpy(zero_copy_only=False)


def _dates(texts: pa.Array, kind: pa.DataType, *, column: str, **rules: Any) -> pa.Array:
    found = _digits(texts, "1970-01-01", column)
    days, good = days_of(_number(found, 0, 4), _number(found, 5, 7), _number(found, 8, 10))
    return dated(days.astype(np.int32), good, kind, present=_present(texts), column=column, **rules)


def _moments(texts: pa.Array, kind: pa.DataType, *, digits: int, column: str, **rules: Any) -> pa.Array:
    """DATETIME, and TIMESTAMP in a session whose zone is UTC."""
    found = _digits(texts, "1970-01-01 00:00:00" + ("." + "0" * digits if digits else ""), column)
    days, good = days_of(_number(found, 0, 4), _number(found, 5, 7), _number(found, 8, 10))
    clock = _number(found, 11, 13) * 3600 + _number(found, 14, 16) * 60 + _number(found, 17, 19)
    micros = (days * 86_400 + clock) * _SECOND
    if digits:
        micros = micros + _number(found, 20, 20 + digits) * 10 ** (6 - digits)
    return dated(micros, good, kind, present=_present(texts), column=column, **rules)


def _times(values: pa.Array, *, column: str) -> pa.Array:
    encoded = values.dictionary_encode()
    found = []
    for text in encoded.dictionary.to_pylist():
        match = _TIME.fullmatch(text)
        if match is None:
            raise ReplicationError(f"{column}: the server gives a value that is not a time")
        sign, hours, minutes, seconds, fraction = match.groups()
        micros = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * _SECOND
        micros += int((fraction or "0").ljust(6, "0"))
        found.append(-micros if sign else micros)
    return pa.array(found, pa.int64()).take(encoded.indices)


def _compact(values: pa.Array) -> pa.Array:
    """JSON without the blanks that a server writes after ``:`` and ``,``."""
    return pa.array(
        [
            None if value is None else _BLANKS.sub(lambda found: found[1] or found[2], value)
            for value in values.to_pylist()
        ],
        pa.string(),
    )


def _shapes(values: pa.Array, *, column: str) -> pa.Array:
    shapes = [None if value is None else geometry_text(value, column=column) for value in values.to_pylist()]
    return pa.array(shapes, pa.string())
