"""MySQL's binary JSON as text (its layout is told in ``sql-common/json_binary.h`` of the server).

An object or array has a count, a size, and per entry a type with an offset or a small value in its place; offsets count
from the container's own beginning. Doubles are written in their shortest form, which need not be the server's own.
"""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass
from typing import Final, cast

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.table_map import Wire

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_NUMBERS: Final = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_DOUBLE, _STRING, _OPAQUE = 11, 12, 15
_LITERALS: Final = ("null", "true", "false")
_MOST_DEEP: Final = 100
"""Levels that the server accepts at most."""
Node = str | list["Node"] | dict[str, "Node"]
"""A value of a document: JSON text, or the values of an array, or those of an object by name."""


@dataclass(frozen=True, slots=True)
class JsonTree:
    """Reads documents.

    Attributes:
        column: for messages.
    """

    column: str

    def read(self, data: bytes) -> Node:
        """One document, its scalars as text; an empty one, which an UPDATE IGNORE can leave, is null.

        Raises:
            ReplicationError: it is not of the layout.
        """
        if not data:
            return _LITERALS[0]
        try:
            return self._value(data[0], memoryview(data)[1:], 0)
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise ReplicationError(f"{self.column}: a JSON value cannot be read: {error}") from error

    def _object(self, names: list[str], values: list[Node]) -> Node:
        return dict(zip(names, values, strict=True))

    def _array(self, values: list[Node]) -> Node:
        return values

    def _value(self, kind: int, data: memoryview, depth: int) -> Node:
        if kind <= _LARGE_ARRAY:
            return self._container(kind, data, depth + 1)
        if kind == _LITERAL:
            return _LITERALS[data[0]]
        if kind in _NUMBERS:
            return str(struct.unpack_from(_NUMBERS[kind], data)[0])
        if kind == _DOUBLE:
            return _double(struct.unpack_from("<d", data)[0])
        if kind == _STRING:
            return _quoted(bytes(_sized(data)).decode("utf-8"))
        if kind == _OPAQUE:
            return self._opaque(data[0], bytes(_sized(data[1:])))
        raise ReplicationError(f"{self.column}: a JSON value holds the unknown type {kind}")

    def _container(self, kind: int, data: memoryview, depth: int) -> Node:
        if depth > _MOST_DEEP:
            raise ReplicationError(f"{self.column}: a JSON value has more than {_MOST_DEEP} levels")
        large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
        number, width = ("<I", 4) if large else ("<H", 2)
        count, size = struct.unpack_from(number, data)[0], struct.unpack_from(number, data, width)[0]
        if size > len(data):
            raise ReplicationError(f"{self.column}: a JSON value is cut off after {len(data)} of {size} bytes")
        data = data[:size]
        at = 2 * width
        keys: list[str] = []
        if kind in (_SMALL_OBJECT, _LARGE_OBJECT):
            for _ in range(count):
                offset = struct.unpack_from(number, data, at)[0]
                length = struct.unpack_from("<H", data, at + width)[0]
                keys.append(bytes(_slice(data, offset, length)).decode("utf-8"))
                at += width + 2
        inlined = (_LITERAL, 5, 6, 7, 8) if large else (_LITERAL, 5, 6)
        values = []
        for _ in range(count):
            inner = data[at]
            if inner in inlined:
                values.append(self._value(inner, data[at + 1 : at + 1 + width], depth))
            else:
                offset = struct.unpack_from(number, data, at + 1)[0]
                values.append(self._value(inner, data[offset:], depth))
            at += 1 + width
        return self._object(keys, values) if kind in (_SMALL_OBJECT, _LARGE_OBJECT) else self._array(values)

    def _opaque(self, kind: int, data: bytes) -> str:
        """A value of SQL inside JSON; what JSON has no form for is told in base64, as the server does."""
        if kind == Wire.NEWDECIMAL:
            return _decimal(data)
        if kind in (Wire.DATE, Wire.DATETIME, Wire.TIMESTAMP, Wire.TIME):
            return _quoted(_temporal(kind, struct.unpack("<q", data)[0]))
        return _quoted(f"base64:type{kind}:{base64.b64encode(data).decode('ascii')}")


@dataclass(frozen=True, slots=True)
class JsonText(JsonTree):
    """Writes documents.

    Attributes:
        compact: without blanks after ``:`` and ``,``; the server itself writes one after each.
    """

    compact: bool

    def write(self, data: bytes) -> str:
        """As `read`, all of it as text."""
        return cast("str", self.read(data))

    def text(self, node: Node) -> str:
        """A value that was read as a tree, as text."""
        if isinstance(node, dict):
            return cast("str", self._object(list(node), [self.text(value) for value in node.values()]))
        return cast("str", self._array([self.text(value) for value in node])) if isinstance(node, list) else node

    def _object(self, names: list[str], values: list[Node]) -> Node:
        comma, colon = (",", ":") if self.compact else (", ", ": ")
        pairs = (f"{_quoted(name)}{colon}{value}" for name, value in zip(names, values, strict=True))
        return "{" + comma.join(pairs) + "}"

    def _array(self, values: list[Node]) -> Node:
        return "[" + ("," if self.compact else ", ").join(cast("list[str]", values)) + "]"


def _slice(data: memoryview, offset: int, length: int) -> memoryview:
    if offset + length > len(data):
        raise IndexError("a key is cut off")
    return data[offset : offset + length]


def _sized(data: memoryview) -> memoryview:
    """Bytes behind their length, seven bits a byte, the lowest first."""
    length = at = 0
    while True:
        byte = data[at]
        length |= (byte & 0x7F) << 7 * at
        at += 1
        if not byte & 0x80:
            break
        if at == 5:
            raise IndexError("a length has more than five bytes")
    if at + length > len(data):
        raise IndexError("a text is cut off")
    return data[at : at + length]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _double(value: float) -> str:
    text = repr(value)
    head, e, exponent = text.partition("e")
    return f"{head}e{int(exponent)}" if e else text


def _decimal(data: bytes) -> str:
    import numpy as np
    import pyarrow as pa

    from upsert_platform.mysql.binlog import decimals
    from upsert_platform.mysql.binlog.gather import PADDING, Cells

    precision, scale = data[0], data[1]
    raw = np.frombuffer(data[2:] + bytes(PADDING), np.uint8)
    cells = Cells(raw, np.zeros(1, np.int64), np.zeros(1, np.int64), None)
    return str(decimals.read(cells, pa.string(), precision=precision, scale=scale)[0].as_py())


def _temporal(kind: int, packed: int) -> str:
    """A date or time: the bit fields of its row form in the upper 40 bits, microseconds in the lower 24."""
    sign, size = ("-", -packed) if packed < 0 else ("", packed)
    whole, micros = size >> 24, size & 0xFFFFFF
    minute, second = (whole >> 6) & 63, whole & 63
    if kind == Wire.TIME:
        return f"{sign}{(whole >> 12) & 1023:02}:{minute:02}:{second:02}.{micros:06}"
    days = whole >> 17
    months, day = days >> 5, days & 31
    date = f"{months // 13:04}-{months % 13:02}-{day:02}"
    if kind == Wire.DATE:
        return date
    return f"{date} {(whole >> 12) & 31:02}:{minute:02}:{second:02}.{micros:06}"
