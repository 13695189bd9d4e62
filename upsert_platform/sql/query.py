"""A SELECT over one table, view or derived table, down to expressions over the declared table.

Views, WITH and derived tables are folded away: what remains names a source table, one Spark SQL expression per output
column and one predicate. What needs more than one row at a time raises NeedsState: `sql.planning` plans it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from upsert_platform.core.model import ColumnKind, Table
from upsert_platform.core.options import nearest
from upsert_platform.core.types import TypeName, quote_name
from upsert_platform.sql.expressions import ONLY, Scope, render
from upsert_platform.sql.flink import line_of, parse_query
from upsert_platform.sql.functions.times import WATERMARK_FUNCTION
from upsert_platform.sql.lexer import Token
from upsert_platform.sql.reader import Fault, NeedsState, ToldFault
from upsert_platform.sql.rendered import BOOLEAN, Rendered, first_failure, made

_CLAUSES: Final = {
    "distinct": "SELECT DISTINCT", "joins": "JOIN", "laterals": "LATERAL", "group": "GROUP BY", "having": "HAVING",
    "qualify": "QUALIFY", "windows": "WINDOW", "order": "ORDER BY", "limit": "LIMIT", "offset": "OFFSET",
    "match": "MATCH_RECOGNIZE", "pivots": "PIVOT", "sample": "TABLESAMPLE", "locks": "FOR UPDATE", "into": "INTO",
    "sort": "SORT BY", "cluster": "CLUSTER BY", "distribute": "DISTRIBUTE BY", "connect": "CONNECT BY",
}  # fmt: skip
_ON_TABLES: Final = {
    "joins": "JOIN", "laterals": "LATERAL", "pivots": "PIVOT", "sample": "TABLESAMPLE",
    "version": "FOR SYSTEM_TIME AS OF", "when": "FOR SYSTEM_TIME AS OF", "match": "MATCH_RECOGNIZE",
}  # fmt: skip


@dataclass(frozen=True)
class Relation:
    """A relation of FROM.

    Attributes:
        source: name of the declared table that it reads.
        columns: names and expressions over that table.
        predicate: which of its rows; None for all.
    """

    source: str
    columns: tuple[tuple[str, Rendered], ...]
    predicate: Rendered | None = None


Lookup = Callable[[str], Relation | None]


def relation_of(table: Table) -> Relation:
    """All columns of a table, in declared order, as ``SELECT *`` gives them."""
    columns = tuple(
        (
            column.name,
            Rendered(
                quote_name(column.name),
                column.type or column.expression_type,
                simple=True,
                column=column.name if column.kind is not ColumnKind.COMPUTED else None,
                fails=column.failure,
            ),
        )
        for column in table.columns
    )
    return Relation(table.name, columns)


def read_query(tokens: tuple[Token, ...], lookup: Lookup) -> Relation:
    """Resolves a query.

    Args:
        lookup: relation of a table or view, None if there is none of that name.

    Raises:
        Fault: it is not a query, names something unknown, or needs what is not supported; with its line.
    """
    for index, token in enumerate(tokens[:-1]):
        if token.is_word(WATERMARK_FUNCTION) and tokens[index + 1].is_word("("):
            raise NeedsState(f"{WATERMARK_FUNCTION} is {ONLY}", token.line)
        if token.is_word("TABLE") and tokens[index + 1].is_word("("):
            raise NeedsState(f"a table function or window in FROM is {ONLY}", token.line)
    parsed = parse_query(tokens, "query")
    return _Resolver(lookup, tokens[0].line).resolve(parsed)


class _Resolver:
    def __init__(self, lookup: Lookup, first_line: int) -> None:
        self.lookup = lookup
        self.first_line = first_line
        self.common: dict[str, Relation] = {}

    def fault(self, message: str, node: exp.Expr) -> Fault:
        kind = NeedsState if message.endswith(ONLY) else Fault
        return kind(message, line_of(node, self.first_line))

    def resolve(self, node: exp.Expr) -> Relation:
        while isinstance(node, (exp.Subquery, exp.Paren)) and not node.args.get("alias"):
            self._refuse_clauses(node)
            node = node.this
        if isinstance(node, exp.SetOperation):
            raise self.fault(f"{node.key.upper()} is {ONLY}", node)
        if isinstance(node, exp.Values):
            raise self.fault(f"VALUES is {ONLY}", node)
        if isinstance(node, (exp.Table, exp.Subquery)):
            raise self.fault(f"a table in parentheses is {ONLY}", node)
        if not isinstance(node, exp.Select):
            raise self.fault("SELECT expected", node)
        with_clause = node.args.get("with_") or node.args.get("with")
        if with_clause is not None:
            if with_clause.args.get("recursive"):
                raise self.fault(f"WITH RECURSIVE is {ONLY}", node)
            for cte in with_clause.expressions:
                names = [column.name for column in cte.args["alias"].columns]
                inner = _Resolver(self._find, self.first_line).resolve(cte.this)
                self.common[cte.alias] = self._renamed(inner, names, cte)
        self._refuse_clauses(node)
        if node.args.get("hint") is not None:
            raise self.fault(f"the hint STATE_TTL is {ONLY}", node)
        from_clause = node.args.get("from_") or node.args.get("from")
        if from_clause is None:
            raise self.fault("SELECT without FROM: rows come from a declared table", node)
        base, qualifiers = self._read_from(from_clause.this)
        scope = self._scope(base, qualifiers)
        columns = self._select_list(node, base, qualifiers, scope)
        predicate = base.predicate
        where = node.args.get("where")
        if where is not None:
            condition = render(where.this, scope, self.first_line)
            if condition.type is not None and condition.root is not TypeName.BOOLEAN:
                raise self.fault(f"WHERE takes a condition, not {condition.type}", where)
            predicate = _both(predicate, condition)
        return Relation(base.source, columns, predicate)

    def _refuse_clauses(self, node: exp.Expr) -> None:
        for name, clause in _CLAUSES.items():
            if node.args.get(name):
                raise self.fault(f"{clause} is {ONLY}", node)

    def _read_from(self, node: exp.Expr) -> tuple[Relation, tuple[str, ...]]:
        for name, clause in _ON_TABLES.items():
            if node.args.get(name):
                raise self.fault(f"{clause} is {ONLY}", node)
        alias = node.args.get("alias")
        renamed = [column.name for column in alias.columns] if isinstance(alias, exp.TableAlias) else []
        if isinstance(node, exp.Subquery):
            self._refuse_clauses(node)
            inner = _Resolver(self._find, self.first_line).resolve(node.this)
            return self._renamed(inner, renamed, node), (node.alias,) if node.alias else ()
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise self.fault(f"a table function or window in FROM is {ONLY}", node)
        name = ".".join(part.name for part in node.parts)
        try:
            found = self._find(name)
        except (ToldFault, NeedsState):
            raise
        except Fault as fault:
            raise self.fault(fault.message, node) from None
        if found is None:
            raise self.fault(f"unknown table '{name}' in FROM: no CREATE TABLE or CREATE VIEW declares it", node)
        qualifiers = (node.alias,) if node.alias else (name, node.parts[-1].name)
        return self._renamed(found, renamed, node), qualifiers

    def _find(self, name: str) -> Relation | None:
        return self.common.get(name) or self.lookup(name)

    def _renamed(self, relation: Relation, names: list[str], node: exp.Expr) -> Relation:
        if not names:
            return relation
        if len(names) != len(relation.columns):
            raise self.fault(f"{len(names)} column names for {len(relation.columns)} columns", node)
        columns = tuple((name, value) for name, (_, value) in zip(names, relation.columns, strict=True))
        return Relation(relation.source, columns, relation.predicate)

    def _scope(self, base: Relation, qualifiers: tuple[str, ...]) -> Scope:
        return Scope(dict(base.columns), qualifiers)

    def _select_list(
        self, node: exp.Select, base: Relation, qualifiers: tuple[str, ...], scope: Scope
    ) -> tuple[tuple[str, Rendered], ...]:
        columns: list[tuple[str, Rendered]] = []
        if not node.expressions:
            raise self.fault("the select list is empty", node)
        for item in node.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                if isinstance(item, exp.Column):
                    qualifier = ".".join(part.name for part in item.parts[:-1])
                    if qualifier not in qualifiers:
                        raise self.fault(f"unknown table '{qualifier}'{nearest(qualifier, qualifiers)}", item)
                columns.extend(base.columns)
                continue
            value = item.this if isinstance(item, exp.Alias) else item
            name = item.alias if isinstance(item, exp.Alias) else _name_of(value, len(columns))
            columns.append((name, render(value, scope, self.first_line)))
        return tuple(columns)


def _name_of(node: exp.Expr, position: int) -> str:
    if isinstance(node, (exp.Column, exp.Dot)):
        return node.parts[-1].name
    return f"EXPR${position}"


def _both(left: Rendered | None, right: Rendered) -> Rendered:
    if left is None:
        return right
    # The right one is about rows for which the left one holds.
    rest = f"CASE WHEN {left.wrapped} THEN {right.fails} END" if right.fails else None
    found = made(f"{left.wrapped} AND {right.wrapped}", BOOLEAN, left, right, simple=False)
    return replace(found, fails=first_failure(left.fails, rest))
