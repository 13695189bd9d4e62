"""JSON objects read in bulk by Arrow, behind guards that keep the result Flink's.

Arrow's JSON reader differs silently from Flink's in some inputs, and dies on one; each guard below takes a class of
them away. What passes no guard gives None: the caller splits the block or reads it one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.formats.base import Columns
from upsert_platform.formats.blocks import SMALLEST_BLOCK, keep_rows
from upsert_platform.formats.columns import schema_of
from upsert_platform.formats.json.alike import AlikeReader
from upsert_platform.formats.json.columns import DoubtError, convert_column, wire_type
from upsert_platform.formats.json.objects import JsonObjects, has_object_form
from upsert_platform.formats.json.values import JsonManner
from upsert_platform.formats.messages import Messages

Read = tuple[pa.RecordBatch, np.ndarray | None]
"""Rows, and the places of their messages, None standing for all."""
_OPEN: Final = b"{"
_CLOSE: Final = b"}"
LONG_MESSAGE: Final = 900
_SAMPLES: Final = 4
_DIGITS: Final = 38
"""Of a decimal, at most."""
_LONG_NUMBER = re.compile(rb"[0-9.]{999}")


def plan_bulk(columns: Columns, manner: JsonManner) -> JsonBulk | JsonObjects | None:
    """The bulk way for these columns, or None if there is none."""
    if not all(_has_bulk_form(logical) for _, logical in columns):
        return JsonObjects(columns, manner) if has_object_form(columns, manner) else None
    if not (manner.streaming or manner.big_decimals) and any(_holds_float(logical) for _, logical in columns):
        return None  # the tree reader rounds a FLOAT twice, by way of a double
    if len({name for name, _ in columns}) != len(columns):
        return None
    if manner.fail_on_missing and any(_holds_row(logical) for _, logical in columns):
        return None
    return JsonBulk(columns, manner, pa.schema([pa.field(name, wire_type(logical)) for name, logical in columns]), {})


def _has_bulk_form(logical: LogicalType) -> bool:
    if logical.name in (TypeName.MAP, TypeName.MULTISET):
        return False
    inner = [item.type for item in logical.fields]
    if logical.element is not None:
        inner.append(logical.element)
    if len({item.name for item in logical.fields}) != len(logical.fields):
        return False
    return all(_has_bulk_form(part) for part in inner)


def _holds_float(logical: LogicalType) -> bool:
    return any(part.name is TypeName.FLOAT for part in logical.parts())


def _holds_row(logical: LogicalType) -> bool:
    return any(part.name is TypeName.ROW for part in logical.parts())


@dataclass(frozen=True)
class JsonBulk:
    """Reads blocks of messages with Arrow.

    Attributes:
        wire: Arrow types in which the columns are read; text for numbers and booleans that come in quotes.
        alike: readers of messages that are written alike, by these types: they remember how.
    """

    columns: Columns
    manner: JsonManner
    wire: pa.Schema
    alike: dict[pa.Schema, AlikeReader]

    def for_block(self, messages: Sequence[bytes]) -> JsonBulk:
        """The reader for a block: its first messages tell which values come in quotes (a wrong guess costs time)."""
        samples = [tree for tree in map(_sample, messages[:_SAMPLES]) if tree is not None]
        wire = pa.schema(
            [pa.field(name, wire_type(logical, [tree.get(name) for tree in samples])) for name, logical in self.columns]
        )
        return JsonBulk(self.columns, self.manner, wire, self.alike)

    def read(self, messages: Sequence[bytes]) -> Read | None:
        """Reads messages that are one JSON object each; see `upsert_platform.formats.blocks.ReadBulk`."""
        given = Messages.of(messages)
        if self.wire not in self.alike:
            self.alike[self.wire] = AlikeReader(self.wire)
        alike = self.alike[self.wire].read(given)
        found = None if alike is None else self._with_others(given, *alike)
        return self._parsed(given) if found is None else found

    def _with_others(self, given: Messages, arrays: list[pa.Array], places: np.ndarray | None) -> Read | None:
        """Messages that are written alike, and the others, which are parsed; None where that gives no whole."""
        read = self._convert(pa.table(arrays, schema=self.wire), places)
        if read is None or places is None:
            return read
        rest = np.delete(np.arange(len(given)), places)
        parsed = self._parsed(given.take(pa.array(rest)))
        if parsed is None:
            return read if len(rest) <= SMALLEST_BLOCK else None
        batch, kept = parsed
        others = rest if kept is None else rest[kept]
        every = np.concatenate([places if read[1] is None else read[1], others])
        order = np.argsort(every, kind="stable")
        rows = pa.Table.from_batches([read[0], batch]).take(pa.array(order)).combine_chunks().to_batches()
        return rows[0] if rows else read[0], every[order]

    def _parsed(self, given: Messages) -> Read | None:
        """Messages that Arrow parses, whatever they look like."""
        places = braced(given)
        if places is not None:
            if len(places) < len(given) // 2 or len(places) == 0:
                return None
            given = given.take(pa.array(places))
        blob = given.joined(b"\n")
        if not _is_safe(blob, given) or self._may_overflow(given):
            return None
        try:
            table = arrow_json.read_json(
                pa.BufferReader(blob),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=blob.size + 1),
                parse_options=arrow_json.ParseOptions(explicit_schema=self.wire, unexpected_field_behavior="ignore"),
            )
            if table.num_rows != len(given):
                return None
            table.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        return self._convert(table.combine_chunks(), places)

    def _may_overflow(self, given: Messages) -> bool:
        """Return whether a decimal may have more digits than Arrow counts: it scales them in 128 bits, untold."""
        decimals = [part for _, kind in self.columns for part in kind.parts() if part.name is TypeName.DECIMAL]
        scales = [part.scale or 0 for part in decimals if (part.precision or 0) + (part.scale or 0) > _DIGITS]
        if not scales:
            return False
        pattern = rf"[0-9]{{{_DIGITS + 1 - max(scales)}}}|[0-9][eE][+]?[0-9]"
        return bool(pc.any(pc.match_substring_regex(given.array.view(pa.string()), pattern)).as_py())

    def _convert(self, table: pa.Table, places: np.ndarray | None) -> Read | None:
        doubts: list[pa.Array] = []
        arrays: list[pa.Array] = []
        for (_, logical), column in zip(self.columns, table.columns, strict=True):
            array = column.chunk(0) if column.num_chunks else pa.array([], column.type)
            try:
                converted, doubt = convert_column(array, logical, standard=self.manner.standard)
            except DoubtError:
                return None
            arrays.append(converted)
            if doubt is not None:
                doubts.append(doubt)
            if self.manner.fail_on_missing and array.null_count:
                doubts.append(pc.is_null(array))
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema_of(self.columns))
        return keep_rows(batch, places, doubts)


def braced(messages: Messages) -> np.ndarray | None:
    """Places of messages that begin and end with braces; None if all do.

    With as many rows as such messages, rows and messages align. (Arrow dies on a first record `null`, and takes several
    objects, or halves of one, from neighbouring messages.)
    """
    good = pc.and_(pc.starts_with(messages.array, _OPEN), pc.ends_with(messages.array, _CLOSE))
    if pc.all(good, min_count=0).as_py():
        return None
    return np.flatnonzero(good.to_numpy(zero_copy_only=False))


def _sample(message: bytes) -> dict[str, Any] | None:
    try:
        tree = orjson.loads(message)
    except orjson.JSONDecodeError:
        return None
    return tree if isinstance(tree, dict) else None


def _is_safe(blob: pa.Buffer, messages: Messages) -> bool:
    if _holds(blob, b"NaN") or _holds(blob, b"Inf"):
        return False
    whole = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, blob.size], np.int32)), blob)
    try:
        whole.validate(full=True)  # UTF-8
    except pa.ArrowInvalid:
        return False
    long = pc.greater_equal(pc.binary_length(messages.array), LONG_MESSAGE)
    return not any(is_extreme(item) for item in messages.array.filter(long).to_pylist())


def _holds(blob: pa.Buffer, word: bytes) -> bool:
    """Return whether a word of three letters is in a text: by its first two, which are rare in most of them."""
    pair = int.from_bytes(word[:2], "little")
    for first in (0, 1):
        pairs = np.frombuffer(blob, "<u2", max(0, blob.size - first) // 2, first)
        if (pairs == pair).any():
            behind = 2 * np.flatnonzero(pairs == pair) + first + 2
            if (np.frombuffer(blob, np.uint8)[behind[behind < blob.size]] == word[2]).any():
                return True
    return False


def is_extreme(message: bytes) -> bool:
    """Return whether Jackson might refuse a long message: nesting beyond 1000, or a number of more than 1000
    characters.
    """
    return message.count(b"{") + message.count(b"[") >= LONG_MESSAGE or _LONG_NUMBER.search(message) is not None
