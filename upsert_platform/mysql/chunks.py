"""A table in chunks of its primary key: the SQL that finds where one ends, and that reads what lies between two ends.

A bound is the key of a row as texts. The server itself compares keys, by the collations of its columns, so an order of
Python's never meets one of the server's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from upsert_platform.mysql.columns import MySqlColumn, MySqlTable
from upsert_platform.mysql.connection import Connection

Bound = tuple[str, ...]
_BYTES: Final = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
_NUMBERED: Final = frozenset(("enum", "set", "bit"))
"""Kinds that servers sort by number and compare with texts by name: they are ordered by number throughout."""
_PLAIN_NUMBERS: Final = frozenset(
    ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year")
)
WHOLE_NUMBERS: Final = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint"))
_EVEN_CHUNKS, _MOST_EVEN_CHUNKS = 7, 56
"""Chunks that are made by counting keys, behind one whose end the server has looked for among its rows; twice as many
each time that this one has few gaps too."""
_EVEN_LIMIT: Final = 1 << 62
"""Where counting ends: beyond are the ends of BIGINT."""
_BATCH_BYTES: Final = 512 << 20
_LEAST_CHUNKS, _MOST_CHUNKS = 64, 512


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows whose key is after `after` (None: from the first) and not after `upto` (None: to the last)."""

    after: Bound | None
    upto: Bound | None


def quoted(name: str) -> str:
    """A name as MySQL quotes it."""
    return "`" + name.replace("`", "``") + "`"


def table_name(table: MySqlTable) -> str:
    """A table's full name, quoted."""
    return f"{quoted(table.schema)}.{quoted(table.name)}"


def batch_chunks(connection: Connection, table: MySqlTable, *, rows: int) -> int:
    """Chunks of a batch at most, which are what a killed run reads again: by the server's estimate of a row's bytes.

    Args:
        rows: of each chunk.
    """
    found = connection.query(
        "SELECT avg_row_length FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        (table.schema, table.name),
    )
    size = int(found[0][0] or 0) if found else 0
    fitting = _BATCH_BYTES // (size * rows) if size else 0
    return max(_LEAST_CHUNKS, min(fitting, _MOST_CHUNKS))


def find_chunks(
    connection: Connection, table: MySqlTable, *, after: Bound | None, rows: int, most: int
) -> tuple[list[Chunk], bool]:
    """The next chunks behind a bound.

    For the end of a chunk a server passes over all of its rows. Where a key is one whole number, a chunk that is as
    wide as it may have rows never has more, so behind a chunk of few gaps the ends of the next ones are counted.

    Args:
        rows: of each chunk, at most.
        most: how many chunks to find.

    Returns:
        The chunks, and whether the last of them ends the table.
    """
    key = _key_columns(table)
    order = ", ".join(_ordered(column) for column in key)
    shown = ", ".join(_shown(column) for column in key)
    found: list[Chunk] = []
    even = _EVEN_CHUNKS
    while len(found) < most:
        where = f" WHERE {_beyond(key, after, last='>')}" if after is not None else ""
        end = connection.query(
            f"SELECT {shown} FROM {table_name(table)}{where} ORDER BY {order} LIMIT 1 OFFSET {rows - 1}"
        )
        upto = tuple(str(value) for value in end[0]) if end else None
        found.append(Chunk(after, upto))
        if upto is None:
            return found, True
        if _has_few_gaps(key, after, upto, rows):
            for _ in range(min(even, most - len(found))):
                found.append(Chunk(upto, (str(int(upto[0]) + rows),)))
                upto = (str(int(upto[0]) + rows),)
            even = min(2 * even, _MOST_EVEN_CHUNKS)
        else:
            even = _EVEN_CHUNKS
        after = upto
    return found, False


def _has_few_gaps(key: Sequence[MySqlColumn], after: Bound | None, upto: Bound, rows: int) -> bool:
    """Return whether a chunk of so many rows is at most twice as wide as that, in whole numbers."""
    if after is None or len(key) > 1 or key[0].kind not in WHOLE_NUMBERS:
        return False
    return int(upto[0]) - int(after[0]) <= 2 * rows and abs(int(upto[0])) < _EVEN_LIMIT


def condition(table: MySqlTable, chunk: Chunk) -> str:
    """The WHERE clause of a chunk, with its keyword; empty for the whole table."""
    key = _key_columns(table)
    parts = []
    if chunk.after is not None:
        parts.append(_beyond(key, chunk.after, last=">"))
    if chunk.upto is not None:
        parts.append(_beyond(key, chunk.upto, last="<="))
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def _key_columns(table: MySqlTable) -> list[MySqlColumn]:
    by_name = {column.name: column for column in table.columns}
    return [by_name[name] for name in table.primary_key]


def _beyond(key: Sequence[MySqlColumn], bound: Bound, *, last: str) -> str:
    """Return whether a row's key is beyond a bound, so written that a server reads a range of the key for it."""
    column, value = _ordered(key[0]), _literal(key[0], bound[0])
    if len(key) == 1:
        return f"{column} {last} {value}"
    rest = _beyond(key[1:], bound[1:], last=last)
    strict = last[0]
    return f"({column} {strict}= {value} AND ({column} {strict} {value} OR ({column} = {value} AND {rest})))"


def _ordered(column: MySqlColumn) -> str:
    name = quoted(column.name)
    return f"{name} + 0" if column.kind in _NUMBERED else name


def _shown(column: MySqlColumn) -> str:
    """A key column as a text from which `_literal` makes the same value."""
    name = quoted(column.name)
    if column.kind in _NUMBERED:
        return f"CAST({name} + 0 AS CHAR)"
    if column.kind in ("float", "double"):
        # Declared digits would round the text, and a FLOAT's own has six.
        return f"CAST({name} + 0e0 AS CHAR)"
    return f"HEX({name})" if column.kind in _BYTES else f"CAST({name} AS CHAR CHARACTER SET utf8mb4)"


def _literal(column: MySqlColumn, text: str) -> str:
    if column.kind in _NUMBERED or column.kind in _PLAIN_NUMBERS:
        # A text would make both sides doubles, in which large numbers are the same.
        return repr(float(text)) if column.kind in ("float", "double") else str(_number(text))
    if column.kind in _BYTES:
        return f"x'{bytes.fromhex(text).hex()}'"
    # Escaped for a connection without NO_BACKSLASH_ESCAPES, which ours sets.
    escaped = text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0")
    return f"'{escaped}'"


def _number(text: str) -> object:
    found = Decimal(text)
    return f"{found:f}"
