"""Change data by its form: Debezium, Canal, Maxwell and OGG, with the columns of their rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.discovery.json_shape import columns_of, texts_in
from upsert_platform.discovery.shape import BIGINT, BOOLEAN, BYTES, DOUBLE, STRING, FoundColumn, Side
from upsert_platform.discovery.texts import SQL, standard_of
from upsert_platform.formats.json.tree import Tree

_STANDARD: Final = "timestamp-format.standard"
_MYSQL: Final = re.compile(r"(\w+)(?:\((\d+)(?:,(\d+))?\))?( unsigned)?", re.IGNORECASE)


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
        columns = _with_declared_types(columns, bodies)
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


def _with_declared_types(columns: Sequence[FoundColumn], bodies: Sequence[dict[str, Tree]]) -> tuple[FoundColumn, ...]:
    """Canal writes every value as text and the types of MySQL beside it."""
    declared: dict[str, str] = {}
    for body in bodies:
        kinds = body.get("mysqlType")
        declared |= {name: kind for name, kind in kinds if isinstance(kind, str)} if isinstance(kinds, tuple) else {}
    return tuple(
        replace(column, type=logical, doubt="")
        if column.name in declared and (logical := mysql_type(declared[column.name])) is not None
        else column
        for column in columns
    )


def mysql_type(text: str) -> LogicalType | None:
    """Return the type of a column that MySQL declares; None where values are best read as they look."""
    found = _MYSQL.match(text.strip())
    if found is None:
        return None
    name, first, second, unsigned = found[1].lower(), found[2], found[3], found[4]
    if name in ("decimal", "numeric"):
        return LogicalType(TypeName.DECIMAL, precision=min(38, int(first or 10)), scale=int(second or 0))
    if name == "bigint" and unsigned:
        return LogicalType(TypeName.DECIMAL, precision=20, scale=0)
    if name in ("datetime", "timestamp"):
        return LogicalType(TypeName.TIMESTAMP, precision=6 if int(first or 0) > 3 else 3)
    plain = {
        "tinyint": BIGINT, "smallint": BIGINT, "mediumint": BIGINT, "int": BIGINT, "integer": BIGINT, "bigint": BIGINT,
        "float": DOUBLE, "double": DOUBLE, "boolean": BOOLEAN, "date": LogicalType(TypeName.DATE),
        "time": LogicalType(TypeName.TIME, precision=0),
    }  # fmt: skip
    return plain.get(name, STRING if name not in ("blob", "binary", "varbinary", "bit") else BYTES)
