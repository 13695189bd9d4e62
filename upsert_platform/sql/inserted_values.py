"""INSERT INTO ... VALUES: the rows of all such statements of a target as a table that is read like any other.

Each row is inserted once, in the order of the statements, by the first run that finds it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from upsert_platform.core.errors import Problem, SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.options import nearest
from upsert_platform.core.types import quote_name
from upsert_platform.sql.casts import cast
from upsert_platform.sql.compatibility import can_write
from upsert_platform.sql.declarations import InsertDeclaration
from upsert_platform.sql.expressions import Scope, render
from upsert_platform.sql.flink import line_of, parse_query
from upsert_platform.sql.lexer import Token, TokenKind, tokenize
from upsert_platform.sql.reader import Fault
from upsert_platform.sql.rendered import Rendered, first_failure
from upsert_platform.sql.tables import Tables

CONNECTOR: Final = "values"
ROWS: Final = "rows"
"""Option of such a table: JSON, per row the Spark SQL of each column, that of why it has no value (or null), and the
declared row, by which it is known again."""
Row = tuple[list[str], str | None, str]
_SUFFIX: Final = "$values"


def target_of(table: str) -> str | None:
    """The table that the rows of such a table are inserted into; None for other names."""
    return table.removesuffix(_SUFFIX) if table.endswith(_SUFFIX) else None


def is_values(declaration: InsertDeclaration) -> bool:
    """Return whether an insert writes its rows out."""
    return declaration.query[0].is_word("VALUES") and not declaration.overwrite


def with_values(
    inserts: Sequence[InsertDeclaration], tables: Tables, problems: list[Problem]
) -> list[InsertDeclaration]:
    """Inserts of which those with VALUES read tables, one per target, which are added to `tables`."""
    found: list[InsertDeclaration] = []
    together: dict[str, list[InsertDeclaration]] = {}
    for declaration in inserts:
        if is_values(declaration) and declaration.target in tables.by_name:
            if declaration.target not in together:
                found.append(declaration)
            together.setdefault(declaration.target, []).append(declaration)
        else:
            found.append(declaration)
    given: list[InsertDeclaration] = []
    for declaration in found:
        if is_values(declaration) and declaration.target in together:
            reading = _read(together[declaration.target], tables, problems)
            if reading is not None:
                given.append(reading)
        else:
            given.append(declaration)
    return given


def _read(
    declarations: Sequence[InsertDeclaration], tables: Tables, problems: list[Problem]
) -> InsertDeclaration | None:
    target = tables.by_name[declarations[0].target]
    if target.name in tables.faulty or target.name in tables.elided:
        return None
    columns = [column for column in target.columns if column.type is not None and not column.virtual]
    rows: list[Row] = []
    faulty = False
    for declaration in declarations:
        try:
            rows += _rows(declaration, target, columns)
        except Fault as fault:
            faulty = True
            place = SourceLocation(declaration.location.file, fault.line)
            problems.append(Problem(f"INSERT INTO {target.name}: {fault.message}", place))
    if faulty:
        return None
    first = declarations[0]
    name = f"{target.name}{_SUFFIX}"
    tables.by_name[name] = Table(
        name,
        tuple(Column(column.name, column.type) for column in columns),
        (),
        Options({"connector": CONNECTOR, ROWS: json.dumps(rows)}),
        first.location,
    )
    names = tuple(column.name for column in columns)
    text = f"SELECT {', '.join(map(quote_name, names))} FROM {quote_name(name)}"
    tokens, _ = tokenize(text, first.location.file)
    query = tuple(replace(token, line=first.location.line) for token in tokens)
    sql = ";\n".join(item.sql for item in declarations)
    return InsertDeclaration(target.name, first.location, query, {}, names, sql)


def _rows(declaration: InsertDeclaration, target: Table, columns: Sequence[Column]) -> list[Row]:
    """The rows of a statement.

    Raises:
        Fault: a value does not fit, or there are too many or too few.
    """
    line = declaration.location.line
    node = parse_query(declaration.query, "query")
    if not isinstance(node, exp.Values):
        raise Fault("rows are written VALUES (...), (...)", line)
    constants = {name: parse_query(tokens, "expression") for name, tokens in declaration.partition.items()}
    known = {column.name: column for column in columns}
    for name in (*declaration.columns, *constants):
        if name not in known:
            raise Fault(f"the target has no column '{name}' to write{nearest(name, known)}", line)
    for name in constants:
        if name not in target.partitioned_by:
            raise Fault(f"PARTITION names '{name}', which is not a partition column", line)
    names = list(declaration.columns) or [name for name in known if name not in constants]
    rows: list[Row] = []
    for item, declared in zip(node.expressions, _declared(declaration, names), strict=True):
        values = _values(item)
        if len(values) != len(names):
            raise Fault(
                f"a row of VALUES has {len(values)} values for {len(names)} columns of the target ({', '.join(names)})",
                line_of(item, line),
            )
        given = dict(zip(names, values, strict=True)) | constants
        written = [_value(given.get(column.name), column, target, line) for column in columns]
        failure = first_failure(*(value.fails for value in written))
        rows.append(([value.sql for value in written], failure, declared))
    return rows


def _declared(declaration: InsertDeclaration, names: Sequence[str]) -> list[str]:
    """The rows of a statement as its tokens, with the columns that they are for: the same in every release.

    Blanks, comments and the case of words make no difference.
    """
    own = json.dumps([names, {name: _plain(tokens) for name, tokens in declaration.partition.items()}])
    rows: list[list[Token]] = [[]]
    depth = 0
    for token in declaration.query[1:]:
        if token.kind is TokenKind.SYMBOL:
            depth += (token.value in "([") - (token.value in ")]")
            if token.value == "," and not depth:
                rows.append([])
                continue
        rows[-1].append(token)
    return [f"{own} {json.dumps(_plain(row))}" for row in rows]


def _plain(tokens: Sequence[Token]) -> list[str]:
    return [_plain_token(token) for token in tokens]


def _plain_token(token: Token) -> str:
    return token.value.upper() if token.kind is TokenKind.WORD else f"{token.kind.value} {token.value}"


def _values(node: exp.Expr) -> list[exp.Expr]:
    """The values of a row: ``(1, 'a')``, ``ROW(1, 'a')``, ``(1)``."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Tuple):
        inner = list(node.expressions)
        if len(inner) == 1 and _is_row(inner[0]):
            return list(inner[0].expressions)
        return inner
    return list(node.expressions) if _is_row(node) else [node]


def _is_row(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).upper() == "ROW"


def _value(node: exp.Expr | None, column: Column, target: Table, line: int) -> Rendered:
    assert column.type is not None
    if node is None:
        if column.name in target.primary_key:
            raise Fault(f"primary key column '{column.name}' is not written; add it to the column list", line)
        if not column.type.nullable:
            raise Fault(f"column '{column.name}' is NOT NULL and not written; add it to the column list", line)
        return Rendered("NULL", simple=True)
    if isinstance(node, exp.Null) and not column.type.nullable:
        raise Fault(f"column '{column.name}' takes no NULL", line_of(node, line))
    value: Rendered = render(node, Scope({}), line)
    shown = str(column.type).removesuffix(" NOT NULL")
    if value.type is not None and not can_write(value.type, column.type):
        raise Fault(
            f"column '{column.name}' is {shown}, the value is {str(value.type).removesuffix(' NOT NULL')}; write"
            f" CAST(... AS {shown})",
            line_of(node, line),
        )
    return cast(value, column.type, implicit=True)
