"""PostgreSQL's SQL: names, literals, and the types of columns and of staged rows, with the conversion between them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from upsert_platform.core.types import BYTES, NESTED, TEXTS, LogicalType, TypeName

MOST_BYTES: Final = 63
"""Bytes of a name; the server cuts longer ones off, which would make two names one."""
_PART: Final = r'("(?:[^"]|"")+"|[^".]+)'
_NAME: Final = re.compile(rf"(?:{_PART}\.)?{_PART}")


class Name(NamedTuple):
    """A table: schema (empty where none is given) and name."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def sql(self) -> str:
        """The name as SQL has it."""
        return f"{quote(self.schema)}.{quote(self.table)}"

    def beside(self, table: str) -> Name:
        """Another table of the same schema."""
        return Name(self.schema, table)


def quote(name: str) -> str:
    """A name as SQL has it, with its case."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL has it, whatever the server takes a backslash for."""
    quoted = "'" + text.replace("'", "''") + "'"
    return " E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def parse_name(text: str) -> Name:
    """Reads ``table``, ``schema.table`` or ``"a.b"."c"``; raises ValueError where the text is not a name."""
    match = _NAME.fullmatch(text.strip())
    if match is None:
        raise ValueError('takes table, schema.table, or parts in double quotes: "a.b"."c"')
    parts = [part.strip() for part in (match[1] or "", match[2])]
    parts = [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts]
    if too_long := [part for part in parts if len(part.encode()) > MOST_BYTES]:
        raise ValueError(f"has the name '{too_long[0]}'; PostgreSQL takes {MOST_BYTES} bytes at most")
    return Name(*parts)


class Scalar(NamedTuple):
    """A type of PostgreSQL, in which staged rows hold values.

    Attributes:
        oid: its id, which is the same on every server.
        binary: numpy's type of a value in a binary COPY; empty where values have no fixed length.
    """

    name: str
    oid: int
    binary: str = ""


_TEXT: Final = Scalar("text", 25)
_SCALARS: Final = {
    TypeName.BOOLEAN: Scalar("boolean", 16, ">i1"),
    TypeName.TINYINT: Scalar("smallint", 21, ">i2"),
    TypeName.SMALLINT: Scalar("smallint", 21, ">i2"),
    TypeName.INT: Scalar("integer", 23, ">i4"),
    TypeName.BIGINT: Scalar("bigint", 20, ">i8"),
    TypeName.FLOAT: Scalar("real", 700, ">f4"),
    TypeName.DOUBLE: Scalar("double precision", 701, ">f8"),
    TypeName.DATE: Scalar("date", 1082, ">i4"),
    TypeName.TIME: Scalar("time without time zone", 1083, ">i8"),
    TypeName.TIMESTAMP: Scalar("timestamp without time zone", 1114, ">i8"),
    TypeName.TIMESTAMP_LTZ: Scalar("timestamp with time zone", 1184, ">i8"),
    **dict.fromkeys(BYTES, Scalar("bytea", 17)),
}
_WIDER: Final = {"smallint": ("integer", "bigint"), "integer": ("bigint",), "real": ("double precision",)}
"""Type of staged rows to other types of columns that hold every value of it."""
_PLAIN_TEXTS: Final = ("text", "character varying", "json")
_OTHER_TEXTS: Final = (
    "bpchar", "name", "jsonb", "uuid", "xml", "inet", "cidr", "macaddr", "macaddr8", "interval", "citext", "ltree",
    "bit varying",
)  # fmt: skip
"""Types that hold a text in a form of their own: blanks, case or order may be another than what was written."""
_MICROSECONDS: Final = 6
_MOST_LENGTH: Final = 10_485_760


class Found(NamedTuple):
    """The type of a column as the server has it.

    Attributes:
        name: without length, precision and scale; `full` has them.
        is_enum: whether it is an enumeration, or an array of one.
        scale: of numeric, or fraction digits of a time; None where it takes any.
    """

    name: str
    full: str
    is_enum: bool = False
    scale: int | None = None


def is_array(logical: LogicalType) -> bool:
    """Return whether PostgreSQL holds the type as an array: an array of scalars."""
    return logical.name is TypeName.ARRAY and logical.element is not None and logical.element.name not in NESTED


def element_of(logical: LogicalType) -> LogicalType:
    """The element of an array that PostgreSQL holds as one; any other type as it is."""
    return logical.element if logical.element is not None and is_array(logical) else logical


