"""Secondary indexes: tables of their own, which follow every write of their main table in the same commit."""

from __future__ import annotations

from typing import Any, NamedTuple

from upsert_platform.local.tablestore import keys, plainbuffer
from upsert_platform.local.tablestore.messages import pb
from upsert_platform.local.tablestore.table import Table

DEFINED_KINDS = {
    pb.DCT_INTEGER: plainbuffer.INTEGER,
    pb.DCT_DOUBLE: plainbuffer.DOUBLE,
    pb.DCT_BOOLEAN: plainbuffer.BOOLEAN,
    pb.DCT_STRING: plainbuffer.STRING,
    pb.DCT_BLOB: plainbuffer.BLOB,
}


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
