"""Time travel and incremental queries: ``AS OF`` and ``BETWEEN`` behind a table's name (spec 2.7)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import duckdb
from sqlglot import exp

from upsert_platform.local.maxcompute.errors import semantic_error
from upsert_platform.local.maxcompute.schema import Table
from upsert_platform.local.maxcompute.sql.context import Context
from upsert_platform.local.maxcompute.sql.tokens import tokenize
from upsert_platform.local.maxcompute.storage.history import check_readable, latest, version_at

# Behind one of these, VERSION BETWEEN is a condition on a column of that name.
_CONDITIONS = {"WHERE", "AND", "OR", "ON", "NOT", "WHEN", "HAVING", "CASE", "THEN", "ELSE", "SELECT", "(", ",", "."}
_LATEST = re.compile(r"get_latest_(version|timestamp)", re.IGNORECASE)


@dataclass(frozen=True)
class Travel:
    """The version of a table's history that a query reads.

    Attributes:
        version: rows as they were at this version, or up to it.
        after: only what commits after this version have written; None for a whole snapshot.
    """

    version: int
    after: int | None = None


def mark_ranges(sql: str) -> str:
    """Writes ``t VERSION BETWEEN a AND b`` as ``t FOR VERSION BETWEEN a AND b``, which the parser knows."""
    tokens = tokenize(sql)
    places = []
    for before, word, between in zip(tokens, tokens[1:], tokens[2:], strict=False):
        is_range = word.kind == "word" and word.text.upper() in ("VERSION", "TIMESTAMP")
        if is_range and between.text.upper() == "BETWEEN" and before.text.upper() not in {*_CONDITIONS, "FOR"}:
            places.append(word.start)
    for place in reversed(places):
        sql = f"{sql[:place]}FOR {sql[place:]}"
    return sql


def travel_of(context: Context, cursor: duckdb.DuckDBPyConnection, table: Table, node: exp.Table) -> Travel | None:
    """Return the version that a table's clause asks for, or None for the present.

    Raises:
        ServiceError: the version cannot be read, or the clause is not a constant.
    """
    clause = node.args.get("version")
    if clause is None:
        return None
    kind = str(clause.args.get("kind") or "").upper()
    unit = str(clause.this).upper()
    partitions = context.store.catalogue.partitions(table.table_id)
    if kind == "AS OF":
        version = _version(context, cursor, table, unit, clause.expression)
        check_readable(table, partitions, version)
        return Travel(version)
    if kind == "BETWEEN":
        start, end = clause.expression.expressions
        first = _version(context, cursor, table, unit, start, earliest=True)
        return Travel(min(_version(context, cursor, table, unit, end), table.version), after=first)
    raise semantic_error(f"table {table.name}: time travel takes AS OF or BETWEEN")


def _version(
    context: Context,
    cursor: duckdb.DuckDBPyConnection,
    table: Table,
    unit: str,
    expression: exp.Expression,
    *,
    earliest: bool = False,
) -> int:
    value = _constant(context, cursor, expression)
    if unit == "VERSION":
        try:
            return int(value)
        except (TypeError, ValueError) as error:
            raise semantic_error(f"table {table.name}: '{value}' is not a version") from error
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise semantic_error(f"table {table.name}: '{value}' is not a time") from error
    if not isinstance(value, datetime):
        raise semantic_error(f"table {table.name}: '{value}' is not a time")
    moment = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if earliest and moment < table.created:
        return 0
    return version_at(context.store.catalogue, table, moment)


def _constant(context: Context, cursor: duckdb.DuckDBPyConnection, expression: exp.Expression) -> Any:
    """The value of an expression without columns; a time plus or minus a number counts seconds."""
    wrapper = exp.Paren(this=expression.copy())
    for node in list(wrapper.find_all(exp.Anonymous)):
        match = _LATEST.fullmatch(node.name)
        if match:
            node.replace(_latest(context, match[1].lower(), node.expressions))
    for sum_ in list(wrapper.find_all(exp.Add, exp.Sub)):
        if isinstance(sum_.expression, exp.Literal) and not sum_.expression.is_string and not sum_.this.is_number:
            sum_.set("expression", exp.Interval(this=sum_.expression.copy(), unit=exp.var("SECOND")))
    try:
        rows = cursor.execute(f"SELECT {wrapper.sql(dialect='duckdb')}").fetchall()
    except duckdb.Error as error:
        raise semantic_error(f"'{expression.sql()}' is not a constant: {error}") from error
    return rows[0][0]


def _latest(context: Context, what: str, arguments: list[exp.Expression]) -> exp.Expression:
    if not arguments:
        raise semantic_error(f"get_latest_{what} takes a table's name and, if wanted, a number")
    table = context.table(tuple(part.lower() for part in arguments[0].name.split(".")))
    number = int(arguments[1].name) if len(arguments) > 1 else 1
    version, committed = latest(context.store.catalogue, table, number)
    if what == "version":
        return exp.Literal.number(version)
    return exp.Literal.string(datetime.fromtimestamp(committed, UTC).isoformat())
