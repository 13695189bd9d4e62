"""Reads made events with the platform's reader."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from upsert_platform.mysql.binlog.changes import Committed, TableRows, Told
from upsert_platform.mysql.binlog.reader import LogReader
from upsert_platform.mysql.columns import MySqlColumn, MySqlTable, TypeRules
from upsert_platform.mysql.position import LogPosition
from upsert_platform_tests.mysql.event_bytes import format_description, image, query, rotate, rows, table_map, xid

START = LogPosition("log.000001", 4)


def table_of(*columns: MySqlColumn) -> MySqlTable:
    return MySqlTable("shop", "t", columns, (columns[0].name,))


def log_reader(table: MySqlTable, rules: TypeRules | None = None, *, gtids: str = "") -> LogReader:
    """A reader that knows one table, behind the first events of a stream."""
    reader = LogReader(
        replace(START, gtids=gtids),
        lambda schema, name: table if (schema, name) == (table.schema, table.name) else None,
        rules=rules or TypeRules(),
        checksum=False,
    )
    assert read_all(reader, [rotate(START.file), format_description()]) == []
    return reader


def read_all(reader: LogReader, events: Iterable[bytes]) -> list[Told]:
    return [told for event in events for told in reader.read(event)]


def read_values(
    types: list[int], metadata: bytes, values: list[bytes | None], columns: list[MySqlColumn], rules: TypeRules
) -> list[Any]:
    """The values of one inserted row, as Python has them."""
    reader = log_reader(table_of(*columns), rules)
    events = [
        query("BEGIN"),
        table_map(types, metadata),
        rows(30, len(types), image(*values)),
        xid(end=100),
    ]
    assert read_all(reader, events) == []
    told = list(reader.drain())
    assert isinstance(told[0], TableRows)
    assert told[0].kinds == ("+I",)
    assert told[1] == Committed(LogPosition("log.000001", 100), 1_700_000_000)
    (row,) = told[0].rows.to_pylist()
    return list(row.values())
