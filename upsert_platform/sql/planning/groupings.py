"""GROUPING SETS, ROLLUP and CUBE: which groupings a GROUP BY asks for, and the rows of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Expand, Expression, Field, Node, column
from upsert_platform.core.types import LogicalType, TypeName, spark_type
from upsert_platform.sql.planning.scope import Columns, Names

MOST_SETS: Final = 64
"""Each row is copied for every grouping."""
_GROUP_ID: Final = "GROUP_ID"
_NUMBER: Final = LogicalType(TypeName.BIGINT, nullable=False)


@dataclass(frozen=True)
class Groupings:
    """A GROUP BY.

    Attributes:
        by: all expressions grouped by, each once.
        sets: per grouping the places of its expressions in `by`; None for a plain GROUP BY.
        spelled: every way in which one is written (``a``, ``t.a``), with its place in `by`.
    """

    by: tuple[exp.Expr, ...]
    sets: tuple[frozenset[int], ...] | None = None
    spelled: tuple[tuple[exp.Expr, int], ...] = ()


def read_groupings(group: exp.Group, columns: Columns) -> Groupings:
    """The groupings of a GROUP BY.

    Raises:
        Fault: a position, or too many groupings.
    """
    by = _Expressions(columns)
    plain = not any(isinstance(item, (exp.GroupingSets, exp.Cube, exp.Rollup)) for item in group.expressions)
    parts = [_sets(item, by) for item in group.expressions]
    sets = tuple(frozenset().union(*chosen) for chosen in product(*parts))
    if len(sets) > MOST_SETS:
        raise columns.fault(
            f"{len(sets)} groupings are more than {MOST_SETS}: name those needed by GROUPING SETS", group
        )
    return Groupings(tuple(by.found), None if plain else sets, tuple(by.spelled))


class _Expressions:
    """Expressions as they are met, each once: two that differ in how their columns are qualified alone are one."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.found: list[exp.Expr] = []
        self.spelled: list[tuple[exp.Expr, int]] = []
        self._bound: list[exp.Expr] = []

    def place(self, item: exp.Expr) -> int:
        """The place of an expression, which is added if it is new."""
        bound = self.columns.bound(item)
        if bound not in self._bound:
            self._bound.append(bound)
            self.found.append(item)
        at = self._bound.index(bound)
        if all(item != other for other, _ in self.spelled):
            self.spelled.append((item, at))
        return at


def _sets(item: exp.Expr, by: _Expressions) -> list[frozenset[int]]:
    inner: list[exp.Expr] = list(item.expressions) if isinstance(item, (exp.GroupingSets, exp.Cube, exp.Rollup)) else []
    if isinstance(item, exp.GroupingSets):
        return [found for part in inner for found in _sets(part, by)]
    if isinstance(item, (exp.Cube, exp.Rollup)):
        parts = [_together(part, by) for part in inner]
        if isinstance(item, exp.Rollup):
            return [frozenset().union(*parts[:count]) for count in range(len(parts), -1, -1)]
        if len(parts) > 6:
            raise by.columns.fault("a CUBE of more than 6 parts: name the groupings needed by GROUPING SETS", item)
        counts = range(len(parts), -1, -1)
        return [frozenset().union(*chosen) for count in counts for chosen in combinations(parts, count)]
    return [_together(item, by)]


def _together(item: exp.Expr, by: _Expressions) -> frozenset[int]:
    """The places of an expression, or of several in parentheses."""
    found: set[int] = set()
    for part in item.expressions if isinstance(item, exp.Tuple) else [item]:
        while isinstance(part, exp.Paren):
            part = part.this
        if isinstance(part, exp.Literal):
            raise by.columns.fault("GROUP BY takes expressions, not positions", part)
        found.add(by.place(part))
    return frozenset(found)


def is_grouping(node: exp.Expr) -> bool:
    """Return whether a node is ``GROUPING(...)``, ``GROUPING_ID(...)`` or ``GROUP_ID()``."""
    return isinstance(node, exp.Anonymous) and str(node.this).upper() in ("GROUPING", "GROUPING_ID", _GROUP_ID)


