"""Declared tables that would keep their position in the same control record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from upsert_platform.errors import Problem
from upsert_platform.model import Table
from upsert_platform.tablestore.connect.table import CONNECTOR, read_connect_sink
from upsert_platform.tablestore.options import TablestoreSettings
from upsert_platform.tablestore.table import read_tablestore_table


def sharing_problems(tables: Iterable[Table]) -> Iterator[Problem]:
    """Tells of tables that write the same Tablestore table: each would find the other's position as its own.

    Args:
        tables: that are written; those of other connectors are passed over.
    """
    first: dict[tuple[str, ...], Table] = {}
    for table in tables:
        found = _written(table)
        if found is None:
            continue
        table_name, settings = found
        place = (settings.endpoint, settings.instance_name, settings.control_table, table_name)
        other = first.setdefault(place, table)
        if other is not table:
            yield Problem(
                f"table '{table.name}' and table '{other.name}' both write Tablestore table '{table_name}' of"
                f" {settings.endpoint}/{settings.instance_name}, and would take each other's position in"
                f" '{settings.control_table}' for their own. Write it by one INSERT or one connector of both topics,"
                " or, if they write different rows or columns, set 'control.table' of one of them",
                table.location,
            )


def _written(table: Table) -> tuple[str, TablestoreSettings] | None:
    """Name in the instance, and settings; None for another connector, or a declaration with errors told elsewhere."""
    if table.connector == "tablestore":
        plain, _ = read_tablestore_table(table)
        return (plain.table_name, plain.settings) if plain is not None else None
    if table.connector == CONNECTOR:
        sink, _ = read_connect_sink(table)
        return (sink.table_name, sink.settings) if sink is not None else None
    return None
