"""Names that an expression may use, and expressions over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from upsert_platform.core.options import nearest
from upsert_platform.core.plan import Expression, Field, Native, Node
from upsert_platform.core.types import LogicalType, TypeName, quote_name
from upsert_platform.sql import intervals
from upsert_platform.sql.casts import cast
from upsert_platform.sql.compatibility import keeps_apart
from upsert_platform.sql.expressions import Scope, render
from upsert_platform.sql.flink import declared_type, line_of
from upsert_platform.sql.native import native_form
from upsert_platform.sql.numbers import common_decimal
from upsert_platform.sql.planning.kept_values import kept_column
from upsert_platform.sql.reader import Fault
from upsert_platform.sql.rendered import INTEGERS, STRINGS, Rendered

_COMPARISONS: dict[type, str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_UNKNOWN: Final = ("literal", None, LogicalType(TypeName.BOOLEAN))
_TIMES = (TypeName.DATE, TypeName.TIME, TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)


@dataclass(frozen=True)
class Named:
    """A column in scope: the name a statement knows it by, and its name in the plan.

    Attributes:
        shared: whether only the name with that of its table means it, as a column of USING: without, it is the one of
            both tables.
    """

    qualifiers: tuple[str, ...]
    shown: str
    field: Field
    shared: bool = False


@dataclass(frozen=True)
class Rank:
    """A ROW_NUMBER that waits for its limit: ``WHERE rn <= n`` around it.

    Attributes:
        shown: its name.
        order: column, descending, nulls first.
        at: its place in the select list.
    """

    shown: str
    partition: tuple[str, ...]
    order: tuple[tuple[str, bool, bool], ...]
    at: int


@dataclass(frozen=True)
class Relation:
    """The rows of a table, view or query: a plan, and its columns in the order of the select list."""

    node: Node
    columns: tuple[tuple[str, Field], ...]
    rank: Rank | None = None

    def named(self, qualifiers: tuple[str, ...]) -> tuple[Named, ...]:
        """Its columns in scope under these qualifiers."""
        return tuple(Named(qualifiers, shown, field) for shown, field in self.columns)


class Names:
    """Gives names to columns of a plan, each once in a query.

    Args:
        taken: names that none gets.

    Attributes:
        event_times: those of columns for which a table declares a WATERMARK.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.casefold() for name in taken}
        self.event_times: set[str] = set()

    def fresh(self, wish: str) -> str:
        """The wish, or the wish with a number behind it."""
        base = wish if wish and not wish.startswith("_") else f"c{wish}"
        name, number = base, 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name.casefold())
        return name


