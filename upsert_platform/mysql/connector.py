"""The connector `mysql-cdc`: a table of a MySQL or MariaDB server, read by a snapshot and its log."""

from __future__ import annotations

from upsert_platform.core.connector import EndpointValue, Readable
from upsert_platform.core.errors import Problem
from upsert_platform.core.model import ColumnKind, Table
from upsert_platform.core.source import Source
from upsert_platform.mysql.options import read_cdc_settings
from upsert_platform.mysql.table_source import MySqlTableSource


class MySqlCdcConnector(Readable):
    """`mysql-cdc`; ingestion pipelines declare such a table per table that they read."""

    name = "mysql-cdc"
    kind = "mysql"
    endpoint = "mysql"
    endpoint_values = (
        EndpointValue("hostname", "hostname", "UPSERT_MYSQL_HOST", stand_in="memory"),
        EndpointValue("port", "port", "UPSERT_MYSQL_PORT", stand_in="3306"),
        EndpointValue("username", "username", "UPSERT_MYSQL_USER", credential=True),
        EndpointValue("password", "password", "UPSERT_MYSQL_PASSWORD", credential=True),
    )
    place_option = "table-name"
    scope_options = ("database-name",)
    keyed = True
    stream_group = "databases"
    pipeline_source = "mysql"

    def read(self, table: Table) -> tuple[Source | None, list[Problem]]:
        """Checks a table that is read: its source, or None when there are errors, and everything found."""
        settings, problems = read_cdc_settings(table.options, subject=f"table '{table.name}'", location=table.location)
        if not table.primary_key:
            told = f"table '{table.name}': a PRIMARY KEY ... NOT ENFORCED is required; it is the key of the records"
            problems.append(Problem(told, table.location))
        for column in table.columns:
            if column.kind is ColumnKind.METADATA:
                told = f"column '{column.name}': metadata of a database is not carried; leave it out"
                problems.append(Problem(f"table '{table.name}': {told}", column.location or table.location))
        if settings is None or any(problem.severity == "error" for problem in problems):
            return None, problems
        return MySqlTableSource(table, settings), problems

    def streams(self, table: Table) -> tuple[str, ...]:
        """Schema and name of the table."""
        parts = (table.options.get("database-name", ""), table.options.get("table-name", ""))
        return (".".join(parts),) if all(parts) else ()
