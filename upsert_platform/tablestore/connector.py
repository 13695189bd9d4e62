"""The connectors of Tablestore: `tablestore`, and `tablestore-connect` by the rules of its Kafka Connect sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from upsert_platform.core.connector import ControlPlace, EndpointValue, KeyReader, Searchable, Writable
from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Table
from upsert_platform.tablestore.destination import TablestoreDestination
from upsert_platform.tablestore.lookup import TablestoreKeyReader
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.table import TablestoreTable, read_tablestore_table

if TYPE_CHECKING:
    from upsert_platform.core.destination import Destination


class TablestoreConnector(Writable[TablestoreTable], Searchable):
    """`tablestore`: a wide-column table."""

    name = "tablestore"
    kind = "tablestore"
    endpoint = "tablestore"
    endpoint_values = (
        EndpointValue("endpoint", "tablestore.endpoint", "UPSERT_TABLESTORE_ENDPOINT", stand_in="http://memory"),
        EndpointValue("instance", "tablestore.instance.name", "UPSERT_TABLESTORE_INSTANCE", stand_in="memory"),
        EndpointValue("access_key_id", "tablestore.access.key.id", "UPSERT_TABLESTORE_ACCESS_KEY_ID", credential=True),
        EndpointValue(
            "access_key_secret", "tablestore.access.key.secret", "UPSERT_TABLESTORE_ACCESS_KEY_SECRET", credential=True
        ),
    )
    scope_options = ("tablestore.instance.name",)
    pipeline_options: ClassVar[Mapping[str, str]] = {}

    def check(self, table: Table) -> tuple[TablestoreTable | None, list[Problem]]:
        """Checks a table that is written."""
        return read_tablestore_table(table)

    def open(self, checked: TablestoreTable) -> Destination:
        """The table as a destination."""
        return TablestoreDestination(checked)

    def rows_per_request(self, checked: TablestoreTable) -> int:
        """Rows of one BatchWriteRow, as the options of the table say."""
        return checked.settings.flush_rows

    def key_reader(self, table: Table) -> tuple[KeyReader | None, list[Problem]]:
        """Finds rows by BatchGetRow."""
        checked, problems = self.check(table)
        return TablestoreKeyReader(checked) if checked is not None else None, problems

    def control_place(self, checked: TablestoreTable) -> ControlPlace:
        """A row of the control table."""
        return control_place(checked.settings, checked.table_name)


def control_place(settings: TablestoreSettings, table_name: str) -> ControlPlace:
    """The row of the control table that belongs to a Tablestore table."""
    return ControlPlace(
        (settings.endpoint, settings.instance_name, settings.control_table, table_name),
        f"Tablestore table '{table_name}' of {settings.endpoint}/{settings.instance_name}, and would take each other's"
        f" position in '{settings.control_table}' for their own",
        "Write it by one INSERT or one connector of both topics, or, if they write different rows or columns, set"
        " 'control.table' of one of them",
    )
