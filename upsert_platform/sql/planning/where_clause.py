"""WHERE: conditions, limits of a ROW_NUMBER, and IN and EXISTS as semi and anti joins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from upsert_platform.core.plan import (
    Aggregate,
    Call,
    Expression,
    Field,
    Filter,
    Join,
    Node,
    Project,
    column,
    tells_apart,
)
from upsert_platform.core.types import LogicalType, TypeName, quote_name
from upsert_platform.sql.planning import ranks
from upsert_platform.sql.planning.aggregates import group_rows, has_aggregate, result_name
from upsert_platform.sql.planning.from_clause import BEHIND, FromClause, unnamed
from upsert_platform.sql.planning.groupings import Groupings
from upsert_platform.sql.planning.joins import compared_keys, conjuncts, filtered, join_rows, split_pairs, with_columns
from upsert_platform.sql.planning.matches import EVERY_ROW, by_match
from upsert_platform.sql.planning.quantified import compared_rows, counted_rows, is_quantified, numbered
from upsert_platform.sql.planning.scope import Columns, Named, Names, Rank, Relation
from upsert_platform.sql.reader import Fault

_OF_GROUPS: Final = ("hint", "group", "having", "limit", "offset", "distinct")
"""Clauses that only a subquery of its own has, which reads no column around it."""
_COUNTS: Final = ("COUNT", "APPROX_COUNT_DISTINCT")
"""Aggregates that have a value where there are no rows."""


class WhereClause(FromClause):
    """Reads FROM and WHERE."""

    @abstractmethod
    def inner(self) -> WhereClause:
        """A planner of a subquery, which knows the same tables."""

    @abstractmethod
    def items_of(self, node: exp.Select, columns: Columns) -> list[tuple[str, exp.Expr]]:
        """The select list: names and expressions."""

    def from_rows(
        self, node: exp.Select, parts: list[exp.Expr]
    ) -> tuple[Relation, list[Named], list[exp.Expr], Rank | None]:
        """The joined rows, their columns in scope, what is left of WHERE, and a rank that waits for it."""
        clause = node.args.get("from_") or node.args.get("from")
        if clause is None:
            raise self.fault("SELECT without FROM: rows come from a declared table", node)
        relation, named, rest = self.joined_rows(clause.this, node.args.get("joins") or [], parts)
        if relation.rank is not None:
            relation, rest = self._ranked(relation, relation.rank, parts, node, named[0].qualifiers)
            named = list(relation.named(named[0].qualifiers))
        # A condition that a join took was read where it was the first to know the names; here all tables are known.
        for part in parts:
            if not any(part is other for other in rest):
                Columns(named, self.first_line).reads(part)
        return relation, named, rest, None

    def _ranked(
        self, relation: Relation, rank: Rank, parts: list[exp.Expr], node: exp.Select, qualifiers: Sequence[str]
    ) -> tuple[Relation, list[exp.Expr]]:
        bounds = [
            (part, found) for part in parts if (found := ranks.bound_of(part, rank.shown, qualifiers)) is not None
        ]
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
            *(node.args[name] for name in ("group", "having", "order") if node.args.get(name)),
        ]
        shown_as = self.names.fresh(rank.shown) if ranks.mentions(elsewhere, rank.shown) else None
        top = ranks.limit_rows(relation.node, rank, limit, self.names, shown_as=shown_as)
        columns = [(shown, field) for shown, field in relation.columns if shown != rank.shown]
        if shown_as is not None:
            columns.insert(rank.at, (rank.shown, top.fields[-1]))
        return Relation(top, tuple(columns)), parts

    def where_rows(
        self, relation: Relation, named: list[Named], parts: Sequence[exp.Expr], columns: Columns | None = None
    ) -> Relation:
        columns = columns or Columns(named, self.first_line)
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
            select = bare(inner.args["query"])
        elif isinstance(inner, exp.Exists):
            select = bare(inner.this)
        else:
            marked, seen, part = self._marks(relation.node, columns, part)
            (condition,), values = taken_values([part])
            valued, wide = self.with_values(marked, seen, values)
            return replace(relation, node=filtered(valued, wide, [condition]))
        rows, pairs, others = self.inner().correlated(select, columns, listed=_width(inner))
        if isinstance(inner, exp.In):
            compared = self._compared(inner, columns, rows)
            one, other = compared[0]
            if kind == "anti" and _may_be_unknown(compared):
                self._refuse_several(compared, part)
                if others:
                    raise self.fault(
                        "NOT IN with values that may be null compares by = alone with the query around;"
                        " write NOT EXISTS",
                        part,
                    )
                if pairs:
                    marked, seen, condition = self._marks(relation.node, columns, part)
                    return replace(relation, node=filtered(marked, seen, [condition]))
                relation = replace(relation, node=_never_unknown(relation.node, one, rows.node, other, self.names))
            pairs = [*compared, *pairs]
        fault = self.fault("", part)
        if not others:
            joined = join_rows(relation.node, rows.node, kind, pairs or [EVERY_ROW], self.names, fault=fault)
            return replace(relation, node=joined)
        inside = join_rows(relation.node, rows.node, "inner", pairs or [EVERY_ROW], self.names, fault=fault)
        both = Columns([Named((), item.name, item) for item in inside.fields], self.first_line)
        met = filtered(inside, both, others)
        reads = [*inside.left_on, *(name for item in others for name in both.expression(item).reads)]
        return replace(relation, node=by_match(inside.left, met, reads, kind, self.names, fault))

    def _compared(self, node: exp.In, columns: Columns, rows: Relation) -> list[tuple[Expression, Expression]]:
        """The values before IN, each with the column of the subquery that it is compared with."""
        values = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        if len(rows.columns) != len(values):
            width = "one column" if len(values) == 1 else f"{len(values)} columns"
            raise self.fault(f"IN compares {width}, the subquery gives {len(rows.columns)}", node)
        pairs = zip(values, rows.columns, strict=True)
        return [(columns.expression(value), column(field)) for value, (_, field) in pairs]

    def _refuse_several(self, compared: Sequence[tuple[Expression, Expression]], node: exp.Expr) -> None:
        if len(compared) > 1:
            raise self.fault(
                "(a, b) NOT IN compares values that are NOT NULL: write NOT EXISTS (SELECT 1 FROM t WHERE t.x = a AND"
                " t.y = b), for which a null equals nothing",
                node,
            )

    def marked(self, rows: Node, columns: Columns, value: exp.Expr) -> tuple[Node, Columns, exp.Expr]:
        """The rows with a column per IN and EXISTS of a value, and the value over these columns.

        Raises:
            Fault: an IN may be unknown, or a subquery compares otherwise than by =.
        """
        return self._marks(rows, columns, value, exact=True)

    def _marks(
        self,
        rows: Node,
        columns: Columns,
        part: exp.Expr,
        *,
        exact: bool = False,
        chosen: Sequence[exp.Expr] | None = None,
    ) -> tuple[Node, Columns, exp.Expr]:
        """The rows with a column per IN and EXISTS of a condition, and the condition over these columns.

        Each is a left join with the different values of its subquery, so that no row is doubled. Below NOT, where an
        IN that is unknown lets no row pass, it counts as true; beside the values stands then how many there are.
        Comparisons by ANY and ALL have columns of their own.

        Args:
            exact: the value counts, not whether it lets a row pass.
            chosen: those that get a column; all by default.

        Raises:
            Fault: IN may be unknown below something else than AND, OR and NOT, or a subquery compares otherwise than
                by =.
        """
        found = [item for item in part.walk(prune=is_list) if is_list(item) and not isinstance(item, exp.Subquery)]
        found = [item for item in found if chosen is None or any(item is one for one in chosen)]
        named, marks = list(columns.named), []
        for number, item in enumerate(found, start=numbered(columns)):
            if is_quantified(item):
                rows, own, mark = self._quantified(rows, columns, item, number)
            else:
                negated = None if exact else _is_negated(item, part)
                where = "below OR" if chosen is None else "in the ON of an outer join"
                rows, own, mark = self._matched(rows, columns, item, number, negated=negated, where=where)
            named += own
            marks.append((item, mark))

        def swap(item: exp.Expr) -> exp.Expr:
            return next((mark for node, mark in marks if item is node), item)

        condition = part if not marks else _swapped(part, swap)
        return rows, Columns(named, columns.first_line, columns.outer, columns.never_zero), condition

    def _matched(
        self, rows: Node, columns: Columns, item: exp.Expr, number: int, *, negated: bool | None, where: str
    ) -> tuple[Node, list[Named], exp.Expr]:
        """The rows with the columns that IN or EXISTS needs, these columns, and the condition over them.

        Args:
            negated: whether it stands below NOT; None where an IN that is unknown has to stay so.
            where: the place in the statement, for messages.
        """
        select = bare(item.args["query"] if isinstance(item, exp.In) else item.this)
        inside, pairs, others = self.inner().correlated(select, columns, listed=_width(item))
        unknown: exp.Expr | None = None
        if others:
            below_or = where == "below OR"
            remedy = "write a UNION of two queries" if below_or else "select what they give in the place of the table"
            raise self.fault(f"IN and EXISTS {where} compare by = alone with the query around: {remedy}", item)
        named: list[Named] = []
        if isinstance(item, exp.In):
            compared = self._compared(item, columns, inside)
            if _may_be_unknown(compared):
                if negated is None:
                    raise self.fault(
                        "IN with values that may be null stands in WHERE and HAVING below AND, OR and NOT alone:"
                        " declare them NOT NULL, or write EXISTS",
                        item,
                    )
                if negated:
                    self._refuse_several(compared, item)
                    fault = self.fault("", item)
                    rows, counted = counted_rows(rows, inside.node, pairs, compared[0][1], self.names, fault)
                    names = (f"rows {number}", f"values {number}")
                    named += [Named((), shown, field) for shown, field in zip(names, counted, strict=True)]
                    unknown = _unknown(item, *names)
            pairs = [*compared, *pairs]
        met, pairs = _once_each(inside.node, pairs or [EVERY_ROW], self.names)
        rows = join_rows(rows, met, "left", pairs, self.names, fault=self.fault("", item))
        shown = f"match {number}"
        named.append(Named((), shown, next(field for field in rows.fields if field.name == met.columns[-1][0])))
        mark: exp.Expr = exp.Not(this=exp.Is(this=_named(shown, item), expression=exp.Null()))
        if unknown is not None:
            mark = exp.Or(this=mark, expression=unknown)
        return rows, named, exp.Paren(this=mark)

    def _quantified(
        self, rows: Node, columns: Columns, node: exp.Expr, number: int
    ) -> tuple[Node, list[Named], exp.Expr]:
        """The rows with the columns that a comparison by ANY or ALL needs, these columns, and the comparison."""
        assert isinstance(node, exp.Binary)
        inside, pairs, others = self.inner().correlated(bare(node.expression.this), columns, listed=1)
        if others:
            raise self.fault(
                "ANY and ALL compare by = alone with the query around: write NOT EXISTS (SELECT 1 FROM t WHERE ...)",
                node,
            )
        if len(inside.columns) != 1:
            raise self.fault(f"ANY and ALL compare one column, the subquery gives {len(inside.columns)}", node)
        value = column(inside.columns[0][1])
        return compared_rows(rows, columns, node, inside.node, pairs, value, number, self.names)

    def with_values(
        self, rows: Node, columns: Columns, values: Sequence[tuple[str, exp.Subquery]]
    ) -> tuple[Node, Columns]:
        """The rows with the value of each subquery that stands for one, and their columns.

        Raises:
            Fault: a subquery may give several rows, or reads the query around it.
        """
        named = list(columns.named)
        for shown, node in values:
            if (around := self._value_of_row(node, rows, named, columns)) is not None:
                rows, field = around
                named.append(Named((), shown, field))
                continue
            one = self._value(node, columns)
            rows = join_rows(rows, one.node, "left", [EVERY_ROW], self.names, fault=self.fault("", node))
            field = next(item for item in rows.fields if item.name == one.columns[0][1].name)
            named.append(Named((), shown, field))
        return rows, Columns(named, columns.first_line, columns.outer, columns.never_zero)

    def _value_of_row(
        self, node: exp.Subquery, rows: Node, named: Sequence[Named], columns: Columns
    ) -> tuple[Node, Field] | None:
        """The rows with the aggregates that a subquery gives for each; None for one that reads no column around it.

        Raises:
            Fault: it may give several rows, or compares otherwise than by =.
        """
        select = bare(node)
        if not isinstance(select, exp.Select) or _has_with(select) or select.args.get("where") is None:
            return None
        inner = self.inner()
        inside, own_named, parts, _ = inner.from_rows(select, conjuncts(select.args["where"].this))
        own = Columns(own_named, self.first_line)
        around = around_of(parts, own)
        if not around:
            return None
        pairs, rest = split_pairs(around, columns, own)
        items = [item.this if isinstance(item, exp.Alias) else item for item in select.expressions]
        clauses = [clause for clause in (*_OF_GROUPS, "order") if select.args.get(clause)]
        if rest or clauses or len(items) != 1 or not has_aggregate(items[0]):
            raise self.fault(
                "a subquery that stands for a value and reads the query around it is one aggregate with equalities in"
                " WHERE, such as (SELECT MAX(o.x) FROM o WHERE o.k = t.k); write LEFT JOIN (SELECT ... GROUP BY ...)",
                node,
            )
        inside = inner.where_rows(inside, own_named, [part for part in parts if not any(part is one for one in around)])
        by: list[exp.Expr] = []
        for _, other in pairs:
            if other not in by:
                by.append(other)
        spelled = tuple((item, at) for at, item in enumerate(by))
        groupings = Groupings(tuple(by), None, spelled)
        grouped = group_rows(inside.node, own, self.names, groupings=groupings, asked=items)
        keys = [(columns.expression(one), column(grouped.known[by.index(other)][1])) for one, other in pairs]
        joined = join_rows(rows, grouped.node, "left", keys, self.names, fault=self.fault("", node))
        fields = {field.name: field for field in joined.fields}
        values, counts = [], []
        for call, field in grouped.known[len(by) :]:
            known = fields[field.name]
            function = call.this if isinstance(call, exp.Filter) else call
            if function.name.upper() in _COUNTS:
                counts.append(known)
            values.append(Named((), result_name(known), known))
        wide: Node = joined
        if counts:
            zeros = [(self.names.fresh(item.name), _or_zero(item)) for item in counts]
            wide = with_columns(joined, zeros)
            shown = {item.name: Field(name, zero.type) for item, (name, zero) in zip(counts, zeros, strict=True)}
            values = [Named((), item.shown, shown.get(item.field.name, item.field)) for item in values]
        over = Columns([*named, *values], self.first_line)
        expression = over.expression(grouped.replaced(items[0]))
        name = expression.column or self.names.fresh("value")
        wide = with_columns(wide, [(name, expression)])
        return wide, Field(name, expression.type)

    def _value(self, node: exp.Subquery, columns: Columns) -> Relation:
        around = [item for item in node.find_all(exp.Column) if len(item.parts) > 1 and columns.find(item) is not None]
        try:
            relation = self.inner().query(unnamed(node))
        except Fault:
            if not around:
                raise
            raise self.fault(
                "a subquery that stands for a value reads no column of the query around it: write LEFT JOIN (SELECT ..."
                " GROUP BY ...) ON ...",
                node,
            ) from None
        self.check_no_rank(relation, node)
        if len(relation.columns) != 1:
            raise self.fault(f"a value is one column, the subquery gives {len(relation.columns)}", node)
        if not tells_apart(relation.node, ()):
            raise self.fault(
                "a subquery that stands for a value may give several rows: aggregate it without GROUP BY, or join it",
                node,
            )
        return relation

    def correlated(
        self, node: exp.Expr, outer: Columns, *, listed: int
    ) -> tuple[Relation, list[tuple[Expression, Expression]], list[exp.Expr]]:
        """A subquery, pairs of (outer, own) expressions that its WHERE sets equal, and its other conditions of both.

        Those conditions name columns as the plan does.

        Args:
            listed: how many columns IN looks at; 0 for EXISTS, which does not look at its select list.
        """
        where = node.args.get("where")
        inside = None
        if isinstance(node, exp.Select) and where is not None and not _has_with(node):
            inside = self.from_rows(node, conjuncts(where.this))
        around = [] if inside is None else around_of(inside[2], Columns(inside[1], self.first_line))
        if inside is None or not around or not isinstance(node, exp.Select):
            relation = self.query(node)
            self.check_no_rank(relation, node)
            return relation, [], []
        for clause in _OF_GROUPS:
            if node.args.get(clause):
                raise self.fault(f"a subquery with {clause.upper()} reads no column of the query around it", node)
        relation, named, parts, _ = inside
        own = Columns(named, self.first_line)
        pairs, rest = split_pairs(around, outer, own)
        items = [value for _, value in self.items_of(node, own)]
        for part in (*rest, *around_of(items, own)):
            if not outer.reads(part):
                own.expression(part)
        others = [own.bound(part, around=outer) for part in rest]
        relation = self.where_rows(relation, named, [part for part in parts if not any(part is one for one in around)])
        keys = [(outer.expression(one), own.expression(other)) for one, other in pairs]
        if not listed:
            if any(has_aggregate(item) for item in items):
                # Aggregates without GROUP BY have one row, whether WHERE lets rows pass or not.
                grouped = group_rows(relation.node, own, self.names, groupings=Groupings(()), asked=items)
                return Relation(grouped.node, ()), [], []
            # A single column has no part in EXISTS, and stays in the plan, by which a query knows its state.
            bare_items = [item.this if isinstance(item, exp.Alias) else item for item in node.expressions]
            if len(bare_items) != 1 or len(items) != 1 or isinstance(node.expressions[0], (exp.Star, exp.Literal)):
                return relation, keys, others
            if isinstance(bare_items[0], exp.Null) or around_of(items, own):
                return relation, keys, others
        given = [(self.names.fresh("in"), own.expression(item)) for item in items]
        wide = (*((field.name, column(field)) for field in relation.node.fields), *given)
        shown = tuple((name, Field(name, expression.type)) for name, expression in given)
        return Relation(Project(relation.node, wide), shown), keys, others


def bare(node: exp.Expr) -> exp.Expr:
    """A subquery without the parentheses around it, as far as no clause of their own stands behind them."""
    while isinstance(node, (exp.Subquery, exp.Paren)) and not any(node.args.get(clause) for clause in BEHIND):
        node = node.this
    return node


def _width(node: exp.Expr) -> int:
    """Return the number of values that IN compares; 0 for EXISTS."""
    if not isinstance(node, exp.In):
        return 0
    return len(node.this.expressions) if isinstance(node.this, exp.Tuple) else 1


def _may_be_unknown(compared: Sequence[tuple[Expression, Expression]]) -> bool:
    return any(item.type.nullable for pair in compared for item in pair)


def _is_in(node: exp.Expr) -> bool:
    return isinstance(node, exp.In) and node.args.get("query") is not None


def _is_negated(node: exp.Expr, part: exp.Expr) -> bool | None:
    """Return whether NOT stands an odd number of times around; None where something else stands there than AND and OR.

    Otherwise what is unknown lets no row pass: it may count as false, and below NOT as true.
    """
    negated = False
    while node is not part:
        node = node.parent  # type: ignore[assignment]
        if not isinstance(node, (exp.And, exp.Or, exp.Paren, exp.Not)):
            return None
        negated ^= isinstance(node, exp.Not)
    return negated


def _named(shown: str, part: exp.Expr) -> exp.Column:
    """A column of a condition."""
    found = exp.Column(this=exp.Identifier(this=shown, quoted=True))
    found.meta.update(part.meta)
    return found


def _unknown(item: exp.In, every: str, known: str) -> exp.Expr:
    """The condition for which an IN that finds nothing is unknown.

    Args:
        every: names the column with the number of rows of its subquery, null for none, and `known` that of values.
    """
    some = exp.And(
        this=exp.Not(this=exp.Is(this=_named(every, item), expression=exp.Null())),
        expression=exp.GT(this=_named(every, item), expression=exp.Literal.number(0)),
    )
    null = exp.Or(
        this=exp.Is(this=exp.Paren(this=item.this.copy()), expression=exp.Null()),
        expression=exp.NEQ(this=_named(every, item), expression=_named(known, item)),
    )
    return exp.Paren(this=exp.And(this=some, expression=exp.Paren(this=null)))


def _swapped(node: exp.Expr, swap: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """An expression with some nodes, found by identity, in another form."""
    for child in list(node.iter_expressions()):
        other = swap(child)
        if other is not child:
            child.replace(other)
        else:
            _swapped(child, swap)
    return swap(node)


def _once_each(
    node: Node, pairs: Sequence[tuple[Expression, Expression]], names: Names
) -> tuple[Project, list[tuple[Expression, Expression]]]:
    """The different values of a subquery that rows are compared with, each with a column that is true."""
    given = [(names.fresh("k"), other) for other in compared_keys(pairs)]
    distinct = Aggregate(Project(node, tuple(given)), tuple(name for name, _ in given), ())
    kind = LogicalType(TypeName.BOOLEAN, nullable=False)
    shown = [(item.name, column(item)) for item in distinct.fields]
    mark = (names.fresh("met"), Expression("TRUE", kind, ("literal", True, kind)))
    fields = {item.name: item for item in distinct.fields}
    keys = [(one, column(fields[name])) for (one, _), (name, _) in zip(pairs, given, strict=True)]
    return Project(distinct, (*shown, mark)), keys


def _or_zero(item: Field) -> Expression:
    """A count, 0 where a left join found no group."""
    kind = replace(item.type, nullable=False)
    name = quote_name(item.name)
    return Expression(f"COALESCE({name}, 0L)", kind, ("or zero", ("column", item.name)), reads=(item.name,))


def taken_values(
    asked: Sequence[exp.Expr], kind: str = "value"
) -> tuple[list[exp.Expr], list[tuple[str, exp.Subquery]]]:
    """Expressions with columns in the place of subqueries that stand for values, and these by the columns' names."""
    found: list[tuple[str, exp.Subquery]] = []
    for root in asked:
        for node in root.walk(prune=is_list):
            if isinstance(node, exp.Subquery) and all(node != other for _, other in found):
                found.append((f"{kind} {len(found) + 1}", node))

    def swap(item: exp.Expr) -> exp.Expr:
        shown = next((shown for shown, node in found if isinstance(item, exp.Subquery) and item == node), None)
        return exp.Column(this=exp.Identifier(this=shown, quoted=True)) if shown is not None else item

    return [root.transform(swap) for root in asked] if found else list(asked), found


