"""SELECT to a plan: GROUP BY, select list, DISTINCT, ORDER BY with LIMIT, and set operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from upsert_platform.core.model import Table
from upsert_platform.core.options import nearest
from upsert_platform.core.plan import Expression, Field, Node, Project, Union, column
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.sql.flink import parse_query
from upsert_platform.sql.lexer import Token
from upsert_platform.sql.planning import ranks
from upsert_platform.sql.planning.aggregates import (
    distinct_rows,
    group_rows,
    has_aggregate,
    is_aggregate,
    without_zeros,
)
from upsert_platform.sql.planning.closing import with_watermark
from upsert_platform.sql.planning.constants import constant_rows
from upsert_platform.sql.planning.from_clause import Common, Find, View
from upsert_platform.sql.planning.group_windows import group_window
from upsert_platform.sql.planning.groupings import Groupings, read_groupings
from upsert_platform.sql.planning.joins import conjuncts, with_columns
from upsert_platform.sql.planning.laterals import LateralJoin
from upsert_platform.sql.planning.overs import over_rows, with_named_windows
from upsert_platform.sql.planning.scope import Columns, Named, Names, Rank, Relation, as_type, common_type
from upsert_platform.sql.planning.sets import common_rows, counted_rows
from upsert_platform.sql.planning.state_ttl import read_ttls, with_ttl
from upsert_platform.sql.planning.watermarks import WATERMARKS, watermark_calls
from upsert_platform.sql.planning.where_clause import is_list, taken_values
from upsert_platform.sql.planning.windows import refuse_tables_of_functions, unwrap_tables
from upsert_platform.sql.reader import Fault

_RANK_TYPE: Final = LogicalType(TypeName.BIGINT, nullable=False)


def plan_select(
    tokens: tuple[Token, ...], find: Find, *, lateness: int | None = None, taken: Iterable[str] = ()
) -> Relation:
    """Plans a query.

    Args:
        find: table or view by name, None if there is none.
        lateness: how long after their end windows stay open, in microseconds; None where they never close.
        taken: names that no column of the plan gets.

    Raises:
        Fault: it is not a query, names something unknown, or needs what is not supported; with its line.
    """
    return _plan(tokens, find, Names(taken), (), lateness)


def _plan(
    tokens: tuple[Token, ...], find: Find, names: Names, reading: tuple[str, ...], lateness: int | None
) -> Relation:
    refuse_tables_of_functions(tokens)
    parsed = parse_query(unwrap_tables(tokens), "query")
    planner = _Planner(find, names, tokens[0].line, reading, lateness)
    if any(parsed.find_all(exp.Values)):
        planner.beside = _table_beside(parsed, find)
    return planner.query(parsed)


def _table_beside(parsed: exp.Expr, find: Find) -> Table | None:
    """A declared table that a query reads, directly or through views."""
    for item in parsed.find_all(exp.Table):
        found = find(".".join(part.name for part in item.parts)) if isinstance(item.this, exp.Identifier) else None
        if isinstance(found, View):
            found = _table_beside(parse_query(unwrap_tables(found.query), "query"), find)
        if isinstance(found, Table):
            return found
    return None


class _Planner(LateralJoin):
    beside: Table | None = None
    """A table that the query reads, beside which VALUES stand."""

    def inner(self) -> _Planner:
        inner = _Planner(self.find, self.names, self.first_line, self.reading, self.lateness)
        inner.common, inner.beside = self.common, self.beside
        return inner

    def view(self, view: View, name: str) -> Relation:
        return _plan(view.query, self.find, self.names, (*self.reading, name), self.lateness)

    def query(self, node: exp.Expr) -> Relation:
        self._common(node)
        if isinstance(node, (exp.Subquery, exp.Paren)) and not (node.args.get("alias") or node.args.get("joins")):
            return self._limited(node, self.query(node.this))
        if isinstance(node, exp.SetOperation):
            return self._limited(node, self._union(node))
        if isinstance(node, exp.Values):
            return self._values(node)
        if not isinstance(node, exp.Select):
            raise self.fault("SELECT expected", node)
        return self._select(node)

    def _common(self, node: exp.Expr) -> None:
        clause = node.args.get("with_") or node.args.get("with")
        if clause is None:
            return
        if clause.args.get("recursive"):
            raise self.fault("WITH RECURSIVE is not supported", node)
        for item in clause.expressions:
            columns = tuple(part.name for part in item.args["alias"].columns)
            self.common = {**self.common, item.alias: Common(item.this, columns, self.common)}

    def _union(self, node: exp.SetOperation) -> Relation:
        word = node.key.upper()
        branches = [self.inner().query(side) for side in (node.this, node.expression)]
        for branch in branches:
            self.check_no_rank(branch, node)
        left, right = branches
        if len(left.columns) != len(right.columns):
            raise self.fault(f"{word} of {len(left.columns)} and {len(right.columns)} columns", node)
        kinds: list[LogicalType] = []
        for (shown, one), (_, other) in zip(left.columns, right.columns, strict=True):
            shared = common_type(one.type, other.type)
            if shared is None:
                raise self.fault(
                    f"{word}: column '{shown}' is {one.type} and {other.type}; CAST one to the type of the other", node
                )
            kinds.append(shared)
        shaped = []
        fresh = [self.names.fresh(shown) for shown, _ in left.columns]
        for branch in branches:
            columns = [
                (name, as_type(column(field), wanted))
                for name, (_, field), wanted in zip(fresh, branch.columns, kinds, strict=True)
            ]
            shaped.append(Project(branch.node, tuple(columns)))
        if not isinstance(node, exp.Union):
            rows_of = common_rows if node.args.get("distinct") else counted_rows
            both = rows_of(shaped[0], shaped[1], self.names, present=isinstance(node, exp.Intersect))
            return Relation(both, tuple((shown, f) for (shown, _), f in zip(left.columns, both.fields, strict=True)))
        union = Union(tuple(shaped))
        shown_columns = tuple((shown, field) for (shown, _), field in zip(left.columns, union.fields, strict=True))
        if node.args.get("distinct"):
            return Relation(distinct_rows(union), shown_columns)
        return Relation(union, shown_columns)

    def _values(self, node: exp.Values) -> Relation:
        if self.beside is None:
            raise self.fault("a query of VALUES alone reads no table: write INSERT INTO t VALUES (...), (...)", node)
        return constant_rows(node, self._scan(self.beside).node, self.names, self.first_line)

    def _limited(self, node: exp.Expr, relation: Relation, hidden: int = 0) -> Relation:
        """ORDER BY with LIMIT, over a finished select list.

        Args:
            hidden: how many columns at its end are there for ORDER BY alone.
        """
        order, limit, offset = (node.args.get(name) for name in ("order", "limit", "offset"))
        if order is None and limit is None and offset is None:
            return relation
        if order is None or limit is None:
            what = "ORDER BY needs a LIMIT" if limit is None and offset is None else "LIMIT needs an ORDER BY"
            what = "OFFSET needs an ORDER BY and a LIMIT" if limit is None and offset is not None else what
            raise self.fault(f"{what}: a table has no order, and which rows are first must not change by itself", node)
        count, skipped = self._count(limit, node), self._count(offset, node) if offset is not None else 0
        rows, terms = self._order(order, relation, len(relation.columns) - hidden)
        place = self.names.fresh("place") if skipped else None
        rank = Rank("", (), terms, 0)
        top: Node = ranks.limit_rows(rows, rank, skipped + count, self.names, shown_as=place)
        if place is not None:
            top = ranks.behind(top, place, skipped)
        return replace(relation, node=top)

    def _count(self, clause: exp.Expr, node: exp.Expr) -> int:
        """The number of rows in LIMIT, OFFSET or FETCH."""
        number = clause.args.get("expression")
        if isinstance(clause, exp.Fetch):
            options = clause.args.get("limit_options")
            if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
                raise self.fault("FETCH takes a number of rows, ONLY these", node)
            number = clause.args.get("count") or exp.Literal.number(1)
        if not isinstance(number, exp.Literal) or number.is_string or not number.name.isdigit():
            raise self.fault(f"{clause.key.upper()} takes a number", node)
        return int(number.name)

    def _order(
        self, order: exp.Order, relation: Relation, selected: int
    ) -> tuple[Node, tuple[tuple[str, bool, bool], ...]]:
        """The rows with what they are ordered by, and its columns.

        Args:
            selected: how many columns the select list has.
        """
        rows, columns = relation.node, Columns(relation.named(()), self.first_line)
        found: list[tuple[str, bool, bool]] = []
        for item in order.expressions:
            at = self.place_of(item.this, selected)
            expression = columns.expression(item.this) if at is None else column(relation.columns[at][1])
            name = expression.column or self.names.fresh("order")
            rows = with_columns(rows, [(name, expression)])
            found.append((name, bool(item.args.get("desc")), bool(item.args.get("nulls_first"))))
        return rows, tuple(found)

    def _select(self, node: exp.Select) -> Relation:
        node = with_named_windows(node.copy(), Columns((), self.first_line))
        ttls = read_ttls(node)
        if isinstance(ttls, str):
            raise self.fault(ttls, node)
        self.ttls = ttls
        watermarks = watermark_calls(node)
        if isinstance(watermarks, exp.Expr):
            raise self.fault(f"{watermarks.sql()} stands in the select list, WHERE or GROUP BY", watermarks)
        where = node.args.get("where")
        relation, named, parts, _ = self.from_rows(node, conjuncts(where.this if where else None))
        tables = {item.qualifiers for item in named}
        relation, named = self._with_watermarks(relation, named, watermarks)
        relation = self.where_rows(relation, named, parts)
        columns = Columns(named, self.first_line)
        items = self.items_of(node, columns)
        hidden = _ordering(node, items)
        having, group = node.args.get("having"), node.args.get("group")
        asked = [value for _, value in (*items, *hidden)] + ([having.this] if having is not None else [])
        rows, columns, asked = self._arguments(relation.node, columns, asked)
        taken, values = taken_values(asked[: len(items) + len(hidden)])
        items = [(name, without_zeros(value)) for (name, _), value in zip((*items, *hidden), taken, strict=True)]
        if having is not None:
            having = exp.Having(this=asked[-1])
        asked = [value for _, value in items] + ([having.this] if having is not None else [])
        if group is not None or having is not None or any(has_aggregate(item) for item in asked):
            window = group_window(group, asked, rows, columns, self.names)
            if window is not None and group is not None:
                rows, columns, group = self._closing(window.node, node), window.columns, window.grouped(group)
                items = [(name, window.replaced(value)) for name, value in items]
                having = window.replaced(having) if having is not None else None
                asked = [value for _, value in items] + ([having.this] if having is not None else [])
            groupings = self._group(group, columns)
            grouped = group_rows(rows, columns, self.names, groupings=groupings, asked=asked)
            ttl = ttls.of(*tables) if len(tables) == 1 and not node.args.get("joins") else None
            below, rows, columns = rows, grouped.node, grouped.columns
            rows = rows if ttl is None else with_ttl(rows, below, ttl)
            items = [(name, grouped.replaced(value)) for name, value in items]
            if having is not None:
                parts = [_outside(part, grouped.replaced) for part in conjuncts(having.this)]
                rows = self.where_rows(Relation(rows, ()), list(columns.named), parts, columns).node
        rows, columns = self.with_values(rows, columns, values)
        for at, (name, value) in enumerate(items):
            if any(is_list(item) for item in value.walk()):
                rows, columns, value = self.marked(rows, columns, value)
                items[at] = (name, value)
        overs = over_rows(rows, columns, self.names, [value for _, value in items])
        if overs is not None:
            rows, columns = overs.node, overs.columns
            items = [(name, overs.replaced(value)) for name, value in items]
        unused = ttls.unused()
        if unused is not None:
            raise self.fault(unused, node)
        result = self._listed(replace(relation, node=rows), items, columns)
        if node.args.get("distinct"):
            self.check_no_rank(result, node)
            result = replace(result, node=distinct_rows(result.node))
        limited = self._limited(node, result, len(hidden))
        return replace(limited, columns=limited.columns[: len(limited.columns) - len(hidden)])

    def _with_watermarks(
        self, relation: Relation, named: list[Named], watermarks: Sequence[tuple[str, exp.Expr]]
    ) -> tuple[Relation, list[Named]]:
        """The rows with the watermarks that are asked for, each as a column under the name that stands for the call."""
        added: dict[str, Field] = {}
        for shown, argument in watermarks:
            found = Columns(named, self.first_line).find(argument) if isinstance(argument, exp.Column) else None
            if found is None or found[1]:
                raise self.fault("CURRENT_WATERMARK takes one column, for which a table declares a WATERMARK", argument)
            time = found[0].field.name
            if time not in added:
                try:
                    node = with_watermark(relation.node, time, self.names.fresh("watermark"), self.find)
                except Fault as fault:
                    raise self.fault(fault.message, argument) from None
                relation, added[time] = replace(relation, node=node), node.fields[-1]
            named = [*named, Named((WATERMARKS,), shown, added[time], shared=True)]
        return relation, named

    def _arguments(
        self, rows: Node, columns: Columns, asked: Sequence[exp.Expr]
    ) -> tuple[Node, Columns, list[exp.Expr]]:
        """The rows with what subqueries in arguments of aggregates give, and the expressions over these columns."""
        found = list(asked)
        for at, root in enumerate(asked):
            for node in [item for item in root.walk(prune=_ends) if is_aggregate(item) and _asks(item)]:
                rows, columns, marked = self.marked(rows, columns, node.copy())
                (swapped,), values = taken_values([marked], f"argument {len(columns.named)}")
                rows, columns = self.with_values(rows, columns, values)
                if node is found[at]:
                    found[at] = swapped
                else:
                    node.replace(swapped)
        return rows, columns, found

    def _group(self, group: exp.Group | None, columns: Columns) -> Groupings:
        if group is None:
            return Groupings(())
        every = group.args.get("all")
        if every is not None:
            raise self.fault(
                f"GROUP BY {'ALL' if every else 'DISTINCT'} is not supported: name each grouping once", group
            )
        return read_groupings(group, columns)

    def items_of(self, node: exp.Select, columns: Columns) -> list[tuple[str, exp.Expr]]:
        found: list[tuple[str, exp.Expr]] = []
        for item in node.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                chosen = [known for known in columns.named if not known.shared]
                if isinstance(item, exp.Column):
                    qualifier = ".".join(part.name for part in item.parts[:-1])
                    chosen = [known for known in columns.named if qualifier in known.qualifiers]
                    if not chosen:
                        choices = {name for known in columns.named for name in known.qualifiers}
                        raise self.fault(f"unknown table '{qualifier}'{nearest(qualifier, sorted(choices))}", item)
                for known in chosen:
                    table = exp.Identifier(this=known.qualifiers[0], quoted=True) if known.qualifiers else None
                    own = exp.Column(this=exp.Identifier(this=known.shown, quoted=True), table=table)
                    own.meta.update(item.meta)
                    found.append((known.shown, own))
                continue
            value = item.this if isinstance(item, exp.Alias) else item
            named = isinstance(item, (exp.Alias, exp.Subquery)) and item.alias
            name = item.alias if named else _name_of(value, len(found))
            found.append((name, value))
        if not found:
            raise self.fault("the select list is empty", node)
        return found

    def _listed(self, relation: Relation, items: list[tuple[str, exp.Expr]], columns: Columns) -> Relation:
        """The select list over finished rows; a ROW_NUMBER in it waits for its limit."""
        given: list[tuple[str, Expression]] = []
        shown: list[tuple[str, Field]] = []
        rank: tuple[str, int, exp.Window] | None = None
        for at, (name, value) in enumerate(items):
            if isinstance(value, exp.Window):
                ranks.check_rank(value, columns)
                if rank is not None:
                    raise self.fault("one ROW_NUMBER per query: nest them", value)
                rank = (name, at, value)
                shown.append((name, Field(self.names.fresh(name), _RANK_TYPE)))
                continue
            expression = columns.expression(value)
            own = self.names.fresh(name)
            given.append((own, expression))
            shown.append((name, Field(own, expression.type)))
        if rank is None:
            return Relation(Project(relation.node, tuple(given)), tuple(shown))
        name, at, window = rank

        def keep(node: exp.Expr) -> str:
            expression = columns.expression(node)
            same = next((own for own, other in given if other == expression), None)
            if same is None:
                same = self.names.fresh("by")
                given.append((same, expression))
            return same

        partition = tuple(dict.fromkeys(keep(item) for item in window.args.get("partition_by") or []))
        order = tuple(
            (keep(item.this), bool(item.args.get("desc")), bool(item.args.get("nulls_first")))
            for item in window.args["order"].expressions
        )
        return Relation(Project(relation.node, tuple(given)), tuple(shown), Rank(name, partition, order, at))


def _ends(node: exp.Expr) -> bool:
    """Return whether what is below belongs to an aggregate, or to another query."""
    return is_aggregate(node) or isinstance(node, exp.Query)


def _asks(node: exp.Expr) -> bool:
    return node.find(exp.Select) is not None


def _outside(node: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """An expression changed but for what stands in its subqueries."""
    inside = [item for item in node.walk(prune=lambda item: isinstance(item, exp.Query)) if isinstance(item, exp.Query)]
    if not inside:
        return change(node)
    node = node.copy()
    inside = [item for item in node.walk(prune=lambda item: isinstance(item, exp.Query)) if isinstance(item, exp.Query)]
    for number, item in enumerate(inside):
        item.replace(exp.Placeholder(this=str(number)))
    changed = change(node)
    for place in list(changed.find_all(exp.Placeholder)):
        place.replace(inside[int(place.name)])
    return changed


def _ordering(node: exp.Select, items: Sequence[tuple[str, exp.Expr]]) -> list[tuple[str, exp.Expr]]:
    """Return what ORDER BY names besides the select list as further columns, and have ORDER BY name these.

    A name of the select list means what stands there, also within an expression.
    """
    order = node.args.get("order")
    if order is None or node.args.get("limit") is None or node.args.get("distinct"):
        return []
    selected = dict(reversed(items))

    def spelled(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column) or len(part.parts) > 1 or part.name not in selected:
            return part
        meant = selected[part.name]
        # A column by its own name stays as it is: queries are known again by their text.
        own = isinstance(meant, exp.Column) and meant.name == part.name
        return part if own else exp.Paren(this=meant.copy())

    found: list[tuple[str, exp.Expr]] = []
    for item in order.expressions:
        columns = list(item.this.find_all(exp.Column))
        if has_aggregate(item.this) or any(len(one.parts) > 1 or one.name not in selected for one in columns):
            name = f"order {len(found) + 1}"
            found.append((name, item.this.transform(spelled)))
            item.set("this", exp.Column(this=exp.Identifier(this=name, quoted=True)))
    return found


def _name_of(node: exp.Expr, position: int) -> str:
    if isinstance(node, (exp.Column, exp.Dot)):
        return node.parts[-1].name
    return f"EXPR${position}"
