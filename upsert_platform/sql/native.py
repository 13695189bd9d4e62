"""Spark SQL that Arrow evaluates alike: columns, fields of rows, literals, comparisons within a family of types,
arithmetic of whole numbers, products of decimals, CASE, DATE_FORMAT, a few functions of texts (`native_texts`), and
those of the clock, whose time the driver writes into the form of a batch (`core.plan.clock`).

It reads the text that `expressions.render` made, in which casts and other differences between Flink and Spark are
written out: what is left of these few forms means the same in Spark and in Arrow. Anything else has no native form.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Final, cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from upsert_platform.core.plan import Native, clock
from upsert_platform.core.types import LogicalType, TypeName, arrow_type
from upsert_platform.sql import native_calls, native_texts
from upsert_platform.sql.functions.times import CLOCKS
from upsert_platform.sql.numbers import MOST_DIGITS, arithmetic_type, as_decimal, whole_digits_of_product
from upsert_platform.sql.rendered import BOOLEAN, INTEGERS, STRING, STRINGS

_COMPARISONS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_ARITHMETIC: Final[Mapping[type[exp.Expr], str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Mod: "%"}
_BYTES: Final = {TypeName.TINYINT: 1, TypeName.SMALLINT: 2, TypeName.INT: 4, TypeName.BIGINT: 8}
_NULLS: Final = {
    **{name.value: LogicalType(name) for name in (*_BYTES, TypeName.BOOLEAN, TypeName.STRING, TypeName.DATE)},
    **{name.value: LogicalType(name) for name in (TypeName.FLOAT, TypeName.DOUBLE)},
    "BINARY": LogicalType(TypeName.BYTES),
    "TIMESTAMP_NTZ": LogicalType(TypeName.TIMESTAMP, precision=6),
    "TIMESTAMP": LogicalType(TypeName.TIMESTAMP_LTZ, precision=6),
}
"""The types of Spark SQL that a null may have, but for DECIMAL."""
_PARTS: Final = "|".join(f"(?<!{part[0]}){part}(?!{part[0]})" for part in ("yyyy", "MM", "dd", "HH", "mm", "ss"))
_PATTERN: Final = re.compile(rf"DATE_FORMAT\(.*, '((?:{_PARTS}|[-/:. ])+)'\)", re.DOTALL)
_LEAST_LONG: Final = 1 << 63
_ESCAPES: Final = re.compile(r"(?:[^\\]|\\[\\'])*")
"""Texts whose escapes, of a backslash or a quote, every parser reads alike."""


def native_form(text: str, columns: Mapping[str, LogicalType]) -> Native | None:
    """An expression for Arrow, or None where it is not sure to give what Spark gives.

    Args:
        text: of `expressions.render`.
        columns: that it may name, with their types.
    """
    if not _ESCAPES.fullmatch(text):
        return None
    try:
        parsed = sqlglot.parse_one(text, dialect="spark")
    except SqlglotError:
        return None
    formats = Counter(item.sql(dialect="spark") for item in parsed.find_all(exp.TimeToStr))
    if any(text.count(written) < times for written, times in formats.items()):
        return None  # a pattern of which the parser made another, which may stand beside it
    if "TRY_CAST" in text.upper():  # the parser takes both for one, and numbers that do not fit are null there
        return None
    return _native(parsed, columns)


def _native(node: exp.Expr, columns: Mapping[str, LogicalType]) -> Native | None:
    if isinstance(node, exp.Paren):
        return _native(node.this, columns)
    reading = next((form for parsed, form in _clocks() if parsed == node), None)
    if reading is not None:
        return reading
    if native_calls.is_call(node):
        return _call(node, columns)
    if isinstance(node, (exp.Column, exp.Dot)):
        return _column(node, columns)
    if isinstance(node, exp.Boolean):
        return ("literal", bool(node.this), LogicalType(TypeName.BOOLEAN))
    if isinstance(node, exp.Literal):
        return _literal(node)
    if type(node) in _COMPARISONS:
        return _comparison(node, columns)
    if isinstance(node, exp.Or) and (value := native_texts.text_of_any(node)) is not None:
        known = _text(value, columns)  # it is null where the text is
        return ("=", known, known) if known is not None else None
    if isinstance(node, (exp.And, exp.Or)):
        sides = [_truth(side, columns) for side in (node.this, node.expression)]
        return (node.key, *sides) if all(side is not None for side in sides) else None
    if isinstance(node, exp.Not):
        inner = _truth(node.this, columns)
        return ("not", inner) if inner is not None else None
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        inner = _native(node.this, columns)
        return ("is null", inner) if inner is not None else None
    if isinstance(node, exp.Case) and node.this is None:
        return _case(node, columns)
    if isinstance(node, exp.TimeToStr):
        return _date_format(node, columns)
    if type(node) in _ARITHMETIC:
        return _arithmetic(node, columns)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Null):
        return _null(node)
    if isinstance(node, exp.Cast):
        return _whole_number(node, columns) or _decimal(node, columns)
    return native_texts.native_form(node, lambda inner: _text(inner, columns))


@cache
def _clocks() -> list[tuple[exp.Expr, Native]]:
    """Return the readings of the clock, parsed, with their forms."""
    return [
        (sqlglot.parse_one(text, dialect="spark").unnest(), clock(kind))
        for text, kind in dict.fromkeys(CLOCKS.values())
    ]


def native_condition(text: str, columns: Mapping[str, LogicalType]) -> Native | None:
    """As `native_form`, of a condition."""
    found = native_form(text, columns)
    return found if found is not None and _is_truth(found, columns) else None


def _truth(node: exp.Expr, columns: Mapping[str, LogicalType]) -> Native | None:
    found = _native(node, columns)
    return found if found is not None and _is_truth(found, columns) else None


def _is_truth(native: Native, columns: Mapping[str, LogicalType]) -> bool:
    kind = type_of(native, columns)
    return kind is None or kind.name is TypeName.BOOLEAN


def type_of(native: Native, columns: Mapping[str, LogicalType]) -> LogicalType | None:
    """The type of a column, a field, a literal or a CASE; None for a truth value."""
    match native[0]:
        case "column":
            return columns[native[1]]
        case "literal":
            return cast("LogicalType", native[2])
        case "clock":
            return cast("LogicalType", native[1])
        case "field":
            row = type_of(native[1], columns)
            return next(item.type for item in row.fields if item.name == native[2]) if row is not None else None
        case "call":
            return native_calls.type_of_call(native[1])
        case "case":
            return type_of(native[2], columns)
        case "date format" | "part" | "group":
            return STRING
        case "whole" | "decimal":
            return cast("LogicalType", native[2])
        case "+" | "-" | "*" | "%":
            left, right = (type_of(side, columns) for side in native[1:])
            if left is not None and right is not None and left.name is TypeName.DECIMAL:
                return arithmetic_type("*", left, right)
            return left
    return None


def _call(node: exp.Expr, columns: Mapping[str, LogicalType]) -> Native | None:
    """A call of a function of the project."""
    found = {}
    for item in node.this.expressions if isinstance(node, exp.Dot) else node.expressions:
        form = _native(item, columns)
        if form is not None:
            found[item] = form, type_of(form, columns) or BOOLEAN
    return native_calls.native_call(node, found)


def _column(node: exp.Expr, columns: Mapping[str, LogicalType]) -> Native | None:
    """A column, or a field of one of type ROW; names are those of the declaration, in their case."""
    parts = node.parts if isinstance(node, (exp.Column, exp.Dot)) else []
    if not parts or not all(isinstance(part, exp.Identifier) for part in parts) or parts[0].name not in columns:
        return None
    found: Native = ("column", parts[0].name)
    kind = columns[parts[0].name]
    for part in parts[1:]:
        # Spark takes a name for a field whatever its case is.
        alike = [item for item in kind.fields if item.name.casefold() == part.name.casefold()]
        if kind.name is not TypeName.ROW or len(alike) != 1 or alike[0].name != part.name:
            return None
        found, kind = ("field", found, part.name), alike[0].type
    return found


def _case(node: exp.Case, columns: Mapping[str, LogicalType]) -> Native | None:
    """CASE WHEN ... with values of one type, which null has too."""
    conditions = [_truth(branch.this, columns) for branch in node.args["ifs"]]
    given = [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default") or exp.Null()]
    values = [None if isinstance(value, exp.Null) else _native(value, columns) for value in given]
    if any(value is None and not isinstance(text, exp.Null) for value, text in zip(values, given, strict=True)) or any(
        condition is None for condition in conditions
    ):
        return None
    kinds = [None if value is None else type_of(value, columns) for value in values]
    known = [kind for kind in kinds if kind is not None]
    if len(known) != sum(value is not None for value in values) or len({arrow_type(kind) for kind in known}) != 1:
        return None
    null: Native = ("literal", None, known[0])
    values = [null if value is None else value for value in values]
    found = [item for pair in zip(conditions, values[:-1], strict=True) for item in pair]
    if values[0] is null:  # the first value tells the type
        found = [("literal", False, LogicalType(TypeName.BOOLEAN)), next(v for v in values if v is not null), *found]
    return ("case", *found, values[-1])


def _arithmetic(node: exp.Expr, columns: Mapping[str, LogicalType]) -> Native | None:
    """Whole numbers of one type, whose results wrap around; a remainder of a number that is known not to be zero."""
    sides = [_native(side, columns) for side in (node.this, node.expression)]
    kinds = [None if side is None else type_of(side, columns) for side in sides]
    if isinstance(node, exp.Mul) and all(kind is not None and kind.name is TypeName.DECIMAL for kind in kinds):
        left, right = (kind for kind in kinds if kind is not None)
        return ("*", *sides) if (left.precision or 0) + (right.precision or 0) < MOST_DIGITS else None
    if any(kind is None or kind.name not in INTEGERS for kind in kinds):
        return None
    left, right = (kind for kind in kinds if kind is not None)
    divisor = sides[1]
    if isinstance(node, exp.Mod):
        # The result has the wider type, and a literal is as wide as it is written.
        known = divisor is not None and divisor[0] == "literal" and divisor[1]
        if not known or INTEGERS.index(right.name) > INTEGERS.index(left.name):
            return None
    elif left.name is not right.name or all(side is not None and _may_be_narrower(side) for side in sides):
        return None
    return (_ARITHMETIC[type(node)], *sides)


def _may_be_narrower(native: Native) -> bool:
    """Return whether an expression is made of literals alone, which may be an INT in Spark and wrap around as one."""
    match native[0]:
        case "literal":
            return cast("LogicalType", native[2]).name is TypeName.BIGINT
        case "case":
            return any(_may_be_narrower(value) for value in (*native[2::2], native[-1]))
        case "%":
            return _may_be_narrower(native[1])
    return False


def _whole_number(node: exp.Cast, columns: Mapping[str, LogicalType]) -> Native | None:
    """CAST between types of whole numbers, which cuts off the upper bits."""
    wanted = {name.value: name for name in INTEGERS}.get(node.to.sql(dialect="spark").upper())
    inner = _native(node.this, columns)
    kind = None if inner is None else type_of(inner, columns)
    if wanted is None or inner is None or kind is None or kind.name not in INTEGERS:
        return None
    if inner[0] == "literal" and inner[1] is None:
        return ("literal", None, LogicalType(wanted))
    if inner[0] == "literal" and inner[1] < 1 << (8 * _BYTES[wanted] - 1):
        return ("literal", inner[1], LogicalType(wanted))
    return ("whole", inner, LogicalType(wanted))


def _null(node: exp.Cast) -> Native | None:
    """NULL of a type without parts."""
    written = node.to.sql(dialect="spark").upper()
    if written in _NULLS:
        return ("literal", None, _NULLS[written])
    found = re.fullmatch(r"DECIMAL\((\d+), ?(\d+)\)", written)
    kind = found and LogicalType(TypeName.DECIMAL, precision=int(found[1]), scale=int(found[2]))
    return ("literal", None, kind) if kind else None


def _decimal(node: exp.Cast, columns: Mapping[str, LogicalType]) -> Native | None:
    """CAST of an exact number to a DECIMAL that has room for all its digits."""
    if not node.to.is_type(exp.DataType.Type.DECIMAL) or len(node.to.expressions) != 2:
        return None
    precision, scale = (int(item.name) for item in node.to.expressions)
    wanted = LogicalType(TypeName.DECIMAL, precision=precision, scale=scale)
    if isinstance(node.this, exp.Literal) and not node.this.is_string and re.fullmatch(r"\d+\.\d+", node.this.name):
        whole, _, fraction = node.this.name.partition(".")
        fits = len(whole.lstrip("0")) <= precision - scale and len(fraction) <= scale
        return ("literal", Decimal(node.this.name), wanted) if fits else None
    inner = _native(node.this, columns)
    kind = None if inner is None else type_of(inner, columns)
    if inner is None or kind is None or kind.name not in (*INTEGERS, TypeName.DECIMAL):
        return None
    given = as_decimal(kind)
    if (given.scale or 0) > scale or _whole_digits(inner, columns) > precision - scale:
        return None
    return ("decimal", inner, wanted)


def _whole_digits(native: Native, columns: Mapping[str, LogicalType]) -> int:
    """The digits before the point that an exact number has at most."""
    if native[0] == "decimal":
        return _whole_digits(native[1], columns)
    kind = type_of(native, columns)
    assert kind is not None
    if native[0] == "*" and kind.name is TypeName.DECIMAL:
        left, right = (type_of(side, columns) for side in native[1:])
        assert left is not None and right is not None
        whole = [_whole_digits(side, columns) for side in native[1:]]
        most = whole_digits_of_product(left, right, whole=whole)
        if most is not None:
            return most
    given = as_decimal(kind)
    return (given.precision or 0) - (given.scale or 0)


def _text(node: exp.Expr, columns: Mapping[str, LogicalType]) -> Native | None:
    found = _native(node, columns)
    kind = None if found is None else type_of(found, columns)
    return found if kind is not None and kind.name in STRINGS else None


def _date_format(node: exp.TimeToStr, columns: Mapping[str, LogicalType]) -> Native | None:
    """DATE_FORMAT of a TIMESTAMP, which no time zone changes, by a pattern of two digits and years."""
    given = node.this.this if isinstance(node.this, exp.TimeStrToTime) else node.this
    inner = _native(given, columns)
    kind = None if inner is None else type_of(inner, columns)
    if kind is None or kind.name is not TypeName.TIMESTAMP:
        return None
    # The parser translates patterns, several to one; whoever reads the form compares its text with the original.
    found = _PATTERN.fullmatch(node.sql(dialect="spark"))
    return ("date format", inner, found[1]) if found is not None else None


def _literal(node: exp.Literal) -> Native | None:
    if node.is_string:
        return ("literal", node.name, LogicalType(TypeName.STRING))
    if not node.name.isdigit() or int(node.name) >= _LEAST_LONG:
        return None
    return ("literal", int(node.name), LogicalType(TypeName.BIGINT))


def _comparison(node: exp.Expr, columns: Mapping[str, LogicalType]) -> Native | None:
    if isinstance(node, (exp.EQ, exp.NEQ)):
        of_case = native_texts.of_case(node, lambda inner: _text(inner, columns))
        if of_case is not None:
            return (_COMPARISONS[type(node)], *of_case)
    sides = [_native(side, columns) for side in (node.this, node.expression)]
    if any(side is None for side in sides):
        return None
    kinds = [type_of(side, columns) for side in sides if side is not None]
    if any(kind is None for kind in kinds):
        return None
    names = [kind.name for kind in kinds if kind is not None]
    alike = any(all(name in family for name in names) for family in (INTEGERS, STRINGS, (TypeName.BOOLEAN,)))
    return (_COMPARISONS[type(node)], *sides) if alike else None
