"""CSV records split in bulk by Arrow, behind guards that keep the result Flink's."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from upsert_platform.core.types import TEXTS, LogicalType, TypeName, arrow_type
from upsert_platform.formats.base import Columns
from upsert_platform.formats.blocks import keep_rows
from upsert_platform.formats.columns import schema_of
from upsert_platform.formats.csv.text import CsvDialect
from upsert_platform.formats.csv.values import convert_field
from upsert_platform.formats.options import CsvSettings
from upsert_platform.formats.text_columns import GREGORIAN_DATE, convert_text, pattern_of, read_texts

_BLANK: Final = ord(" ")


def plan_bulk(columns: Columns, settings: CsvSettings) -> CsvBulk | None:
    """The bulk way for these columns, or None if a character of the dialect is not ASCII."""
    dialect = CsvDialect.of(settings)
    if not (dialect.delimiter + (dialect.quote or "")).isascii() or dialect.delimiter in " \r\n\0":
        return None
    return CsvBulk(columns, settings, dialect)


class CsvBulk:
    """Reads blocks of messages with Arrow."""

    def __init__(self, columns: Columns, settings: CsvSettings, dialect: CsvDialect) -> None:
        self._columns = columns
        self._settings = settings
        self._dialect = dialect
        self._schema = schema_of(columns)
        self._quote = dialect.quote.encode() if dialect.quote else None
        self._forbidden = [b"\r", b"\0", b"\xef\xbb\xbf"]
        if dialect.escape:
            self._forbidden.append(dialect.escape.encode())
        if dialect.comments:
            self._forbidden.append(b"#")
        self._well_quoted = _well_quoted(dialect)
        self._converts: list[Callable[[str], Any] | None] = [
            convert_field(logical, settings, exact=False) if logical.name in (TypeName.ARRAY, TypeName.ROW) else None
            for _, logical in columns
        ]

    def read(self, messages: Sequence[bytes]) -> tuple[pa.RecordBatch, np.ndarray | None] | None:
        """Reads messages that are one record of the declared columns each; None if the guards do not let them pass."""
        blob = self._guarded(messages)
        if blob is None:
            return None
        try:
            table = read_texts(
                blob,
                len(self._columns),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._dialect.delimiter,
                    quote_char=self._dialect.quote or False,
                    double_quote=True,
                    escape_char=False,
                    newlines_in_values=False,
                    ignore_empty_lines=False,
                ),
                strings_can_be_null=False,
                null_values=[],
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(messages):
            return None
        return self._convert(table.combine_chunks())

    def _guarded(self, messages: Sequence[bytes]) -> bytes | None:
        # One line per message, so rows and messages align; nothing in it that Jackson gives a meaning and Arrow not.
        blob = b"\n".join(messages)
        if any(mark in blob for mark in self._forbidden) or blob.count(b"\n") != len(messages) - 1:
            return None
        sizes = np.fromiter(map(len, messages), np.int64, len(messages))
        if sizes.min() < 1:
            return None
        starts = np.cumsum(sizes + 1) - 1 - sizes
        if self._dialect.comments and (np.frombuffer(blob, np.uint8)[starts] == _BLANK).any():
            return None
        if self._quote is not None and self._quote in blob and self._well_quoted.fullmatch(blob) is None:
            return None
        return blob

    def _convert(self, table: pa.Table) -> tuple[pa.RecordBatch, np.ndarray | None]:
        arrays: list[pa.Array] = []
        doubts: list[pa.Array] = []
        for place, (_, logical) in enumerate(self._columns):
            array, doubt = self._column(table.column(place).chunk(0), logical, self._converts[place])
            arrays.append(array)
            if doubt is not None:
                doubts.append(doubt)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return keep_rows(batch, None, doubts)

    def _column(
        self, text: pa.Array, logical: LogicalType, convert: Callable[[str], Any] | None
    ) -> tuple[pa.Array, pa.Array | None]:
        if convert is not None:
            return _one_by_one(text, logical, convert)
        if self._settings.null_literal is not None:
            text = pc.if_else(pc.equal(text, self._settings.null_literal), pa.scalar(None, pa.string()), text)
        if logical.name in TEXTS:
            return text, None
        pattern = GREGORIAN_DATE if logical.name is TypeName.DATE else pattern_of(logical, "SQL")
        step = 10 ** (6 - min(logical.precision or 0, 3)) if logical.name is TypeName.TIME else 1
        return convert_text(text, logical, pattern, time_step=step)


def _one_by_one(
    text: pa.Array, logical: LogicalType, convert: Callable[[str], Any]
) -> tuple[pa.Array, pa.Array | None]:
    values: list[Any] = []
    doubt: list[bool] = []
    for item in text.to_pylist():
        try:
            values.append(convert(item))
        except ValueError:
            values.append(None)
            doubt.append(True)
        else:
            doubt.append(False)
    return pa.array(values, arrow_type(logical)), pa.array(doubt) if any(doubt) else None


def _well_quoted(dialect: CsvDialect) -> re.Pattern[bytes]:
    """Lines whose quoted fields end right before a delimiter or the line's end."""
    delimiter = re.escape(dialect.delimiter.encode())
    if dialect.quote is None:
        return re.compile(b"(?s:.*)")
    quote = re.escape(dialect.quote.encode())
    plain = b"(?!%b)[^%b\\n]*+" % (quote, delimiter)
    quoted = b"%b(?:[^%b\\n]|%b%b)*+%b" % (quote, quote, quote, quote, quote)
    field = b"(?:%b|%b)" % (quoted, plain)
    line = b"%b(?:%b%b)*+" % (field, delimiter, field)
    return re.compile(b"%b(?:\\n%b)*+" % (line, line))
