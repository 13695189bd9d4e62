"""TABLE_MAP: which table the rows that follow belong to, and how its columns stand in them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.events import Event
from upsert_platform.mysql.binlog.packed import Reader


class Wire(IntEnum):
    """The encoding of a column's values in rows."""

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    TYPED_ARRAY = 20
    MARIADB_BLOB_COMPRESSED = 140
    MARIADB_VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


_NO_METADATA: Final = {
    Wire.TINY, Wire.SHORT, Wire.INT24, Wire.LONG, Wire.LONGLONG, Wire.YEAR, Wire.DATE, Wire.NEWDATE, Wire.TIME,
    Wire.DATETIME, Wire.TIMESTAMP, Wire.NULL, Wire.DECIMAL,
}  # fmt: skip
_ONE_BYTE: Final = {
    Wire.FLOAT, Wire.DOUBLE, Wire.BLOB, Wire.TINY_BLOB, Wire.MEDIUM_BLOB, Wire.LONG_BLOB, Wire.GEOMETRY, Wire.JSON,
    Wire.TIMESTAMP2, Wire.DATETIME2, Wire.TIME2, Wire.VECTOR, Wire.MARIADB_BLOB_COMPRESSED,
}  # fmt: skip
_TWO_BYTES: Final = {
    Wire.VARCHAR, Wire.VAR_STRING, Wire.STRING, Wire.ENUM, Wire.SET, Wire.BIT, Wire.NEWDECIMAL,
    Wire.MARIADB_VARCHAR_COMPRESSED,
}  # fmt: skip
_NUMERIC: Final = {
    Wire.TINY, Wire.SHORT, Wire.INT24, Wire.LONG, Wire.LONGLONG, Wire.NEWDECIMAL, Wire.FLOAT, Wire.DOUBLE,
}  # fmt: skip
_SIGNEDNESS, _COLUMN_NAMES = 1, 4
"""Fields of the optional metadata that are read; the others tell what the catalogue tells too."""


@dataclass(frozen=True, slots=True)
class WireColumn:
    """A column in rows.

    Attributes:
        type: with ENUM and SET told apart from STRING.
        metadata: one or two numbers, as the type has them; of STRING, ENUM and SET the greatest length in bytes.
    """

    type: Wire
    metadata: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table, as of one transaction.

    Attributes:
        names: of the columns, where the server writes them (``binlog_row_metadata=FULL``); empty elsewhere.
        signedness: bits of the numeric columns, the first in the highest bit; empty where they are not told.
    """

    table_id: int
    schema: str
    table: str
    columns: tuple[WireColumn, ...]
    names: tuple[str, ...] = ()
    signedness: bytes = b""

    def is_unsigned(self, *, with_years: bool) -> tuple[bool | None, ...]:
        """Per column whether it is unsigned, None where that is not told.

        Args:
            with_years: whether YEAR counts as numeric; MariaDB's servers count it.
        """
        found: list[bool | None] = []
        index = 0
        for column in self.columns:
            if column.type not in _NUMERIC and not (with_years and column.type is Wire.YEAR):
                found.append(None)
                continue
            inside = index // 8 < len(self.signedness)
            found.append(bool(self.signedness[index // 8] & (0x80 >> index % 8)) if inside else None)
            index += 1
        return tuple(found)


def read_table_map(event: Event, *, place: str) -> TableMap:
    """Reads the event whole, the optional metadata included.

    Raises:
        ReplicationError: a type of a column is unknown, or the event is cut off.
    """
    reader = Reader(event.body, f"{place}: event TABLE_MAP")
    table_id = reader.number(6)
    reader.take(2)
    schema = reader.take(reader.number(1)).decode("utf-8")
    reader.take(1)
    table = reader.take(reader.number(1)).decode("utf-8")
    reader.take(1)
    reader.place = f"{place}: event TABLE_MAP of {schema}.{table}"
    types = reader.take(reader.packed())
    metadata = Reader(reader.take(reader.packed()), reader.place)
    columns = tuple(_wire_column(number, index, metadata) for index, number in enumerate(types))
    reader.take((len(types) + 7) // 8)
    names, signedness = _optional(reader)
    return TableMap(table_id, schema, table, columns, names, signedness)


def _wire_column(number: int, index: int, metadata: Reader) -> WireColumn:
    try:
        wire = Wire(number)
    except ValueError:
        raise ReplicationError(f"{metadata.place}: column {index + 1} has the unknown type {number}") from None
    if wire in _NO_METADATA:
        return WireColumn(wire)
    if wire in _ONE_BYTE:
        return WireColumn(wire, (metadata.number(1),))
    if wire not in _TWO_BYTES:
        raise ReplicationError(f"{metadata.place}: column {index + 1} has the type {wire.name}, which no table stores")
    first, second = metadata.number(1), metadata.number(1)
    if wire in (Wire.BIT, Wire.NEWDECIMAL):
        return WireColumn(wire, (first, second))
    if wire in (Wire.VARCHAR, Wire.VAR_STRING, Wire.MARIADB_VARCHAR_COMPRESSED):
        return WireColumn(wire, (first | second << 8,))
    # A CHAR longer than 255 bytes hides the two high bits of its length, inverted, in the byte of its real type.
    if first & 0x30 != 0x30:
        return WireColumn(Wire(first | 0x30), (second | ((first & 0x30) ^ 0x30) << 4,))
    return WireColumn(Wire(first), (second,))


def _optional(reader: Reader) -> tuple[tuple[str, ...], bytes]:
    names: tuple[str, ...] = ()
    signedness = b""
    while reader.left:
        kind = reader.number(1)
        value = Reader(reader.take(reader.packed()), reader.place)
        if kind == _SIGNEDNESS:
            signedness = value.data
        elif kind == _COLUMN_NAMES:
            found = []
            while value.left:
                found.append(value.text())
            names = tuple(found)
    return names, signedness
