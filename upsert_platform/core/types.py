"""The SQL types of a declared column, as Flink spells them, and their Arrow and Spark forms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa


class TypeName(StrEnum):
    """Root of a logical type."""

    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    STRING = "STRING"
    BOOLEAN = "BOOLEAN"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    BYTES = "BYTES"
    DECIMAL = "DECIMAL"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    ARRAY = "ARRAY"
    MAP = "MAP"
    MULTISET = "MULTISET"
    ROW = "ROW"


TEXTS: Final = (TypeName.CHAR, TypeName.VARCHAR, TypeName.STRING)
"""Types of texts."""
BYTES: Final = (TypeName.BINARY, TypeName.VARBINARY, TypeName.BYTES)
"""Types of bytes."""
NESTED: Final = (TypeName.ARRAY, TypeName.MAP, TypeName.MULTISET, TypeName.ROW)
"""Types that hold values of other types."""


@dataclass(frozen=True, slots=True)
class RowField:
    """A field of a ROW type."""

    name: str
    type: LogicalType


@dataclass(frozen=True, slots=True)
class LogicalType:
    """A Flink SQL type.

    Attributes:
        name: the root. Synonyms are folded (INTEGER is INT, NUMERIC is DECIMAL, `DOUBLE PRECISION` is DOUBLE).
        length: of CHAR, VARCHAR, BINARY and VARBINARY.
        precision: of DECIMAL (total digits) and of TIME, TIMESTAMP and TIMESTAMP_LTZ (fraction digits).
        scale: of DECIMAL.
        element: of ARRAY and MULTISET; the value type of MAP.
        key: the key type of MAP.
        fields: of ROW.
        nullable: False after NOT NULL.
    """

    name: TypeName
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    element: LogicalType | None = None
    key: LogicalType | None = None
    fields: tuple[RowField, ...] = field(default=())
    nullable: bool = True

    def __str__(self) -> str:
        return f"{self._bare()}{'' if self.nullable else ' NOT NULL'}"

    def parts(self) -> Iterator[LogicalType]:
        """This type and all types inside it."""
        yield self
        for part in (self.key, self.element, *(item.type for item in self.fields)):
            if part is not None:
                yield from part.parts()

    def _bare(self) -> str:
        match self.name:
            case TypeName.CHAR | TypeName.VARCHAR | TypeName.BINARY | TypeName.VARBINARY:
                return f"{self.name}({self.length})"
            case TypeName.DECIMAL:
                return f"DECIMAL({self.precision}, {self.scale})"
            case TypeName.TIME | TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
                return f"{self.name}({self.precision})"
            case TypeName.ARRAY | TypeName.MULTISET:
                return f"{self.name}<{self.element}>"
            case TypeName.MAP:
                return f"MAP<{self.key}, {self.element}>"
            case TypeName.ROW:
                inner = ", ".join(f"{quote_name(item.name)} {item.type}" for item in self.fields)
                return f"ROW<{inner}>"
        return str(self.name)


def quote_name(name: str) -> str:
    """A name as Flink SQL and Spark SQL write it."""
    return "`" + name.replace("`", "``") + "`"


class TypeSyntaxError(ValueError):
    """The text is not a Flink SQL type."""


_SYNONYMS = {
    "INTEGER": "INT",
    "NUMERIC": "DECIMAL",
    "DEC": "DECIMAL",
    "DOUBLE PRECISION": "DOUBLE",
    "CHARACTER": "CHAR",
    "CHARACTER VARYING": "VARCHAR",
    "CHAR VARYING": "VARCHAR",
    "BINARY VARYING": "VARBINARY",
    "TIMESTAMP WITHOUT TIME ZONE": "TIMESTAMP",
    "TIMESTAMP WITH LOCAL TIME ZONE": "TIMESTAMP_LTZ",
    "TIME WITHOUT TIME ZONE": "TIME",
}
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^']|'')*')|([A-Za-z_][A-Za-z_0-9]*)|(\d+)|([<>(),:]))")
# Flink's defaults and bounds, from its data type documentation.
_LENGTH_BOUND = 2_147_483_647
# In DDL, Flink's planner gives VARCHAR and VARBINARY without a length the greatest one, which is STRING and BYTES.
_UNBOUNDED = {TypeName.VARCHAR: TypeName.STRING, TypeName.VARBINARY: TypeName.BYTES}
_DEFAULT_PRECISION = {TypeName.TIME: 0, TypeName.TIMESTAMP: 6, TypeName.TIMESTAMP_LTZ: 6}


def parse_type(text: str) -> LogicalType:
    """Reads a Flink SQL type.

    Args:
        text: as written in DDL, for example ``DECIMAL(12, 2)``, ``ROW<a INT, b ARRAY<STRING>> NOT NULL``.

    Raises:
        TypeSyntaxError: the text is not such a type, or a length, precision or scale is out of bounds.
    """
    parser = _TypeParser(text)
    parsed = parser.parse()
    parser.expect_end()
    return parsed


class _TypeParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        position = 0
        stripped = text.rstrip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if match is None:
                raise TypeSyntaxError(f"'{text}' is not a SQL type: unexpected '{stripped[position:].strip()[:12]}'")
            self._tokens.append(next(group for group in match.groups() if group is not None))
            position = match.end()
        self._at = 0

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self) -> str:
        token = self._peek()
        if token is None:
            raise TypeSyntaxError(f"'{self._text}' is not a SQL type: it ends too early")
        self._at += 1
        return token

    def _accept(self, *words: str) -> bool:
        upper = [token.upper() for token in self._tokens[self._at : self._at + len(words)]]
        if upper == list(words):
            self._at += len(words)
            return True
        return False

    def _require(self, token: str) -> None:
        if not self._accept(token):
            raise TypeSyntaxError(
                f"'{self._text}' is not a SQL type: '{token}' expected before '{self._peek() or 'its end'}'"
            )

    def expect_end(self) -> None:
        if self._peek() is not None:
            raise TypeSyntaxError(f"'{self._text}' is not a SQL type: unexpected '{self._peek()}'")

    def parse(self) -> LogicalType:
        parsed = self._parse_bare()
        while True:
            if self._accept("NOT", "NULL"):
                parsed = _with_nullable(parsed, nullable=False)
            elif self._accept("NULL"):
                parsed = _with_nullable(parsed, nullable=True)
            elif self._accept("ARRAY"):
                parsed = LogicalType(TypeName.ARRAY, element=parsed)
            elif self._accept("MULTISET"):
                parsed = LogicalType(TypeName.MULTISET, element=parsed)
            else:
                return parsed

    def _parse_bare(self) -> LogicalType:
        word = self._take().upper()
        if word in ("DOUBLE",) and self._accept("PRECISION"):
            word = "DOUBLE"
        if word in ("CHAR", "CHARACTER", "BINARY") and self._accept("VARYING"):
            word = f"{word} VARYING"
        word = _SYNONYMS.get(word, word)
        try:
            name = TypeName(word)
        except ValueError:
            raise TypeSyntaxError(f"'{self._text}' is not a SQL type: unknown type '{word}'") from None
        match name:
            case TypeName.CHAR | TypeName.BINARY | TypeName.VARCHAR | TypeName.VARBINARY:
                numbers = self._numbers(1)
                if not numbers and name in _UNBOUNDED:
                    return LogicalType(_UNBOUNDED[name])
                length = (numbers or [1])[0]
                if not 1 <= length <= _LENGTH_BOUND:
                    raise TypeSyntaxError(f"'{self._text}': a length is from 1 to {_LENGTH_BOUND}, not {length}")
                return LogicalType(name, length=length)
            case TypeName.DECIMAL:
                numbers = self._numbers(2)
                precision = numbers[0] if numbers else 10
                scale = numbers[1] if len(numbers) > 1 else 0
                if not 1 <= precision <= 38 or not 0 <= scale <= precision:
                    raise TypeSyntaxError(
                        f"'{self._text}': DECIMAL takes a precision from 1 to 38 and a scale from 0 to the precision"
                    )
                return LogicalType(name, precision=precision, scale=scale)
            case TypeName.TIME | TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
                numbers = self._numbers(1)
                precision = numbers[0] if numbers else _DEFAULT_PRECISION[name]
                if precision > 9:
                    raise TypeSyntaxError(f"'{self._text}': a fraction has 0 to 9 digits, not {precision}")
                if self._accept("WITH", "LOCAL", "TIME", "ZONE"):
                    name = TypeName.TIMESTAMP_LTZ
                elif not self._accept("WITHOUT", "TIME", "ZONE") and self._accept("WITH", "TIME", "ZONE"):
                    raise TypeSyntaxError(f"'{self._text}': WITH TIME ZONE is not supported; use TIMESTAMP_LTZ")
                return LogicalType(name, precision=precision)
            case TypeName.ARRAY | TypeName.MULTISET:
                self._require("<")
                element = self.parse()
                self._require(">")
                return LogicalType(name, element=element)
            case TypeName.MAP:
                self._require("<")
                key = self.parse()
                self._require(",")
                element = self.parse()
                self._require(">")
                return LogicalType(name, key=key, element=element)
            case TypeName.ROW:
                return self._parse_row()
        return LogicalType(name)

    def _parse_row(self) -> LogicalType:
        closing = ")" if self._accept("(") else ">"
        if closing == ">":
            self._require("<")
        fields: list[RowField] = []
        while not self._accept(closing):
            if fields:
                self._require(",")
            token = self._take()
            name = token[1:-1].replace("``", "`") if token.startswith("`") else token
            self._accept(":")
            fields.append(RowField(name, self.parse()))
            token_after = self._peek()
            if token_after is not None and token_after.startswith("'"):
                self._at += 1  # a field comment
        return LogicalType(TypeName.ROW, fields=tuple(fields))

    def _numbers(self, most: int) -> list[int]:
        if not self._accept("("):
            return []
        numbers = [self._number()]
        while len(numbers) < most and self._accept(","):
            numbers.append(self._number())
        self._require(")")
        return numbers

    def _number(self) -> int:
        token = self._take()
        if not token.isdigit():
            raise TypeSyntaxError(f"'{self._text}' is not a SQL type: a number expected instead of '{token}'")
        return int(token)


def _with_nullable(parsed: LogicalType, *, nullable: bool) -> LogicalType:
    return replace(parsed, nullable=nullable)


def arrow_type(logical: LogicalType) -> pa.DataType:
    """The Arrow type that carries values of a SQL type between readers, Spark and writers.

    TIMESTAMP is ``timestamp[us]`` without a zone, TIMESTAMP_LTZ the same in UTC, TIME an ``int64`` of microseconds of
    the day (Spark and Delta Lake have no TIME over Arrow), MULTISET a map from element to ``int32``. Precision above
    microseconds does not fit and is refused when a table is declared, unless truncation was asked for.
    """
    import pyarrow as pa

    match logical.name:
        case TypeName.CHAR | TypeName.VARCHAR | TypeName.STRING:
            return pa.string()
        case TypeName.BOOLEAN:
            return pa.bool_()
        case TypeName.BINARY | TypeName.VARBINARY | TypeName.BYTES:
            return pa.binary()
        case TypeName.DECIMAL:
            return pa.decimal128(logical.precision, logical.scale)
        case TypeName.TINYINT:
            return pa.int8()
        case TypeName.SMALLINT:
            return pa.int16()
        case TypeName.INT:
            return pa.int32()
        case TypeName.BIGINT | TypeName.TIME:
            return pa.int64()
        case TypeName.FLOAT:
            return pa.float32()
        case TypeName.DOUBLE:
            return pa.float64()
        case TypeName.DATE:
            return pa.date32()
        case TypeName.TIMESTAMP:
            return pa.timestamp("us")
        case TypeName.TIMESTAMP_LTZ:
            return pa.timestamp("us", tz="UTC")
        case TypeName.ARRAY:
            return pa.list_(arrow_type(_some(logical.element)))
        case TypeName.MAP:
            return pa.map_(arrow_type(_some(logical.key)), arrow_type(_some(logical.element)))
        case TypeName.MULTISET:
            return pa.map_(arrow_type(_some(logical.element)), pa.int32())
        case TypeName.ROW:
            return pa.struct([pa.field(item.name, arrow_type(item.type)) for item in logical.fields])
    raise AssertionError(logical)


def spark_type(logical: LogicalType) -> str:
    """The Spark SQL type, in DDL form, that `arrow_type` becomes when Spark reads it."""
    match logical.name:
        case TypeName.CHAR | TypeName.VARCHAR | TypeName.STRING:
            return "STRING"
        case TypeName.BINARY | TypeName.VARBINARY | TypeName.BYTES:
            return "BINARY"
        case TypeName.DECIMAL:
            return f"DECIMAL({logical.precision},{logical.scale})"
        case TypeName.TIME:
            return "BIGINT"
        case TypeName.TIMESTAMP:
            return "TIMESTAMP_NTZ"
        case TypeName.TIMESTAMP_LTZ:
            return "TIMESTAMP"
        case TypeName.ARRAY:
            return f"ARRAY<{spark_type(_some(logical.element))}>"
        case TypeName.MAP:
            return f"MAP<{spark_type(_some(logical.key))},{spark_type(_some(logical.element))}>"
        case TypeName.MULTISET:
            return f"MAP<{spark_type(_some(logical.element))},INT>"
        case TypeName.ROW:
            inner = ",".join(f"{quote_name(item.name)}: {spark_type(item.type)}" for item in logical.fields)
            return f"STRUCT<{inner}>"
    return str(logical.name)


def _some(logical: LogicalType | None) -> LogicalType:
    assert logical is not None
    return logical
