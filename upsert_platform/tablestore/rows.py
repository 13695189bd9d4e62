"""A block of a change frame to encoded row changes: types, modes, and the limits that are checked before sending."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.destination import OPERATION, OPERATION_DELETE, OPERATION_UPSERT, SEQUENCE, RefusedRow
from upsert_platform.core.errors import DestinationError
from upsert_platform.tablestore import limits
from upsert_platform.tablestore.encoder import (
    EXPECT_NO_ROW,
    Cells,
    EncodedRows,
    Mask,
    RowOperation,
    encode_rows,
    version_conditions,
)
from upsert_platform.tablestore.options import InsertMode
from upsert_platform.tablestore.refused import refused_row
from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform.tablestore.types import StoredType, to_stored

_BLOCK_ROWS = 5_000
_BLOCK_BYTES = 32 * 1024 * 1024
_CELL_BYTES = 24
"""Tags, lengths, checksum and a number of a cell, beside its name."""
# The table's part of a BatchWriteRow body: two tags, two lengths and a name of 255 bytes at most.
_BODY_OVERHEAD = 1 + 5 + 1 + 2 + 255


@dataclass(frozen=True, slots=True)
class Creations:
    """Rows that must be there, though their update writes no cell: such an update makes no row.

    Attributes:
        encoded: the bare keys, to be put where no row is; to be sent once the updates have been taken.
        rows: for each of them, the index of its source row.
    """

    encoded: EncodedRows
    rows: npt.NDArray[np.int64]

    def without(self, refused: Collection[int]) -> Creations:
        """Those whose source rows were not refused."""
        if not any(row in refused for row in self.rows.tolist()):
            return self
        left = np.array([position for position, row in enumerate(self.rows.tolist()) if row not in refused], np.int64)
        return Creations(_chosen(self.encoded, left), self.rows[left])


@dataclass(frozen=True, slots=True)
class Block:
    """Source rows (of a change frame, or records), encoded.

    Attributes:
        source_rows: how many it stands for.
        encoded: row changes of those that Tablestore can hold.
        rows: for each encoded row, the index of its source row.
        operations: of the encoded rows.
        refused: index of a source row to the reason: of those that are not encoded, and of those that the service
            refused.
        describe: a source row (with all that were merged into it) as refused rows, from its index and the reason.
        merged: source rows that are not encoded because a later one of their key holds their effect.
        filtered: source rows that are not encoded because a transform drops them.
        creations: None where every encoded row makes its row by itself.
    """

    source_rows: int
    encoded: EncodedRows
    rows: npt.NDArray[np.int64]
    operations: npt.NDArray[np.uint8]
    refused: dict[int, str]
    describe: Callable[[int, str], list[RefusedRow]]
    merged: int = 0
    filtered: int = 0
    creations: Creations | None = None


def blocks_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cuts a batch into blocks that are encoded at once, bounded in rows and bytes."""
    if batch.num_rows == 0:
        return
    # Every cell carries its column's name: of wide rows that is more than their values.
    row_bytes = batch.nbytes // batch.num_rows + sum(len(name) + _CELL_BYTES for name in batch.schema.names)
    step = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // row_bytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def encode_block(changes: pa.RecordBatch, table: TablestoreTable) -> Block:
    """Encodes a block of a change frame (declared columns, then ``_op`` and ``_seq``)."""
    rows = changes.num_rows
    refused: dict[int, str] = {}
    deleted = _deleted(changes)
    primary_key = [
        _cells(changes, column.name, column.stored, column.column.type, refused) for column in table.primary_key
    ]
    attributes = [
        _cells(changes, column.name, column.stored, column.column.type, refused) for column in table.attributes
    ]
    for cells in primary_key:
        _check_key(cells, refused)
    for cells in attributes:
        _check_size(cells, limits.MAX_VALUE_BYTES, "2 MB", refused)
    operations, attributes = _apply_modes(table, deleted, attributes, refused)
    conditions = None
    if table.settings.version_column is not None:
        sequence = changes.column(SEQUENCE).cast(pa.int64())
        attributes.append(Cells(table.settings.version_column, StoredType.INTEGER, sequence))
        conditions = version_conditions(table.settings.version_column, np.asarray(sequence))
    _check_has_cells(table, operations, attributes, refused)
    chosen = np.array([row for row in range(rows) if row not in refused], np.int64) if refused else np.arange(rows)
    if refused:
        operations = operations[chosen]
        primary_key = [_taken(cells, chosen) for cells in primary_key]
        attributes = [_taken(cells, chosen) for cells in attributes]
        conditions = None if conditions is None else conditions[chosen]
    encoded = encode_rows(operations, primary_key, attributes, conditions=conditions)
    bare = (operations == RowOperation.UPDATE) & ~deleted[chosen]
    for cells in attributes:
        bare &= np.asarray(cells.values.is_null())
    return without_oversized(
        Block(
            source_rows=rows,
            encoded=encoded,
            rows=chosen,
            operations=operations,
            refused=refused,
            describe=lambda row, reason: [refused_row(changes, row, table, reason)],
            creations=_creations(primary_key, np.flatnonzero(bare), chosen),
        )
    )


