"""A table: its description, what is derived from it for handling rows, and its secondary indexes.

An index is a table of its own, which follows every write of its main table in the same commit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from upsert_platform.local.tablestore import keys, plainbuffer
from upsert_platform.local.tablestore.keys import KeyColumn
from upsert_platform.local.tablestore.messages import pb

_KINDS = {pb.INTEGER: plainbuffer.INTEGER, pb.STRING: plainbuffer.STRING, pb.BINARY: plainbuffer.BLOB}
DEFINED_KINDS = {
    pb.DCT_INTEGER: plainbuffer.INTEGER,
    pb.DCT_DOUBLE: plainbuffer.DOUBLE,
    pb.DCT_BOOLEAN: plainbuffer.BOOLEAN,
    pb.DCT_STRING: plainbuffer.STRING,
    pb.DCT_BLOB: plainbuffer.BLOB,
}


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


class Entry(NamedTuple):
    """The row of an index that belongs to a row of its main table."""

    sortable: bytes
    row: bytes
    size: int


class Index:
    """An index on a table.

    Attributes:
        table: what clients read: index columns and the rest of the main table's key as key, chosen columns beside it.
    """

    def __init__(self, meta: Any, table: Table) -> None:
        self.name: str = meta.name
        self.table = table
        self._kinds = {column.name: column.kind for column in table.columns}
        self._columns = frozenset(name.encode() for name in meta.defined_column) - self._kinds.keys()

    def entry(self, row: bytes) -> Entry | None:
        """The entry of a stored row of the main table; None when it lacks a column of the index's key."""
        key, cells = plainbuffer.decode_row(row)
        values = {cell.name: cell.value for cell in key}
        values.update((cell.name, cell.value) for cell in cells if cell.name in self._kinds)
        found = []
        for column in self.table.columns:
            value = values.get(column.name)
            if value is None or value[0] != column.kind:
                return None
            found.append(plainbuffer.encode_key_cell(column.name, value))
        kept = [cell for cell in cells if cell.name in self._columns]
        size = plainbuffer.row_size(found, kept)
        return Entry(keys.encode_key(self.table.columns, found), plainbuffer.encode_row(found, kept), size)


def description_of(main: Table, meta: Any) -> Any:
    """The description of an index's table: its key is completed by the main table's key columns."""
    described = pb.DescribeTableResponse()
    described.table_meta.table_name = meta.name
    types = {column.name: column.type for column in main.description.table_meta.primary_key}
    kinds = {plainbuffer.INTEGER: pb.INTEGER, plainbuffer.STRING: pb.STRING, plainbuffer.BLOB: pb.BINARY}
    defined = {column.name: column for column in main.description.table_meta.defined_column}
    for name in dict.fromkeys([*meta.primary_key, *types]):
        kind = types[name] if name in types else kinds[DEFINED_KINDS[defined[name].type]]
        described.table_meta.primary_key.add(name=name, type=kind)
    for name in meta.defined_column:
        if name in defined:
            described.table_meta.defined_column.add().CopyFrom(defined[name])
    described.reserved_throughput_details.CopyFrom(main.description.reserved_throughput_details)
    described.table_options.CopyFrom(main.description.table_options)
    return described
