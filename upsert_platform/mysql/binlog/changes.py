"""Events that a log reader yields: rows of tables, statements that change tables, commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from upsert_platform.mysql.columns import MySqlTable
from upsert_platform.mysql.position import LogPosition

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of one table, in the order of the log.

    Attributes:
        kinds: per row ``+I``, ``-U``, ``+U`` or ``-D``; before and after an update follow each other.
        times: per row seconds since 1970 at which its statement began.
        ends: per row the bytes of the log from where the reader began to the end of its event.
        rows: a column per column of the table, as `sql_type` tells it; TIME as signed microseconds.
    """

    table: MySqlTable
    kinds: tuple[str, ...]
    times: tuple[int, ...]
    ends: tuple[int, ...]
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A statement that may have changed what tables look like; rows behind it have the new form.

    Attributes:
        schema: that names without one belong to.
        place: right behind it in the log.
        strict: whether it fails where a value does not fit its column.
        illegible: the character set of its client, whose bytes it does not all have; None where it could be read.
    """

    schema: str
    sql: str
    place: LogPosition
    strict: bool = False
    illegible: str | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """All rows up to a place between two transactions were told; a reader may go on from there.

    Attributes:
        time: seconds since 1970 at which the last statement before it began.
    """

    position: LogPosition
    time: int


@dataclass(frozen=True, slots=True)
class XaCommitted:
    """A transaction in two phases (XA) was committed here, whose rows were logged before and are not held.

    `xa_rows` reads them again, from where it was prepared.

    Attributes:
        place: a position before its rows; None where the reader began behind them.
        end: bytes of the log from where the reader began to the end of the commit.
    """

    xid: str
    place: LogPosition | None
    end: int


Told = TableRows | SchemaChange | Committed | XaCommitted


def row_bytes(rows: TableRows) -> int:
    """Bytes that rows take in memory."""
    return rows.rows.nbytes
