"""A table: its description, and what is derived from it for handling rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from upsert_platform.local.tablestore import plainbuffer
from upsert_platform.local.tablestore.keys import KeyColumn
from upsert_platform.local.tablestore.messages import pb

if TYPE_CHECKING:
    from upsert_platform.local.tablestore.indexes import Index

_KINDS = {pb.INTEGER: plainbuffer.INTEGER, pb.STRING: plainbuffer.STRING, pb.BINARY: plainbuffer.BLOB}


class Table:
    """One table of the instance.

    Attributes:
        id: number of the table in the store; a table that is dropped and created again has another one.
        description: ``DescribeTableResponse`` as clients read it.
        created: milliseconds since the epoch.
        stored_versions: the most versions of a column that a stored row may hold.
        last_generated: the last auto-increment value given out.
        indexes: its secondary indexes.
        main: of a table that is an index, the table that it is an index of.
    """

    def __init__(self, id: int, description: Any, *, created: int, stored_versions: int) -> None:
        self.id = id
        self.description = description
        self.created = created
        self.stored_versions = stored_versions
        self.last_generated = 0
        self.name: str = description.table_meta.table_name
        self.columns = tuple(
            KeyColumn(
                column.name.encode(),
                _KINDS[column.type],
                column.HasField("option") and column.option == pb.AUTO_INCREMENT,
            )
            for column in description.table_meta.primary_key
        )
        self.key_names = frozenset(column.name for column in self.columns)
        self.generated = next((index for index, column in enumerate(self.columns) if column.auto_increment), None)
        self.rows = f"rows_{id}"
        self.indexes: list[Index] = []
        self.main: Table | None = None
        self.read_options()

    def read_options(self) -> None:
        """Takes over the options from the description, after it changed."""
        options = self.description.table_options
        self.ttl_ms = options.time_to_live * 1000 if options.time_to_live > 0 else None
        self.max_versions: int = options.max_versions
        self.deviation_ms: int = options.deviation_cell_version_in_sec * 1000
        self.allow_update = not options.HasField("allow_update") or options.allow_update
        self.stored_versions = max(self.stored_versions, self.max_versions)
