"""Change data by its form: Debezium, Canal, Maxwell and OGG, with the columns of their rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Final

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.discovery.json_shape import columns_of, texts_in
from upsert_platform.discovery.shape import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    MOST_DIGITS,
    STRING,
    Found,
    FoundColumn,
    Side,
)
from upsert_platform.discovery.texts import SQL, standard_of
from upsert_platform.formats.json.tree import Tree

_STANDARD: Final = "timestamp-format.standard"
_MYSQL: Final = re.compile(r"(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?(\s*unsigned)?", re.IGNORECASE)
_WIDE: Final = LogicalType(TypeName.DECIMAL, precision=MOST_DIGITS, scale=18)
"""Of a column of MySQL whose digits nobody told."""
_NO_PARAMETERS: Final = (
    "the messages tell MySQL's type '{name}' without {what} (TiCDC's do): declare {those} of the column"
)


@dataclass(frozen=True, slots=True)
class _Form:
    """The form in which a tool writes a change.

    Attributes:
        format: that reads it.
        fields: that every message has.
        images: fields with rows: an object, or a list of them.
        operation: the field of the operation, and its values.
        key: the field that names the primary key's columns; empty if none does.
    """

    format: str
    fields: frozenset[str]
    images: tuple[str, ...]
    operation: str
    operations: frozenset[str]
    key: str = ""


_FORMS: Final = (
    _Form("debezium-json", frozenset({"before", "after", "op"}), ("before", "after"), "op", frozenset("crudt")),
    _Form(
        "canal-json", frozenset({"data", "type", "isDdl"}), ("data",), "type",
        frozenset({"INSERT", "UPDATE", "DELETE"}), "pkNames",
    ),
    _Form(
        "maxwell-json", frozenset({"data", "type", "table", "database"}), ("data",), "type",
        frozenset({"insert", "update", "delete", "bootstrap-insert"}), "primary_key_columns",
    ),
    _Form(
        "ogg-json", frozenset({"op_type"}), ("before", "after"), "op_type", frozenset("IUD"), "primary_keys",
    ),
)  # fmt: skip


def change_side(trees: Sequence[Tree]) -> Side | None:
    """Return what values are whose every object is a change; None where they are something else.

    Args:
        trees: JSON values of the sample, at least one.
    """
    if not all(isinstance(tree, tuple) for tree in trees):
        return None
    roots = [dict(tree) for tree in trees]
    within = all(set(root) == {"schema", "payload"} and isinstance(root["payload"], tuple) for root in roots)
    bodies = [dict(root["payload"]) for root in roots] if within else roots
    for form in _FORMS:
        if all(form.fields <= set(body) and body[form.operation] in form.operations for body in bodies):
            return _side(form, bodies, schema_included=within)
    return None


def _side(form: _Form, bodies: Sequence[dict[str, Tree]], *, schema_included: bool) -> Side | None:
    images: list[Tree] = []
    for body in bodies:
        for name in form.images:
            found = body.get(name)
            images += [item for item in (found if isinstance(found, list) else [found]) if isinstance(item, tuple)]
    if not images:
        return None
    spelled = standard_of(text for image in images for text in texts_in(image))
    columns, doubts = columns_of(images, standard=spelled)
    options = {} if spelled == SQL else {f"{form.format}.{_STANDARD}": spelled}
    if schema_included:
        options[f"{form.format}.schema-include"] = "true"
    if form.format == "canal-json":
        columns = _with_declared_types(columns, bodies, images)
    key = _key(form, bodies)
    if form.key and not key:
        doubts.append("messages name no primary key; declare it where the rows have one")
    return Side(form.format, columns, options, tuple(doubts), key)


def _key(form: _Form, bodies: Sequence[dict[str, Tree]]) -> tuple[str, ...]:
    for body in reversed(bodies):
        named = body.get(form.key)
        if isinstance(named, list) and named and all(isinstance(name, str) for name in named):
            return tuple(named)
    return ()


def _with_declared_types(
    columns: Sequence[FoundColumn], bodies: Sequence[dict[str, Tree]], images: Sequence[Tree]
) -> tuple[FoundColumn, ...]:
    """Canal writes every value as text and the types of MySQL beside it."""
    declared: dict[str, str] = {}
    for body in bodies:
        kinds = body.get("mysqlType")
        declared |= {name: kind for name, kind in kinds if isinstance(kind, str)} if isinstance(kinds, tuple) else {}
    found = []
    for column in columns:
        known = mysql_type(declared[column.name]) if column.name in declared else None
        if known is not None and known.type == _WIDE and not all(map(_fits_wide, _texts_of(images, column.name))):
            known = replace(known, type=STRING)
        found.append(column if known is None else replace(column, type=known.type, doubt=known.doubt))
    return tuple(found)


def _texts_of(images: Sequence[Tree], column: str) -> Iterator[str]:
    for image in images:
        yield from (value for name, value in image if name == column and isinstance(value, str))


def _fits_wide(text: str) -> bool:
    """Return whether a number is itself as a DECIMAL of the widest type."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    exponent = number.as_tuple().exponent
    return isinstance(exponent, int) and -exponent <= (_WIDE.scale or 0) and number.adjusted() < MOST_DIGITS - 18


def mysql_type(text: str) -> Found | None:
    """Return the type of a column that MySQL declares; None where values are best read as they look.

    A type without parameters may have had some: it becomes the widest one, with a doubt.
    """
    found = _MYSQL.match(text.strip())
    if found is None:
        return None
    name, first, second, unsigned = found[1].lower(), found[2], found[3], found[4]
    if name in ("decimal", "numeric"):
        return _decimal(name, first, second)
    if name == "bigint" and unsigned:
        return Found(LogicalType(TypeName.DECIMAL, precision=20, scale=0))
    if name in ("datetime", "timestamp"):
        told = "" if first else _NO_PARAMETERS.format(name=name, what="the digits of its fraction", those="those")
        return Found(LogicalType(TypeName.TIMESTAMP, precision=3 if first and int(first) <= 3 else 6), told)
    plain = {
        "tinyint": BIGINT, "smallint": BIGINT, "mediumint": BIGINT, "int": BIGINT, "integer": BIGINT, "bigint": BIGINT,
        "float": DOUBLE, "double": DOUBLE, "boolean": BOOLEAN, "date": LogicalType(TypeName.DATE),
        "time": LogicalType(TypeName.TIME, precision=0),
    }  # fmt: skip
    return Found(plain.get(name, STRING if name not in ("blob", "binary", "varbinary", "bit") else BYTES))


def _decimal(name: str, precision: str | None, scale: str | None) -> Found:
    if precision is None:
        return Found(_WIDE, _NO_PARAMETERS.format(name=name, what="its digits", those="DECIMAL(p, s) with those"))
    if int(precision) > MOST_DIGITS:
        return Found(STRING, f"MySQL's type has {precision} digits, and no DECIMAL more than {MOST_DIGITS}")
    return Found(LogicalType(TypeName.DECIMAL, precision=int(precision), scale=int(scale or 0)))