class Columns:
    """The names available to an expression.

    Args:
        outer: columns of the query around it, for messages.
        never_zero: columns of the plan that one may divide by.
    """

    def __init__(
        self,
        named: Sequence[Named],
        first_line: int,
        outer: Sequence[Named] = (),
        never_zero: frozenset[str] = frozenset(),
    ) -> None:
        self.named = tuple(named)
        self.first_line = first_line
        self.outer = tuple(outer)
        self.never_zero = never_zero

    def fault(self, message: str, node: exp.Expr) -> Fault:
        """A fault on the line of a node."""
        return Fault(message, line_of(node, self.first_line))

    def find(self, node: exp.Column) -> tuple[Named, list[str]] | None:
        """The column that a name means, and the fields of a ROW behind it; None when there is none.

        Raises:
            Fault: several columns have the name.
        """
        parts = [part.name for part in node.parts]
        for length in range(len(parts) - 1, 0, -1):
            qualifier = ".".join(parts[:length])
            of = [item for item in self.named if qualifier in item.qualifiers]
            if of:
                found = [item for item in of if item.shown == parts[length]]
                return self._one(found, parts[length + 1 :], node)
        return self._one([item for item in self.named if item.shown == parts[0] and not item.shared], parts[1:], node)

    def _one(self, found: list[Named], rest: list[str], node: exp.Column) -> tuple[Named, list[str]] | None:
        if len(found) > 1:
            choices = ", ".join(f"{item.qualifiers[0]}.{item.shown}" for item in found if item.qualifiers)
            name = found[0].shown
            raise self.fault(
                f"column '{name}' is in several tables; write one of {choices or 'them by an alias'}", node
            )
        return (found[0], rest) if found else None

    def hides(self, node: exp.Column) -> bool:
        """Return whether the name of a table before a column is known here, and the table has no such column."""
        qualifiers = {".".join(part.name for part in node.parts[:length]) for length in range(1, len(node.parts))}
        return self.find(node) is None and any(qualifiers & set(item.qualifiers) for item in self.named)

    def reads(self, node: exp.Expr) -> list[Named]:
        """The columns in an expression."""
        return [found[0] for item in node.find_all(exp.Column) if (found := self.find(item)) is not None]

    def fits(self, node: exp.Expr) -> bool:
        """Return whether every column in an expression is known here."""
        return all(self._has(item) for item in node.find_all(exp.Column) if not _niladic(item))

    def _has(self, node: exp.Column) -> bool:
        """Return whether a name is known here: before a point, that of a table, or of a column with such a field."""
        found = self.find(node)
        if found is None or not found[1]:
            return found is not None
        return any(item.name == found[1][0] for item in found[0].field.type.fields)

    def expression(self, node: exp.Expr) -> Expression:
        """An expression of the plan.

        Raises:
            Fault: an unknown column, something that is not supported, or a type that is not known.
        """
        rendered = self.rendered(node)
        if rendered.type is None:
            raise self.fault(
                "the type of an expression is not known before it runs, and a kept query needs it: write CAST(... AS"
                " type) around it",
                node,
            )
        if rendered.fails is not None:
            raise self.fault(
                "an expression that can fail for a row is not kept up to date: write TRY_CAST, or NULLIF(y, 0) below /",
                node,
            )
        reads = tuple(sorted({item.field.name for item in self.reads(node)}))
        native = _with_type(self.native(node), rendered.type)
        if native is not None:
            return Expression(rendered.sql, rendered.type, native, rendered.varies, reads)
        types = {item.field.name: item.field.type for item in self.named}
        form = native_form(rendered.sql, types)
        keeps = kept_column(node, self._field)
        return Expression(rendered.sql, rendered.type, None, rendered.varies, reads, keeps=keeps, form=form)

    def is_never_null(self, node: exp.Expr) -> bool:
        """Return whether an expression has a value for every row."""
        if isinstance(node, exp.Paren) or (type(node) is exp.Cast and _has_value_for_all(node)):
            return self.is_never_null(node.this)
        if isinstance(node, exp.Column):
            field = self._field(node)
            return field is not None and not field.type.nullable
        if isinstance(node, exp.Anonymous):
            parts = [self.is_never_null(part) for part in node.expressions]
            name = str(node.this).upper()
            return any(parts) if name in ("COALESCE", "IFNULL") else name == "CONCAT" and all(parts)
        return isinstance(node, (exp.Literal, exp.Boolean))

    def _field(self, node: exp.Column) -> Field | None:
        found = self.find(node)
        return found[0].field if found is not None and not found[1] else None

    def rendered(self, node: exp.Expr) -> Rendered:
        """An expression in Spark SQL, over the names of the plan."""
        for item in node.find_all(exp.Column):
            self.check_name(item)
        rewritten = self.bound(node)
        columns = {
            item.field.name: Rendered(
                quote_name(item.field.name),
                item.field.type,
                simple=True,
                column=item.field.name,
                never_zero=item.field.name in self.never_zero,
            )
            for item in self.named
        }
        return render(rewritten, Scope(columns, stops=True), self.first_line)

    def check_name(self, item: exp.Column) -> None:
        """Refuses a column that is unknown here."""
        if isinstance(item.this, exp.Star) or self.find(item) is not None or _niladic(item):
            return
        name = item.parts[0].name
        if isinstance(item.parent, exp.Bracket) and name.upper() == "MAP":
            return
        hint = nearest(name, [known.shown for known in self.named])
        raise self.fault(f"unknown column '{'.'.join(part.name for part in item.parts)}'{hint}", item)

    def bound(self, node: exp.Expr, *, around: Columns | None = None) -> exp.Expr:
        """An expression with the plan's names of columns: equal for ``a`` and ``t.a`` where both mean one column.

        Args:
            around: columns of the query around, for names that are unknown here.

        Raises:
            Fault: a name that is unknown around, too.
        """

        def rewritten(item: exp.Expr) -> exp.Expr:
            if around is None or not isinstance(item, exp.Column) or self._has(item):
                return self._rewritten(item)
            around.check_name(item)
            return around.bound(item)

        return node.transform(rewritten)

    def _rewritten(self, node: exp.Expr) -> exp.Expr:
        found = self.find(node) if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star) else None
        if found is None:
            return node
        named, rest = found
        result: exp.Expr = exp.Column(this=exp.Identifier(this=named.field.name, quoted=True))
        for name in rest:
            result = exp.Dot(this=result, expression=exp.Identifier(this=name, quoted=True))
        result.meta.update(node.meta)
        return result

    def native(self, node: exp.Expr) -> Native | None:
        """The expression without Spark, where Arrow gives the same."""
        if isinstance(node, exp.Paren):
            return self.native(node.this)
        if isinstance(node, exp.Column):
            found = self.find(node)
            return ("column", found[0].field.name) if found is not None and not found[1] else None
        if isinstance(node, (exp.Literal, exp.Boolean)):
            return _literal(node)
        if type(node) in _COMPARISONS:
            return self._comparison(node)
        if isinstance(node, (exp.And, exp.Or)):
            left, right = (
                _UNKNOWN if isinstance(side, exp.Null) else self.native(side) for side in (node.this, node.expression)
            )
            return (node.key, left, right) if left is not None and right is not None else None
        if isinstance(node, exp.Between):
            return self._within(node)
        if isinstance(node, (exp.Add, exp.Sub)):
            return self._shifted(node)
        if isinstance(node, exp.Not):
            inner = self.native(node.this)
            return ("not", inner) if inner is not None else None
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            inner = self.native(node.this)
            return ("is null", inner) if inner is not None else None
        return None

    def _within(self, node: exp.Between) -> Native | None:
        """BETWEEN; SYMMETRIC takes its ends in either order."""
        ends = [("low", "high"), ("high", "low")] if node.args.get("symmetric") else [("low", "high")]
        found: list[Native] = []
        for low, high in ends:
            least = self._comparison(exp.GTE(this=node.this, expression=node.args[low]))
            most = self._comparison(exp.LTE(this=node.this, expression=node.args[high]))
            if least is None or most is None:
                return None
            found.append(("and", least, most))
        return found[0] if len(found) == 1 else ("or", *found)

    def _comparison(self, node: exp.Expr) -> Native | None:
        left, right = self.native(node.this), self.native(node.expression)
        if left is None or right is None:
            return None
        kinds = [self._type(side) for side in (left, right)]
        if kinds[0] is None or kinds[1] is None:
            return None
        for family in (INTEGERS, STRINGS):
            if all(kind is not None and kind.name in family for kind in kinds):
                return (_COMPARISONS[type(node)], left, right)
        same = kinds[0].name is kinds[1].name and kinds[0].scale == kinds[1].scale
        if same and kinds[0].name in (*_TIMES, TypeName.BOOLEAN, TypeName.DECIMAL):
            return (_COMPARISONS[type(node)], left, right)
        return None

    def _shifted(self, node: exp.Expr) -> Native | None:
        """A TIMESTAMP and an interval of fixed length."""
        inner, span = self.native(node.this), signed_length(node.expression)
        if inner is None or span is None:
            return None
        kind = self._type(inner)
        if kind is None or kind.name is not TypeName.TIMESTAMP:
            return None
        return ("shift", inner, span if isinstance(node, exp.Add) else -span)

    def _type(self, native: Native) -> LogicalType | None:
        if native[0] == "shift":
            return self._type(native[1])
        if native[0] == "column":
            return next(item.field.type for item in self.named if item.field.name == native[1])
        return native[2] if native[0] == "literal" else None


