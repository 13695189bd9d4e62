"""MaxCompute types of declared columns, and the Arrow types in which their values are sent and read.

Follows the type table of the MaxCompute connector for Flink. Arrow types are built here rather than taken from PyODPS,
which gives a DECIMAL of scale 0 the scale 18.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from upsert_platform.core.types import LogicalType, TypeName

if TYPE_CHECKING:
    import pyarrow as pa

MAX_CHAR = 255
MAX_VARCHAR = 65_535
MAX_SCALE = 18
MAX_FIELD_BYTES = 8 << 20
"""Longest STRING or BINARY value."""


class UnsupportedTypeError(ValueError):
    """A declared type has no MaxCompute type; the message says what to declare instead."""


@dataclass(frozen=True, slots=True)
class MaxComputeType:
    """A MaxCompute type.

    Attributes:
        root: upper-case name, for example ``DECIMAL``, ``ARRAY``.
        length: of CHAR and VARCHAR.
        precision: of DECIMAL.
        scale: of DECIMAL.
        children: element of ARRAY, key and value of MAP, fields of STRUCT.
        names: field names of STRUCT.
    """

    root: str
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    children: tuple[MaxComputeType, ...] = field(default=())
    names: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        match self.root:
            case "CHAR" | "VARCHAR":
                return f"{self.root}({self.length})"
            case "DECIMAL":
                return f"DECIMAL({self.precision},{self.scale})"
            case "ARRAY" | "MAP":
                return f"{self.root}<{','.join(map(str, self.children))}>"
            case "STRUCT":
                inner = ",".join(f"`{n}`:{kind}" for n, kind in zip(self.names, self.children, strict=True))
                return f"STRUCT<{inner}>"
        return self.root


_SIMPLE = {
    TypeName.STRING: "STRING",
    TypeName.BOOLEAN: "BOOLEAN",
    TypeName.BINARY: "BINARY",
    TypeName.VARBINARY: "BINARY",
    TypeName.BYTES: "BINARY",
    TypeName.TINYINT: "TINYINT",
    TypeName.SMALLINT: "SMALLINT",
    TypeName.INT: "INT",
    TypeName.BIGINT: "BIGINT",
    TypeName.FLOAT: "FLOAT",
    TypeName.DOUBLE: "DOUBLE",
    TypeName.DATE: "DATE",
    TypeName.TIME: "STRING",
}


def maxcompute_type(logical: LogicalType) -> MaxComputeType:
    """The type of the column that stores a declared type.

    TIMESTAMP and TIMESTAMP_LTZ of up to 3 fraction digits are DATETIME, of more TIMESTAMP; TIME is the text
    ``HH:mm:ss.SSS`` (six digits from TIME(4) on); MULTISET is a MAP from element to INT.

    Raises:
        UnsupportedTypeError: MaxCompute cannot hold it.
    """
    match logical.name:
        case TypeName.CHAR:
            if (logical.length or 1) > MAX_CHAR:
                raise UnsupportedTypeError(f"{logical}: CHAR holds at most {MAX_CHAR} characters; declare VARCHAR")
            return MaxComputeType("CHAR", length=logical.length)
        case TypeName.VARCHAR:
            if (logical.length or 1) > MAX_VARCHAR:
                return MaxComputeType("STRING")
            return MaxComputeType("VARCHAR", length=logical.length)
        case TypeName.DECIMAL:
            if (logical.scale or 0) > MAX_SCALE:
                raise UnsupportedTypeError(
                    f"{logical}: a scale is at most {MAX_SCALE}; declare a smaller one or STRING"
                )
            return MaxComputeType("DECIMAL", precision=logical.precision, scale=logical.scale)
        case TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
            return MaxComputeType("DATETIME" if (logical.precision or 0) <= 3 else "TIMESTAMP")
        case TypeName.ARRAY:
            return MaxComputeType("ARRAY", children=(maxcompute_type(_some(logical.element)),))
        case TypeName.MAP:
            return MaxComputeType(
                "MAP", children=(maxcompute_type(_some(logical.key)), maxcompute_type(_some(logical.element)))
            )
        case TypeName.MULTISET:
            return MaxComputeType("MAP", children=(maxcompute_type(_some(logical.element)), MaxComputeType("INT")))
        case TypeName.ROW:
            if not logical.fields:
                raise UnsupportedTypeError("ROW without fields: STRUCT needs one")
            return MaxComputeType(
                "STRUCT",
                children=tuple(maxcompute_type(item.type) for item in logical.fields),
                names=tuple(item.name for item in logical.fields),
            )
    return MaxComputeType(_SIMPLE[logical.name])


_PARTITION_TYPES = {
    TypeName.CHAR: "STRING",
    TypeName.VARCHAR: "STRING",
    TypeName.STRING: "STRING",
    TypeName.DATE: "STRING",
    TypeName.TINYINT: "TINYINT",
    TypeName.SMALLINT: "SMALLINT",
    TypeName.INT: "INT",
    TypeName.BIGINT: "BIGINT",
}


def partition_type(logical: LogicalType) -> MaxComputeType:
    """The type of a partition column; DATE is text of the form yyyy-MM-dd.

    Raises:
        UnsupportedTypeError: no partition column can hold it.
    """
    root = _PARTITION_TYPES.get(logical.name)
    if root is None:
        raise UnsupportedTypeError(f"{logical} cannot be a partition column; cast it to STRING in the INSERT")
    return MaxComputeType(root)


_TOKEN = re.compile(r"\s*(`[^`]+`|[A-Za-z_][A-Za-z_0-9]*|\d+|[<>(),:])")


def parse_maxcompute_type(text: str) -> MaxComputeType:
    """Reads a type as MaxCompute prints it, for example ``decimal(10,2)`` or ``struct<a:bigint>``.

    Raises:
        ValueError: not a type.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s+", "", text):
        raise ValueError(f"'{text}' is not a MaxCompute type")
    tokens.reverse()
    parsed = _parse(tokens, text)
    if tokens:
        raise ValueError(f"'{text}' is not a MaxCompute type: unexpected '{tokens[-1]}'")
    return parsed


