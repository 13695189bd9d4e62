"""Mapping tables: the SQL face of a table, with the columns and types that a CREATE TABLE names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from upsert_platform.local.tablestore import plainbuffer
from upsert_platform.local.tablestore.engine import Engine
from upsert_platform.local.tablestore.errors import invalid
from upsert_platform.local.tablestore.sql.columns import BINARY, BOOLEAN, DOUBLE, LONG, STRING
from upsert_platform.local.tablestore.table import Table

KINDS = {
    "BIGINT": LONG,
    "DOUBLE": DOUBLE,
    "BOOLEAN": BOOLEAN,
    "TINYINT": BOOLEAN,
    "VARCHAR": STRING,
    "MEDIUMTEXT": STRING,
    "VARBINARY": BINARY,
    "MEDIUMBLOB": BINARY,
}
_KEY_KINDS = {plainbuffer.INTEGER: LONG, plainbuffer.STRING: STRING, plainbuffer.BLOB: BINARY}


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """A column of a mapping table; ``declared`` is its type as it was written, in lower case."""

    name: str
    declared: str
    kind: int
    is_key: bool


class Mappings:
    """The mapping tables of an instance, kept in its database."""

    def __init__(self, engine: Engine) -> None:
        self._run = engine.connection.execute
        self._run("CREATE TABLE IF NOT EXISTS sql_mappings (name TEXT PRIMARY KEY, columns TEXT NOT NULL)")

    def names(self) -> list[str]:
        return [name for (name,) in self._run("SELECT name FROM sql_mappings ORDER BY name")]

    def find(self, name: str) -> list[MappedColumn]:
        """The columns of a mapping table; refused when there is none."""
        found = self._run("SELECT columns FROM sql_mappings WHERE name = ?", (name,)).fetchone()
        if found is None:
            raise invalid(f"Table '{name}' doesn't exist: create its mapping table first.")
        return [MappedColumn(*column) for column in json.loads(found[0])]

    def create(self, table: Table, columns: list[MappedColumn]) -> None:
        """Adds a mapping table; its key must be the table's."""
        if table.name in self.names():
            raise invalid(f"Table '{table.name}' already exists.")
        keys = [(column.name, column.kind) for column in columns if column.is_key]
        expected = [(column.name.decode(), _KEY_KINDS[column.kind]) for column in table.columns]
        if sorted(keys) != sorted(expected):
            raise invalid(f"The primary key of the mapping must be that of table '{table.name}', with its types.")
        text = json.dumps([(column.name, column.declared, column.kind, column.is_key) for column in columns])
        self._run("INSERT INTO sql_mappings (name, columns) VALUES (?, ?)", (table.name, text))

    def drop(self, name: str) -> None:
        self.find(name)
        self._run("DELETE FROM sql_mappings WHERE name = ?", (name,))


def read_columns(statement: Any) -> list[MappedColumn]:
    """The columns of a parsed CREATE TABLE.

    Raises:
        ServiceError: a type that mapping tables do not have, or no primary key.
    """
    from sqlglot import exp

    keys = {part.name for node in statement.find_all(exp.PrimaryKey) for part in node.expressions}
    columns = []
    for definition in statement.find_all(exp.ColumnDef):
        constraints = [constraint.kind for constraint in definition.args.get("constraints") or ()]
        if any(isinstance(kind, exp.PrimaryKeyColumnConstraint) for kind in constraints):
            keys.add(definition.name)
        declared = definition.kind.sql(dialect="mysql")
        kind = KINDS.get(declared.partition("(")[0].upper())
        if kind is None:
            raise invalid(f"Column '{definition.name}' has type {declared}, which mapping tables do not have.")
        columns.append((definition.name, declared.lower(), kind))
    if not keys:
        raise invalid("A mapping table needs a primary key.")
    return [MappedColumn(name, declared, kind, name in keys) for name, declared, kind in columns]