def length_of(node: exp.Expr) -> int | None:
    """Microseconds of ``INTERVAL '10' MINUTES``; None for what is not an interval of fixed length above or at zero."""
    found = signed_length(node) if isinstance(node, exp.Interval) else None
    return found if found is not None and found >= 0 else None


def signed_length(node: exp.Expr) -> int | None:
    """Microseconds of an interval, with its signs; None for what is not an interval of fixed length."""
    if isinstance(node, exp.Paren):
        return signed_length(node.this)
    if isinstance(node, exp.Neg):
        inner = signed_length(node.this)
        return -inner if inner is not None else None
    length = intervals.length_of(node) if isinstance(node, exp.Interval) and node.args.get("unit") is not None else None
    return length.millis * 1_000 if length is not None and not length.months else None


def _has_value_for_all(node: exp.Cast) -> bool:
    """Return whether a cast that does not fail gives a value for every value: a number may not fit a DECIMAL."""
    to = declared_type(node)
    return to is not None and to.name is not TypeName.DECIMAL


def _niladic(node: exp.Column) -> bool:
    return len(node.parts) == 1 and node.name.upper() in ("LOCALTIME", "LOCALTIMESTAMP", "MAP")


def _literal(node: exp.Expr) -> Native | None:
    if isinstance(node, exp.Boolean):
        return ("literal", bool(node.this), LogicalType(TypeName.BOOLEAN))
    if node.is_string:
        return ("literal", node.name, LogicalType(TypeName.STRING))
    if not node.name.isdigit() or int(node.name) >= 1 << 63:
        return None
    small = int(node.name) < 1 << 31
    return ("literal", int(node.name), LogicalType(TypeName.INT if small else TypeName.BIGINT))