def is_list(node: exp.Expr) -> bool:
    """Return whether what is below stands for rows, not for a value."""
    return _is_in(node) or is_quantified(node) or isinstance(node, (exp.Exists, exp.Subquery))


def _never_unknown(left: Node, value: Expression, rows: Node, other: Expression, names: Names) -> Node:
    """The rows for which NOT IN can be true: a null is in no list but an empty one, and a list with a null has all."""
    assert other.column is not None
    kind = LogicalType(TypeName.BIGINT, nullable=False)
    calls = (Call(names.fresh("rows"), "count", kind), Call(names.fresh("values"), "count", kind, other.column))
    joined = Join(left, Aggregate(rows, (), calls), "inner", (), ())
    every, known = (call.name for call in calls)
    none = ("=", ("column", every), ("literal", 0, kind))
    alike = ("=", ("column", every), ("column", known))
    native = None
    if value.native is not None:
        native = ("or", none, ("and", alike, ("not", ("is null", value.native))))
    sql = f"`{every}` = 0L OR (`{every}` = `{known}` AND ({value.sql}) IS NOT NULL)"
    reads = tuple(sorted({every, known, *value.reads}))
    condition = Expression(sql, LogicalType(TypeName.BOOLEAN), native, value.varies, reads)
    return Filter(joined, condition)


def _has_with(node: exp.Expr) -> bool:
    return bool(node.args.get("with_") or node.args.get("with"))


def around_of(parts: Sequence[exp.Expr], own: Columns) -> list[exp.Expr]:
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
