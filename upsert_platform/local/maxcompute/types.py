"""MaxCompute data types: their text, and the Arrow type that holds their values on this server.

Timestamps are kept without a zone, as UTC. CHAR and VARCHAR are strings, JSON is its text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from upsert_platform.local.maxcompute.errors import ServiceError

_SIMPLE: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "datetime": pa.timestamp("ms"),
    "timestamp": pa.timestamp("ns"),
    "timestamp_ntz": pa.timestamp("ns"),
    "json": pa.string(),
}
_SYNONYMS = {"integer": "int", "bool": "boolean", "long": "bigint", "list": "array", "short": "smallint"}
# The codes of the storage API's write schema (spec 3.11).
_CODES = {
    "bigint": 0, "double": 1, "boolean": 2, "datetime": 3, "string": 4, "decimal": 5, "tinyint": 6, "smallint": 7,
    "int": 8, "char": 9, "varchar": 10, "binary": 11, "date": 12, "timestamp": 13, "float": 14, "array": 17,
    "map": 18, "struct": 19, "json": 20, "timestamp_ntz": 21,
}  # fmt: skip
_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*|`[^`]+`|\d+|[<>(),:])")
MAXIMUM_CHAR, MAXIMUM_VARCHAR = 255, 65535


@dataclass(frozen=True)
class DataType:
    """A MaxCompute type.

    Attributes:
        name: lower case, without arguments.
        arguments: precision and scale of a decimal, length of a char or varchar.
        children: element of an array, key and value of a map, fields of a struct.
        fields: field names of a struct.
    """

    name: str
    arguments: tuple[int, ...] = ()
    children: tuple[DataType, ...] = ()
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.name == "struct":
            inner = ",".join(f"{name}:{child}" for name, child in zip(self.fields, self.children, strict=True))
            return f"struct<{inner}>"
        if self.children:
            return f"{self.name}<{','.join(map(str, self.children))}>"
        return f"{self.name}({','.join(map(str, self.arguments))})" if self.arguments else self.name

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of its values in storage."""
        match self.name:
            case "decimal":
                return pa.decimal128(*self.arguments)
            case "char" | "varchar":
                return pa.string()
            case "array":
                return pa.list_(self.children[0].arrow)
            case "map":
                return pa.map_(self.children[0].arrow, self.children[1].arrow)
            case "struct":
                return pa.struct(
                    [pa.field(name, child.arrow) for name, child in zip(self.fields, self.children, strict=True)]
                )
        return _SIMPLE[self.name]

    def write_schema(self, name: str, column_id: int, *, nullable: bool, key: bool = False) -> dict[str, object]:
        """The ``columnType`` object of the storage API's write schema."""
        children = self.fields or {"array": ("element",), "map": ("key", "value")}.get(self.name, ())
        described: dict[str, object] = {
            "MemberName": name,
            "ColumnId": column_id,
            "Nullable": nullable,
            "Type": _CODES[self.name],
            "SubTypes": [
                child.write_schema(child_name, -1, nullable=True)
                for child_name, child in zip(children, self.children, strict=True)
            ],
            "IsDistributionKey": key,
        }
        if self.name == "decimal":
            described["Precision"], described["Scale"] = self.arguments
        elif self.arguments:
            described["SpecifiedLength"] = self.arguments[0]
        return described


def parse_type(text: str) -> DataType:
    """Reads a type such as ``decimal(10,2)`` or ``map<string,array<int>>``.

    Raises:
        ServiceError: the text is not a type that this server stores.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text):
        raise _refused(text)
    position = 0

    def take(expected: str | None = None) -> str:
        nonlocal position
        if position >= len(tokens) or (expected and tokens[position] != expected):
            raise _refused(text)
        position += 1
        return tokens[position - 1]

    def peek() -> str:
        return tokens[position] if position < len(tokens) else ""

    def read() -> DataType:
        name = take().lower()
        name = _SYNONYMS.get(name, name)
        if name in ("array", "map", "struct"):
            take("<")
            children, fields = [], []
            while True:
                if name == "struct":
                    fields.append(take().strip("`").lower())
                    take(":")
                children.append(read())
                if peek() != ",":
                    break
                take(",")
            take(">")
            if {"array": 1, "map": 2}.get(name, len(children)) != len(children):
                raise _refused(text)
            return DataType(name, (), tuple(children), tuple(fields))
        arguments: list[int] = []
        if peek() == "(":
            take("(")
            while True:
                arguments.append(int(take()))
                if peek() != ",":
                    break
                take(",")
            take(")")
        return _checked(name, tuple(arguments), text)

    found = read()
    if position != len(tokens):
        raise _refused(text)
    return found


def _checked(name: str, arguments: tuple[int, ...], text: str) -> DataType:
    if name == "decimal":
        precision, scale = {0: (38, 18), 1: (*arguments, 0), 2: arguments}.get(len(arguments), (0, 0))
        if not (1 <= precision <= 38 and 0 <= scale <= min(precision, 18)):
            raise _refused(text)
        return DataType(name, (precision, scale))
    limit = {"char": MAXIMUM_CHAR, "varchar": MAXIMUM_VARCHAR}.get(name)
    if limit:
        if len(arguments) != 1 or not 1 <= arguments[0] <= limit:
            raise _refused(text)
        return DataType(name, arguments)
    if name not in _SIMPLE or arguments:
        raise _refused(text)
    return DataType(name)


def _refused(text: str) -> ServiceError:
    return ServiceError(
        400, "ODPS-0130071", f"Semantic analysis exception - invalid or unsupported data type '{text.strip()}'"
    )


def type_of_arrow(arrow: pa.DataType) -> DataType:
    """The MaxCompute type of a query's result column."""
    types = pa.types
    for name, simple in _SIMPLE.items():
        if arrow == simple and name not in ("timestamp_ntz", "json"):
            return DataType(name)
    if types.is_timestamp(arrow):
        return DataType("datetime" if arrow.unit in ("s", "ms") else "timestamp")
    if types.is_decimal(arrow):
        return DataType("decimal", (min(arrow.precision, 38), arrow.scale))
    if types.is_map(arrow):
        return DataType("map", (), (type_of_arrow(arrow.key_type), type_of_arrow(arrow.item_type)))
    if types.is_list(arrow) or types.is_large_list(arrow):
        return DataType("array", (), (type_of_arrow(arrow.value_type),))
    if types.is_struct(arrow):
        members = [arrow.field(index) for index in range(arrow.num_fields)]
        return DataType("struct", (), tuple(type_of_arrow(m.type) for m in members), tuple(m.name for m in members))
    if types.is_large_binary(arrow):
        return DataType("binary")
    if types.is_unsigned_integer(arrow):
        return DataType("bigint")
    return DataType("string")
