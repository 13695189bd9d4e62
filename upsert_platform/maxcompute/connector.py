"""The connector `maxcompute`: Delta tables by upsert, plain tables by insert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from upsert_platform.core.connector import EndpointValue, KeyReader, Searchable, Writable
from upsert_platform.core.errors import Problem
from upsert_platform.core.model import Insert, Table
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.lookup import MaxComputeKeyReader, lookup_problems
from upsert_platform.maxcompute.table import MaxComputeTable, read_maxcompute_table

if TYPE_CHECKING:
    from upsert_platform.core.destination import Destination


class MaxComputeConnector(Writable[MaxComputeTable], Searchable):
    """`maxcompute`."""

    name = "maxcompute"
    kind = "maxcompute"
    endpoint = "maxcompute"
    endpoint_values = (
        EndpointValue("endpoint", "odps.end.point", "UPSERT_MAXCOMPUTE_ENDPOINT", stand_in="http://memory"),
        EndpointValue("project", "odps.project.name", "UPSERT_MAXCOMPUTE_PROJECT", stand_in="memory"),
        EndpointValue("access_id", "odps.access.id", "UPSERT_MAXCOMPUTE_ACCESS_ID", credential=True),
        EndpointValue("access_key", "odps.access.key", "UPSERT_MAXCOMPUTE_ACCESS_KEY", credential=True),
    )
    scope_options = ("odps.project.name",)
    pipeline_options: ClassVar[Mapping[str, str]] = {}

    def check(self, table: Table) -> tuple[MaxComputeTable | None, list[Problem]]:
        """Checks a table that is written."""
        return read_maxcompute_table(table)

    def open(self, checked: MaxComputeTable) -> Destination:
        """The table as a destination."""
        return MaxComputeDestination(checked)

    def key_reader(self, table: Table) -> tuple[KeyReader | None, list[Problem]]:
        """Finds rows by read sessions."""
        checked, problems = self.check(table)
        if checked is None:
            return None, problems
        return MaxComputeKeyReader(checked), [*problems, *lookup_problems(table, checked)]

    def places(self, checked: MaxComputeTable) -> tuple[str, ...]:
        """Partition columns outside the key, unless rows move."""
        return checked.places_of(checked.primary_key)

    def explained(self, checked: MaxComputeTable) -> tuple[str, ...]:
        """Return the handling of older rows of a key."""
        if not checked.upserts or checked.partitions_follow_key:
            return ()
        if checked.places:
            return (f"one row per key and ({', '.join(checked.places)}): rows in other partitions stay",)
        return ("one row per key: a row moves when its partition changes ('sink.partition.move-rows' = 'true')",)

    def is_observed(self, table: Table) -> bool:
        """A Delta table tells its changes."""
        return _operation(table) == "upsert"

    def overwrite_problems(self, insert: Insert, table: Table) -> list[Problem]:
        """INSERT OVERWRITE is for tables that are appended to: it replaces their rows in one commit."""
        if _operation(table) != "insert":
            return super().overwrite_problems(insert, table)
        if table.options.get("sink.coordinator.enable", "true").strip().lower() in ("true", "yes"):
            return []
        message = f"INSERT OVERWRITE {insert.target}: rows are replaced in one commit, for which the target needs"
        return [Problem(f"{message} 'sink.coordinator.enable' = 'true'", insert.location)]


def _operation(table: Table) -> str:
    return table.options.get("sink.operation", "insert").strip().lower()