def _with_type(native: Native | None, wanted: LogicalType) -> Native | None:
    """Literals in the type that the expression has."""
    if native is not None and native[0] == "literal":
        return ("literal", native[1], replace(native[2], nullable=wanted.nullable))
    return native


def as_type(expression: Expression, wanted: LogicalType) -> Expression:
    """An expression cast, as Flink does by itself, to a type of the same family."""
    if replace(expression.type, nullable=True) == replace(wanted, nullable=True):
        return replace(expression, type=wanted)
    both = (expression.type.name, wanted.name)
    widens = all(name in STRINGS for name in both) or all(name in INTEGERS for name in both)
    native, form = (
        ("widen", given, wanted) if given is not None and widens else None
        for given in (expression.native, expression.form)
    )
    sql = cast(Rendered(expression.sql, expression.type), wanted, implicit=True).sql
    keeps = expression.keeps
    if expression.column is not None:
        keeps = (expression.column, 0) if keeps_apart(expression.type, wanted) else None
    return replace(expression, sql=sql, type=wanted, native=native, keeps=keeps, form=form)


def common_type(left: LogicalType, right: LogicalType) -> LogicalType | None:
    """The type that holds the values of both; None where Flink asks for a CAST, too."""
    nullable = left.nullable or right.nullable
    if replace(left, nullable=True) == replace(right, nullable=True):
        return replace(left, nullable=nullable)
    for family in (INTEGERS, STRINGS):
        if left.name in family and right.name in family:
            name = max(left.name, right.name, key=family.index) if family is INTEGERS else TypeName.STRING
            return LogicalType(name, nullable=nullable)
    numbers = (*INTEGERS, TypeName.DECIMAL)
    if left.name in numbers and right.name in numbers:
        return replace(common_decimal(left, right), nullable=nullable)
    floats = (*numbers, TypeName.FLOAT, TypeName.DOUBLE)
    if left.name in floats and right.name in floats:
        return LogicalType(TypeName.DOUBLE, nullable=nullable)
    times = (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ)
    if left.name is right.name and left.name in times:
        precision = max(left.precision or 0, right.precision or 0)
        return LogicalType(left.name, precision=precision, nullable=nullable)
    return None
