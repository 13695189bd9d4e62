"""Joins by conditions other than equality: which rows of a side have a match, and which have none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from upsert_platform.core.plan import (
    Aggregate,
    Expression,
    Field,
    GroupJoin,
    Join,
    Key,
    Node,
    OuterRows,
    Project,
    column,
    expressions,
)
from upsert_platform.core.types import LogicalType, TypeName, spark_type
from upsert_platform.sql.planning.pruning import prune
from upsert_platform.sql.planning.scope import Names
from upsert_platform.sql.reader import Fault

_ONE: Final = LogicalType(TypeName.INT, nullable=False)
EVERY_ROW: Final = (Expression("1", _ONE, ("literal", 1, _ONE)), Expression("1", _ONE, ("literal", 1, _ONE)))
"""The two sides of a join in which every row meets every other."""


def null_of(kind: LogicalType) -> Expression:
    """Return NULL of a type."""
    kind = replace(kind, nullable=True)
    return Expression(f"CAST(NULL AS {spark_type(kind)})", kind, ("literal", None, kind))


def by_match(side: Node, met: Node, reads: Sequence[str], kind: str, names: Names, fault: Fault) -> GroupJoin:
    """Return the rows of one side of a join that are in its result (`semi`), or are not (`anti`).

    Args:
        met: the join with all its conditions.
        reads: the columns of the side that decide whether a row has a match.

    Raises:
        Fault: one of these has another value each time.
    """
    shown = tuple(name for name in dict.fromkeys(reads) if name in {item.name for item in side.fields})
    varies = next((item.varies for item in expressions(prune(side, shown)) if item.varies), None)
    if varies is not None:
        raise Fault(f"{varies} has another value each time, and cannot decide whether a row has a match", fault.line)
    fields = {item.name: item for item in met.fields}
    columns = tuple((names.fresh(name), column(fields[name])) for name in shown)
    found = Aggregate(Project(met, columns), tuple(name for name, _ in columns), ())
    return GroupJoin(side, found, kind, shown, found.group)


def outer_rows(joined: Join, met: Node, kind: str, reads: Sequence[str], names: Names, fault: Fault) -> OuterRows:
    """Return the result of an outer join: pairs that meet all conditions, and padded rows without such a pair.

    Args:
        joined: the inner join by equality, `met` the same with the other conditions.
        kind: ``left``, ``right`` or ``full``.
        reads: the columns of all conditions.
    """
    left, right = joined.left, joined.right
    nullable = {item.name for item in left.fields if kind != "left"} | {
        item.name for item in right.fields if kind != "right"
    }
    fields = [
        Field(item.name, replace(item.type, nullable=True)) if item.name in nullable else item for item in met.fields
    ]
    branches: list[Node] = [Project(met, tuple((item.name, _shown(item)) for item in fields))]
    for side, own in ((left, "left"), (right, "right")):
        if kind in (own, "full"):
            alone = by_match(side, met, reads, "anti", names, fault)
            there = {item.name for item in side.fields}
            padded = ((item.name, _shown(item) if item.name in there else null_of(item.type)) for item in fields)
            branches.append(Project(alone, tuple(padded)))
    return OuterRows(tuple(branches), _keys(joined, kind))


def _shown(item: Field) -> Expression:
    return replace(column(item), type=item.type)


def _keys(joined: Join, kind: str) -> tuple[Key, ...]:
    """The keys of a side whose rows meet at most one row each, and those of both sides together.

    Of FULL JOIN rows of either side may be padded where such a key is.
    """
    if kind == "full":
        return ()
    kept = joined.left.keys if kind == "left" else joined.right.keys
    both = (one | other for one in joined.left.keys for other in joined.right.keys)
    return tuple(map(Key, dict.fromkeys([*(key for key in joined.keys if key in kept), *both])))
