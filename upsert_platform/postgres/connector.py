"""The connectors `postgres` and `hologres`: tables of databases that speak PostgreSQL's protocol."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

from upsert_platform.core.connector import ControlPlace, EndpointValue, Inspectable, Readable, Searchable, TableStatus
from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Table
from upsert_platform.postgres.client import Session
from upsert_platform.postgres.destination import PostgresDestination
from upsert_platform.postgres.options import HOLOGRES_WITHOUT_EFFECT, WITHOUT_EFFECT, HologresSettings, PostgresSettings
from upsert_platform.postgres.schema import FoundTable
from upsert_platform.postgres.source import PostgresSource
from upsert_platform.postgres.table import PostgresTable, read_postgres_table

if TYPE_CHECKING:
    import pyarrow as pa

    from upsert_platform.postgres.reader import PostgresKeyReader


class PostgresConnector(Readable, Inspectable[PostgresTable], Searchable):
    """`postgres`: a table that is written, read by snapshots, and in which queries find rows."""

    name = "postgres"
    kind = "postgres"
    endpoint = "postgres"
    endpoint_values: ClassVar[tuple[EndpointValue, ...]] = (
        EndpointValue("url", "url", "UPSERT_POSTGRES_URL", stand_in="postgresql://memory/memory"),
        EndpointValue("username", "username", "UPSERT_POSTGRES_USER", credential=True),
        EndpointValue("password", "password", "UPSERT_POSTGRES_PASSWORD", credential=True),
    )
    place_option = "table-name"
    scope_options: ClassVar[tuple[str, ...]] = ("url",)
    stream_group = "databases"
    keyed = True
    about = (
        "A table of a PostgreSQL database: rows, position and lease are committed in one transaction. See"
        " [postgres.md](postgres.md)."
    )
    option_model: ClassVar[type[PostgresSettings | HologresSettings]] = PostgresSettings
    ignored: ClassVar[Mapping[str, str]] = WITHOUT_EFFECT

    def check(self, table: Table) -> tuple[PostgresTable | None, list[Problem]]:
        """Checks a table that is written."""
        return read_postgres_table(table, self.option_model, self.ignored)

    def open(self, checked: PostgresTable) -> PostgresDestination:
        """The table as a destination."""
        return PostgresDestination(checked)

    def read(self, table: Table) -> tuple[PostgresSource | None, list[Problem]]:
        """The table as a source: snapshots."""
        checked, problems = self.check(table)
        if checked is None:
            return None, problems
        return PostgresSource(table, str(checked.place), checked.settings.snapshot_interval, checked), problems

    def streams(self, table: Table) -> tuple[str, ...]:
        """Schema and name of the table."""
        checked, _ = self.check(table)
        return (str(checked.place),) if checked is not None else ()

    def key_reader(self, table: Table) -> tuple[PostgresKeyReader | None, list[Problem]]:
        """Finds rows by a join with keys in the server."""
        from upsert_platform.postgres.reader import PostgresKeyReader

        checked, problems = self.check(table)
        return PostgresKeyReader(checked) if checked is not None else None, problems

    def status(self, checked: PostgresTable) -> TableStatus:
        """The table as the server has it."""
        with closing(Session(checked.settings)) as session:
            found = FoundTable(session, checked)
        what = f"PostgreSQL table '{checked.place}' in {checked.settings.address}"
        return TableStatus(what, bool(found.columns), found.differences())

    def first_rows(self, checked: PostgresTable, limit: int) -> tuple[str, pa.Table]:
        """The first rows by key."""
        from upsert_platform.postgres.reader import first_rows

        return f"the first rows of PostgreSQL table {checked.place}, by key", first_rows(checked, limit)

    def control_place(self, checked: PostgresTable) -> ControlPlace:
        """A row of the control table."""
        return ControlPlace(
            (checked.settings.address, str(checked.control), checked.place.table),
            f"PostgreSQL table {checked.place} of {checked.settings.address}, and would take each other's position in"
            f" '{checked.settings.control_table}' for their own",
            "Write it by one INSERT, or, if they write different rows, set 'control.table' of one of them",
        )


class HologresConnector(PostgresConnector):
    """`hologres`: a table of Hologres, by its PostgreSQL protocol."""

    name = "hologres"
    kind = "hologres"
    endpoint = "none"
    endpoint_values = ()
    place_option = "tablename"
    scope_options = ("endpoint", "dbname")
    about = (
        "A table of Hologres, by its PostgreSQL protocol; options have the names of its connector for Flink. See"
        " [postgres.md](postgres.md#hologres)."
    )
    option_model = HologresSettings
    ignored = HOLOGRES_WITHOUT_EFFECT
