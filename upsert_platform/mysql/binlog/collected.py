"""Rows of a table that are collected from events, and how its columns in the log become those of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.binlog.cells import ColumnReader, column_reader
from upsert_platform.mysql.binlog.changes import TableRows
from upsert_platform.mysql.binlog.rows import RowScanner
from upsert_platform.mysql.binlog.table_map import TableMap
from upsert_platform.mysql.columns import MySqlTable, TypeRules


@dataclass(frozen=True, slots=True)
class Collected:
    """Rows of a table that the reader of a log collects before it reads them at once.

    Attributes:
        map: what the log tells of the table, without the id that the server gave it.
        earlier: rows from before it told something else.
    """

    table: MySqlTable
    map: TableMap
    scanner: RowScanner
    earlier: tuple[TableRows, ...]

    def told(self) -> tuple[TableRows, ...]:
        """Return the collected rows and start anew."""
        scanner = self.scanner
        if not scanner.count:
            return ()
        kinds, times, ends = tuple(scanner.kinds), tuple(scanner.times), tuple(scanner.ends)
        return (TableRows(self.table, kinds, times, ends, scanner.read()),)


def table_readers(found: TableMap, table: MySqlTable, rules: TypeRules, *, place: str) -> list[ColumnReader]:
    """Readers of a table's columns.

    Args:
        place: where, and which table, for messages.

    Raises:
        ReplicationError: the log and the catalogue do not tell the same columns.
    """
    names = tuple(column.name for column in table.columns)
    changed = "the table was changed between the two"
    if len(found.columns) != len(names):
        told = f"{place} has {len(found.columns)} columns in the log and {len(names)} in the catalogue"
        raise ReplicationError(f"{told}; {changed}")
    if found.names and found.names != names:
        log, own = next(pair for pair in zip(found.names, names, strict=True) if pair[0] != pair[1])
        raise ReplicationError(f"{place}: column '{own}' of the catalogue is '{log}' in the log; {changed}")
    # Which types the bits are of depends on the server; they only guard against a catalogue that is too new or too old.
    differing = [_other_sign(table, found.is_unsigned(with_years=with_years)) for with_years in (False, True)]
    if all(differing):
        raise ReplicationError(
            f"{place}: column '{differing[0]}' is signed on one side and unsigned on the other, of the log and the"
            f" catalogue; {changed}"
        )
    pairs = zip(found.columns, table.columns, strict=True)
    return [column_reader(wire, column, rules, table=place) for wire, column in pairs]


def _other_sign(table: MySqlTable, unsigned: tuple[bool | None, ...]) -> str | None:
    """The first column of which the log tells another sign than the catalogue."""
    for column, told in zip(table.columns, unsigned, strict=True):
        if told is not None and column.kind != "year" and told != column.unsigned:
            return column.name
    return None
