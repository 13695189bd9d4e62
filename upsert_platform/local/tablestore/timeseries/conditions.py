"""Conditions of QueryTimeseriesMeta over a timeline's metadata."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from upsert_platform.local.tablestore.errors import invalid
from upsert_platform.local.tablestore.messages import parse
from upsert_platform.local.tablestore.messages import timeseries as pb
from upsert_platform.local.tablestore.timeseries.rows import read_tags
from upsert_platform.local.tablestore.timeseries.store import Timeline

Test = Callable[[Timeline], bool]
_COMPARE: dict[int, Callable[[Any, Any], bool]] = {
    pb.OP_EQUAL: operator.eq,
    pb.OP_GREATER_THAN: operator.gt,
    pb.OP_GREATER_EQUAL: operator.ge,
    pb.OP_LESS_THAN: operator.lt,
    pb.OP_LESS_EQUAL: operator.le,
    pb.OP_PREFIX: str.startswith,
}


def decode_condition(condition: Any) -> Test:
    """A test over timelines from an encoded condition."""
    data = condition.proto_data
    match condition.type:
        case pb.COMPOSITE_CONDITION:
            return _composite(parse(pb.MetaQueryCompositeCondition, data))
        case pb.MEASUREMENT_CONDITION:
            return _text(parse(pb.MetaQueryMeasurementCondition, data), lambda line: line.key.measurement)
        case pb.SOURCE_CONDITION:
            return _text(parse(pb.MetaQuerySourceCondition, data), lambda line: line.key.source)
        case pb.TAG_CONDITION:
            tag = parse(pb.MetaQueryTagCondition, data)
            return _text(tag, lambda line: dict(line.key.tags).get(tag.tag_name))
        case pb.ATTRIBUTE_CONDITION:
            attribute = parse(pb.MetaQueryAttributeCondition, data)
            return _text(attribute, lambda line: dict(read_tags(line.attributes)).get(attribute.attr_name))
        case pb.UPDATE_TIME_CONDITION:
            time = parse(pb.MetaQueryUpdateTimeCondition, data)
            if time.op == pb.OP_PREFIX:
                raise invalid("A time has no prefix.")
            return lambda line: _COMPARE[time.op](line.updated, time.value)
    raise invalid(f"Invalid condition:{condition.type}.")


def _text(message: Any, read: Callable[[Timeline], str | None]) -> Test:
    compare, expected = _COMPARE[message.op], message.value

    def test(line: Timeline) -> bool:
        value = read(line)
        return value is not None and compare(value, expected)

    return test


def _composite(message: Any) -> Test:
    parts = [decode_condition(part) for part in message.sub_conditions]
    if message.op == pb.OP_NOT:
        if len(parts) != 1:
            raise invalid("Invalid NOT operator: the number of sub-conditions must be 1.")
        return lambda line: not parts[0](line)
    if not parts:
        raise invalid("A composite condition needs sub-conditions.")
    combine = all if message.op == pb.OP_AND else any
    return lambda line: combine(part(line) for part in parts)
