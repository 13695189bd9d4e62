"""INTERSECT and EXCEPT: rows that both sides have, or the first alone, each once or (ALL) in their number.

Nulls are equal to each other.
"""

from __future__ import annotations

from dataclasses import replace

from upsert_platform.core.plan import (
    ALL_ROWS,
    Aggregate,
    Call,
    Expression,
    Field,
    Filter,
    GroupJoin,
    Node,
    Project,
    TopN,
    Union,
    column,
)
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.planning.scope import Names

_COUNT = LogicalType(TypeName.BIGINT, nullable=False)
_SIDE = LogicalType(TypeName.BOOLEAN, nullable=False)
_NONE: Expression = Expression("0L", _COUNT, ("literal", 0, _COUNT))


def common_rows(left: Project, right: Project, names: Names, *, present: bool) -> Node:
    """The different rows of the left side that the right side has too (`present`), or has not.

    The rows of both sides are grouped together, with how many of them come from either side.
    """
    sides = names.fresh("left"), names.fresh("right")
    union = Union(tuple(_marked(branch, sides, at) for at, branch in enumerate((left, right))))
    calls = tuple(Call(names.fresh("count"), "count", _COUNT, None, filter=side) for side in sides)
    shown = tuple(field.name for field in left.fields)
    node: Node = Aggregate(union, shown, calls)
    for call, wanted in zip(calls, (True, present), strict=True):
        operator = ">" if wanted else "="
        counted = Expression(f"`{call.name}`", _COUNT, ("column", call.name), reads=(call.name,))
        sql = f"{counted.sql} {operator} 0L"
        node = Filter(node, Expression(sql, _SIDE, (operator, counted.native, _NONE.native), reads=counted.reads))
    return Project(node, tuple((field.name, column(field)) for field in node.fields if field.name in shown))


def counted_rows(left: Project, right: Project, names: Names, *, present: bool) -> Node:
    """The rows of the left side that the right side has too (`present`), or has not, copies counted.

    The copies of a row are numbered on both sides, and a copy meets the one of the same number.
    """
    sides = [_numbered(branch, names) for branch in (left, right)]
    ons = [tuple(field.name for field in side.fields) for side in sides]
    node = GroupJoin(sides[0], sides[1], "semi" if present else "anti", ons[0], ons[1])
    shown = {field.name for field in left.fields}
    return Project(node, tuple((field.name, column(field)) for field in node.fields if field.name in shown))


def _numbered(branch: Project, names: Names) -> TopN:
    """The rows of a branch, each copy of a row with its number."""
    columns = tuple(field.name for field in branch.fields)
    return TopN(branch, columns, (), ALL_ROWS, Field(names.fresh("copy"), _COUNT))


def _marked(branch: Project, sides: tuple[str, str], at: int) -> Project:
    """The rows of a branch, with a column per side that is true for its own."""
    flags = tuple(
        (name, Expression(str(at == own).upper(), _SIDE, ("literal", at == own, replace(_SIDE))))
        for own, name in enumerate(sides)
    )
    return Project(branch.input, (*branch.columns, *flags))
