"""FROM: tables, views, subqueries and windows, joined from left to right."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from upsert_platform.core.model import ColumnKind, Table
from upsert_platform.core.plan import Expression, Field, Node, Project, Scan, Session, column
from upsert_platform.core.types import quote_name
from upsert_platform.sql.flink import is_comma, line_of
from upsert_platform.sql.lexer import Token
from upsert_platform.sql.native import native_form
from upsert_platform.sql.planning import ranks
from upsert_platform.sql.planning.closing import closing_window
from upsert_platform.sql.planning.joins import (
    all_met,
    conjuncts,
    filtered,
    join_rows,
    padded,
    split_pairs,
    where_met,
    with_columns,
)
from upsert_platform.sql.planning.lookups import LookupJoin, is_processing_time
from upsert_platform.sql.planning.matches import EVERY_ROW, outer_rows
from upsert_platform.sql.planning.scope import Columns, Named, Names, Relation
from upsert_platform.sql.planning.state_ttl import StateTtls
from upsert_platform.sql.planning.temporal import TemporalJoin, is_versioned
from upsert_platform.sql.planning.unnest import function_rows, unnest_rows
from upsert_platform.sql.planning.windows import FUNCTIONS, window_rows
from upsert_platform.sql.reader import Fault
from upsert_platform.sql.session_settings import STATE_TTL

_LATEST: Final = (
    "FOR SYSTEM_TIME AS OF takes a column of processing time (proc AS PROCTIME() in CREATE TABLE) and finds rows of a"
    " table of files or of a database, or the column of the left table's WATERMARK and finds versions of an upsert"
    " topic; a plain JOIN with a topic follows the changes of both sides"
)
_CHANGES: Final = ("debezium", "canal", "maxwell", "ogg")
_KINDS: Final = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}
BEHIND: Final = ("with_", "joins", "order", "limit", "offset")
"""What may stand around the parentheses of a query."""
_WAYS: Final = ("", "INNER", "OUTER", "CROSS")


@dataclass(frozen=True)
class View:
    """A view, or a query, as declared: its text, and names of its columns if it gives any."""

    query: tuple[Token, ...]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Common:
    """A query of WITH.

    Attributes:
        columns: names of its columns, if it gives any.
        scope: the queries of WITH that it may name: those before it, and those around it.
    """

    query: exp.Expr
    columns: tuple[str, ...]
    scope: Mapping[str, Common]


Find = Callable[[str], Table | View | None]


class FromClause(ABC):
    """Reads FROM. One per query; a subquery has one of its own.

    Args:
        reading: views that are being read, the outermost first.
        lateness: how long after their end windows stay open, in microseconds; None where they never close.
    """

    def __init__(
        self, find: Find, names: Names, first_line: int, reading: tuple[str, ...], lateness: int | None
    ) -> None:
        self.find = find
        self.names = names
        self.first_line = first_line
        self.reading = reading
        self.lateness = lateness
        self.ttls = StateTtls()
        self.common: Mapping[str, Common] = {}

    def fault(self, message: str, node: exp.Expr) -> Fault:
        return Fault(message, line_of(node, self.first_line))

    @abstractmethod
    def query(self, node: exp.Expr) -> Relation:
        """Plans a query."""

    @abstractmethod
    def inner(self) -> FromClause:
        """A planner of a subquery, which knows the same tables."""

    @abstractmethod
    def _values(self, node: exp.Values) -> Relation:
        """Plans the rows of VALUES."""

    @abstractmethod
    def where_rows(self, relation: Relation, named: list[Named], parts: Sequence[exp.Expr]) -> Relation:
        """Plans conditions on rows, subqueries included."""

    @abstractmethod
    def asked_of_sides(
        self,
        left: Relation,
        left_columns: Columns,
        right: Relation,
        right_columns: Columns,
        parts: Sequence[exp.Expr],
        kind: str,
    ) -> tuple[tuple[Relation, Columns], tuple[Relation, Columns], list[exp.Expr]]:
        """Plans the subqueries in the ON of an outer join."""

    @abstractmethod
    def _lateral(self, left: Relation, named: list[Named], join: exp.Join) -> tuple[Relation, list[Named]]:
        """Joins each row with the rows that a subquery gives for it."""

    @abstractmethod
    def view(self, view: View, name: str) -> Relation:
        """Plans a view."""

    def joined_rows(
        self, first: exp.Expr, joins: Sequence[exp.Join], parts: list[exp.Expr]
    ) -> tuple[Relation, list[Named], list[exp.Expr]]:
        """Tables joined from left to right, with their columns in scope.

        A comma binds more loosely than JOIN. That matters behind a comma where RIGHT or FULL JOIN pads what is before
        it: only what stands behind the comma.

        Args:
            parts: conditions on the result; what a join has taken of them does not come back.
        """
        relation, named = self._table(first)
        if relation.rank is not None and joins:
            raise self.fault(f"a ROW_NUMBER is limited before it is joined: {ranks.REMEDY}", first)
        starts = [at for at, join in enumerate(joins) if at == 0 or is_comma(join)]
        for start, end in zip(starts, [*starts, len(joins)][1:], strict=True):
            group = joins[start:end]
            if is_comma(group[0]) and _pads_left(group):
                if isinstance(group[0].this, (exp.Lateral, exp.Unnest)):
                    raise self.fault(
                        "LATERAL and UNNEST stand behind CROSS JOIN, not behind a comma, where RIGHT or FULL JOIN"
                        " follows",
                        group[0],
                    )
                right, others, parts = self.joined_rows(group[0].this, group[1:], parts)
                relation, named, parts = self._combined(relation, named, right, others, group[0], parts)
                continue
            for at, join in enumerate(group, start=1):
                # A condition on the result says nothing about rows that a later join pads with nulls.
                taking = [] if _pads_left(group[at:]) else parts
                relation, named, rest = self._join(relation, named, join, taking)
                parts = rest if taking else parts
        return relation, named, parts

    def _table(self, node: exp.Expr) -> tuple[Relation, list[Named]]:
        """A table of FROM, or tables joined in parentheses, or before an ON that stands behind a further JOIN."""
        if node.args.get("joins"):
            first = node.copy()
            first.set("joins", None)
            return self.joined_rows(first, node.args["joins"], [])[:2]
        if isinstance(node, exp.Subquery) and not node.alias and _is_table(node):
            return self._table(node.this)
        relation, qualifiers = self._alone(node)
        return relation, list(relation.named(qualifiers))

    def _alone(self, node: exp.Expr) -> tuple[Relation, tuple[str, ...]]:
        """A table of FROM, and its names."""
        if node.args.get("version"):
            raise self.fault(
                "FOR SYSTEM_TIME AS OF is not supported: it belongs to the table at the right of a JOIN", node
            )
        alias = node.args.get("alias")
        renamed = [part.name for part in alias.columns] if isinstance(alias, exp.TableAlias) else []
        if isinstance(node, exp.Subquery):
            relation = self.inner().query(unnamed(node))
            return self._named(relation, renamed, node), (node.alias,) if node.alias else ()
        if isinstance(node, exp.Values):
            return self._named(self._values(node), renamed, node), (node.alias,) if node.alias else ()
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous):
            return self._named(self._window(node.this), renamed, node), (node.alias,) if node.alias else ()
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise self.fault("a table, a view, a subquery or a window function is expected in FROM", node)
        name = ".".join(part.name for part in node.parts)
        relation = self._find(name, node)
        return self._named(relation, renamed, node), (node.alias,) if node.alias else (name, node.parts[-1].name)

    def _window(self, node: exp.Anonymous) -> Relation:
        kind = str(node.this).upper()
        if kind not in FUNCTIONS:
            raise self.fault(f"the table function {kind} is not supported; windows are {', '.join(FUNCTIONS)}", node)
        table = node.expressions[0] if node.expressions else None
        if isinstance(table, (exp.Subquery, exp.Paren)):
            source = self.inner().query(table)
            self.check_no_rank(source, node)
        elif isinstance(table, exp.Column):
            source = self._find(".".join(part.name for part in table.parts), node)
        else:
            raise self.fault(f"{kind} takes TABLE name, or a subquery, as its first argument", node)
        found = window_rows(node, source, Columns(source.named(()), self.first_line), self.names)
        return replace(found, node=self._closing(found.node, node))

    def _closing(self, window: Node, node: exp.Expr) -> Node:
        """A window that closes, where the statement says that windows do."""
        if self.lateness is None:
            return window
        if isinstance(window, Session):
            raise self.fault(
                "SESSION windows do not close behind SET 'table.exec.emit.allow-lateness', since a row that comes late"
                " may join two of them; write the statement before the SET",
                node,
            )
        try:
            return closing_window(window, self.find, self.lateness)
        except Fault as fault:
            raise self.fault(fault.message, node) from None

    def _named(self, relation: Relation, names: list[str], node: exp.Expr) -> Relation:
        if not names:
            return relation
        if len(names) != len(relation.columns):
            raise self.fault(f"{len(names)} column names for {len(relation.columns)} columns", node)
        columns = tuple((name, field) for name, (_, field) in zip(names, relation.columns, strict=True))
        rank = relation.rank
        if rank is not None:
            rank = replace(rank, shown=names[rank.at])
        return Relation(relation.node, columns, rank)

    def _find(self, name: str, node: exp.Expr) -> Relation:
        common = self.common.get(name)
        if common is not None:
            inner = self.inner()
            inner.common = common.scope
            return self._named(inner.query(common.query), list(common.columns), node)
        found = self.find(name)
        if found is None:
            raise self.fault(f"unknown table '{name}' in FROM: no CREATE TABLE or CREATE VIEW declares it", node)
        if isinstance(found, Table):
            return self._scan(found)
        if name in self.reading:
            raise self.fault(f"view '{name}' reads itself", node)
        try:
            relation = self.view(found, name)
        except Fault as fault:
            raise self.fault(f"view '{name}': {fault.message}", node) if fault.message else fault from None
        self.check_no_rank(relation, node)
        return self._named(relation, list(found.columns), node)

    def _scan(self, table: Table) -> Relation:
        stored = [item for item in table.columns if item.kind is not ColumnKind.COMPUTED]
        fields = tuple(Field(item.name, item.type) for item in stored if item.type is not None)
        scan = Scan(table.name, fields, table.primary_key, appends_alone(table))
        shown: list[tuple[str, Expression]] = []
        watched = (table.watermark or "").removeprefix("WATERMARK FOR ").partition(" AS ")[0]
        for item in table.columns:
            name = self.names.fresh(item.name)
            if item.name == watched:
                self.names.event_times.add(name)
            if item.kind is not ColumnKind.COMPUTED:
                assert item.type is not None
                shown.append((name, column(Field(item.name, item.type))))
            elif item.expression_type is not None and item.expression is not None:
                reads = tuple(sorted(field.name for field in fields if quote_name(field.name) in item.expression))
                types = {field.name: field.type for field in fields}
                given = Expression(
                    item.expression,
                    item.expression_type,
                    varies=item.varies,
                    reads=reads,
                    fails=item.failure,
                    form=native_form(item.expression, types) if item.failure is None else None,
                )
                shown.append((name, given))
        node = Project(scan, tuple(shown))
        ordered = [
            item.name
            for item in table.columns
            if item.kind is not ColumnKind.COMPUTED or item.expression_type is not None
        ]
        return Relation(node, tuple(zip(ordered, node.fields, strict=True)))

    def _join(
        self, left: Relation, named: list[Named], join: exp.Join, parts: list[exp.Expr]
    ) -> tuple[Relation, list[Named], list[exp.Expr]]:
        side, way = (join.side or "").upper(), (join.kind or "").upper()
        method = (join.method or "").upper()
        if method not in ("", "NATURAL") or way not in _WAYS or (way == "OUTER" and not side):
            raise self.fault("joins are written INNER, LEFT, RIGHT or FULL JOIN ... ON ..., or IN and EXISTS", join)
        if method and (not isinstance(join.this, (exp.Table, exp.Subquery)) or join.this.args.get("version")):
            raise self.fault("NATURAL stands before a JOIN of tables, views and subqueries: write ON", join)
        if isinstance(join.this, exp.Table) and join.this.args.get("version") is not None:
            return *self._lookup(left, named, join), parts
        if isinstance(join.this, exp.Lateral) and isinstance(join.this.this, exp.Anonymous):
            return *function_rows(left, named, join, self.names, self.first_line), parts
        if isinstance(join.this, exp.Lateral):
            return *self._lateral(left, named, join), parts
        if isinstance(join.this, exp.Unnest):
            return *unnest_rows(left, named, join, self.names, self.first_line), parts
        right, others = self._table(join.this)
        return self._combined(left, named, right, others, join, parts)

    def _combined(
        self,
        left: Relation,
        named: list[Named],
        right: Relation,
        others: list[Named],
        join: exp.Join,
        parts: list[exp.Expr],
    ) -> tuple[Relation, list[Named], list[exp.Expr]]:
        """The rows of both sides of a join, the columns in scope, and the conditions that it has not taken."""
        self.check_no_rank(right, join)
        side, way = (join.side or "").upper(), (join.kind or "").upper()
        natural = bool(join.method)
        if not (join.args.get("on") or join.args.get("using") or natural or way == "CROSS" or is_comma(join)):
            raise self.fault("JOIN needs ON or USING; every row meets every other in CROSS JOIN", join)
        kind = _KINDS[side]
        left_columns, right_columns = Columns(named, self.first_line), Columns(others, self.first_line)
        if join.args.get("using") or natural:
            return *self._using(left, named, right, others, join, kind), parts
        on = conjuncts(join.args.get("on"))
        asking = [part for part in on if part.find(exp.Select) is not None]
        if asking and kind != "inner":
            (left, left_columns), (right, right_columns), on = self.asked_of_sides(
                left, left_columns, right, right_columns, on, kind
            )
            asking = []
        pairs, rest = split_pairs(
            [part for part in on if not any(part is one for one in asking)], left_columns, right_columns
        )
        if kind == "inner" and not any(item.rank for item in (left, right)):
            more, parts = split_pairs(parts, left_columns, right_columns)
            pairs += more
        left_node, right_node = left.node, right.node
        after: list[exp.Expr] = []
        matching: tuple[list[exp.Expr], list[exp.Expr]] = ([], [])
        for part in rest:
            if right_columns.fits(part) and kind in ("inner", "left"):
                right_node = filtered(right_node, right_columns, [part])
            elif left_columns.fits(part) and kind in ("inner", "right"):
                left_node = filtered(left_node, left_columns, [part])
            elif kind != "inner" and left_columns.fits(part):
                matching[0].append(part)
            elif kind != "inner" and right_columns.fits(part):
                matching[1].append(part)
            else:
                after.append(part)
        keys = [(left_columns.expression(one), right_columns.expression(other)) for one, other in pairs]
        if not keys and kind != "inner":
            keys = [EVERY_ROW]
        # A row for which the condition of its side does not hold stays, and a null matches nothing.
        if matching[0]:
            keys[0] = (where_met(all_met(left_columns, matching[0]), keys[0][0]), keys[0][1])
        if matching[1]:
            keys[0] = (keys[0][0], where_met(all_met(right_columns, matching[1]), keys[0][1]))
        padding = bool(after) and kind != "inner"
        fault = self.fault("", join)
        joined = join_rows(left_node, right_node, "inner" if padding else kind, keys, self.names, fault=fault)
        joined = replace(joined, ttls=self.ttls.of_sides(named, others))
        if padding and any(ttl is not None for ttl in joined.ttls):
            raise self.fault(
                "the hint STATE_TTL is not supported for an outer join with other conditions than equality, which keeps"
                f" its sides twice: SET '{STATE_TTL}' for the statement",
                join,
            )
        scope = [*padded(named, joined), *padded(others, joined)]
        both = Columns(padded([*left_columns.named, *right_columns.named], joined), self.first_line)
        node = filtered(joined, both, after)
        if padding:
            reads = [name for pair in keys for item in pair for name in item.reads]
            reads += [name for part in after for name in both.expression(part).reads]
            node = outer_rows(joined, node, kind, [*joined.left_on, *joined.right_on, *reads], self.names, fault)
            scope = [*padded(named, node), *padded(others, node)]
        found = Relation(node, tuple((item.shown, item.field) for item in scope))
        return (self.where_rows(found, scope, asking) if asking else found), scope, parts

    def _lookup(self, left: Relation, named: list[Named], join: exp.Join) -> tuple[Relation, list[Named]]:
        """A table of which a row is found when a row of the left side arrives."""
        version = join.this.args["version"]
        time = version.expression
        if isinstance(join.this.args.get("alias"), exp.TableAlias) and join.this.args["alias"].columns:
            raise self.fault("a table FOR SYSTEM_TIME AS OF keeps the names of its columns: AS t, without names", join)
        if join.this.args.get("joins"):
            raise self.fault("a JOIN between FOR SYSTEM_TIME AS OF and its ON: write one behind the other", join)
        found = Columns(named, self.first_line).find(time) if isinstance(time, exp.Column) else None
        if found is None or found[1] or version.name != "TIMESTAMP":
            raise self.fault(_LATEST, join)
        processing = is_processing_time(left.node, found[0].field.name)
        if not processing and not ranks.is_event_time(left.node, found[0].field.name, self.names):
            raise self.fault(_LATEST, join)
        kind = _KINDS[(join.side or "").upper()]
        way = (join.method or join.kind or "").upper()
        if kind not in ("inner", "left") or way not in ("", "INNER", "OUTER") or join.args.get("using"):
            raise self.fault("FOR SYSTEM_TIME AS OF stands in JOIN ... ON ... or LEFT JOIN ... ON ...", join)
        name = ".".join(part.name for part in join.this.parts)
        table = self.find(name)
        if not isinstance(table, Table) or name in self.common:
            raise self.fault(f"FOR SYSTEM_TIME AS OF takes a declared table, and '{name}' is not one", join)
        qualifiers = (join.this.alias,) if join.this.alias else (name, join.this.parts[-1].name)
        given = (left, named, table, qualifiers, self.names, self.first_line)
        if processing:
            return LookupJoin(*given).planned(kind, join)
        if not is_versioned(table):
            raise self.fault(
                f"'{name}' has no versions: FOR SYSTEM_TIME AS OF event time takes an upsert topic with a WATERMARK for"
                " the column that says since when a row is valid",
                join,
            )
        return TemporalJoin(*given, found[0].field, self._scan(table)).planned(kind, join)

    def _using(
        self, left: Relation, named: list[Named], right: Relation, others: list[Named], join: exp.Join, kind: str
    ) -> tuple[Relation, list[Named]]:
        shared = [part.name for part in join.args.get("using") or ()] or _common_names(named, others)
        if not shared:
            raise self.fault("NATURAL JOIN: no column is in both tables; write ON, or CROSS JOIN", join)
        left_columns, right_columns = Columns(named, self.first_line), Columns(others, self.first_line)
        nodes = [exp.Column(this=exp.Identifier(this=name, quoted=True)) for name in shared]
        for item in nodes:
            item.meta.update(join.meta)
        keys = [(left_columns.expression(item), right_columns.expression(item)) for item in nodes]
        joined = join_rows(left.node, right.node, kind, keys, self.names, fault=self.fault("", join))
        joined = replace(joined, ttls=self.ttls.of_sides(named, others))
        one, other = padded(named, joined), padded(others, joined)
        kept = other if kind == "right" else one
        result: Node = joined
        if kind == "full":
            result, common = self._either(joined, shared, one, other)
        else:
            common = [next(item for item in kept if item.shown == name and not item.shared) for name in shared]
        # The shared columns stand first, once; each table has all of its own in `t.*`, where they are declared.
        of_both = [replace(item, qualifiers=()) for item in common]
        scope = [*of_both, *(replace(item, shared=item.shared or item.shown in shared) for item in (*one, *other))]
        return Relation(result, tuple((item.shown, item.field) for item in scope if not item.shared)), scope

    def _either(
        self, joined: Node, shared: Sequence[str], left: Sequence[Named], right: Sequence[Named]
    ) -> tuple[Node, list[Named]]:
        """The rows of a FULL JOIN with each shared column of the side that has the row."""
        given: list[tuple[str, Expression]] = []
        for name in shared:
            both = [next(item for item in side if item.shown == name and not item.shared) for side in (left, right)]
            over = Columns([replace(item, qualifiers=(), shown=item.field.name) for item in both], self.first_line)
            sides = [exp.Column(this=exp.Identifier(this=item.field.name, quoted=True)) for item in both]
            value = over.expression(exp.Anonymous(this="COALESCE", expressions=sides))
            given.append((self.names.fresh(name), value))
        node = with_columns(joined, given)
        return node, [Named((), name, Field(new, item.type)) for name, (new, item) in zip(shared, given, strict=True)]

    def place_of(self, node: exp.Expr, selected: int) -> int | None:
        """The place in the select list that a number in ORDER BY means; None for other expressions.

        Args:
            selected: how many columns the select list has.

        Raises:
            Fault: there is no such column.
        """
        while isinstance(node, exp.Paren):
            node = node.this
        if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdigit():
            return None
        if not 1 <= int(node.name) <= selected:
            raise self.fault(f"ORDER BY {node.name}: the select list has {selected} columns", node)
        return int(node.name) - 1

    def check_no_rank(self, relation: Relation, node: exp.Expr) -> None:
        """Refuses a ROW_NUMBER that nothing limits."""
        if relation.rank is not None:
            raise self.fault(f"a ROW_NUMBER needs a limit: {ranks.REMEDY}", node)


def appends_alone(table: Table) -> bool:
    """Return whether no row of a table is ever taken back."""
    options = (table.options.get(name, "") for name in ("format", "value.format"))
    return not table.primary_key and not any(value.strip().lower().startswith(_CHANGES) for value in options)


def _common_names(left: Sequence[Named], right: Sequence[Named]) -> list[str]:
    """The names that both sides of a NATURAL JOIN have, in the order of the first."""
    there = {item.shown for item in right if not item.shared}
    return list(dict.fromkeys(item.shown for item in left if not item.shared and item.shown in there))


def _pads_left(joins: Sequence[exp.Join]) -> bool:
    """Return whether one of the joins pads what is before it with nulls."""
    return any((join.side or "").upper() in ("RIGHT", "FULL") for join in joins)


def _is_table(node: exp.Expr) -> bool:
    """Return whether a table or a join stands in parentheses, and not a query."""
    if not isinstance(node, exp.Subquery):
        return isinstance(node, exp.Table)
    behind = any(node.args.get(clause) for clause in BEHIND)
    return bool(node.alias or node.args.get("joins")) or (not behind and _is_table(node.this))


def unnamed(node: exp.Subquery) -> exp.Subquery:
    """A subquery without its alias."""
    found = node.copy()
    found.set("alias", None)
    return found
