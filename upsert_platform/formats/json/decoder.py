"""Format ``json``, read side: in bulk where Arrow gives Flink's result, one by one where it might not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from upsert_platform.formats.base import Columns, Decoded
from upsert_platform.formats.blocks import decode_blocks
from upsert_platform.formats.columns import schema_of
from upsert_platform.formats.json.bulk import JsonBulk, plan_bulk
from upsert_platform.formats.json.objects import JsonObjects
from upsert_platform.formats.json.tree import Tree, parse_tree
from upsert_platform.formats.json.values import FieldError, JsonManner, convert_row, has_decimal
from upsert_platform.formats.options import JsonSettings


def json_manner(settings: JsonSettings, columns: Columns, *, exact: bool = False) -> JsonManner:
    """Return the conversion rules that a table's settings ask for."""
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
        rows = []
        for place, item in enumerate(tree, 1):
            try:
                if item is not None:
                    rows.append(convert(item))
            except FieldError as error:
                raise FieldError(f"element {place} of the array: {error}") from None
        return rows

    return read


class JsonDecoder:
    """Decodes JSON objects, or arrays of them, into rows."""

    def __init__(self, columns: Columns, settings: JsonSettings) -> None:
        manner = json_manner(settings, columns)
        self._schema = schema_of(columns)
        self._read = row_reader(columns, manner)
        self._bulk: JsonBulk | JsonObjects | None = plan_bulk(columns, manner)

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decodes a block; see `upsert_platform.formats.base.Decoder`."""
        read_bulk = self._bulk.for_block(messages).read if self._bulk else None
        return decode_blocks(messages, self._schema, read_bulk, self._read)
