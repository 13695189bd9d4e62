"""Format ``json``, read side: in bulk where Arrow gives Flink's result, one by one where it might not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from upsert_platform.kafka.formats.base import Decoded
from upsert_platform.kafka.formats.columns import Columns, batch_of, join, schema_of
from upsert_platform.kafka.formats.json_bulk import JsonBulk, plan_bulk
from upsert_platform.kafka.formats.json_tree import Tree, parse_tree
from upsert_platform.kafka.formats.json_values import FieldError, JsonManner, convert_row, has_decimal
from upsert_platform.kafka.formats.options import JsonSettings

SMALLEST_BLOCK: Final = 64
"""A block of as many messages that does not fit the bulk way is read one by one; a larger one is split."""


def json_manner(settings: JsonSettings, columns: Columns, *, exact: bool = False) -> JsonManner:
    """How the settings of a table have its messages converted."""
    return JsonManner(
        streaming=settings.decode_json_parser_enabled,
        ignore_errors=settings.ignore_parse_errors,
        fail_on_missing=settings.fail_on_missing_field,
        standard=settings.timestamp_standard,
        big_decimals=any(has_decimal(logical) for _, logical in columns),
        exact=exact,
    )


def row_reader(columns: Columns, manner: JsonManner) -> Callable[[bytes], list[list[Any]]]:
    """A function from a message to its rows, by Flink's rules; raises ValueError when it cannot be read."""
    convert = convert_row([name for name, _ in columns], [logical for _, logical in columns], manner)

    def read(message: bytes) -> list[list[Any]]:
        tree: Tree = parse_tree(message)
        if type(tree) is not list:
            return [convert(tree)]
        if manner.streaming and None in tree:
            raise FieldError("an element of the array is null")
        return [convert(item) for item in tree if item is not None]

    return read


class JsonDecoder:
    """Decodes JSON objects, or arrays of them, into rows."""

    def __init__(self, columns: Columns, settings: JsonSettings) -> None:
        manner = json_manner(settings, columns)
        self._schema = schema_of(columns)
        self._read = row_reader(columns, manner)
        self._bulk: JsonBulk | None = plan_bulk(columns, manner)

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decodes a block; see `upsert_platform.kafka.formats.base.Decoder`."""
        parts: list[tuple[pa.RecordBatch, pa.Array]] = []
        errors: dict[int, str] = {}
        bulk = self._bulk.for_block(messages) if self._bulk else None
        misses = 0
        pending = [(0, len(messages))]
        while pending:
            start, end = pending.pop()
            size = end - start
            if size == 0:
                continue
            if bulk is not None and misses < 8:
                found = bulk.read(messages[start:end])
                if found is not None:
                    batch, doubtful = found
                    if not doubtful:
                        parts.append((batch, pa.array(np.arange(start, end, dtype=np.int32))))
                        misses = max(misses - 2, 0)
                        continue
                    keep = np.delete(np.arange(size, dtype=np.int32), doubtful)
                    parts.append((batch.take(pa.array(keep)), pa.array(keep + np.int32(start))))
                    self._one_by_one(messages, [start + at for at in doubtful], parts, errors)
                    continue
                if size > SMALLEST_BLOCK:
                    middle = start + size // 2
                    pending += [(middle, end), (start, middle)]
                    continue
                misses += 1
            self._one_by_one(messages, range(start, end), parts, errors)
        return join(self._schema, parts, errors)

    def _one_by_one(
        self,
        messages: Sequence[bytes],
        places: Sequence[int],
        parts: list[tuple[pa.RecordBatch, pa.Array]],
        errors: dict[int, str],
    ) -> None:
        rows: list[list[Any]] = []
        sources: list[int] = []
        for place in places:
            try:
                found = self._read(messages[place])
            except ValueError as error:
                errors[place] = str(error)
                continue
            rows += found
            sources += [place] * len(found)
        if rows:
            parts.append((batch_of(self._schema, rows), pa.array(sources, pa.int32())))
