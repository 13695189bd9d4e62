"""Format ``csv``, write side: one record per row without a line end, byte for byte as Flink writes it."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.formats.base import Columns
from upsert_platform.formats.csv.text import CsvDialect
from upsert_platform.formats.fragments import Refusals, drop_refused, scalar_text, without_bad_times
from upsert_platform.formats.options import CsvSettings

LONGEST_CHECKED: Final = 24
"""Text of more UTF-16 units is quoted without a look at it."""
_UNQUOTED: Final = (
    TypeName.BOOLEAN, TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT, TypeName.BIGINT,
    TypeName.FLOAT, TypeName.DOUBLE, TypeName.DECIMAL,
)  # fmt: skip


class CsvEncoder:
    """Encodes rows into CSV records."""

    def __init__(self, columns: Columns, settings: CsvSettings) -> None:
        self._columns = list(columns)
        self._settings = settings
        self._dialect = CsvDialect.of(settings)
        self._null = settings.null_literal or ""
        self._unsafe = _unsafe_pattern(self._dialect)

    def encode(self, rows: pa.RecordBatch) -> tuple[pa.Array, Refusals]:
        """Encodes a block; see `upsert_platform.formats.base.Encoder`."""
        refusals: Refusals = {}
        arrays = without_bad_times(rows.columns, self._columns, refusals)
        pieces = [
            pc.fill_null(self._field(array, logical), self._null)
            for array, (_, logical) in zip(arrays, self._columns, strict=True)
        ]
        joined = pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, self._dialect.delimiter)
        return drop_refused(joined.view(pa.binary()), refusals), refusals

    def _field(self, array: pa.Array, logical: LogicalType) -> pa.Array:
        if logical.name is TypeName.ARRAY:
            assert logical.element is not None
            return self._quote(self._joined_array(array, logical.element))
        if logical.name is TypeName.ROW:
            return self._quote(self._joined_row(array, logical))
        text = _text(array, logical)
        return text if logical.name in _UNQUOTED else self._quote(text)

    def _joined_array(self, array: pa.Array, element: LogicalType) -> pa.Array:
        text = pc.fill_null(_text(array.values, element), self._null).to_pylist()
        offsets = array.offsets.to_pylist()
        separator = self._settings.array_element_delimiter
        present = pc.is_valid(array).to_pylist()
        bounds = zip(offsets, offsets[1:], present, strict=False)
        return pa.array([separator.join(text[low:high]) if here else None for low, high, here in bounds], pa.string())

    def _joined_row(self, array: pa.Array, logical: LogicalType) -> pa.Array:
        parts = [
            pc.fill_null(_text(child, item.type), self._null)
            for child, item in zip(array.flatten(), logical.fields, strict=True)
        ]
        text = pc.binary_join_element_wise(*parts, self._settings.array_element_delimiter) if parts[1:] else parts[0]
        return text if array.null_count == 0 else pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))

    def _quote(self, text: pa.Array) -> pa.Array:
        quote = self._dialect.quote
        if quote is None:
            return text
        hard = pc.match_substring_regex(text, self._unsafe)
        if not pc.any(hard).as_py():
            return text
        escape = self._dialect.escape
        written = []
        for value, odd in zip(text.to_pylist(), hard.to_pylist(), strict=True):
            if not odd:
                written.append(value)
                continue
            if escape is not None and escape != quote:
                value = value.replace(escape, escape * 2)
            written.append(f"{quote}{value.replace(quote, quote * 2)}{quote}")
        return pa.array(written, pa.string())


def _unsafe_pattern(dialect: CsvDialect) -> str:
    """Text that Jackson quotes, after a quick look: long, with a backslash or escape, or any low character."""
    highest = max(ord(dialect.delimiter), ord(dialect.quote or "\0"), ord("\n"))
    escape = f"\\x{{{ord(dialect.escape):x}}}" if dialect.escape else ""
    beyond = r"(?:[\x{10000}-\x{10ffff}]"
    long = f"^(?:[\\x{{0}}-\\x{{ffff}}]|{beyond})){{{LONGEST_CHECKED + 1}}}"
    return f"[\\x{{0}}-\\x{{{highest:x}}}\\\\{escape}]|(?s:{long})"


def _text(array: pa.Array, logical: LogicalType) -> pa.Array:
    return scalar_text(array, logical, plain_decimal=True, iso=False, millis=True)
