"""WHERE: conditions, limits of a ROW_NUMBER, and IN and EXISTS as semi and anti joins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from upsert_platform.plan import Expression, Field, Project, column
from upsert_platform.sql.planning import ranks
from upsert_platform.sql.planning.from_clause import FromClause
from upsert_platform.sql.planning.joins import conjuncts, filtered, join_rows, split_pairs
from upsert_platform.sql.planning.scope import Columns, Named, Rank, Relation


class WhereClause(FromClause):
    """Reads FROM and WHERE."""

    @abstractmethod
    def inner(self) -> WhereClause:
        """A planner of a subquery, which knows the same tables."""

    def _from(
        self, node: exp.Select, parts: list[exp.Expr]
    ) -> tuple[Relation, list[Named], list[exp.Expr], Rank | None]:
        """The joined rows, their columns in scope, what is left of WHERE, and a rank that waits for it."""
        clause = node.args.get("from_") or node.args.get("from")
        if clause is None:
            raise self.fault("SELECT without FROM: rows come from a declared table", node)
        relation, qualifiers = self._table(clause.this)
        named = list(relation.named(qualifiers))
        rank = relation.rank
        joins = node.args.get("joins") or []
        if rank is not None:
            if joins:
                raise self.fault(f"a ROW_NUMBER is limited before it is joined: {ranks.REMEDY}", node)
            relation, parts = self._ranked(relation, rank, parts, node)
            return relation, list(relation.named(qualifiers)), parts, None
        for join in joins:
            relation, named, parts = self._join(relation, named, join, parts)
        return relation, named, parts, None

    def _ranked(
        self, relation: Relation, rank: Rank, parts: list[exp.Expr], node: exp.Select
    ) -> tuple[Relation, list[exp.Expr]]:
        bounds = [(part, found) for part in parts if (found := ranks.bound_of(part, rank.shown)) is not None]
        if not bounds:
            raise self.fault(f"a ROW_NUMBER needs a limit: {ranks.REMEDY}", node)
        limit = min(found[0] for _, found in bounds)
        if limit < 1:
            raise self.fault("a ROW_NUMBER begins at 1: the condition lets no row pass", node)
        whole = [part for part, found in bounds if found[1]]
        parts = [part for part in parts if not any(part is other for other in whole)]
        elsewhere = [
            *parts,
            *node.expressions,
            *(node.args[name] for name in ("group", "having") if node.args.get(name)),
        ]
        shown_as = self.names.fresh(rank.shown) if ranks.mentions(elsewhere, rank.shown) else None
        top = ranks.limit_rows(relation.node, rank, limit, self.names, shown_as=shown_as)
        columns = [(shown, field) for shown, field in relation.columns if shown != rank.shown]
        if shown_as is not None:
            columns.insert(rank.at, (rank.shown, top.fields[-1]))
        return Relation(top, tuple(columns)), parts

    def _where(self, relation: Relation, named: list[Named], parts: Sequence[exp.Expr]) -> Relation:
        columns = Columns(named, self.first_line)
        plain = [part for part in parts if not list(part.find_all(exp.Select))]
        relation = replace(relation, node=filtered(relation.node, columns, plain))
        for part in parts:
            if list(part.find_all(exp.Select)):
                relation = self._subquery(relation, columns, part)
        return relation

    def _subquery(self, relation: Relation, columns: Columns, part: exp.Expr) -> Relation:
        """IN and EXISTS as semi joins, NOT IN and NOT EXISTS as anti joins."""
        inner, kind = part, "semi"
        while isinstance(inner, (exp.Not, exp.Paren)):
            if isinstance(inner, exp.Not):
                kind = "anti" if kind == "semi" else "semi"
            inner = inner.this
        if isinstance(inner, exp.In) and inner.args.get("query") is not None:
            select = inner.args["query"].this
        elif isinstance(inner, exp.Exists):
            select = inner.this
        else:
            raise self.fault("a subquery stands in FROM, or as IN (SELECT ...) or EXISTS (SELECT ...) in WHERE", part)
        while isinstance(select, (exp.Subquery, exp.Paren)):
            select = select.this
        rows, pairs = self.inner().correlated(select, columns)
        if isinstance(inner, exp.In):
            if len(rows.columns) != 1:
                raise self.fault(f"IN compares one column, the subquery gives {len(rows.columns)}", part)
            one, other = columns.expression(inner.this), column(rows.columns[0][1])
            if kind == "anti" and (one.type.nullable or other.type.nullable):
                raise self.fault("NOT IN with values that may be null is never true for them; write NOT EXISTS", part)
            pairs = [(one, other), *pairs]
        if not pairs:
            raise self.fault("EXISTS needs a condition that sets a column equal to one of the query around it", part)
        joined = join_rows(relation.node, rows.node, kind, pairs, self.names, fault=self.fault("", part))
        return replace(relation, node=joined)

    def correlated(self, node: exp.Expr, outer: Columns) -> tuple[Relation, list[tuple[Expression, Expression]]]:
        """A subquery, and pairs of (outer, own) expressions that its WHERE sets equal."""
        where = node.args.get("where")
        inside = None
        if isinstance(node, exp.Select) and where is not None and not _has_with(node):
            inside = self._from(node, conjuncts(where.this))
        around = [] if inside is None else _around(inside[2], Columns(inside[1], self.first_line))
        if inside is None or not around:
            relation = self.query(node)
            self.check_no_rank(relation, node)
            return relation, []
        for clause in ("group", "having", "limit", "distinct"):
            if node.args.get(clause):
                raise self.fault(f"a subquery with {clause.upper()} reads no column of the query around it", node)
        relation, named, parts, _ = inside
        own = Columns(named, self.first_line)
        pairs, rest = split_pairs(around, outer, own)
        for part in rest:
            if outer.reads(part):
                raise self.fault(
                    "a subquery meets the query around it in equalities of columns alone (a.x = b.y); write the other"
                    " condition in WHERE of a join",
                    part,
                )
            own.expression(part)
        relation = self._where(relation, named, [part for part in parts if not any(part is one for one in around)])
        keys = [(outer.expression(one), own.expression(other)) for one, other in pairs]
        if len(node.expressions) == 1 and not isinstance(node.expressions[0], (exp.Star, exp.Literal)):
            given = node.expressions[0]
            expression = own.expression(given.this if isinstance(given, exp.Alias) else given)
            name = self.names.fresh("in")
            wide = (*((field.name, column(field)) for field in relation.node.fields), (name, expression))
            shown = ((name, Field(name, expression.type)),)
            return Relation(Project(relation.node, wide), shown), keys
        return relation, keys


def _has_with(node: exp.Expr) -> bool:
    return bool(node.args.get("with_") or node.args.get("with"))


def _around(parts: Sequence[exp.Expr], own: Columns) -> list[exp.Expr]:
    """The conditions of a subquery that name columns of the query around it: its own tables' names come first.

    Raises:
        Fault: a column that its own table of that name does not have; a table around it of the same name is hidden.
    """
    found = [part for part in parts if not list(part.find_all(exp.Select)) and not own.fits(part)]
    for part in found:
        for item in part.find_all(exp.Column):
            if own.hides(item):
                own.expression(item)
    return found
