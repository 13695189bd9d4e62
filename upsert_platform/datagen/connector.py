"""The connectors `faker` and `datagen`, and the one behind INSERT INTO ... VALUES."""

from __future__ import annotations

import json

from upsert_platform.core.connector import Readable
from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Table
from upsert_platform.core.source import Source
from upsert_platform.datagen.source import GeneratedRows, WrittenRows
from upsert_platform.datagen.table import GeneratedTable, read_datagen_table, read_faker_table
from upsert_platform.sql.inserted_values import CONNECTOR, ROWS, target_of


class FakerConnector(Readable):
    """`faker`: rows made by expressions."""

    name = "faker"
    kind = "python"
    endpoint = "none"

    def read(self, table: Table) -> tuple[Source | None, list[Problem]]:
        """Checks a table that is read: its source, or None when there are errors, and everything found."""
        found, problems = self.checked_table(table)
        return None if found is None else GeneratedRows(found.table, found), problems

    def checked_table(self, table: Table) -> tuple[GeneratedTable | None, list[Problem]]:
        """The table with what makes its values."""
        return read_faker_table(table)

    def streams(self, table: Table) -> tuple[str, ...]:
        """None: there is no system to look at."""
        del table
        return ()


class DatagenConnector(FakerConnector):
    """`datagen`: random rows, and sequences."""

    name = "datagen"

    def checked_table(self, table: Table) -> tuple[GeneratedTable | None, list[Problem]]:
        """The table with what makes its values."""
        return read_datagen_table(table)


class ValuesConnector(Readable):
    """The rows of INSERT INTO ... VALUES; such tables are made by reading SQL, never declared."""

    name = CONNECTOR
    kind = "python"
    endpoint = "none"

    def read(self, table: Table) -> tuple[Source | None, list[Problem]]:
        """The rows as a source."""
        target = target_of(table.name)
        if target is None or ROWS not in table.options:
            message = (
                f"table '{table.name}': connector '{CONNECTOR}' is not declared; write INSERT INTO ... VALUES (...)"
            )
            return None, [Problem(message, table.location)]
        found = json.loads(table.options[ROWS])
        values = tuple((tuple(row), failure) for row, failure, _ in found)
        return WrittenRows(table, values, target, tuple(declared for *_, declared in found)), []

    def streams(self, table: Table) -> tuple[str, ...]:
        """None: there is no system to look at."""
        del table
        return ()
