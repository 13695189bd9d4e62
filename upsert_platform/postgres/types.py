"""PostgreSQL's types for declared types: their columns, the encoding of staged rows, and the conversion back."""

from __future__ import annotations

from typing import Final, NamedTuple

from upsert_platform.core.types import LogicalType, TypeName

TEXTS: Final = (TypeName.CHAR, TypeName.VARCHAR, TypeName.STRING)
BYTES: Final = (TypeName.BINARY, TypeName.VARBINARY, TypeName.BYTES)
_NESTED: Final = (TypeName.ARRAY, TypeName.MAP, TypeName.MULTISET, TypeName.ROW)
_WIRE: Final = {
    TypeName.BOOLEAN: "boolean",
    TypeName.TINYINT: "smallint",
    TypeName.SMALLINT: "smallint",
    TypeName.INT: "integer",
    TypeName.BIGINT: "bigint",
    TypeName.FLOAT: "real",
    TypeName.DOUBLE: "double precision",
    TypeName.DATE: "date",
    TypeName.TIME: "time without time zone",
    TypeName.TIMESTAMP: "timestamp without time zone",
    TypeName.TIMESTAMP_LTZ: "timestamp with time zone",
    **dict.fromkeys(BYTES, "bytea"),
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
    return logical.name is TypeName.ARRAY and logical.element is not None and logical.element.name not in _NESTED


def element_of(logical: LogicalType) -> LogicalType:
    """The element of an array that PostgreSQL holds as one; any other type as it is."""
    return logical.element if logical.element is not None and is_array(logical) else logical


def is_json(logical: LogicalType) -> bool:
    """Return whether the type is held as JSON."""
    return logical.name in _NESTED and not is_array(logical)


def wire_type(logical: LogicalType) -> str:
    """The type of a staged column: decimals, texts and JSON travel as text."""
    return _WIRE.get(element_of(logical).name, "text") + ("[]" if is_array(logical) else "")


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


def changes_values(logical: LogicalType, found: Found) -> bool:
    """Return whether the server may return a value in another form than it was written."""
    if is_json(logical):
        return found.name == "jsonb"
    name = found.name.removesuffix("[]")
    return element_of(logical).name in TEXTS and not found.is_enum and name not in _PLAIN_TEXTS


def text_of(expression: str, logical: LogicalType) -> str:
    """SQL that gives a value as text which `decode.values_of` reads, whatever the settings of the session."""
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
