"""Joins, IN and EXISTS: which columns have to be equal, and what is left for a filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from upsert_platform.core.plan import Expression, Field, Filter, Join, Node, Project, column
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.numbers import as_decimal
from upsert_platform.sql.planning.scope import Columns, Named, Names, as_type, common_type
from upsert_platform.sql.reader import Fault


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The parts of a condition that all have to hold."""
    if node is None:
        return []
    if isinstance(node, exp.Paren):
        return conjuncts(node.this)
    if isinstance(node, exp.And):
        return [*conjuncts(node.this), *conjuncts(node.expression)]
    return [node]


Pair = tuple[exp.Expr, exp.Expr]


def split_pairs(parts: Sequence[exp.Expr], left: Columns, right: Columns) -> tuple[list[Pair], list[exp.Expr]]:
    """Equalities between the sides, as (left, right), and the other parts."""
    pairs: list[Pair] = []
    rest: list[exp.Expr] = []
    for part in parts:
        pair = _pair(part, left, right) if isinstance(part, exp.EQ) else None
        if pair is None:
            rest.append(part)
        else:
            pairs.append(pair)
    return pairs, rest


def _pair(part: exp.EQ, left: Columns, right: Columns) -> Pair | None:
    if part.find(exp.Select) is not None:
        return None
    for one, other in ((part.this, part.expression), (part.expression, part.this)):
        if not list(one.find_all(exp.Column)) or not list(other.find_all(exp.Column)):
            return None
        if left.fits(one) and right.fits(other) and not right.fits(one):
            return one, other
        # A name that both sides know is refused where it is read; here the first table that knows it counts.
    return None


def filtered(node: Node, columns: Columns, parts: Sequence[exp.Expr]) -> Node:
    """The rows for which all parts hold."""
    for part in parts:
        condition = columns.expression(part)
        if condition.type.name is not TypeName.BOOLEAN:
            raise columns.fault(f"a condition expected, not {condition.type}", part)
        node = Filter(node, condition)
    return node


def all_met(columns: Columns, parts: Sequence[exp.Expr]) -> Expression:
    """Several conditions as one.

    Raises:
        Fault: one is no condition.
    """
    conditions = [columns.expression(part) for part in parts]
    for part, condition in zip(parts, conditions, strict=True):
        if condition.type.name is not TypeName.BOOLEAN:
            raise columns.fault(f"a condition expected, not {condition.type}", part)
    met = conditions[0]
    for other in conditions[1:]:
        native = ("and", met.native, other.native) if met.native and other.native else None
        form = ("and", met.arrow, other.arrow) if met.arrow and other.arrow else None
        met = replace(
            met,
            sql=f"({met.sql}) AND ({other.sql})",
            native=native,
            form=form,
            varies=met.varies or other.varies,
            reads=tuple(sorted({*met.reads, *other.reads})),
        )
    return met


def where_met(condition: Expression, value: Expression) -> Expression:
    """A value that is null where a condition does not hold."""
    native = ("if", condition.native, value.native) if condition.native and value.native else None
    form = ("if", condition.arrow, value.arrow) if condition.arrow and value.arrow else None
    sql = f"CASE WHEN {condition.sql} THEN {value.sql} END"
    kind = replace(value.type, nullable=True)
    varies = condition.varies or value.varies
    return Expression(sql, kind, native, varies, tuple(sorted({*condition.reads, *value.reads})), form=form)


def with_columns(node: Node, given: Sequence[tuple[str, Expression]]) -> Node:
    """The rows with further columns."""
    added = [(name, item) for name, item in given if item.column != name]
    if not added:
        return node
    return Project(node, (*((field.name, column(field)) for field in node.fields), *added))


def compared_type(one: LogicalType, other: LogicalType) -> LogicalType | None:
    """Return the type in which values of two types are equal where they are; None if they cannot be compared.

    Of decimals it keeps all digits behind the point, which a type for both in one column may not: a value that has too
    many digits before it for that is equal to none of the other side.
    """
    found = common_type(one, other)
    if found is None or found.name is not TypeName.DECIMAL:
        return found
    scale = max(as_decimal(one).scale or 0, as_decimal(other).scale or 0)
    whole = (found.precision or 0) - (found.scale or 0)
    return replace(found, precision=min(38, whole + scale), scale=scale)


def join_rows(
    left: Node,
    right: Node,
    kind: str,
    pairs: Sequence[tuple[Expression, Expression]],
    names: Names,
    *,
    fault: Fault,
) -> Join:
    """A join by equality.

    Args:
        fault: raised where the types of a pair cannot be compared; its message says what.
    """
    on: tuple[list[tuple[str, Expression]], list[tuple[str, Expression]]] = ([], [])
    for one, other in pairs:
        kind_of_both = compared_type(one.type, other.type)
        if kind_of_both is None:
            raise Fault(
                f"a join compares {_plain(one.type)} with {_plain(other.type)}; CAST one to the type of the other",
                fault.line,
            )
        for side, expression in zip(on, (one, other), strict=True):
            shaped = as_type(expression, _nullable(kind_of_both, expression.type.nullable))
            side.append((shaped.column or names.fresh("on"), shaped))
    return Join(
        with_columns(left, on[0]),
        with_columns(right, on[1]),
        kind,
        tuple(name for name, _ in on[0]),
        tuple(name for name, _ in on[1]),
    )


def compared_keys(pairs: Sequence[tuple[Expression, Expression]]) -> list[Expression]:
    """The right sides of pairs in the types in which they are compared: rows that are grouped by them are met once."""
    found: list[Expression] = []
    for one, other in pairs:
        kind = compared_type(one.type, other.type)
        found.append(other if kind is None else as_type(other, _nullable(kind, other.type.nullable)))
    return found


def _nullable(kind: LogicalType, nullable: bool) -> LogicalType:
    return replace(kind, nullable=nullable)


def _plain(kind: LogicalType) -> str:
    return str(kind).removesuffix(" NOT NULL")


def padded(named: Sequence[Named], node: Node) -> tuple[Named, ...]:
    """Columns in scope with the nullability that they have after a join."""
    fields: dict[str, Field] = {field.name: field for field in node.fields}
    return tuple(replace(item, field=fields[item.field.name]) for item in named)
