"""A row per element: UNNEST of arrays, maps and multisets, WITH ORDINALITY, and LATERAL TABLE of users' functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from upsert_platform.core.plan import Field, Unnest
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.flink import LATERAL_KEY
from upsert_platform.sql.planning.joins import padded, with_columns
from upsert_platform.sql.planning.scope import Columns, Named, Names, Relation

_COLLECTIONS = (TypeName.ARRAY, TypeName.MAP, TypeName.MULTISET)


def unnest_rows(
    left: Relation, named: Sequence[Named], join: exp.Join, names: Names, first_line: int
) -> tuple[Relation, list[Named]]:
    """The rows with the elements of a collection of theirs, and their columns in scope.

    Raises:
        Fault: it is not a collection, or the columns are not named as they are.
    """
    node = join.this
    columns = Columns(named, first_line)
    if len(node.expressions) != 1:
        raise columns.fault(f"UNNEST takes one collection, not {len(node.expressions)}", join)
    return _rows(left, columns, join, "UNNEST", node.expressions[0], names)


def function_rows(
    left: Relation, named: Sequence[Named], join: exp.Join, names: Names, first_line: int
) -> tuple[Relation, list[Named]]:
    """The rows with those that a table function of the user's gives for them, and their columns in scope.

    Raises:
        Fault: it is no call of such a function, or the columns are not named as they are.
    """
    columns = Columns(named, first_line)
    calls = join.this.this.expressions if str(join.this.this.this).upper() == "TABLE" else []
    if len(calls) != 1 or not isinstance(calls[0], exp.Anonymous) or join.this.args.get("ordinality"):
        raise columns.fault("a table function is called as LATERAL TABLE(f(x)) AS t (a, b)", join)
    call = calls[0].copy()
    call.meta[LATERAL_KEY] = True
    return _rows(left, columns, join, "LATERAL TABLE", call, names)


def _rows(
    left: Relation, columns: Columns, join: exp.Join, word: str, collection: exp.Expr, names: Names
) -> tuple[Relation, list[Named]]:
    node, named = join.this, columns.named
    side, on = (join.side or "").upper(), join.args.get("on")
    always = on is None or (isinstance(on, exp.Boolean) and bool(on.this))
    if side not in ("", "LEFT") or not always or join.args.get("using"):
        raise columns.fault(f"{word} stands in CROSS JOIN {word}(...) or LEFT JOIN {word}(...) ON TRUE", join)
    expression = columns.expression(collection)
    if expression.type.name not in _COLLECTIONS:
        raise columns.fault(f"{word} takes an ARRAY, MAP or MULTISET, not {expression.type}", join)
    column = expression.column or names.fresh("unnested")
    source = with_columns(left.node, [(column, expression)])
    own = _elements(expression.type)
    alias = node.args.get("alias")
    shown = [part.name for part in alias.columns] if isinstance(alias, exp.TableAlias) else []
    offset = node.args.get("offset")
    numbered = isinstance(offset, exp.Identifier)
    if not shown and not numbered and all(name for name, _ in own):
        shown = [name for name, _ in own]
    if len(shown) != len(own) or (offset and not numbered):
        wanted = ", ".join([*(name or "element" for name, _ in own), *(["number"] if offset else [])])
        raise columns.fault(f"name the columns of {word}: AS t ({wanted})", join)
    elements = tuple(
        Field(names.fresh(name), replace(kind, nullable=kind.nullable or bool(side)))
        for name, (_, kind) in zip(shown, own, strict=True)
    )
    number = Field(names.fresh(offset.name), LogicalType(TypeName.INT, nullable=bool(side))) if numbered else None
    unnest = Unnest(source, column, elements, number, bool(side))
    qualifiers = (node.alias,) if node.alias else ()
    added = [Named(qualifiers, name, field) for name, field in zip(shown, elements, strict=True)]
    if number is not None:
        added.append(Named(qualifiers, offset.name, number))
    scope = [*padded(named, unnest), *added]
    return Relation(unnest, tuple((item.shown, item.field) for item in scope)), scope


def _elements(kind: LogicalType) -> list[tuple[str, LogicalType]]:
    """Names, as far as they follow, and types of an element's columns."""
    assert kind.element is not None
    if kind.name is TypeName.MAP:
        assert kind.key is not None
        return [("", kind.key), ("", kind.element)]
    if kind.element.name is TypeName.ROW:
        null = kind.element.nullable
        return [(item.name, replace(item.type, nullable=item.type.nullable or null)) for item in kind.element.fields]
    return [("", kind.element)]
