"""VALUES in FROM: rows that are there from the first batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import Aggregate, Call, Constants, Expression, Filter, Key, Node, Project, column
from upsert_platform.core.types import LogicalType, TypeName, quote_name
from upsert_platform.sql.planning.matches import null_of
from upsert_platform.sql.planning.scope import Columns, Names, Relation, as_type, common_type
from upsert_platform.sql.rendered import INTEGERS, STRINGS

_COUNT: Final = LogicalType(TypeName.BIGINT, nullable=False)
_BOOLEAN: Final = LogicalType(TypeName.BOOLEAN, nullable=False)


def constant_rows(node: exp.Values, base: Node, names: Names, first_line: int) -> Relation:
    """The rows of ``(VALUES (1, 'a'), (2, 'b')) AS t (n, s)``.

    Args:
        base: a table that the query reads: a GROUP BY without columns over none of its rows has one row from the start.

    Raises:
        Fault: the rows are not alike, or hold more than constants.
    """
    columns = Columns((), first_line)
    lines = [list(item.expressions) if isinstance(item, exp.Tuple) else [item] for item in node.expressions]
    if len({len(line) for line in lines}) != 1:
        raise columns.fault("the rows of VALUES have different numbers of columns", node)
    never = Expression("FALSE", _BOOLEAN, ("literal", False, _BOOLEAN))
    one = Aggregate(Filter(base, never), (), (Call(names.fresh("rows"), "count", _COUNT),))
    cells = [[_constant(item, columns) for item in line] for line in lines]
    kinds: list[LogicalType] = []
    for at, values in enumerate(zip(*cells, strict=True)):
        known = [item.type for item in values if item is not None]
        if not known:
            raise columns.fault(f"VALUES: column {at + 1} is NULL in every row; write CAST(NULL AS type) in one", node)
        kind = known[0]
        for other in known[1:]:
            shared = common_type(kind, other)
            if shared is None:
                raise columns.fault(f"VALUES: column {at + 1} is {kind} and {other}; CAST one of them", node)
            kind = shared
        constant = all(item is not None and item.native is not None for item in values)
        kinds.append(replace(kind, nullable=not constant))
    fresh = [names.fresh(f"v{at}") for at in range(len(kinds))]
    sets = tuple(
        tuple((name, _typed(cell, kind)) for name, cell, kind in zip(fresh, line, kinds, strict=True)) for line in cells
    )
    single = [
        Key({name})
        for at, (name, kind) in enumerate(zip(fresh, kinds, strict=True))
        if not kind.nullable and len({line[at][1].native for line in sets}) == len(sets)
    ]
    if all(cell.native is not None for line in sets for _, cell in line):
        rows: Node = Constants(one, sets, tuple(single))
    else:
        rows = _computed(one, sets, single, names)
    fields = {field.name: field for field in rows.fields}
    return Relation(rows, tuple((f"EXPR${at}", fields[name]) for at, name in enumerate(fresh)))


def _computed(
    one: Node, sets: tuple[tuple[tuple[str, Expression], ...], ...], single: list[Key], names: Names
) -> Project:
    """Rows with a number each, by which the constants that Spark computes are chosen: Arrow copies literals alone."""
    number = names.fresh("row")
    plain = [at for at in range(len(sets[0])) if all(line[at][1].native is not None for line in sets)]
    numbered = [
        ((number, Expression(f"{row}L", _COUNT, ("literal", row, _COUNT))), *(line[at] for at in plain))
        for row, line in enumerate(sets)
    ]
    rows = Constants(one, tuple(numbered), (Key({number}), *single))
    fields = {field.name: field for field in rows.fields}
    columns = [(number, column(fields[number]))]
    for at, (name, cell) in enumerate(sets[0]):
        if at in plain:
            columns.append((name, column(fields[name])))
            continue
        cases = " ".join(f"WHEN {row}L THEN {line[at][1].sql}" for row, line in enumerate(sets))
        sql = f"CASE {quote_name(number)} {cases} END"
        columns.append((name, Expression(sql, replace(cell.type, nullable=True), reads=(number,))))
    return Project(rows, tuple(columns))


def _constant(node: exp.Expr, columns: Columns) -> Expression | None:
    """A constant; None for NULL, which has the type of the other rows."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Null):
        return None
    found = columns.expression(node)
    if found.varies:
        raise columns.fault(f"VALUES takes constants, and {found.varies} has another value each time", node)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and found.type.name in INTEGERS:
        return replace(found, native=("literal", -int(node.this.name), found.type))
    return found


def _typed(cell: Expression | None, kind: LogicalType) -> Expression:
    if cell is None:
        return null_of(kind)
    typed = as_type(cell, kind)
    alike = any(cell.type.name in family and kind.name in family for family in (INTEGERS, STRINGS))
    if cell.native is not None and (alike or cell.type.name is kind.name):
        return replace(typed, native=("literal", cell.native[1], kind))
    return typed