def _parse(tokens: list[str], text: str) -> MaxComputeType:
    def take(expected: str | None = None) -> str:
        token = tokens.pop() if tokens else ""
        if not token or (expected is not None and token != expected):
            raise ValueError(f"'{text}' is not a MaxCompute type")
        return token

    root = take().upper()
    if root in ("ARRAY", "MAP"):
        take("<")
        children = [_parse(tokens, text)]
        if root == "MAP":
            take(",")
            children.append(_parse(tokens, text))
        take(">")
        return MaxComputeType(root, children=tuple(children))
    if root == "STRUCT":
        take("<")
        names, children = [], []
        while True:
            names.append(take().strip("`"))
            take(":")
            children.append(_parse(tokens, text))
            if take() == ">":
                return MaxComputeType(root, children=tuple(children), names=tuple(names))
    numbers = []
    if tokens and tokens[-1] == "(":
        take()
        numbers.append(int(take()))
        while tokens and tokens[-1] == ",":
            take()
            numbers.append(int(take()))
        take(")")
    if root == "DECIMAL":
        precision, scale = [*numbers, 0][:2] if numbers else (38, 18)
        return MaxComputeType(root, precision=precision, scale=scale)
    return MaxComputeType(root, length=numbers[0] if numbers else None)


def wire_type(kind: MaxComputeType) -> pa.DataType:
    """The Arrow type in which values of a column travel to and from MaxCompute."""
    import pyarrow as pa

    match kind.root:
        case "CHAR" | "VARCHAR" | "STRING" | "JSON":
            return pa.string()
        case "BOOLEAN":
            return pa.bool_()
        case "BINARY":
            return pa.binary()
        case "TINYINT":
            return pa.int8()
        case "SMALLINT":
            return pa.int16()
        case "INT":
            return pa.int32()
        case "BIGINT":
            return pa.int64()
        case "FLOAT":
            return pa.float32()
        case "DOUBLE":
            return pa.float64()
        case "DECIMAL":
            return pa.decimal128(kind.precision, kind.scale)
        case "DATE":
            return pa.date32()
        case "DATETIME":
            return pa.timestamp("ms")
        case "TIMESTAMP" | "TIMESTAMP_NTZ":
            return pa.timestamp("ns")
        case "ARRAY":
            return pa.list_(wire_type(kind.children[0]))
        case "MAP":
            return pa.map_(wire_type(kind.children[0]), wire_type(kind.children[1]))
        case "STRUCT":
            fields = zip(kind.names, kind.children, strict=True)
            return pa.struct([pa.field(name, wire_type(child)) for name, child in fields])
    raise ValueError(f"{kind} cannot be written")