@dataclass(frozen=True)
class Expanded:
    """Rows copied for each grouping.

    Attributes:
        group: columns to group by, and `unique` those of them that tell groups apart.
        known: what expressions of the statement are called.
    """

    node: Node
    group: tuple[str, ...]
    unique: tuple[str, ...]
    known: tuple[tuple[exp.Expr, Field], ...]


def expand_rows(
    rows: Node,
    groupings: Groupings,
    grouped: Sequence[str],
    asked: Sequence[exp.Expr],
    columns: Columns,
    names: Names,
) -> Expanded:
    """Copies rows for each grouping.

    Args:
        rows: what is grouped by and aggregated, computed.
        grouped: columns of `rows` with the values of `groupings.by`.
        asked: calls of ``GROUPING``, ``GROUPING_ID`` and ``GROUP_ID``.
    """
    sets = groupings.sets
    assert sets is not None
    fields = {field.name: field for field in rows.fields}
    keys: list[Field] = []
    for at, name in enumerate(grouped):
        kind = fields[name].type
        keys.append(
            Field(names.fresh(name), replace(kind, nullable=kind.nullable or any(at not in one for one in sets)))
        )
    calls = [(node, Field(names.fresh("grouping"), _NUMBER), _arguments(node, groupings, columns)) for node in asked]
    # A null tells that a column is not grouped by, unless the column itself may be null.
    unclear = {
        at for at, name in enumerate(grouped) if fields[name].type.nullable and any(at not in one for one in sets)
    }
    hidden: Field | None = None
    unique = [field.name for field in keys]
    if unclear or len(set(sets)) < len(sets):
        telling = [field for _, field, places in calls if unclear <= set(places)] if len(set(sets)) == len(sets) else []
        if not telling:
            hidden = Field(names.fresh("grouping"), _NUMBER)
        unique.append((telling[0] if telling else hidden).name)  # type: ignore[union-attr]
    copies = []
    for number, chosen in enumerate(sets):
        shown = [
            (field.name, replace(column(fields[name]), type=field.type) if at in chosen else _null(field.type))
            for at, (field, name) in enumerate(zip(keys, grouped, strict=True))
        ]
        earlier = sets[:number].count(chosen)
        shown += [
            (field.name, _constant(earlier if _is_group_id(node) else _bits(places, chosen)))
            for node, field, places in calls
        ]
        shown += [(hidden.name, _constant(number))] if hidden is not None else []
        copies.append((*shown, *((field.name, column(field)) for field in rows.fields)))
    own = [*keys, *(field for _, field, _ in calls), *([hidden] if hidden is not None else [])]
    known = [*((item, keys[at]) for item, at in groupings.spelled), *((node.copy(), field) for node, field, _ in calls)]
    return Expanded(
        Expand(rows, tuple(copies)),
        tuple(field.name for field in own),
        tuple(unique),
        tuple(known),
    )


def _is_group_id(node: exp.Expr) -> bool:
    """Return whether a node gives how many equal groupings stand before its own."""
    return str(node.this).upper() == _GROUP_ID


def _arguments(node: exp.Expr, groupings: Groupings, columns: Columns) -> list[int]:
    places: list[int] = []
    if _is_group_id(node):
        if node.expressions:
            raise columns.fault("GROUP_ID takes no argument", node)
        return places
    by = [columns.bound(item) for item in groupings.by]
    for item in node.expressions:
        bound = columns.bound(item)
        if bound not in by:
            raise columns.fault(f"{str(node.this).upper()} takes expressions of GROUP BY", node)
        places.append(by.index(bound))
    if not places:
        raise columns.fault(f"{str(node.this).upper()} takes expressions of GROUP BY", node)
    return places


def _bits(places: Sequence[int], chosen: frozenset[int]) -> int:
    """A bit per argument, the last one lowest: 1 for what is not grouped by."""
    found = 0
    for place in places:
        found = found * 2 + (place not in chosen)
    return found


def _constant(number: int) -> Expression:
    return Expression(f"{number}L", _NUMBER, ("literal", number, _NUMBER))


def _null(kind: LogicalType) -> Expression:
    return Expression(f"CAST(NULL AS {spark_type(kind)})", kind, ("literal", None, kind))
