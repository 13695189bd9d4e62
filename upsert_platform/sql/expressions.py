"""A parsed Flink expression to Spark SQL text, over the columns in scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlglot import exp

from upsert_platform.options import nearest
from upsert_platform.sql import functions
from upsert_platform.sql.flink import declared_type, line_of
from upsert_platform.sql.reader import Fault, NeedsState
from upsert_platform.sql.rendered import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMPS,
    Rendered,
    cast,
    quote_name,
    quote_text,
    widest_integer,
)  # fmt: skip
from upsert_platform.types import LogicalType, TypeName

ONLY: Final = "not supported here: only projections and filters over one row"
_OPERATORS: Final[dict[type, str]] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
    exp.And: "AND", exp.Or: "OR",
}  # fmt: skip
_ARITHMETIC: Final[dict[type, str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%"}
_EXTRACT: Final = {
    "YEAR": "YEAR", "QUARTER": "QUARTER", "MONTH": "MONTH", "WEEK": "WEEK", "DAY": "DAY", "DOY": "DOY", "DOW": "DOW",
    "ISODOW": "DOW_ISO", "HOUR": "HOUR", "MINUTE": "MINUTE", "SECOND": "SECOND",
}  # fmt: skip
_SUBQUERIES: Final = (exp.Subquery, exp.Exists, exp.Select, exp.Any, exp.All)


@dataclass(frozen=True)
class Scope:
    """Columns that an expression may name.

    Attributes:
        columns: name to what it is in Spark SQL.
        qualifiers: names that may stand before a column.
    """

    columns: Mapping[str, Rendered]
    qualifiers: tuple[str, ...] = ()


def render(node: exp.Expr, scope: Scope, first_line: int) -> Rendered:
    """Writes an expression in Spark SQL.

    Args:
        first_line: line of the file on which the parsed text begins.

    Raises:
        Fault: an unknown column, or something that is not supported; with its line.
    """
    return _Renderer(scope, first_line).render(node)


class _Renderer:
    def __init__(self, scope: Scope, first_line: int) -> None:
        self.scope = scope
        self.first_line = first_line

    def fault(self, message: str, node: exp.Expr) -> Fault:
        kind = NeedsState if message.endswith(ONLY) else Fault
        return kind(message, line_of(node, self.first_line))

    def render(self, node: exp.Expr) -> Rendered:
        kind = type(node)
        if kind in _OPERATORS or kind in _ARITHMETIC or kind in (exp.Div, exp.DPipe):
            return self._binary(node)
        method: Callable[[Any], Rendered] | None = getattr(self, f"_{kind.__name__.lower()}", None)
        if method is not None:
            return method(node)
        if isinstance(node, _SUBQUERIES):
            raise self.fault(f"a subquery in an expression is {ONLY}", node)
        if isinstance(node, exp.Window):
            raise self.fault(f"OVER is {ONLY}", node)
        raise self.fault(f"'{node.key.upper()}' is not supported in an expression", node)

    # literals and names

    def _literal(self, node: exp.Literal) -> Rendered:
        text = node.name
        if node.is_string:
            return Rendered(
                quote_text(text), LogicalType(TypeName.CHAR, length=max(len(text), 1)), simple=True, constant=text
            )
        return Rendered(text, _number_type(text), simple=True, constant=text)

    def _null(self, _node: exp.Null) -> Rendered:
        return Rendered("NULL", simple=True)

    def _boolean(self, node: exp.Boolean) -> Rendered:
        return Rendered("TRUE" if node.this else "FALSE", BOOLEAN, simple=True)

    def _hexstring(self, node: exp.HexString) -> Rendered:
        return Rendered(f"X'{node.name}'", LogicalType(TypeName.BYTES), simple=True)

    def _column(self, node: exp.Column) -> Rendered:
        if isinstance(node.this, exp.Star):
            raise self.fault("* stands alone in a select list", node)
        parts = [part.name for part in node.parts]
        niladic = len(parts) == 1 and parts[0] not in self.scope.columns and not node.this.quoted
        if niladic and parts[0].upper() in ("LOCALTIME", "LOCALTIMESTAMP"):
            return functions.call(parts[0], ())
        for length in range(len(parts) - 1, 0, -1):
            if ".".join(parts[:length]) in self.scope.qualifiers:
                parts = parts[length:]
                break
        found = self.scope.columns.get(parts[0])
        if found is None:
            hint = nearest(parts[0], self.scope.columns)
            if not hint and len(parts) > 1:
                hint = f" (there is no table '{parts[0]}' in FROM either)"
            raise self.fault(f"unknown column '{parts[0]}'{hint}", node)
        for name in parts[1:]:
            found = self._field(found, name, node)
        return found

    def _field(self, value: Rendered, name: str, node: exp.Expr) -> Rendered:
        kind: LogicalType | None = None
        if value.type is not None:
            if value.root is not TypeName.ROW:
                raise self.fault(f"'{name}' is no field: {value.sql} is {value.type}, not a ROW", node)
            fields = {field.name: field.type for field in value.type.fields}
            if name not in fields:
                raise self.fault(f"{value.sql} has no field '{name}'{nearest(name, fields)}", node)
            kind = fields[name]
        return Rendered(f"{value.wrapped}.{quote_name(name)}", kind, simple=True, varies=value.varies)

    def _dot(self, node: exp.Dot) -> Rendered:
        return self._field(self.render(node.this), node.expression.name, node)

    def _paren(self, node: exp.Paren) -> Rendered:
        inner = self.render(node.this)
        return inner if inner.simple else replace(inner, sql=f"({inner.sql})", simple=True)

    # operators

    def _binary(self, node: exp.Expr) -> Rendered:
        left, right = self.render(node.this), self.render(node.expression)
        varies = left.varies or right.varies
        word = _OPERATORS.get(type(node))
        if word is not None:
            return Rendered(f"{left.wrapped} {word} {right.wrapped}", BOOLEAN, varies=varies)
        if isinstance(node, exp.DPipe):
            return Rendered(f"{left.wrapped} || {right.wrapped}", STRING, varies=varies)
        integer = widest_integer(left.type, right.type)
        if isinstance(node, exp.Div):
            if integer is not None:  # Flink divides integers without a remainder, Spark gives a DOUBLE
                quotient = Rendered(f"{left.wrapped} DIV {right.wrapped}", BIGINT, varies=varies)
                return cast(quotient, integer)
            return Rendered(f"{left.wrapped} / {right.wrapped}", varies=varies)
        kind = integer
        if isinstance(node.expression, exp.Interval) and left.root in TIMESTAMPS:
            kind = left.type
        return Rendered(f"{left.wrapped} {_ARITHMETIC[type(node)]} {right.wrapped}", kind, varies=varies)

    def _neg(self, node: exp.Neg) -> Rendered:
        inner = self.render(node.this)
        constant = f"-{inner.constant}" if inner.constant else None
        return replace(inner, sql=f"-{inner.wrapped}", simple=False, column=None, constant=constant)

    def _not(self, node: exp.Not) -> Rendered:
        inner = self.render(node.this)
        return Rendered(f"NOT {inner.wrapped}", BOOLEAN, varies=inner.varies)

    def _nullsafeneq(self, node: exp.NullSafeNEQ) -> Rendered:
        left, right = self.render(node.this), self.render(node.expression)
        return Rendered(f"NOT ({left.wrapped} <=> {right.wrapped})", BOOLEAN, varies=left.varies or right.varies)

    def _is(self, node: exp.Is) -> Rendered:
        if not isinstance(node.expression, (exp.Null, exp.Boolean)):
            raise self.fault("after IS, only NULL, TRUE, FALSE, UNKNOWN and DISTINCT FROM are supported", node)
        inner = self.render(node.this)
        return Rendered(f"{inner.wrapped} IS {self.render(node.expression).sql}", BOOLEAN, varies=inner.varies)

    def _between(self, node: exp.Between) -> Rendered:
        if node.args.get("symmetric"):
            raise self.fault("BETWEEN SYMMETRIC is not supported: write both orders with OR", node)
        value, low, high = (self.render(node.args[name]) for name in ("this", "low", "high"))
        sql = f"{value.wrapped} BETWEEN {low.wrapped} AND {high.wrapped}"
        return Rendered(sql, BOOLEAN, varies=value.varies or low.varies or high.varies)

    def _in(self, node: exp.In) -> Rendered:
        if node.args.get("query") is not None or not node.expressions:
            raise self.fault(f"IN (SELECT ...) is {ONLY}", node)
        value = self.render(node.this)
        items = [self.render(item) for item in node.expressions]
        varies = next((item.varies for item in (value, *items) if item.varies), None)
        return Rendered(f"{value.wrapped} IN ({', '.join(item.sql for item in items)})", BOOLEAN, varies=varies)

    def _like(self, node: exp.Like, escape: str | None = None) -> Rendered:
        value, pattern = self.render(node.this), self.render(node.expression)
        negated = "NOT " if node.args.get("negate") else ""
        sql = pattern.wrapped
        if escape is None and (pattern.constant is None or "\\" in pattern.constant):
            # Without ESCAPE a backslash is nothing special in Flink; in Spark it is the escape.
            sql = f"REPLACE({pattern.sql}, '\\\\', '\\\\\\\\')"
        suffix = f" ESCAPE {quote_text(escape)}" if escape is not None else ""
        return Rendered(f"{value.wrapped} {negated}LIKE {sql}{suffix}", BOOLEAN, varies=value.varies or pattern.varies)

    def _escape(self, node: exp.Escape) -> Rendered:
        if not isinstance(node.this, exp.Like) or not node.expression.is_string:
            raise self.fault("ESCAPE takes one character in quotes, after LIKE", node)
        return self._like(node.this, node.expression.name)

    def _case(self, node: exp.Case) -> Rendered:
        parts = ["CASE"]
        results: list[Rendered] = []
        pieces: list[Rendered] = []
        if node.this is not None:
            pieces.append(self.render(node.this))
            parts.append(pieces[0].wrapped)
        for branch in node.args["ifs"]:
            condition, result = self.render(branch.this), self.render(branch.args["true"])
            parts.append(f"WHEN {condition.sql} THEN {result.sql}")
            results.append(result)
            pieces += [condition, result]
        if node.args.get("default") is not None:
            default = self.render(node.args["default"])
            parts.append(f"ELSE {default.sql}")
            results.append(default)
            pieces.append(default)
        kinds = {result.type for result in results if result.sql != "NULL"}
        kind = kinds.pop() if len(kinds) == 1 else None
        varies = next((piece.varies for piece in pieces if piece.varies), None)
        return Rendered(" ".join([*parts, "END"]), replace(kind, nullable=True) if kind else None, varies=varies)

    # types

    def _cast(self, node: exp.Cast, *, safe: bool = False) -> Rendered:
        to = declared_type(node)
        if to is None:
            return self._typed_literal(node)
        return cast(self.render(node.this), to, safe=safe)

    def _trycast(self, node: exp.TryCast) -> Rendered:
        return self._cast(node, safe=True)

    def _typed_literal(self, node: exp.Cast) -> Rendered:
        """DATE '...', TIME '...', TIMESTAMP '...'."""
        text = node.this.name
        fraction = len(text.partition(".")[2]) if "." in text else 0
        match node.to.this.value.upper():
            case "DATE":
                return Rendered(f"DATE{quote_text(text)}", DATE, simple=True)
            case "TIMESTAMP" | "TIMESTAMPNTZ":
                kind = LogicalType(TypeName.TIMESTAMP, precision=min(fraction, 9))
                return Rendered(f"TIMESTAMP_NTZ{quote_text(text)}", kind, simple=True)
            case "TIME":
                value = Rendered(quote_text(text), STRING, simple=True)
                return cast(value, LogicalType(TypeName.TIME, precision=min(fraction, 6)))
        raise self.fault("after a type name, a literal is written DATE, TIME or TIMESTAMP '...'", node)

    def _interval(self, node: exp.Interval) -> Rendered:
        unit = node.args.get("unit")
        if unit is None or not isinstance(node.this, exp.Literal):
            raise self.fault("an interval is written INTERVAL '1' DAY", node)
        words = f"{unit.this.name} TO {unit.expression.name}" if isinstance(unit, exp.IntervalSpan) else unit.name
        return Rendered(f"INTERVAL {quote_text(node.this.name)} {words.upper()}", simple=True)

    def _extract(self, node: exp.Extract) -> Rendered:
        value, unit = self.render(node.expression), node.this.name.upper()
        inside = f"TIMESTAMP_MICROS({value.sql})" if value.root is TypeName.TIME else value.sql
        if unit == "EPOCH":
            return Rendered(f"UNIX_SECONDS(CAST({inside} AS TIMESTAMP))", BIGINT, simple=True, varies=value.varies)
        if unit not in _EXTRACT:
            raise self.fault(f"EXTRACT takes one of {', '.join(_EXTRACT)}, EPOCH, not {unit}", node)
        sql = f"CAST(EXTRACT({_EXTRACT[unit]} FROM {inside}) AS BIGINT)"
        return Rendered(sql, BIGINT, simple=True, varies=value.varies)

    def _floor(self, node: exp.Floor) -> Rendered:
        value, unit = self.render(node.this), node.args.get("to")
        if unit is None:
            return functions.call("FLOOR", [value])
        sql = f"DATE_TRUNC({quote_text(unit.name.upper())}, {value.sql})"
        if value.root is TypeName.TIMESTAMP:
            sql = f"CAST({sql} AS TIMESTAMP_NTZ)"
        elif value.root is TypeName.DATE:
            sql = f"CAST({sql} AS DATE)"
        return Rendered(sql, value.type, simple=True, varies=value.varies)

    def _ceil(self, node: exp.Ceil) -> Rendered:
        if node.args.get("to") is not None:
            raise self.fault("CEIL(... TO unit) is not supported: add an interval to FLOOR(... TO unit)", node)
        return functions.call("CEIL", [self.render(node.this)])

    # functions with a syntax of their own

    def _trim(self, node: exp.Trim) -> Rendered:
        value = self.render(node.this)
        if node.expression is None:
            where = f"{node.args['position']} FROM " if node.args.get("position") else ""
            return Rendered(f"TRIM({where}{value.sql})", STRING, simple=True, varies=value.varies)
        what, where = self.render(node.expression), node.args.get("position") or "BOTH"
        return Rendered(f"TRIM({where} {what.sql} FROM {value.sql})", STRING, simple=True, varies=value.varies)

    def _substring(self, node: exp.Substring) -> Rendered:
        pieces = [self.render(node.args[name]) for name in ("this", "start", "length") if node.args.get(name)]
        return replace(functions.call("SUBSTRING", pieces), type=STRING)

    def _strposition(self, node: exp.StrPosition) -> Rendered:
        pieces = [self.render(node.args["substr"]), self.render(node.this)]
        return replace(functions.call("LOCATE", pieces), type=INT)

    def _overlay(self, node: exp.Overlay) -> Rendered:
        value, new, start = (self.render(node.args[name]) for name in ("this", "expression", "from_"))
        length = f" FOR {self.render(node.args['for_']).sql}" if node.args.get("for_") else ""
        sql = f"OVERLAY({value.sql} PLACING {new.sql} FROM {start.sql}{length})"
        return Rendered(sql, STRING, simple=True, varies=value.varies)

    def _currentdate(self, _node: exp.CurrentDate) -> Rendered:
        return functions.call("CURRENT_DATE", ())

    def _currenttime(self, _node: exp.CurrentTime) -> Rendered:
        return functions.call("CURRENT_TIME", ())

    def _currenttimestamp(self, _node: exp.CurrentTimestamp) -> Rendered:
        return functions.call("CURRENT_TIMESTAMP", ())

    def _array(self, node: exp.Array) -> Rendered:
        return functions.call("ARRAY", [self.render(item) for item in node.expressions])

    def _bracket(self, node: exp.Bracket) -> Rendered:
        base = node.this
        items = [self.render(item) for item in node.expressions]
        if isinstance(base, exp.Column) and base.name.upper() == "MAP" and base.name not in self.scope.columns:
            return functions.call("MAP", items)
        value = self.render(base)
        if len(items) != 1:
            raise self.fault("one index or key stands in brackets", node)
        kind = value.type.element if value.type and value.root in (TypeName.ARRAY, TypeName.MAP) else None
        sql = f"TRY_ELEMENT_AT({value.sql}, {items[0].sql})"
        return Rendered(sql, replace(kind, nullable=True) if kind else None, simple=True, varies=value.varies)

    def _anonymous(self, node: exp.Anonymous) -> Rendered:
        name = str(node.this)
        upper = name.upper()
        if upper in functions.AGGREGATES:
            raise self.fault(f"the aggregate {upper} is {ONLY}", node)
        if upper in functions.WINDOWS:
            raise self.fault(f"the window function {upper} is {ONLY}", node)
        arguments = list(node.expressions)
        rendered: list[Rendered] = []
        if upper in ("TIMESTAMPADD", "TIMESTAMPDIFF") and arguments:
            rendered.append(Rendered(arguments[0].name, constant=arguments[0].name))
            arguments = arguments[1:]
        rendered += [self.render(item) for item in arguments]
        try:
            found = functions.call(name, rendered)
        except functions.FunctionFault as fault:
            raise self.fault(str(fault), node) from None
        returning = declared_type(node)
        return functions.json_value_as(found, returning) if returning is not None else found


def _number_type(text: str) -> LogicalType:
    if "e" in text.lower():
        return DOUBLE
    if "." in text:
        whole, _, fraction = text.partition(".")
        digits = whole.lstrip("0")
        return LogicalType(TypeName.DECIMAL, precision=min(max(len(digits + fraction), 1), 38), scale=len(fraction))
    value = int(text)
    for kind, bits in ((TypeName.INT, 31), (TypeName.BIGINT, 63)):
        if value < 1 << bits:
            return LogicalType(kind)
    return LogicalType(TypeName.DECIMAL, precision=min(len(text), 38), scale=0)
