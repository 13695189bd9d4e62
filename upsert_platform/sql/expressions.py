"""A parsed Flink expression to Spark SQL text, over the columns in scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlglot import exp

from upsert_platform.core.options import nearest
from upsert_platform.core.types import LogicalType, TypeName, quote_name
from upsert_platform.sql import functions, user_functions
from upsert_platform.sql.arithmetic import arithmetic, number_type
from upsert_platform.sql.casts import can_cast, cast
from upsert_platform.sql.comparisons import compare, like, similar
from upsert_platform.sql.constants import is_moment
from upsert_platform.sql.flink import LATERAL_KEY, clauses_of, declared_type, line_of
from upsert_platform.sql.functions import json
from upsert_platform.sql.functions.collections import item_of
from upsert_platform.sql.functions.conditional import choose, condition
from upsert_platform.sql.functions.text import overlay, trim
from upsert_platform.sql.functions.times import add, field_of, floor_to, later
from upsert_platform.sql.intervals import Length, length_of
from upsert_platform.sql.reader import Fault, NeedsState
from upsert_platform.sql.rendered import (
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    INTEGERS,
    NUMBERS,
    STRING,
    STRINGS,
    TIMESTAMPS,
    Rendered,
    first_failure,
    made,
    quote_text,
)  # fmt: skip

ONLY: Final = "not supported here: only projections and filters over one row"
_BEYOND_INT: Final = "2147483648"
_COMPARISONS: Final[dict[type, str]] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
}  # fmt: skip
_ARITHMETIC: Final[dict[type, str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_SUBQUERIES: Final = (exp.Subquery, exp.Exists, exp.Select, exp.Any, exp.All)


@dataclass(frozen=True)
class Scope:
    """Columns that an expression may name.

    Attributes:
        columns: name to what it is in Spark SQL.
        qualifiers: names that may stand before a column.
        stops: a row for which a user's function fails stops the query; otherwise it is set aside.
    """

    columns: Mapping[str, Rendered]
    qualifiers: tuple[str, ...] = ()
    stops: bool = False


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
        try:
            return self._render(node)
        except functions.FunctionFault as fault:
            raise self.fault(str(fault), node) from None

    def _render(self, node: exp.Expr) -> Rendered:
        kind = type(node)
        if kind in _COMPARISONS:
            return compare(_COMPARISONS[kind], self.render(node.this), self.render(node.expression))
        if kind in _ARITHMETIC:
            return self._arithmetic(node)
        method: Callable[[Any], Rendered] | None = getattr(self, f"_{kind.__name__.lower()}", None)
        if method is not None:
            return method(node)
        if isinstance(node, _SUBQUERIES):
            raise self.fault(f"a subquery in an expression is {ONLY}", node)
        if isinstance(node, exp.Window):
            raise self.fault(f"OVER is {ONLY}", node)
        if isinstance(node, exp.Filter):
            raise self.fault(f"FILTER is {ONLY}", node)
        raise self.fault(f"'{node.key.upper()}' is not supported in an expression", node)

    # literals and names

    def _literal(self, node: exp.Literal) -> Rendered:
        text = node.name
        if node.is_string:
            return Rendered(
                quote_text(text), LogicalType(TypeName.CHAR, length=max(len(text), 1)), simple=True, constant=text
            )
        kind = number_type(text)
        if kind is None:
            raise self.fault(f"the number {text} is out of range", node)
        return Rendered(f"{text}D" if kind == DOUBLE else text, kind, simple=True, constant=text)

    def _null(self, _node: exp.Null) -> Rendered:
        return Rendered("NULL", simple=True)

    def _boolean(self, node: exp.Boolean) -> Rendered:
        return Rendered("TRUE" if node.this else "FALSE", BOOLEAN, simple=True)

    def _hexstring(self, node: exp.HexString) -> Rendered:
        return Rendered(f"X'{node.name}'", BYTES, simple=True)

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
                raise self.fault(f"'{name}' is not a field: {value.sql} is {value.type}, not a ROW", node)
            fields = {field.name: field.type for field in value.type.fields}
            if name not in fields:
                raise self.fault(f"{value.sql} has no field '{name}'{nearest(name, fields)}", node)
            kind = fields[name]
        return made(f"{value.wrapped}.{quote_name(name)}", kind, value)

    def _dot(self, node: exp.Dot) -> Rendered:
        return self._field(self.render(node.this), node.expression.name, node)

    def _paren(self, node: exp.Paren) -> Rendered:
        inner = self.render(node.this)
        return inner if inner.simple else replace(inner, sql=f"({inner.sql})", simple=True)

    # operators

    def _arithmetic(self, node: exp.Expr) -> Rendered:
        operator = _ARITHMETIC[type(node)]
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            found = _interval_of(other) if operator in "+-" else None
            if found is not None:
                interval, negative = found
                if operator == "-" and other is node.this:
                    raise self.fault("an interval stands on the right of '-'", node)
                return self._shifted(self.render(one), interval, negative=negative != (operator == "-"))
        return arithmetic(operator, self.render(node.this), self.render(node.expression))

    def _shifted(self, value: Rendered, interval: exp.Interval, *, negative: bool) -> Rendered:
        """A date or time plus or minus an interval."""
        if value.root not in (*TIMESTAMPS, TypeName.DATE, TypeName.TIME):
            raise self.fault(f"an interval is added to a date or a time, not to {value.type or 'NULL'}", interval)
        unit, text = interval.args.get("unit"), interval.this
        word = unit.name.upper().removesuffix("S") if isinstance(unit, exp.Var) else None
        if word is not None and isinstance(text, exp.Literal) and _is_int(text.name):
            number = -int(text.name) if negative else int(text.name)
            return add(value, word, Rendered(f"({number})", INT, simple=True, constant=str(number)))
        if not isinstance(text, exp.Literal):
            count = self.render(text)
            if word is None or count.root not in INTEGERS:
                raise self.fault("INTERVAL takes a text in quotes, or a whole number before one unit", interval)
            sign = "-" if negative else ""
            count = replace(count, sql=f"{sign}CAST({count.sql} AS INT)", simple=False, column=None, constant=None)
            return add(value, word, count)
        length = length_of(interval)
        assert length is not None  # a literal, which was read when it was parsed
        if negative:
            length = Length(-length.months, -length.millis)
        if length.months:
            return add(value, "MONTH", Rendered(f"({length.months})", INT, simple=True, constant=str(length.months)))
        return later(value, length)

    def _dpipe(self, node: exp.DPipe) -> Rendered:
        return functions.call("CONCAT", [self.render(node.this), self.render(node.expression)])

    def _neg(self, node: exp.Neg) -> Rendered:
        inner = self.render(node.this)
        if inner.root not in NUMBERS:
            raise self.fault(f"'-' takes a number, not {inner.type or 'NULL'}", node)
        constant = f"-{inner.constant}" if inner.constant else None
        # The one BIGINT that Spark reads as an INT: with its sign it is the least of them.
        text = f"{inner.sql}L" if inner.sql == _BEYOND_INT else inner.wrapped
        return replace(inner, sql=f"-{text}", simple=False, column=None, constant=constant)

    def _and(self, node: exp.And) -> Rendered:
        return self._both(node, "AND", "FALSE")

    def _or(self, node: exp.Or) -> Rendered:
        return self._both(node, "OR", "TRUE")

    def _both(self, node: exp.Expr, word: str, settled: str) -> Rendered:
        """AND and OR: the right side is looked at where the left one does not settle it."""
        left = condition(self.render(node.this), word)
        right = condition(self.render(node.expression), word)
        rest = f"CASE WHEN NOT ({left.wrapped} <=> {settled}) THEN {right.fails} END" if right.fails else None
        found = made(f"{left.wrapped} {word} {right.wrapped}", BOOLEAN, left, right, simple=False)
        return replace(found, fails=first_failure(left.fails, rest))

    def _not(self, node: exp.Not) -> Rendered:
        inner = condition(self.render(node.this), "NOT")
        return made(f"NOT {inner.wrapped}", BOOLEAN, inner, simple=False)

    def _nullsafeneq(self, node: exp.NullSafeNEQ) -> Rendered:
        same = compare("<=>", self.render(node.this), self.render(node.expression))
        return made(f"NOT {same.wrapped}", BOOLEAN, same, simple=False)

    def _is(self, node: exp.Is) -> Rendered:
        inner = self.render(node.this)
        if isinstance(node.expression, exp.JSON):
            kind = node.expression.this
            return json.is_json(inner, kind.upper() if isinstance(kind, str) else "VALUE")
        if not isinstance(node.expression, (exp.Null, exp.Boolean)):
            raise self.fault("after IS, only NULL, TRUE, FALSE, UNKNOWN, JSON and DISTINCT FROM are supported", node)
        if isinstance(node.expression, exp.Boolean):
            inner = condition(inner, "IS TRUE")
        return made(f"{inner.wrapped} IS {self.render(node.expression).sql}", BOOLEAN, inner, simple=False)

    def _between(self, node: exp.Between) -> Rendered:
        value, low, high = (self.render(node.args[name]) for name in ("this", "low", "high"))
        within = [compare(">=", value, low), compare("<=", value, high)]
        text = " AND ".join(item.wrapped for item in within)
        if node.args.get("symmetric"):
            within += [compare(">=", value, high), compare("<=", value, low)]
            text = f"({text}) OR ({within[2].wrapped} AND {within[3].wrapped})"
        return made(text, BOOLEAN, *within, simple=False)

    def _in(self, node: exp.In) -> Rendered:
        if node.args.get("query") is not None or not node.expressions:
            raise self.fault(f"IN (SELECT ...) is {ONLY}", node)
        value = self.render(node.this)
        equal = [compare("=", value, self.render(item), exact=True) for item in node.expressions]
        return made(" OR ".join(item.wrapped for item in equal), BOOLEAN, *equal, simple=False)

    def _like(self, node: exp.Like, escape: str | None = None) -> Rendered:
        found = like(self.render(node.this), self.render(node.expression), escape)
        return made(f"NOT {found.wrapped}", BOOLEAN, found, simple=False) if node.args.get("negate") else found

    def _similarto(self, node: exp.SimilarTo, escape: str | None = None) -> Rendered:
        return similar(self.render(node.this), self.render(node.expression), escape)

    def _escape(self, node: exp.Escape) -> Rendered:
        if not isinstance(node.this, (exp.Like, exp.SimilarTo)) or not node.expression.is_string:
            raise self.fault("ESCAPE takes one character in quotes, after LIKE", node)
        read = self._like if isinstance(node.this, exp.Like) else self._similarto
        return read(node.this, node.expression.name)  # type: ignore[arg-type]

    def _case(self, node: exp.Case) -> Rendered:
        subject = self.render(node.this) if node.this is not None else None
        branches = []
        for branch in node.args["ifs"]:
            tested = self.render(branch.this)
            tested = condition(tested, "WHEN") if subject is None else compare("=", subject, tested)
            branches.append((tested, self.render(branch.args["true"])))
        default = node.args.get("default")
        return choose(branches, self.render(default) if default is not None else None)

    # types

    def _cast(self, node: exp.Cast, *, safe: bool = False) -> Rendered:
        to = declared_type(node)
        if to is None:
            return self._typed_literal(node)
        value = self.render(node.this)
        if value.type is not None and not can_cast(value.type, to):
            raise self.fault(f"there is no CAST of {value.type} AS {to}", node)
        return cast(value, to, safe=safe)

    def _trycast(self, node: exp.TryCast) -> Rendered:
        return self._cast(node, safe=True)

    def _typed_literal(self, node: exp.Cast) -> Rendered:
        """DATE '...', TIME '...', TIMESTAMP '...'."""
        text = node.this.name
        fraction = len(text.partition(".")[2]) if "." in text else 0
        word = node.to.this.value.upper().removesuffix("NTZ")
        if word in ("DATE", "TIME", "TIMESTAMP") and not is_moment(word, text):
            shown = {"DATE": "2024-12-31", "TIME": "23:59:59", "TIMESTAMP": "2024-12-31 23:59:59"}[word]
            raise self.fault(f"there is no such {word}: a literal is written {word} '{shown}'", node)
        match word:
            case "DATE":
                return Rendered(f"DATE{quote_text(text)}", DATE, simple=True)
            case "TIMESTAMP":
                kind = LogicalType(TypeName.TIMESTAMP, precision=min(fraction, 9))
                return Rendered(f"TIMESTAMP_NTZ{quote_text(text)}", kind, simple=True)
            case "TIME":
                value = Rendered(quote_text(text), STRING, simple=True)
                return cast(value, LogicalType(TypeName.TIME, precision=min(fraction, 6)), safe=True)
        raise self.fault("after a type name, a literal is written DATE, TIME or TIMESTAMP '...'", node)

    def _interval(self, node: exp.Interval) -> Rendered:
        raise self.fault("an INTERVAL stands behind a date or a time: ts + INTERVAL '1' DAY", node)

    def _extract(self, node: exp.Extract) -> Rendered:
        return field_of(node.this.name.upper(), self.render(node.expression))

    def _floor(self, node: exp.Floor) -> Rendered:
        return self._whole(node, "FLOOR")

    def _ceil(self, node: exp.Ceil) -> Rendered:
        return self._whole(node, "CEIL")

    def _whole(self, node: exp.Expr, name: str) -> Rendered:
        value, unit = self.render(node.this), node.args.get("to")
        if unit is None:
            return functions.call(name, [value])
        return floor_to(value, unit.name.upper(), up=name == "CEIL")

    # functions with a syntax of their own

    def _trim(self, node: exp.Trim) -> Rendered:
        characters = self.render(node.expression) if node.expression is not None else None
        return trim(self.render(node.this), characters, node.args.get("position") or "BOTH")

    def _substring(self, node: exp.Substring) -> Rendered:
        pieces = [self.render(node.args[name]) for name in ("this", "start", "length") if node.args.get(name)]
        return functions.call("SUBSTRING", pieces)

    def _strposition(self, node: exp.StrPosition) -> Rendered:
        return functions.call("LOCATE", [self.render(node.args["substr"]), self.render(node.this)])

    def _overlay(self, node: exp.Overlay) -> Rendered:
        names = ("this", "expression", "from_", "for_")
        return overlay([self.render(node.args[name]) for name in names if node.args.get(name)])

    def _currentdate(self, _node: exp.CurrentDate) -> Rendered:
        return functions.call("CURRENT_DATE", ())

    def _currenttime(self, _node: exp.CurrentTime) -> Rendered:
        return functions.call("CURRENT_TIME", ())

    def _currenttimestamp(self, _node: exp.CurrentTimestamp) -> Rendered:
        return functions.call("CURRENT_TIMESTAMP", ())

    def _array(self, node: exp.Array) -> Rendered:
        return functions.call("ARRAY", [self.render(item) for item in node.expressions])

    def _tuple(self, node: exp.Tuple) -> Rendered:
        return functions.call("ROW", [self.render(item) for item in node.expressions])

    def _bracket(self, node: exp.Bracket) -> Rendered:
        base = node.this
        items = [self.render(item) for item in node.expressions]
        if isinstance(base, exp.Column) and base.name.upper() == "MAP" and base.name not in self.scope.columns:
            return functions.call("MAP", items)
        value = self.render(base)
        if len(items) != 1:
            raise self.fault("one index or key stands in brackets", node)
        return item_of(value, items[0])

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
        if upper.startswith("JSON_") and (found := self._json(upper, node, rendered)) is not None:
            return found
        own = user_functions.user_function(name)
        if own is not None:
            lateral = bool(node.meta.get(LATERAL_KEY))
            return user_functions.user_call(own, rendered, stops=self.scope.stops, lateral=lateral)
        return functions.call(name, rendered, more=user_functions.names())

    def _json(self, name: str, node: exp.Anonymous, arguments: list[Rendered]) -> Rendered | None:
        """The JSON functions that have clauses."""
        clauses = clauses_of(node)
        words = {key: value for key, value in clauses.items() if isinstance(value, str)}
        match name:
            case "JSON_VALUE":
                chosen = {
                    key: value if isinstance(value, str) else self.render(value) for key, value in clauses.items()
                }
                return json.json_value(arguments, chosen, declared_type(node))
            case "JSON_QUERY":
                if (returning := declared_type(node)) is not None and returning.name not in STRINGS:
                    raise self.fault(f"JSON_QUERY gives a text, not {returning}", node)
                return json.json_query(arguments, words.get("WRAPPER", "WITHOUT"), words)
            case "JSON_EXISTS":
                return json.json_exists(arguments, words.get("ERROR", "FALSE"))
            case "JSON_OBJECT":
                pairs = list(zip(arguments[::2], arguments[1::2], strict=True))
                return json.json_object(pairs, absent=words.get("ABSENT") == "TRUE")
            case "JSON_ARRAY":
                return json.json_array(arguments, absent=words.get("ABSENT") == "TRUE")
        return None


def _is_int(text: str) -> bool:
    """Return whether a text is a whole number that Spark adds as a count."""
    return text.strip().lstrip("+-").isdigit() and abs(int(text)) < int(_BEYOND_INT)


def _interval_of(node: exp.Expr) -> tuple[exp.Interval, bool] | None:
    """The interval that is added or subtracted, and whether it is so with the other sign; None for something else.

    ``n * INTERVAL '2' DAY`` is one of ``2 * n`` days.
    """
    if isinstance(node, exp.Paren):
        return _interval_of(node.this)
    if isinstance(node, exp.Neg):
        found = _interval_of(node.this)
        return (found[0], not found[1]) if found is not None else None
    if isinstance(node, exp.Mul):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            found = _interval_of(one)
            if found is not None and isinstance(found[0].this, exp.Literal) and _is_int(found[0].this.name):
                number = exp.Literal.number(str(abs(int(found[0].this.name))))
                product = exp.Paren(this=exp.Mul(this=exp.Paren(this=other.copy()), expression=number))
                several = exp.Interval(this=product, unit=found[0].args["unit"].copy())
                several.meta.update(found[0].meta)
                return several, found[1] != (int(found[0].this.name) < 0)
        return None
    return (node, False) if isinstance(node, exp.Interval) else None
