"""Rows of a SELECT, each as one text that the server puts together and Arrow takes apart, block after block.

A client in Python that takes every value by itself is the slowest part of a snapshot. Here it takes one value per row,
and lines of many rows are parsed at once.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.csv as pc

from upsert_platform.errors import ReplicationError
from upsert_platform.mysql.columns import MySqlColumn
from upsert_platform.mysql.connection import Connection, endpoint_error
from upsert_platform.mysql.text_values import TextReader, unhex

_BLOCK_BYTES: Final = 4 << 20
_BOUNDED: Final = frozenset(
    (
        "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year", "bit", "date",
        "time", "datetime", "timestamp", "char", "varchar", "binary", "varbinary", "enum", "set", "tinytext",
        "tinyblob",
    )
)  # fmt: skip
"""Kinds whose values of one row are 64 KiB at most, all together, but for the short ones of TINYTEXT and TINYBLOB."""
_LONG: Final = frozenset(("text", "blob"))
_MOST_LONG: Final = 8
"""Columns of 64 KiB each that a row may have: a text of twice as much is below every server's largest packet."""


def can_pack(columns: Sequence[MySqlColumn]) -> bool:
    """Whether a row of these columns is sure to fit into one value."""
    long = sum(column.kind in _LONG for column in columns)
    return long <= _MOST_LONG and all(column.kind in _BOUNDED or column.kind in _LONG for column in columns)


def packed_select(readers: Sequence[TextReader]) -> str:
    """The expression whose value is a row: values between commas, in quotes where they may have some."""
    return f"CONCAT_WS(',', {', '.join(map(_packed, readers))})"


def _packed(reader: TextReader) -> str:
    if reader.has_bytes:
        return f"IFNULL(CONCAT('\"', {reader.hexadecimal}, '\"'), '')"
    if pa.types.is_string(reader.type):
        text = f"CONVERT({reader.select} USING utf8mb4)"
        return f"IFNULL(CONCAT('\"', REPLACE({text}, '\"', '\"\"'), '\"'), '')"
    return f"IFNULL(CONVERT({reader.select} USING utf8mb4), '')"


def read_packed(
    connection: Connection, sql: str, readers: Sequence[TextReader], *, fetch: int
) -> Iterator[pa.RecordBatch]:
    """Rows of a statement that selects `packed_select` alone.

    Args:
        fetch: rows that are taken from the server's answer at once.

    Raises:
        EndpointError: the server refuses the statement, or the connection broke.
        ReplicationError: a row is larger than the server's largest packet.
    """
    held, size = [], 0
    for lines in _lines(connection, sql, fetch):
        held += lines
        size += sum(map(len, lines))
        if size >= _BLOCK_BYTES:
            yield _parsed(held, readers)
            held, size = [], 0
    if held:
        yield _parsed(held, readers)


def _parsed(lines: list[bytes], readers: Sequence[TextReader]) -> pa.RecordBatch:
    names = [str(number) for number in range(len(readers))]
    data = b"\n".join(lines)
    table = pc.read_csv(
        io.BytesIO(data),
        read_options=pc.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
        parse_options=pc.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pc.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    if table.num_rows != len(lines):
        raise ReplicationError(f"a SELECT of {len(lines)} rows was parsed as {table.num_rows}; report it as a fault")
    arrays = []
    for reader, column in zip(readers, table.combine_chunks().columns, strict=True):
        found = column.chunk(0) if column.num_chunks else pa.array([], pa.string())
        arrays.append(reader.read(unhex(found) if reader.has_bytes else found))
    schema = pa.schema([pa.field(reader.name, reader.type) for reader in readers])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _lines(connection: Connection, sql: str, fetch: int) -> Iterator[list[bytes]]:
    """The values, some at a time; the server's answer is never held whole."""
    import pymysql

    raw = connection.raw
    try:
        raw.query(sql, unbuffered=True)
        result, source = raw._result, raw._rfile  # noqa: SLF001
        lines: list[bytes] = []
        while True:
            head = source.read(4)
            length = head[0] | head[1] << 8 | head[2] << 16
            data = source.read(length)
            first = data[0]
            if first < 0xFB:
                lines.append(data[1:])
            elif first == 0xFC:
                lines.append(data[3:])
            elif first == 0xFD and length < 0xFFFFFF:
                lines.append(data[4:])
            elif first == 0xFE and length < 9:
                break
            elif first == 0xFF:
                pymysql.err.raise_mysql_exception(data)
            else:
                raise ReplicationError(
                    f"MySQL server {connection.server}: a row is larger than its largest packet; raise"
                    " 'max_allowed_packet'"
                )
            if len(lines) >= fetch:
                yield lines
                lines = []
        result.unbuffered_active, result.connection, raw._result = False, None, None  # noqa: SLF001
        if lines:
            yield lines
    except IndexError:
        raise endpoint_error(connection.server, OSError("the connection broke within an answer")) from None
    except (pymysql.Error, OSError) as error:
        raise endpoint_error(connection.server, error) from error
