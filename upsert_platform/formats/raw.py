"""Format ``raw``: the bytes of one column, without any frame."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import TEXTS, LogicalType, TypeName
from upsert_platform.formats.base import Columns, Decoded
from upsert_platform.formats.columns import schema_of
from upsert_platform.formats.fragments import Refusals, valid_text
from upsert_platform.formats.options import RawSettings

NUMBERS: Final = {
    TypeName.BOOLEAN: "u1",
    TypeName.TINYINT: "i1",
    TypeName.SMALLINT: "i2",
    TypeName.INT: "i4",
    TypeName.BIGINT: "i8",
    TypeName.FLOAT: "f4",
    TypeName.DOUBLE: "f8",
}
"""Fixed-size types and their NumPy code."""
_NOT_UTF8: Final = "not UTF-8; declare the column as BYTES, or set 'raw.charset'"


def _width(logical: LogicalType, settings: RawSettings) -> np.dtype:
    order = "<" if settings.endianness == "little-endian" else ">"
    return np.dtype(order + NUMBERS[logical.name])


class RawDecoder:
    """Decodes messages that are one value each."""

    def __init__(self, columns: Columns, settings: RawSettings) -> None:
        self._schema = schema_of(columns)
        [(_, self._type)] = columns
        self._settings = settings

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decodes a block; see `upsert_platform.formats.base.Decoder`."""
        errors: dict[int, str] = {}
        if self._type.name in NUMBERS:
            array = self._numbers(messages, errors)
        elif self._type.name in TEXTS:
            array = self._text(messages, errors)
        else:
            array = pa.array(messages, pa.binary())
        places = np.delete(np.arange(len(messages), dtype=np.int32), list(errors))
        rows = pa.RecordBatch.from_arrays([array], schema=self._schema)
        return Decoded(rows, pa.array(places), errors)

    def _numbers(self, messages: Sequence[bytes], errors: dict[int, str]) -> pa.Array:
        kind = _width(self._type, self._settings)
        for place, message in enumerate(messages):
            if len(message) != kind.itemsize:
                errors[place] = f"{len(message)} bytes where {self._type} takes {kind.itemsize}"
        good = messages if not errors else [one for place, one in enumerate(messages) if place not in errors]
        values = np.frombuffer(b"".join(good), kind).astype(kind.newbyteorder("="))
        return pa.array(values != 0) if self._type.name is TypeName.BOOLEAN else pa.array(values)

    def _text(self, messages: Sequence[bytes], errors: dict[int, str]) -> pa.Array:
        if not _is_utf8(self._settings.charset):
            return pa.array([_decode(message, self._settings.charset) for message in messages], pa.string())
        array = pa.array(messages, pa.binary()).view(pa.string())
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            good = []
            for place, message in enumerate(messages):
                try:
                    good.append(message.decode())
                except UnicodeDecodeError:
                    errors[place] = _NOT_UTF8
            return pa.array(good, pa.string())
        return array


class RawEncoder:
    """Encodes rows of one column; null gives no message."""

    def __init__(self, columns: Columns, settings: RawSettings) -> None:
        [(_, self._type)] = columns
        self._settings = settings

    def encode(self, rows: pa.RecordBatch) -> tuple[pa.Array, Refusals]:
        """Encodes a block; see `upsert_platform.formats.base.Encoder`."""
        array = rows.column(0)
        if self._type.name in TEXTS:
            text = valid_text(array)
            if _is_utf8(self._settings.charset):
                return text.view(pa.binary()), {}
            charset = self._settings.charset
            encoded = [None if value is None else _encode(value, charset) for value in text.to_pylist()]
            return pa.array(encoded, pa.binary()), {}
        if self._type.name not in NUMBERS:
            return array, {}
        kind = _width(self._type, self._settings)
        values = pc.fill_null(array.cast(pa.uint8()) if self._type.name is TypeName.BOOLEAN else array, 0)
        content = values.to_numpy(zero_copy_only=False).astype(kind).tobytes()
        fixed = pa.Array.from_buffers(pa.binary(kind.itemsize), len(array), [None, pa.py_buffer(content)])
        messages = fixed.cast(pa.binary())
        if array.null_count:
            messages = pc.if_else(array.is_valid(), messages, pa.scalar(None, pa.binary()))
        return messages, {}


def _is_utf8(charset: str) -> bool:
    return codecs.lookup(charset).name == "utf-8"


def _decode(message: bytes, charset: str) -> str:
    # Java's UTF-16 is big-endian unless a byte order mark says otherwise.
    if codecs.lookup(charset).name == "utf-16" and message[:2] not in (b"\xfe\xff", b"\xff\xfe"):
        charset = "utf-16-be"
    return message.decode(charset, "replace")


def _encode(text: str, charset: str) -> bytes:
    if codecs.lookup(charset).name == "utf-16":
        return b"\xfe\xff" + text.encode("utf-16-be")
    return text.encode(charset, "replace")
