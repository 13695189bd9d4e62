"""Statements: CREATE TABLE and DROP MAPPING TABLE, SHOW TABLES, DESC, and SELECT over a copy of the tables' rows."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import Any

from upsert_platform.local.tablestore import plainbuffer
from upsert_platform.local.tablestore.errors import ServiceError, invalid
from upsert_platform.local.tablestore.instance import Instance
from upsert_platform.local.tablestore.messages import pb
from upsert_platform.local.tablestore.selection import expired, live_cells
from upsert_platform.local.tablestore.sql.columns import BINARY, BOOLEAN, DOUBLE, LONG, STRING, Column, kind_of
from upsert_platform.local.tablestore.sql.mapping import MappedColumn, read_columns

MOST_ROWS = 100_000
_DROP = re.compile(r"\s*drop\s+mapping\s+table\s+(?:if\s+exists\s+)?`?(\w+)`?\s*;?\s*", re.IGNORECASE)
_SHOW = re.compile(r"\s*show\s+tables\s*;?\s*", re.IGNORECASE)
_DESCRIBE = re.compile(r"\s*desc(?:ribe)?\s+`?(\w+)`?\s*;?\s*", re.IGNORECASE)
_AFFINITY = {LONG: "INTEGER", BOOLEAN: "INTEGER", DOUBLE: "REAL", STRING: "TEXT", BINARY: "BLOB"}
_PYTHON = {LONG: int, BOOLEAN: bool, DOUBLE: float, STRING: str, BINARY: bytes}


def run_statement(instance: Instance, text: str) -> tuple[int, list[Column]]:
    """Runs one statement; returns its kind in the protocol and the result's columns."""
    if match := _DROP.fullmatch(text):
        instance.mappings.drop(match[1])
        return pb.SQL_DROP_TABLE, []
    if _SHOW.fullmatch(text):
        return pb.SQL_SHOW_TABLE, [Column(f"Tables_in_{instance.name}", STRING, instance.mappings.names())]
    if match := _DESCRIBE.fullmatch(text):
        return pb.SQL_DESCRIBE_TABLE, _describe(instance.mappings.find(match[1]))
    statement = _parse(text)
    from sqlglot import exp

    if isinstance(statement, exp.Create):
        name = statement.find(exp.Table)
        instance.mappings.create(instance.table(name.name if name else ""), read_columns(statement))
        return pb.SQL_CREATE_TABLE, []
    if isinstance(statement, exp.Select | exp.Union):
        return pb.SQL_SELECT, _select(instance, statement)
    raise invalid(f"Unsupported statement: {statement.key}.")


def _parse(text: str) -> Any:
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        (statement,) = (parsed for parsed in sqlglot.parse(text, read="mysql") if parsed is not None)
    except (SqlglotError, ValueError) as error:
        raise invalid(f"You have an error in your SQL syntax: {str(error).splitlines()[0]}") from None
    return statement


def _describe(columns: list[MappedColumn]) -> list[Column]:
    return [
        Column("Field", STRING, [column.name for column in columns]),
        Column("Type", STRING, [column.declared for column in columns]),
        Column("Null", STRING, ["NO" if column.is_key else "YES" for column in columns]),
        Column("Key", STRING, ["PRI" if column.is_key else "" for column in columns]),
        Column("Default", STRING, [None] * len(columns)),
        Column("Extra", STRING, [""] * len(columns)),
    ]


def _select(instance: Instance, statement: Any) -> list[Column]:
    """Copies the rows of the tables that are named into a database in memory, and selects there."""
    from sqlglot import exp

    inner = {query.alias for query in statement.find_all(exp.CTE)}
    names = sorted({table.name for table in statement.find_all(exp.Table)} - inner)
    declared: dict[str, int] = {}
    with closing(sqlite3.connect(":memory:")) as memory:
        for name in names:
            columns = instance.mappings.find(name)
            declared.update({column.name: column.kind for column in columns})
            _copy(instance, name, columns, memory)
        try:
            cursor = memory.execute(statement.sql(dialect="sqlite"))
            rows = cursor.fetchall()
        except sqlite3.Error as error:
            raise invalid(f"The query cannot be executed: {error}.") from None
        headings = [heading[0] for heading in cursor.description]
    plain = _plain_columns(statement)
    result = []
    for index, heading in enumerate(headings):
        values = [row[index] for row in rows]
        source = plain.get(heading, heading)
        result.append(Column(heading, declared.get(source, kind_of(values)), values))
    return result


def _plain_columns(statement: Any) -> dict[str, str]:
    """Heading to column name, of projections that are a column and nothing else; empty for computed ones."""
    from sqlglot import exp

    found = {}
    for projection in statement.selects:
        unaliased = projection.unalias()
        if not isinstance(unaliased, exp.Star):
            found[projection.alias_or_name] = unaliased.name if isinstance(unaliased, exp.Column) else ""
    return found


def _copy(instance: Instance, name: str, columns: list[MappedColumn], memory: sqlite3.Connection) -> None:
    """Copies the rows of a table; a value of another type than its column has reads as null."""
    table = instance.table(name)
    definitions = ", ".join(f'"{column.name}" {_AFFINITY[column.kind]}' for column in columns)
    memory.execute(f'CREATE TABLE "{name}" ({definitions})')
    places = ", ".join("?" * len(columns))
    now = instance.clock.now()
    rows = []
    with closing(instance.engine.scan(table, b"", b"\xff", reverse=False)) as scan:
        for _, stored, _ in scan:
            key, cells = plainbuffer.decode_row(stored.row)
            living = live_cells(table, cells, now)
            if not living and expired(table, stored, now):
                continue
            values: dict[str, Any] = {cell.name.decode(): plainbuffer.decode_value(cell.value) for cell in key}
            for cell in living:
                values.setdefault(cell.name.decode(), plainbuffer.decode_value(cell.value))
            rows.append([_fitting(values.get(column.name), column.kind) for column in columns])
            if len(rows) > MOST_ROWS:
                raise ServiceError(
                    "OTSParameterInvalid",
                    f"This server selects over at most {MOST_ROWS} rows of a table; read it by GetRange.",
                )
    memory.executemany(f'INSERT INTO "{name}" VALUES ({places})', rows)


def _fitting(value: Any, kind: int) -> Any:
    return value if type(value) is _PYTHON[kind] else None
