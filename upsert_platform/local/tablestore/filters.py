"""Filters and column conditions: encoded as protobuf in requests, evaluated over a row's cells."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from google.protobuf.message import DecodeError

from upsert_platform.local.tablestore import limits, plainbuffer
from upsert_platform.local.tablestore.errors import invalid
from upsert_platform.local.tablestore.messages import filters as pb
from upsert_platform.local.tablestore.plainbuffer import Cell, decode_value

Predicate = Callable[[Sequence[Cell]], bool]
_ORDER: dict[int, Callable[[Any, Any], bool]] = {
    pb.CT_GREATER_THAN: operator.gt,
    pb.CT_GREATER_EQUAL: operator.ge,
    pb.CT_LESS_THAN: operator.lt,
    pb.CT_LESS_EQUAL: operator.le,
}


@dataclass(frozen=True, slots=True)
class Filter:
    """A decoded filter: a predicate over the cells of a row, or a page of its columns."""

    predicate: Predicate | None = None
    offset: int = 0
    limit: int | None = None


@lru_cache(maxsize=256)
def decode_filter(data: bytes) -> Filter:
    """Reads a filter; refuses more than 10 nodes and every malformed part."""
    message = _parse(pb.Filter, data, "filter")
    if message.type == pb.FT_COLUMN_PAGINATION:
        page = _parse(pb.ColumnPaginationFilter, message.filter, "column pagination filter")
        if page.offset < 0:
            raise invalid("Offset in ColumnPaginationFilter must be greater than or equal to 0.")
        if page.limit <= 0:
            raise invalid("Limit in ColumnPaginationFilter must be greater than 0.")
        return Filter(None, page.offset, page.limit)
    predicate, nodes = _decode(message)
    if nodes > limits.FILTER_NODES:
        raise invalid(f"The count of filter exceeds the max:{limits.FILTER_NODES}.")
    return Filter(predicate)


def _parse(kind: Any, data: bytes, what: str) -> Any:
    try:
        message = kind.FromString(data)
    except DecodeError:
        raise invalid(f"Deserialize {what} failed.") from None
    if not message.IsInitialized():
        raise invalid(f"Deserialize {what} failed.")
    return message


def _decode(message: Any) -> tuple[Predicate, int]:
    if message.type == pb.FT_SINGLE_COLUMN_VALUE:
        return _single(_parse(pb.SingleColumnValueFilter, message.filter, "relation filter")), 1
    if message.type != pb.FT_COMPOSITE_COLUMN_VALUE:
        raise invalid(f"Invalid type of sub-filter: {message.type}.")
    composite = _parse(pb.CompositeColumnValueFilter, message.filter, "composite filter")
    decoded = [_decode(sub) for sub in composite.sub_filters]
    parts = [predicate for predicate, _ in decoded]
    nodes = 1 + sum(count for _, count in decoded)
    if composite.combinator == pb.LO_NOT:
        if len(parts) != 1:
            raise invalid("Invalid NOT operator: the number of sub-filters must be 1.")
        return (lambda cells: not parts[0](cells)), nodes
    if len(parts) < 2:
        raise invalid("Invalid AND/OR operator: the number of sub-filters must be 2.")
    if composite.combinator == pb.LO_AND:
        return (lambda cells: all(part(cells) for part in parts)), nodes
    return (lambda cells: any(part(cells) for part in parts)), nodes


def _single(message: Any) -> Predicate:
    name = message.column_name.encode()
    comparator = message.comparator
    if comparator in (pb.CT_EXIST, pb.CT_NOT_EXIST):
        wanted = comparator == pb.CT_EXIST
        return lambda cells: any(cell.name == name for cell in cells) is wanted
    expected = bytes(message.column_value)
    if not expected:
        raise invalid("Deserialize relation filter failed.")
    plainbuffer.check_value(name, expected)
    rule = message.value_trans_rule if message.HasField("value_trans_rule") else None
    transfer = _transfer(rule) if rule is not None else None
    passes_if_missing = not message.filter_if_missing
    latest_only = message.latest_version_only

    def test(cells: Sequence[Cell]) -> bool:
        values = [cell.value for cell in cells if cell.name == name]
        if not values:
            return passes_if_missing
        if latest_only:
            values = values[:1]
        if transfer is not None:
            values = [moved for value in values if (moved := transfer(value)) is not None]
        return any(compare(comparator, value, expected) for value in values)

    return test


def compare(comparator: int, value: bytes, expected: bytes) -> bool:
    """Compares two values in PlainBuffer form; values of different types are unequal and have no order."""
    if value[0] != expected[0]:
        return bool(comparator == pb.CT_NOT_EQUAL)
    if comparator == pb.CT_EQUAL:
        return value == expected or decode_value(value) == decode_value(expected)
    if comparator == pb.CT_NOT_EQUAL:
        return decode_value(value) != decode_value(expected)
    if value[0] == plainbuffer.STRING:
        return _ORDER[comparator](value[5:], expected[5:])
    return _ORDER[comparator](decode_value(value), decode_value(expected))


def _transfer(rule: Any) -> Callable[[bytes], bytes | None]:
    """A part of a string value, cut out by a regular expression and cast to a type, before it is compared."""
    try:
        pattern = re.compile(rule.regex)
    except re.error as error:
        raise invalid(f"Invalid regex of ValueTransferRule: {error}.") from None
    cast = rule.cast_type if rule.HasField("cast_type") else pb.VT_STRING

    def transfer(value: bytes) -> bytes | None:
        text = decode_value(value)
        match = pattern.search(text) if isinstance(text, str) else None
        if match is None:
            return None
        part = match.group(1) if pattern.groups else match.group(0)
        try:
            if cast == pb.VT_INTEGER:
                return plainbuffer.encode_value(int(part))
            if cast == pb.VT_DOUBLE:
                return plainbuffer.encode_value(float(part))
        except ValueError:
            return None
        return plainbuffer.encode_value(part)

    return transfer
