"""Avro's binary encoding read value by value, as Avro's Java decoder reads it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np

from upsert_platform.core.types import TEXTS, LogicalType, TypeName
from upsert_platform.formats.avro.plan import MOST_DIGITS, Node, target_names
from upsert_platform.formats.fragments import java_text
from upsert_platform.formats.java.text import WIDE, narrow
from upsert_platform.formats.java.time import DAY_NS
from upsert_platform.formats.json.values import to_micros

Read = Callable[[bytes, int], tuple[Any, int]]
"""From the message and a place in it to the value, Arrow-ready, and the place after it."""
_FREE_VALUES: Final = 10_000
_FREE_PER_BYTE: Final = 16
"""Values without a byte that a message may hold: some at all, and more per byte."""
_WRAPPED: Final = {TypeName.TINYINT: 8, TypeName.SMALLINT: 16}
_STAMPS: Final = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)


class AvroDataError(ValueError):
    """The message is not what the schema says."""


class _Readers:
    """Makes the readers of a schema's nodes, one per node, however often the schema refers to it.

    A value takes a byte of its message, but for nulls, empty records and fixed of no size: of those a short message may
    hold any number, so they are counted per message.
    """

    def __init__(self) -> None:
        self.left = 0
        self._made: dict[int, Read] = {}
        self._free: dict[int, int] = {}
        self._is_free: dict[int, bool] = {}

    def begin(self, message: bytes) -> None:
        """Begins to count for a message."""
        self.left = _FREE_VALUES + _FREE_PER_BYTE * len(message)

    def spend(self, count: int) -> None:
        """Counts values that take no byte.

        Raises:
            AvroDataError: they are more than the message may hold.
        """
        self.left -= count
        if self.left < 0:
            raise AvroDataError("the message holds more values without a byte (nulls, empty records) than are read")

    def free(self, node: Node) -> int:
        """Return the number of values of a node that take no byte in a message, itself included; 0 if none."""
        found = self._free.get(id(node))
        if found is None:
            match node.kind:
                case "null":
                    found = 1
                case "fixed":
                    found = int(node.size == 0)
                case "record":
                    found = sum(map(self.free, node.children)) + (not node.children)
                case _:
                    found = 0
            self._free[id(node)] = found
        return found

    def is_free(self, node: Node) -> bool:
        """Return whether a value of the node takes no byte."""
        found = self._is_free.get(id(node))
        if found is None:
            found = all(map(self.is_free, node.children)) if node.kind == "record" else self.free(node) > 0
            self._is_free[id(node)] = found
        return found

    def of(self, node: Node) -> Read:
        """The reader of a node."""
        found = self._made.get(id(node))
        if found is None:
            found = self._made[id(node)] = _reader(node, self)
        return found


def row_reader(node: Node) -> Callable[[bytes], list[Any]]:
    """A function from a message to its row; bytes after the record are ignored, as in Flink."""
    readers = _Readers()
    read = _record_values(node, readers)
    free = readers.free(node)

    def read_row(message: bytes) -> list[Any]:
        readers.begin(message)
        try:
            readers.spend(free)
            return read(message, 0)[0]
        except (IndexError, struct.error):
            raise AvroDataError("not Avro of this schema: the message ends too early") from None

    return read_row


def read_long(message: bytes, at: int, *, longest: int = 10) -> tuple[int, int]:
    """Reads a zigzag number of at most `longest` bytes."""
    value = shift = 0
    for _ in range(longest):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << 64) - 1 if longest == 10 else (1 << 32) - 1
            return value >> 1 ^ -(value & 1), at
        shift += 7
    raise AvroDataError("not Avro of this schema: a number of too many bytes")


def _reader(node: Node, readers: _Readers) -> Read:
    if node.problem:
        return _refused(node.problem)
    match node.kind:
        case "null":
            return lambda message, at: (None, at)
        case "boolean":
            return lambda message, at: (message[at] == 1, at + 1)
        case "int":
            return _int(node)
        case "long":
            return _long(node)
        case "float" | "double":
            return _floating(node)
        case "bytes" | "string" | "fixed":
            return _content(node)
        case "enum":
            return _enum(node)
        case "union":
            return _union(node, readers)
        case "array":
            return _blocks(readers.of(node.children[0]), node.children[0], readers)
        case "map":
            return _map(node, readers)
    values = _record_values(node, readers)
    if node.target is None:
        return values
    names = target_names(node)

    def record(message: bytes, at: int) -> tuple[dict[str, Any], int]:
        row, at = values(message, at)
        return dict(zip(names, row, strict=True)), at

    return record


def _record_values(node: Node, readers: _Readers) -> Callable[[bytes, int], tuple[list[Any], int]]:
    reads = [readers.of(child) for child in node.children]
    width = len(node.target.fields) if node.target is not None else 0
    steps = list(zip(reads, node.places, strict=True))

    def read(message: bytes, at: int) -> tuple[list[Any], int]:
        row: list[Any] = [None] * width
        for one, place in steps:
            value, at = one(message, at)
            if place is not None:
                row[place] = value
        return row, at

    return read


def _refused(problem: str) -> Read:
    """The reader of a branch that cannot be read as its column: it has nothing below it."""

    def read(message: bytes, at: int) -> tuple[Any, int]:
        raise AvroDataError(problem)

    return read


def _int(node: Node) -> Read:
    name = node.target.name if node.target is not None else TypeName.INT
    if name in _WRAPPED:
        half = 1 << (_WRAPPED[name] - 1)
        return _then(5, lambda value: (value + half) % (2 * half) - half)
    if name is TypeName.TIME:
        return _then(5, lambda value: time_of_day(value * node.unit // 1000))
    if name is TypeName.FLOAT:
        return _then(5, lambda value: narrow(float(value)))
    return _then(5, float) if name is TypeName.DOUBLE else lambda message, at: read_long(message, at, longest=5)


def _long(node: Node) -> Read:
    name = node.target.name if node.target is not None else TypeName.BIGINT
    if name in _STAMPS:
        return _then(10, lambda value: to_micros(value * node.unit))
    if name is TypeName.TIME:
        return _then(10, lambda value: time_of_day(value * node.unit // 1000))
    if name is TypeName.FLOAT:
        return _then(10, _long_to_float)
    return _then(10, float) if name is TypeName.DOUBLE else read_long


def time_of_day(micros: int) -> int:
    """Microseconds of the day.

    Raises:
        AvroDataError: below zero, or a day and more.
    """
    if not 0 <= micros < DAY_NS // 1000:
        raise AvroDataError(f"{micros} microseconds is not a time of the day")
    return micros


def _long_to_float(value: int) -> float:
    return float(np.int64(value).astype(np.float32))


def _then(longest: int, convert: Callable[[int], Any]) -> Read:
    def read(message: bytes, at: int) -> tuple[Any, int]:
        value, at = read_long(message, at, longest=longest)
        return convert(value), at

    return read


def _floating(node: Node) -> Read:
    code, size = ("<f", 4) if node.kind == "float" else ("<d", 8)
    unpack = struct.Struct(code).unpack_from
    return lambda message, at: (unpack(message, at)[0], at + size)


def _content(node: Node) -> Read:
    convert = _content_converter(node)

    def read(message: bytes, at: int) -> tuple[Any, int]:
        size = node.size
        if node.kind != "fixed":
            size, at = read_long(message, at)
            if size < 0:
                raise AvroDataError("not Avro of this schema: a negative length")
        if at + size > len(message):
            raise IndexError
        return convert(message[at : at + size]), at + size

    return read


def _content_converter(node: Node) -> Callable[[bytes], Any]:
    if node.target is None:
        return lambda content: None
    if node.target.name in TEXTS:
        return java_text
    if node.target.name is TypeName.DECIMAL:
        return lambda content: decimal_of(content, node.scale, node.target)  # type: ignore[arg-type]
    return bytes


def decimal_of(content: bytes, scale: int, logical: LogicalType) -> Decimal:
    """The decimal of an unscaled two's complement number.

    Raises:
        AvroDataError: no bytes, or more digits than declared.
    """
    if not content:
        raise AvroDataError("not Avro of this schema: a decimal without bytes")
    if len(content) > MOST_DIGITS:
        raise AvroDataError(f"a decimal of {len(content)} bytes has more digits than {logical}")
    unscaled = int.from_bytes(content, "big", signed=True)
    wanted = logical.scale or 0
    if scale < wanted:
        unscaled *= 10 ** (wanted - scale)
    elif scale > wanted:
        unscaled, rest = divmod(unscaled, 10 ** (scale - wanted))
        if rest:
            raise AvroDataError(f"a decimal of {scale} fraction digits does not fit {logical}")
    if abs(unscaled) >= 10 ** (logical.precision or 0):
        raise AvroDataError(f"a decimal has more digits than {logical}")
    return Decimal(unscaled).scaleb(-wanted, context=WIDE)


def _enum(node: Node) -> Read:
    def read(message: bytes, at: int) -> tuple[Any, int]:
        index, at = read_long(message, at, longest=5)
        if not 0 <= index < len(node.symbols):
            raise AvroDataError("not Avro of this schema: an unknown enum symbol")
        return node.symbols[index], at

    return read


def _union(node: Node, readers: _Readers) -> Read:
    reads = [readers.of(child) for child in node.children]
    free = [0 if child.kind == "null" else readers.free(child) for child in node.children]

    def read(message: bytes, at: int) -> tuple[Any, int]:
        index, at = read_long(message, at, longest=5)
        if not 0 <= index < len(reads):
            raise AvroDataError("not Avro of this schema: an unknown union branch")
        if free[index]:
            readers.spend(free[index])
        return reads[index](message, at)

    return read


def _blocks(item: Read, node: Node, readers: _Readers) -> Read:
    free, is_free = readers.free(node), readers.is_free(node)

    def read(message: bytes, at: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        while True:
            count, at = read_long(message, at)
            if count == 0:
                return values, at
            if count < 0:
                _, at = read_long(message, at)
                count = -count
            if not is_free and count > len(message) - at:
                raise AvroDataError("not Avro of this schema: a block of more items than the message can hold")
            if free:
                readers.spend(count * free)
            for _ in range(count):
                value, at = item(message, at)
                values.append(value)

    return read


def _map(node: Node, readers: _Readers) -> Read:
    key = _content(Node("string", LogicalType(TypeName.STRING)))
    value = readers.of(node.children[0])
    of_pair = Node("record", children=(Node("string"), node.children[0]))

    def entry(message: bytes, at: int) -> tuple[tuple[str, Any], int]:
        name, at = key(message, at)
        item, at = value(message, at)
        return (name, item), at

    pairs = _blocks(entry, of_pair, readers)

    def read(message: bytes, at: int) -> tuple[list[tuple[str, Any]], int]:
        found, at = pairs(message, at)
        return list(dict(found).items()), at

    return read