def stores(actual: MaxComputeType, wanted: MaxComputeType, declared: LogicalType) -> bool:
    """Return whether a table's column keeps every value of a declared column, so that reading gives the same value.

    Equal types do; so do STRING for CHAR and VARCHAR, a longer VARCHAR, a wider DECIMAL of the same scale,
    TIMESTAMP_NTZ for a TIMESTAMP without zone, and TIMESTAMP for DATETIME.
    """
    if actual == wanted:
        return True
    match wanted.root:
        case "CHAR":
            return actual.root == "STRING"
        case "VARCHAR":
            longer = actual.root == "VARCHAR" and (actual.length or 0) >= (wanted.length or 0)
            return actual.root == "STRING" or longer
        case "DECIMAL":
            return (
                actual.root == "DECIMAL"
                and actual.scale == wanted.scale
                and ((actual.precision or 0) >= (wanted.precision or 0))
            )
        case "DATETIME" | "TIMESTAMP":
            without_zone = declared.name is TypeName.TIMESTAMP and actual.root == "TIMESTAMP_NTZ"
            return actual.root == "TIMESTAMP" or without_zone
        case "STRUCT":
            same = [name.lower() for name in actual.names] == [name.lower() for name in wanted.names]
            fields = zip(actual.children, wanted.children, (item.type for item in declared.fields), strict=False)
            return actual.root == "STRUCT" and same and all(stores(*item) for item in fields)
        case "ARRAY":
            return actual.root == "ARRAY" and stores(actual.children[0], wanted.children[0], _some(declared.element))
        case "MAP" if declared.name is TypeName.MAP and actual.root == "MAP":
            return stores(actual.children[0], wanted.children[0], _some(declared.key)) and stores(
                actual.children[1], wanted.children[1], _some(declared.element)
            )
    return False


_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def stores_partition(actual: MaxComputeType, wanted: MaxComputeType, declared: LogicalType) -> bool:
    """Return whether a table's partition column can name every value of a declared partition column.

    Text names all of them, a number those of a narrower number, a DATE those of a DATE.
    """
    if actual.root in ("STRING", "VARCHAR"):
        return True
    if wanted.root in _NUMBERS:
        return actual.root in _NUMBERS and _NUMBERS.index(actual.root) >= _NUMBERS.index(wanted.root)
    return actual.root == "DATE" and declared.name is TypeName.DATE


def widens(actual: MaxComputeType, wanted: MaxComputeType) -> bool:
    """Return whether a column may be changed from one type to another without losing a value."""
    match actual.root:
        case "TINYINT" | "SMALLINT" | "INT":
            return wanted.root in _NUMBERS and _NUMBERS.index(actual.root) < _NUMBERS.index(wanted.root)
        case "FLOAT":
            return wanted.root == "DOUBLE"
        case "CHAR" | "VARCHAR":
            longer = (wanted.length or 0) > (actual.length or 0)
            return wanted.root == "STRING" or (wanted.root == actual.root and longer)
        case "DECIMAL":
            same = wanted.root == "DECIMAL" and wanted.scale == actual.scale
            return same and (wanted.precision or 0) > (actual.precision or 0)
        case "DATETIME":
            return wanted.root == "TIMESTAMP"
    return False


def _some(logical: LogicalType | None) -> LogicalType:
    assert logical is not None
    return logical
