"""WRITE, UPDATE and DELETE of rows: where each row's values stand, found row by row, and read column by column.

Finding is a short loop in Python, because the length of a value tells where the next one begins; rows with the same
columns NULL share the steps of that loop. All else is done for all rows of a batch at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.cells import ColumnReader, null_cells
from upsert_platform.mysql.binlog.compressed import unpack_mariadb
from upsert_platform.mysql.binlog.events import Event, EventType, event_name
from upsert_platform.mysql.binlog.gather import PADDING, Cells
from upsert_platform.mysql.binlog.packed import Reader

INSERT, UPDATE, DELETE = "insert", "update", "delete"
KINDS: Final = {
    EventType.WRITE_ROWS_V1: INSERT,
    EventType.UPDATE_ROWS_V1: UPDATE,
    EventType.DELETE_ROWS_V1: DELETE,
    EventType.WRITE_ROWS: INSERT,
    EventType.UPDATE_ROWS: UPDATE,
    EventType.DELETE_ROWS: DELETE,
    EventType.PARTIAL_UPDATE_ROWS: UPDATE,
    EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1: INSERT,
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED_V1: UPDATE,
    EventType.MARIADB_DELETE_ROWS_COMPRESSED_V1: DELETE,
    EventType.MARIADB_WRITE_ROWS_COMPRESSED: INSERT,
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED: UPDATE,
    EventType.MARIADB_DELETE_ROWS_COMPRESSED: DELETE,
}
"""Events with rows, to what they do."""
_VERSION_2: Final = frozenset(
    (
        EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS, EventType.PARTIAL_UPDATE_ROWS,
        EventType.MARIADB_WRITE_ROWS_COMPRESSED, EventType.MARIADB_UPDATE_ROWS_COMPRESSED,
        EventType.MARIADB_DELETE_ROWS_COMPRESSED,
    )
)  # fmt: skip
_FIRST_COMPRESSED: Final = EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1
_PARTIAL_JSON: Final = 1
ROW_KINDS: Final = {INSERT: ("+I",), UPDATE: ("-U", "+U"), DELETE: ("-D",)}
"""What an event does, to the row kinds of the images of each of its rows."""


@dataclass(frozen=True, slots=True)
class RowsEvent:
    """Rows of one event.

    Attributes:
        columns: how many there are.
        images: whether all columns stand in the images of a row; one flag per image.
        data: the images, each a bitmap of NULL columns and the values of the others.
        partial: whether images behind an update say first which of their JSON values are told in part.
    """

    table_id: int
    kind: str
    columns: int
    images: tuple[bool, ...]
    data: bytes
    partial: bool = False


def read_rows_event(event: Event, *, place: str) -> RowsEvent:
    """Reads an event's fixed part, and unpacks it where MariaDB compressed it.

    Raises:
        ReplicationError: it is cut off, or packed in a way that is not known.
    """
    reader = Reader(event.body, f"{place}: event {event_name(event.type)}")
    kind = KINDS[EventType(event.type)]
    table_id = reader.number(6)
    reader.take(2)
    if event.type in _VERSION_2:
        reader.take(reader.number(2) - 2)
    columns = reader.packed()
    images = []
    all_columns = (1 << columns) - 1
    for _ in ROW_KINDS[kind]:
        # MySQL sets the padding bits behind the last column, MariaDB clears them: no bit beyond the columns counts.
        present = int.from_bytes(reader.take((columns + 7) // 8), "little")
        images.append(present & all_columns == all_columns)
    data = reader.take(reader.left)
    if event.type >= _FIRST_COMPRESSED:
        data = unpack_mariadb(data, place=place)
    partial = event.type == EventType.PARTIAL_UPDATE_ROWS
    return RowsEvent(table_id, kind, columns, tuple(images), data, partial)


@dataclass(slots=True)
class _Layout:
    """Steps through rows with the same columns NULL.

    Attributes:
        steps: per value of varying length: bytes of fixed values before it, bytes of its length.
        tail: bytes of fixed values behind the last of them.
        places: per column: None where it is NULL, or the step before which it stands and the distance from there.
        anchors: per row: its first value, and the end of each value of varying length.
        rows: numbers of the rows.
    """

    steps: tuple[tuple[int, int], ...]
    tail: int
    places: tuple[tuple[int, int] | None, ...]
    anchors: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


class RowScanner:
    """Collects events of one table, and reads their rows at once.

    Args:
        columns: of the table, all of them, in its order.
        table: for messages.
    """

    def __init__(self, columns: Sequence[ColumnReader], table: str) -> None:
        self.columns = columns
        self.table = table
        self.bitmap = (len(columns) + 7) // 8
        self.documents = [index for index, column in enumerate(columns) if column.patch is not None]
        self.layouts: dict[bytes, _Layout] = {}
        self.told_in_part: dict[int, list[int]] = {}
        self.pieces: list[bytes] = []
        self.size = 0
        self.count = 0
        self.kinds: list[str] = []
        self.times: list[int] = []
        self.ends: list[int] = []

    def add(self, event: RowsEvent, *, time: int, end: int, place: str) -> None:
        """Takes the rows of an event.

        Args:
            time: seconds since 1970, kept per image in `times`.
            end: how far the log was read behind the event, kept per image in `ends`.

        Raises:
            ReplicationError: an image leaves columns out, or rows do not end where the event ends.
        """
        if event.columns != len(self.columns):
            raise ReplicationError(
                f"{place}: {self.table} has {event.columns} columns in the log and {len(self.columns)} in the"
                " catalogue; the table was changed between the two"
            )
        if not all(event.images):
            raise ReplicationError(
                f"{place}: a row of {self.table} is logged without all of its columns; set 'binlog_row_image' = 'FULL'"
                " on the server and in sessions that change it, and take a new snapshot"
            )
        try:
            found = (
                self._scan_partial(event.data, self.size, place) if event.partial else self._scan(event.data, self.size)
            )
        except IndexError:
            found = -1
        if found < 0 or found % len(event.images):
            raise ReplicationError(
                f"{place}: rows of {self.table} do not end where their event ends; its columns in the log are not those"
                " of the catalogue"
            )
        self.kinds.extend(ROW_KINDS[event.kind] * (found // len(event.images)))
        self.times.extend([time] * found)
        self.ends.extend([end] * found)
        self.pieces.append(event.data)
        self.size += len(event.data)

    def _scan(self, data: bytes, base: int) -> int:
        """Notes where values stand; the number of images, or -1 if the last one is cut off."""
        at, end, count, bitmap, layouts = 0, len(data), 0, self.bitmap, self.layouts
        while at < end:
            nulls = data[at : at + bitmap]
            layout = layouts.get(nulls)
            if layout is None:
                layout = layouts[nulls] = self._layout(nulls)
            at += bitmap
            note = layout.anchors.append
            note(base + at)
            for skip, prefix in layout.steps:
                at += skip
                if prefix == 1:
                    at += data[at] + 1
                elif prefix == 2:
                    at += (data[at] | data[at + 1] << 8) + 2
                else:
                    at += int.from_bytes(data[at : at + prefix], "little") + prefix
                note(base + at)
            at += layout.tail
            layout.rows.append(self.count + count)
            count += 1
        if at != end:
            return -1
        self.count += count
        return count

    def _scan_partial(self, data: bytes, base: int, place: str) -> int:
        """As `_scan`, of updates whose images behind begin with what they tell in part."""
        at, end, count = 0, len(data), 0
        while at < end:
            at = self._pass(data, at, base, self.count + count)
            options, at = data[at], at + 1
            if options not in (0, _PARTIAL_JSON):
                raise ReplicationError(
                    f"{place}: a row of {self.table} is logged with the value options {options}; 1 is known"
                )
            if options == _PARTIAL_JSON:
                width = (len(self.documents) + 7) // 8
                bits, at = int.from_bytes(data[at : at + width], "little"), at + width
                for number, index in enumerate(self.documents):
                    if bits >> number & 1:
                        self.told_in_part.setdefault(index, []).append(self.count + count + 1)
            at = self._pass(data, at, base, self.count + count + 1)
            count += 2
        if at != end:
            return -1
        self.count += count
        return count

    def _pass(self, data: bytes, at: int, base: int, row: int) -> int:
        """Notes where the values of one image stand; the place behind it."""
        nulls = data[at : at + self.bitmap]
        layout = self.layouts.get(nulls)
        if layout is None:
            layout = self.layouts[nulls] = self._layout(nulls)
        at += self.bitmap
        layout.anchors.append(base + at)
        for skip, prefix in layout.steps:
            at += skip
            if at + prefix > len(data):
                raise IndexError("an image is cut off")
            at += int.from_bytes(data[at : at + prefix], "little") + prefix
            layout.anchors.append(base + at)
        layout.rows.append(row)
        return at + layout.tail

    def _layout(self, nulls: bytes) -> _Layout:
        bits = int.from_bytes(nulls, "little")
        steps: list[tuple[int, int]] = []
        places: list[tuple[int, int] | None] = []
        distance = 0
        for index, column in enumerate(self.columns):
            if bits >> index & 1:
                places.append(None)
                continue
            if column.width:
                places.append((len(steps), distance))
                distance += column.width
            else:
                places.append((len(steps), distance + column.prefix))
                steps.append((distance, column.prefix))
                distance = 0
        return _Layout(tuple(steps), distance, tuple(places))

    def read(self) -> pa.RecordBatch:
        """All images that were collected, in the order of the log, a column per column of the table; begins anew."""
        raw = np.frombuffer(b"".join([*self.pieces, bytes(PADDING)]), np.uint8)
        found = [
            (np.array(layout.rows), np.array(layout.anchors).reshape(len(layout.rows), len(layout.steps) + 1), layout)
            for layout in self.layouts.values()
            if layout.rows
        ]
        arrays = []
        for index, column in enumerate(self.columns):
            cells = self._cells(raw, index, found, varying=not column.width)
            patched = self.told_in_part.get(index)
            arrays.append(column.read(cells) if patched is None else _patched(column, cells, patched))
        schema = pa.schema([pa.field(column.name, column.type) for column in self.columns])
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        self.pieces, self.kinds, self.times, self.ends, self.layouts, self.told_in_part = [], [], [], [], {}, {}
        self.size = self.count = 0
        return batch

    def _cells(
        self, raw: np.ndarray, index: int, found: list[tuple[np.ndarray, np.ndarray, _Layout]], *, varying: bool
    ) -> Cells:
        """Return the cells of a column in all rows."""
        cells = null_cells(raw, self.count)
        starts, ends, valid = cells.starts, cells.ends.copy(), cells.valid
        assert valid is not None
        for rows, anchors, layout in found:
            place = layout.places[index]
            if place is None:
                continue
            step, distance = place
            starts[rows] = anchors[:, step] + distance
            if varying:
                ends[rows] = anchors[:, step + 1]
            valid[rows] = True
        return Cells(raw, starts, ends, None if valid.all() else valid)


def _patched(column: ColumnReader, cells: Cells, rows: Sequence[int]) -> pa.Array:
    """Values of a column, of which those of some rows tell what changed of the value in the row before."""
    assert column.patch is not None
    whole = np.ones(len(cells), bool) if cells.valid is None else cells.valid.copy()
    told = [row for row in rows if whole[row]]
    before = [_bytes(cells, row - 1) if whole[row - 1] else None for row in told]
    whole[told] = False
    values = column.read(replace(cells, valid=whole)).to_pylist()
    for row, document in zip(told, before, strict=True):
        values[row] = column.patch(document, _bytes(cells, row))
    return pa.array(values, column.type)


def _bytes(cells: Cells, row: int) -> bytes:
    return bytes(cells.raw[cells.starts[row] : cells.ends[row]])
