"""Columns of MySQL tables as the server's catalogue tells them, and the SQL types that stand for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from upsert_platform.core.types import LogicalType, TypeName

_MAX_DECIMAL: Final = 38
"""Digits of a DECIMAL; a longer one is carried as text."""
_ELEMENT: Final = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPES: Final = {"''": "'", "\\\\": "\\", "\\n": "\n", "\\r": "\r", "\\0": "\0", "\\'": "'"}
_ESCAPE: Final = re.compile("|".join(map(re.escape, _ESCAPES)))
_GEOMETRY: Final = frozenset(
    (
        "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
        "geometrycollection", "geomcollection",
    )
)  # fmt: skip
_PLAIN: Final = {
    "smallint": TypeName.SMALLINT,
    "mediumint": TypeName.INT,
    "int": TypeName.INT,
    "bigint": TypeName.BIGINT,
    "year": TypeName.INT,
    "float": TypeName.FLOAT,
    "double": TypeName.DOUBLE,
    "date": TypeName.DATE,
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext", "json", "enum", "set"), TypeName.STRING),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob", "vector"), TypeName.BYTES),
    **dict.fromkeys(_GEOMETRY, TypeName.STRING),
}
_UNSIGNED: Final = {
    "tinyint": TypeName.SMALLINT,
    "smallint": TypeName.INT,
    "mediumint": TypeName.INT,
    "int": TypeName.BIGINT,
}


class ZeroDates(StrEnum):
    """The handling of invalid dates: 0000-00-00, 2024-00-10, 2024-02-31."""

    NULL = "null"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class TypeRules:
    """The choices in the conversion of values.

    Attributes:
        tinyint1_as_boolean: whether TINYINT(1) is declared as BOOLEAN where a declaration follows from the server.
        legacy_json: whether JSON is written without blanks after ``:`` and ``,``.
        time_as_text: whether TIME is text, as the server writes it: it may be below zero, or beyond a day.
    """

    tinyint1_as_boolean: bool = True
    legacy_json: bool = True
    zero_dates: ZeroDates = ZeroDates.NULL
    time_as_text: bool = False


@dataclass(frozen=True, slots=True)
class MySqlColumn:
    """A column of ``information_schema.columns``.

    Attributes:
        kind: DATA_TYPE, lower case, for example ``int``.
        declared: COLUMN_TYPE, for example ``int(10) unsigned``, for messages.
        length: characters of CHAR and VARCHAR, bytes of BINARY and VARBINARY, bits of BIT, digits shown of TINYINT.
        precision: total digits of DECIMAL.
        fraction: digits after the point of DECIMAL; of a second for TIME, DATETIME and TIMESTAMP.
        charset: of text columns.
        elements: of ENUM and SET, in order.
        nullable: whether the server accepts NULL.
    """

    name: str
    kind: str
    declared: str = ""
    unsigned: bool = False
    length: int | None = None
    precision: int | None = None
    fraction: int = 0
    charset: str | None = None
    elements: tuple[str, ...] = field(default=())
    nullable: bool = True

    @property
    def is_geometry(self) -> bool:
        """Return whether its values are shapes."""
        return self.kind in _GEOMETRY


@dataclass(frozen=True, slots=True)
class MySqlTable:
    """A table of a server.

    Attributes:
        primary_key: column names in the order of the key; empty without one.
        unique: the parts of every unique index, the primary key among them: a column, with its collation and the length
            of its prefix where it has them.
    """

    schema: str
    name: str
    columns: tuple[MySqlColumn, ...]
    primary_key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...] = ()

    @property
    def full_name(self) -> str:
        """Schema and name, joined by a point."""
        return f"{self.schema}.{self.name}"


def table_to_data(table: MySqlTable) -> dict[str, Any]:
    """A table as JSON holds it."""
    return asdict(table)


def table_from_data(found: Mapping[str, Any]) -> MySqlTable:
    """Return the table that `table_to_data` encoded."""
    columns = tuple(MySqlColumn(**{**item, "elements": tuple(item["elements"])}) for item in found["columns"])
    unique = tuple(map(tuple, found.get("unique", ())))
    return MySqlTable(found["schema"], found["name"], columns, tuple(found["primary_key"]), unique)


def read_elements(declared: str) -> tuple[str, ...]:
    """Elements of ``enum('a','it''s')`` and ``set(...)``, in order; the catalogue escapes quotes and backslashes."""
    return tuple(_ESCAPE.sub(lambda found: _ESCAPES[found[0]], match) for match in _ELEMENT.findall(declared))


def declared_type(column: MySqlColumn, rules: TypeRules, *, key: bool) -> LogicalType | None:
    """The SQL type that a column is declared as where a declaration follows from the server.

    TINYINT(1) holds more numbers than BOOLEAN has values, so it stays a number in a key, where rows would become one.
    """
    found = sql_type(column, rules)
    is_flag = found is not None and found.name is TypeName.TINYINT and column.length == 1
    if found is not None and is_flag and rules.tinyint1_as_boolean and not key:
        return replace(found, name=TypeName.BOOLEAN)
    return found


def sql_type(column: MySqlColumn, rules: TypeRules) -> LogicalType | None:
    """The SQL type that a column's values are read as; None where the platform does not read its type.

    It is nullable where the server accepts NULL, and where a date that is none becomes NULL.
    """
    found = _bare_type(column, rules)
    if found is None:
        return None
    dated = column.kind in ("date", "datetime", "timestamp") and rules.zero_dates is ZeroDates.NULL
    name, length, precision, scale = found
    return LogicalType(name, length, precision, scale, nullable=column.nullable or dated)


_Parts = tuple[TypeName, int | None, int | None, int | None]


def _bare_type(column: MySqlColumn, rules: TypeRules) -> _Parts | None:
    """Root, length, precision and scale."""
    match column.kind:
        case "tinyint" if not column.unsigned:
            return TypeName.TINYINT, None, None, None
        case "bigint" if column.unsigned:
            return TypeName.DECIMAL, None, 20, 0
        case "decimal":
            precision, scale = column.precision or 10, column.fraction
            if precision > _MAX_DECIMAL:
                return TypeName.STRING, None, None, None
            return TypeName.DECIMAL, None, precision, scale
        case "time" if rules.time_as_text:
            return TypeName.STRING, None, None, None
        case "time":
            return TypeName.TIME, None, column.fraction, None
        case "datetime":
            return TypeName.TIMESTAMP, None, column.fraction, None
        case "timestamp":
            return TypeName.TIMESTAMP_LTZ, None, column.fraction, None
        case "char" | "varchar":
            # CHAR(0) and VARCHAR(0) are types of MySQL, not of SQL.
            return (
                (TypeName.CHAR if column.kind == "char" else TypeName.VARCHAR),
                max(column.length or 1, 1),
                None,
                None,
            )
        case "binary" | "varbinary":
            name = TypeName.BINARY if column.kind == "binary" else TypeName.VARBINARY
            return name, max(column.length or 1, 1), None, None
        case "bit":
            if column.length == 1:
                return TypeName.BOOLEAN, None, None, None
            return TypeName.BINARY, ((column.length or 1) + 7) // 8, None, None
    plain = _UNSIGNED.get(column.kind) if column.unsigned else None
    plain = plain or _PLAIN.get(column.kind)
    return None if plain is None else (plain, None, None, None)
