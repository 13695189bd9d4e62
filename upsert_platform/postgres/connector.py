"""The connector `postgres`: a table of a PostgreSQL database."""

from __future__ import annotations

from upsert_platform.connector import ControlPlace, KeyReader, Searchable, Writable
from upsert_platform.destination import Destination
from upsert_platform.errors import Problem
from upsert_platform.model import Table
from upsert_platform.postgres.destination import PostgresDestination
from upsert_platform.postgres.lookup import PostgresKeyReader
from upsert_platform.postgres.table import PostgresTable, read_postgres_table


class PostgresConnector(Writable[PostgresTable], Searchable):
    """`postgres`: a table that is written, and in which queries find rows."""

    name = "postgres"
    kind = "postgres"
    endpoint = "postgres"
    place_option = "table-name"
    scope_options = ("url",)
    keyed = True

    def check(self, table: Table) -> tuple[PostgresTable | None, list[Problem]]:
        """Checks a table that is written."""
        return read_postgres_table(table)

    def open(self, checked: PostgresTable) -> Destination:
        """The table as a destination."""
        return PostgresDestination(checked)

    def key_reader(self, table: Table) -> tuple[KeyReader | None, list[Problem]]:
        """Finds rows by a join with keys in the server."""
        checked, problems = self.check(table)
        return PostgresKeyReader(checked) if checked is not None else None, problems

    def fraction_digits(self, table: Table) -> int:
        """Microseconds."""
        return 6

    def control_place(self, checked: PostgresTable) -> ControlPlace:
        """A row of the control table."""
        return ControlPlace(
            (checked.settings.address, str(checked.control), checked.place.table),
            f"PostgreSQL table {checked.place} of {checked.settings.address}, and would take each other's position in"
            f" '{checked.settings.control_table}' for their own",
            "Write it by one INSERT, or, if they write different rows, set 'control.table' of one of them",
        )