def is_json(logical: LogicalType) -> bool:
    """Return whether the type is held as JSON."""
    return logical.name in NESTED and not is_array(logical)


def scalar_of(logical: LogicalType) -> Scalar:
    """The type of a staged value that is no array: decimals, texts and JSON travel as text."""
    return _SCALARS.get(logical.name, _TEXT)


def wire_type(logical: LogicalType) -> str:
    """The type of a staged column."""
    return scalar_of(element_of(logical)).name + ("[]" if is_array(logical) else "")


def staged_columns(types: Iterable[LogicalType]) -> str:
    """SQL that declares the columns of staged rows: ``c0``, ``c1``, ..., of these types in turn."""
    return ", ".join(f"c{place} {wire_type(logical)}" for place, logical in enumerate(types))


def created_type(logical: LogicalType) -> str:
    """The type of a column that is created."""
    if is_array(logical):
        return f"{created_type(element_of(logical))}[]"
    if logical.name is TypeName.DECIMAL:
        return f"numeric({logical.precision}, {logical.scale})"
    if logical.name in (TypeName.CHAR, TypeName.VARCHAR) and (logical.length or 0) <= _MOST_LENGTH:
        return f"character varying({logical.length})"
    return "jsonb" if is_json(logical) else wire_type(logical)


def misfit(logical: LogicalType, found: Found) -> str | None:
    """Return why a column cannot hold every value of a declared type, or None if it can.

    A length, and the digits before the point of a number, are not asked: the server refuses rows that exceed them.
    """
    if is_array(logical):
        own = found._replace(name=found.name.removesuffix("[]"))
        return misfit(element_of(logical), own) if own.name != found.name else "an array is needed"
    if is_json(logical):
        return None if found.name in ("json", "jsonb", "text") else "jsonb is needed"
    if logical.name in TEXTS:
        return None if found.is_enum or found.name in (*_PLAIN_TEXTS, *_OTHER_TEXTS) else "text is needed"
    digits, what = min(logical.precision or 0, _MICROSECONDS), "fraction digits"
    wire: str = wire_type(logical)
    if logical.name is TypeName.DECIMAL:
        wire, digits, what = "numeric", logical.scale or 0, "digits after the point"
    if found.name not in (wire, *_WIDER.get(wire, ())):
        return f"{wire} is needed"
    return f"{digits} {what} are needed" if found.scale is not None and found.scale < digits else None


def cast_of(expression: str, logical: LogicalType, found: Found) -> str:
    """A staged value as a column takes it. Lengths are left to the assignment, which cuts nothing off."""
    wire = wire_type(logical)
    same = found.name == wire or (wire == "text" and found.name == "character varying")
    return expression if same else f"{expression}::{found.name}"


def casts_of(types: Mapping[str, LogicalType], found: Mapping[str, Found]) -> dict[str, str]:
    """Column to its staged value in the row ``s``, as the column of the table takes it.

    Args:
        types: of the staged columns, in their order.
        found: types of the table's columns.
    """
    return {name: cast_of(f"s.c{place}", kind, found[name]) for place, (name, kind) in enumerate(types.items())}


def same_values(casts: Mapping[str, str]) -> str:
    """SQL that is true where the row ``t`` of the table has the staged values of `casts_of`."""
    return " AND ".join(f"t.{quote(name)} = {cast}" for name, cast in casts.items())


def changes_values(logical: LogicalType, found: Found) -> bool:
    """Return whether the server may return a value in another form than it was written."""
    if is_json(logical):
        return found.name == "jsonb"
    name = found.name.removesuffix("[]")
    return element_of(logical).name in TEXTS and not found.is_enum and name not in _PLAIN_TEXTS


def text_of(expression: str, logical: LogicalType) -> str:
    """SQL that gives a value as text which `copy.values_of` reads, whatever the settings of the session."""
    if is_array(logical):
        inner = text_of("u.e", element_of(logical))
        return (
            f"CASE WHEN {expression} IS NOT NULL THEN array_to_json(ARRAY(SELECT {inner} FROM unnest({expression})"
            " WITH ORDINALITY AS u(e, o) ORDER BY u.o))::text END"
        )
    match logical.name:
        case TypeName.DATE:
            return f"({expression} - DATE '1970-01-01')::text"
        case TypeName.TIME | TypeName.TIMESTAMP | TypeName.TIMESTAMP_LTZ:
            return f"(extract(epoch FROM {expression}) * 1000000)::bigint::text"
    return f"encode({expression}, 'hex')" if logical.name in BYTES else f"{expression}::text"