def _creations(primary_key: list[Cells], bare: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> Creations | None:
    if not len(bare):
        return None
    keys = [_taken(cells, bare) for cells in primary_key]
    operations = np.full(len(bare), RowOperation.PUT, np.uint8)
    conditions = np.tile(np.frombuffer(EXPECT_NO_ROW, np.uint8), (len(bare), 1))
    return Creations(encode_rows(operations, keys, (), conditions=conditions), rows[bare])


def requests_of(encoded: EncodedRows, *, max_rows: int, max_bytes: int) -> Iterator[range]:
    """Consecutive encoded rows that go into one request each."""
    offsets, total = encoded.offsets, len(encoded)
    start = 0
    while start < total:
        within = int(np.searchsorted(offsets, offsets[start] + max_bytes - _BODY_OVERHEAD, side="right")) - 1
        stop = max(start + 1, min(within, start + max_rows, total))
        yield range(start, stop)
        start = stop


def _deleted(changes: pa.RecordBatch) -> Mask:
    operation = changes.column(OPERATION)
    deleted = pc.equal(operation, OPERATION_DELETE)
    known = pc.or_(deleted, pc.equal(operation, OPERATION_UPSERT))
    if operation.null_count or not pc.all(known, min_count=0).as_py():
        raise DestinationError(f"a change frame carries 'U' or 'D' in {OPERATION}; found another value")
    return np.asarray(deleted)


def _cells(changes: pa.RecordBatch, name: str, stored: StoredType, logical: Any, refused: dict[int, str]) -> Cells:
    converted = to_stored(changes.column(name), logical)
    for row, reason in converted.refused.items():
        refused.setdefault(row, f"column '{name}': {reason}")
    return Cells(name, stored, converted.values)


def _check_key(cells: Cells, refused: dict[int, str]) -> None:
    if cells.values.null_count:
        for row in pc.indices_nonzero(cells.values.is_null()).to_pylist():
            refused.setdefault(row, f"primary key column '{cells.name}' is null")
    _check_size(cells, limits.MAX_PRIMARY_KEY_BYTES, "1 KB for a primary key column", refused)


def _check_size(cells: Cells, most: int, shown: str, refused: dict[int, str]) -> None:
    if cells.stored not in (StoredType.STRING, StoredType.BINARY):
        return
    lengths = pc.binary_length(cells.values)
    longest = pc.max(lengths).as_py()
    if longest is not None and longest > most:
        for row in pc.indices_nonzero(pc.greater(lengths, most)).to_pylist():
            refused.setdefault(row, f"column '{cells.name}' has {lengths[row].as_py()} bytes; Tablestore takes {shown}")


def _apply_modes(
    table: TablestoreTable, deleted: Mask, attributes: list[Cells], refused: dict[int, str]
) -> tuple[npt.NDArray[np.uint8], list[Cells]]:
    """Operations and cells by ``insert.mode`` and ``delete.mode`` (specification section 2.4, rules of 2.6)."""
    update = table.settings.insert_mode is InsertMode.UPDATE
    mode = table.settings.delete_mode
    upsert = RowOperation.UPDATE if update else RowOperation.PUT
    operations = np.where(deleted & mode.deletes_rows, RowOperation.DELETE, upsert).astype(np.uint8)
    if not mode.deletes_rows and deleted.any():
        if update and not mode.deletes_columns:
            for row in np.flatnonzero(deleted).tolist():
                refused.setdefault(row, "the key was deleted, and 'delete.mode' = 'none' deletes nothing")
        emptied = pa.array(deleted)
        attributes = [
            Cells(cells.name, cells.stored, pc.if_else(emptied, pa.scalar(None, cells.values.type), cells.values))
            for cells in attributes
        ]
    if update and mode.deletes_columns:
        attributes = [
            Cells(cells.name, cells.stored, cells.values, np.asarray(cells.values.is_null())) for cells in attributes
        ]
    return operations, attributes


def _check_has_cells(
    table: TablestoreTable, operations: npt.NDArray[np.uint8], attributes: list[Cells], refused: dict[int, str]
) -> None:
    if table.settings.insert_mode is not InsertMode.UPDATE or table.settings.delete_mode.deletes_columns:
        return
    empty = operations == RowOperation.UPDATE
    for cells in attributes:
        empty &= np.asarray(cells.values.is_null())
    for row in np.flatnonzero(empty).tolist():
        refused.setdefault(
            row,
            "every column is null, and 'insert.mode' = 'update' writes none of them with"
            f" 'delete.mode' = '{table.settings.delete_mode}'",
        )


def _taken(cells: Cells, chosen: npt.NDArray[np.int64]) -> Cells:
    remove = None if cells.remove is None else cells.remove[chosen]
    return Cells(cells.name, cells.stored, cells.values.take(pa.array(chosen)), remove)


def without_oversized(block: Block) -> Block:
    """Sets aside rows that alone are more than a request takes; they stay encoded and are not sent."""
    sizes = np.diff(block.encoded.offsets)
    most = limits.MAX_BYTES_PER_WRITE - _BODY_OVERHEAD
    if len(sizes) == 0 or sizes.max() <= most:
        return block
    fitting = np.flatnonzero(sizes <= most)
    refused = dict(block.refused)
    for position in np.flatnonzero(sizes > most).tolist():
        reason = f"the row has {sizes[position]} bytes; Tablestore takes 4 MB in a request"
        refused[int(block.rows[position])] = reason
    return replace(
        block,
        encoded=_chosen(block.encoded, fitting),
        rows=block.rows[fitting],
        operations=block.operations[fitting],
        refused=refused,
    )


def _chosen(encoded: EncodedRows, positions: npt.NDArray[np.int64]) -> EncodedRows:
    sizes = np.diff(encoded.offsets)[positions]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return EncodedRows(memoryview(encoded.select(positions.tolist())), offsets)
