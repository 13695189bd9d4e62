"""An insert as the referee's selection: columns as they are and simple conditions, from the statement as written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from upsert_platform.core.errors import UpsertPlatformError
from upsert_platform.core.types import NESTED, TEXTS, LogicalType, TypeName
from upsert_platform.referee.selection import Condition, Selection
from upsert_platform.sql.flink import Flink
from upsert_platform.sync.binding import Target

_INTEGERS: Final = (TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT)
_OPERATORS: Final = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class NotJudgedError(UpsertPlatformError):
    """A declaration that the referee does not judge; the message says what of it."""


def selection_of(bound: Target, in_place_of_null: Mapping[str, Any]) -> Selection:
    """Return the selection that a target's insert makes from its source.

    Raises:
        NotJudgedError: the insert computes something, or filters by more than comparisons with constants.
    """
    columns, where = _parts(bound)
    for name, source in columns.items():
        if source is not None:
            wanted, given = bound.table.column(name).type, bound.source.table.column(source).type
            if wanted is None or given is None or not _keeps(given, wanted):
                raise NotJudgedError(
                    f"table '{bound.table.name}': column '{name}' is {wanted}, '{source}' of the source is {given}: the"
                    " insert casts, which the referee does not do by itself"
                )
    return Selection(columns, where, in_place_of_null)


def _parts(bound: Target) -> tuple[dict[str, str | None], list[Condition]]:
    """Target column to source column, and the conditions."""
    names = [column.name for column in bound.table.physical_columns]
    try:
        statement = parse_one(bound.insert.sql, dialect=Flink)
    except SqlglotError:
        statement = None
    if not isinstance(statement, exp.Insert):
        items = [parse_one(text, dialect="spark") for text in bound.insert.projections[: len(names)]]
        predicate = parse_one(bound.insert.predicate, dialect="spark") if bound.insert.predicate else None
        return _columns(bound, names, items), list(_conditions(bound, predicate))
    query = statement.expression
    extra = [name for name in ("joins", "group", "having", "distinct", "limit", "windows") if query.args.get(name)]
    source = query.args.get("from_") or query.args.get("from")
    if not isinstance(query, exp.Select) or extra or source is None or source.this.name != bound.insert.source:
        raise NotJudgedError(f"{_place(bound)} reads more than the rows of one table; the referee does not query")
    if isinstance(statement.this, exp.Schema):
        names = [item.name for item in statement.this.expressions]
    if statement.args.get("partition"):
        raise NotJudgedError(f"{_place(bound)} writes a fixed partition")
    where = query.args.get("where")
    columns = _columns(bound, names, query.expressions)
    return columns, list(_conditions(bound, where.this if where is not None else None))


def _columns(bound: Target, names: Sequence[str], items: Sequence[exp.Expr]) -> dict[str, str | None]:
    found: list[str | None] = []
    for item in items:
        bare = item.unalias()
        if isinstance(bare, exp.Star):
            found += [_column(bound, exp.column(column.name)) for column in bound.source.table.columns]
        elif isinstance(bare, exp.Null):
            found.append(None)
        else:
            found.append(_column(bound, bare))
    if len(found) != len(names):
        raise NotJudgedError(f"{_place(bound)} has a form that the referee does not read")
    given = dict(zip(names, found, strict=True))
    return {column.name: given.get(column.name) for column in bound.table.physical_columns}


def _column(bound: Target, item: exp.Expr) -> str:
    """The name of a physical column of the source."""
    item = item.unnest()
    physical = [column.name for column in bound.source.table.physical_columns]
    if isinstance(item, exp.Column) and item.name in physical:
        return item.name
    raise NotJudgedError(f"{_place(bound)}: '{item.sql()}' is an expression, which the referee does not evaluate")


def _conditions(bound: Target, where: exp.Expr | None) -> Iterator[Condition]:
    if where is None:
        return
    where = where.unnest()
    if isinstance(where, exp.And):
        yield from _conditions(bound, where.left)
        yield from _conditions(bound, where.right)
    elif isinstance(where, exp.Not) and _is_null(where.this.unnest()):
        yield Condition(_column(bound, where.this.unnest().this), "is not null")
    elif _is_null(where):
        yield Condition(_column(bound, where.this), "is null")
    elif isinstance(where, exp.In) and where.expressions:
        column = _column(bound, where.this)
        yield Condition(column, "in", tuple(_constant(bound, column, item) for item in where.expressions))
    elif type(where).__name__ in _OPERATORS:
        operator, one, other = _OPERATORS[type(where).__name__], where.this, where.expression
        if isinstance(other.unnest(), exp.Column):
            one, other, operator = other, one, _TURNED.get(operator, operator)
        column = _column(bound, one)
        yield Condition(column, operator, _constant(bound, column, other))
    else:
        raise NotJudgedError(f"{_place(bound)}: the referee does not evaluate WHERE {where.sql()}")


def _is_null(where: exp.Expr) -> bool:
    """Return whether a condition is IS NULL; after IS stand TRUE, FALSE and JSON, too."""
    return isinstance(where, exp.Is) and isinstance(where.expression, exp.Null)


def _constant(bound: Target, column: str, item: exp.Expr) -> Any:
    """A constant that is compared with a column, in the form in which the referee has the column's values."""
    kind = bound.source.table.column(column).type
    item = item.unnest()
    negative = isinstance(item, exp.Neg)
    literal = item.this if negative else item
    if kind is not None and isinstance(literal, exp.Literal):
        if literal.is_string and not negative and kind.name in (TypeName.STRING, TypeName.VARCHAR):
            return str(literal.this)
        if not literal.is_string and kind.name in (*_INTEGERS, TypeName.DECIMAL):
            return -Decimal(literal.this) if negative else Decimal(literal.this)
    if isinstance(item, exp.Boolean) and kind is not None and kind.name is TypeName.BOOLEAN:
        return bool(item.this)
    raise NotJudgedError(f"{_place(bound)}: the referee does not compare '{column}' ({kind}) with {item.sql()}")


def _keeps(given: LogicalType, wanted: LogicalType) -> bool:
    """Return whether a value of one type is the same value of the other."""
    if given.name in _INTEGERS and wanted.name in _INTEGERS:
        return _INTEGERS.index(given.name) <= _INTEGERS.index(wanted.name)
    if given.name in TEXTS and wanted.name in TEXTS:
        return wanted.name is TypeName.STRING or (
            given.name is wanted.name and (given.length or 0) <= (wanted.length or 0)
        )
    if given.name is TypeName.FLOAT and wanted.name is TypeName.DOUBLE:
        return True
    if given.name is TypeName.DECIMAL and wanted.name is TypeName.DECIMAL:
        return given.scale == wanted.scale and (given.precision or 0) <= (wanted.precision or 0)
    if given.name in NESTED:
        return str(given).removesuffix(" NOT NULL") == str(wanted).removesuffix(" NOT NULL")
    return given.name is wanted.name


def _place(bound: Target) -> str:
    return f"the insert into '{bound.table.name}' ({bound.insert.location})"
