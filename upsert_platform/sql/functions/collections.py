"""Functions of arrays, maps and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from upsert_platform.core.types import LogicalType, RowField, TypeName
from upsert_platform.sql.casts import can_cast, cast
from upsert_platform.sql.functions.conditional import alike, condition
from upsert_platform.sql.functions.signatures import ANY, FunctionFault, Handler, Overloads, argument
from upsert_platform.sql.rendered import (
    BOOLEAN,
    INT,
    INTEGERS,
    STRING,
    Rendered,
    fails_when,
    made,
    nullable,
    quote_text,
)

_UNORDERED: Final = (TypeName.ARRAY, TypeName.BOOLEAN, TypeName.MAP, TypeName.MULTISET, TypeName.ROW)
"""Types that Flink does not sort by."""


def _array_of(element: LogicalType | None) -> LogicalType:
    return LogicalType(TypeName.ARRAY, element=element)


def _array(arguments: Sequence[Rendered]) -> Rendered:
    if not arguments:
        raise FunctionFault("ARRAY takes at least one element")
    given = alike(arguments, "ARRAY")
    return made(f"ARRAY({', '.join(item.sql for item in given)})", _array_of(given[0].type), *given)


def _map(arguments: Sequence[Rendered]) -> Rendered:
    if not arguments or len(arguments) % 2:
        raise FunctionFault("MAP takes keys and values by turns")
    keys, values = alike(arguments[::2], "MAP"), alike(arguments[1::2], "MAP")
    keys_sql, values_sql = (", ".join(item.sql for item in items) for items in (keys, values))
    kind = LogicalType(TypeName.MAP, key=keys[0].type, element=values[0].type)
    return _map_of(f"ARRAY({keys_sql})", f"ARRAY({values_sql})", kind, keys, values)


def _map_of(
    keys_sql: str, values_sql: str, kind: LogicalType, keys: Sequence[Rendered], values: Sequence[Rendered]
) -> Rendered:
    """A map of two arrays; Spark's maps have no null key, so a row that brings one fails."""
    null_key = f"EXISTS({keys_sql}, _e -> _e IS NULL)"
    alike_sized = f"SIZE({keys_sql}) = SIZE({values_sql})"
    sql = f"CASE WHEN NOT {null_key} AND {alike_sized} THEN MAP_FROM_ARRAYS({keys_sql}, {values_sql}) END"
    fails = None
    if any(key.constant is None for key in keys):
        fails = fails_when(null_key, "a map has no null key")
    return made(sql, kind, *keys, *values, fails=fails)


def _row(arguments: Sequence[Rendered]) -> Rendered:
    if not arguments:
        raise FunctionFault("ROW takes at least one value")
    given = [cast(item, STRING) if item.type is None else item for item in arguments]
    names = [f"EXPR${index}" for index in range(len(given))]
    fields = tuple(RowField(name, item.type or STRING) for name, item in zip(names, given, strict=True))
    inner = ", ".join(f"{quote_text(name)}, {item.sql}" for name, item in zip(names, given, strict=True))
    return made(f"NAMED_STRUCT({inner})", LogicalType(TypeName.ROW, fields=fields), *given)


def item_of(value: Rendered, index: Rendered) -> Rendered:
    """``value[index]``: null beyond the ends of an array, or where a map has no such key.

    Raises:
        FunctionFault: it is neither.
    """
    if value.type is None or value.root not in (TypeName.ARRAY, TypeName.MAP):
        raise FunctionFault(f"brackets stand after an array or a map, not after {value.type or 'NULL'}")
    if value.root is TypeName.ARRAY:
        if index.root not in INTEGERS:
            raise FunctionFault(f"the index of an array is an integer, not {index.type or 'NULL'}")
        return made(f"GET({value.sql}, CAST({index.sql} AS INT) - 1)", nullable(value.type.element), value, index)
    return made(f"TRY_ELEMENT_AT({value.sql}, {index.sql})", nullable(value.type.element), value, index)


def _cardinality(arguments: Sequence[Rendered]) -> Rendered:
    value = arguments[0]
    if value.root not in (TypeName.ARRAY, TypeName.MAP, TypeName.MULTISET):
        raise FunctionFault(f"CARDINALITY takes an array or a map, not {value.type or 'NULL'}")
    return made(f"CASE WHEN {value.wrapped} IS NOT NULL THEN CARDINALITY({value.sql}) END", INT, value)


def _element(arguments: Sequence[Rendered]) -> Rendered:
    value = argument("a", arguments[0], "ELEMENT")
    assert value.type is not None
    return made(f"GET({value.sql}, 0)", nullable(value.type.element), value)


def _of_array(name: str, text: str, kind: LogicalType | None = None, *, element: int = 0) -> Handler:
    """A function of an array and, it may be, values like its elements (the last `element` of the arguments).

    Args:
        kind: its type; the array's if left out.
    """

    def render(arguments: Sequence[Rendered]) -> Rendered:
        value = argument("a", arguments[0], name)
        assert value.type is not None and value.type.element is not None
        others = list(arguments[1:])
        result = kind or value.type
        if element:
            for item in others:
                if item.type is not None and not can_cast(item.type, value.type.element):
                    raise FunctionFault(
                        f"{name} takes a value like the elements, {value.type.element}, not {item.type}"
                    )
            # A null among the values becomes an element.
            if kind is None and any(item.may_be_null for item in others):
                result = replace(value.type, element=nullable(value.type.element))
            others = [cast(item, value.type.element, implicit=True) for item in others]
        return made(text.format(value.sql, *(item.sql for item in others)), result, value, *others)

    return render


def _together(name: str, text: str) -> Handler:
    def render(arguments: Sequence[Rendered]) -> Rendered:
        given = alike([argument("a", item, name) for item in arguments], name)
        return made(text.format(", ".join(item.sql for item in given)), given[0].type, *given)

    return render


def _join(arguments: Sequence[Rendered]) -> Rendered:
    value = argument("a", arguments[0], "ARRAY_JOIN")
    others = [argument("s", item, "ARRAY_JOIN") for item in arguments[1:]]
    return made(f"ARRAY_JOIN({value.sql}, {', '.join(item.sql for item in others)})", STRING, value, *others)


def _most(name: str) -> Handler:
    def render(arguments: Sequence[Rendered]) -> Rendered:
        value = argument("a", arguments[0], name)
        assert value.type is not None
        return made(f"{name}({value.sql})", nullable(value.type.element), value)

    return render


def _sorted(arguments: Sequence[Rendered]) -> Rendered:
    """ARRAY_SORT(array, ascending, nulls first): by default ascending, and nulls first where it is."""
    value = argument("a", arguments[0], "ARRAY_SORT")
    assert value.type is not None and value.type.element is not None
    if value.type.element.name in _UNORDERED:
        raise FunctionFault(f"ARRAY_SORT does not sort values of type {value.type.element}")
    words = [condition(item, "ARRAY_SORT") for item in arguments[1:]]
    ascending = words[0].sql if words else "TRUE"
    ordered = "CASE WHEN {1} THEN SORT_ARRAY({0}, TRUE) WHEN NOT ({1}) THEN SORT_ARRAY({0}, FALSE) END"
    if len(words) < 2:
        return made(ordered.format(value.sql, ascending), value.type, value, *words)
    nulls = f"FILTER({value.sql}, _e -> _e IS NULL)"
    others = ordered.format(f"FILTER({value.sql}, _e -> _e IS NOT NULL)", ascending)
    first = words[1].sql
    sql = f"CASE WHEN {first} THEN CONCAT({nulls}, {others}) WHEN NOT ({first}) THEN CONCAT({others}, {nulls}) END"
    return made(sql, value.type, value, *words)


def _slice(arguments: Sequence[Rendered]) -> Rendered:
    """ARRAY_SLICE(array, first, last): places from 1, from the end below zero; 0 is the first one."""
    value = argument("a", arguments[0], "ARRAY_SLICE")
    places = [argument("i", item, "ARRAY_SLICE") for item in arguments[1:]]
    assert value.type is not None

    def place(item: str) -> str:
        return f"CASE WHEN {item} < 0 THEN SIZE({value.sql}) + {item} + 1 WHEN {item} = 0 THEN 1 ELSE {item} END"

    first, last = place(places[0].wrapped), place(places[1].wrapped) if len(places) > 1 else f"SIZE({value.sql})"
    start = f"GREATEST({first}, 1)"
    known = " AND ".join(f"{item.wrapped} IS NOT NULL" for item in (value, *places))
    size = f"GREATEST(({last}) - {start} + 1, 0)"
    # The end of a slice may lie beyond that of the array.
    sql = f"CASE WHEN {known} THEN SLICE({value.sql}, CAST({start} AS INT), CAST({size} AS INT)) END"
    return made(sql, value.type, value, *places)


def _union_of_maps(arguments: Sequence[Rendered]) -> Rendered:
    """MAP_UNION: of a key in several maps the last value counts."""
    if not arguments:
        raise FunctionFault("MAP_UNION takes at least one map")
    given = alike([argument("m", item, "MAP_UNION") for item in arguments], "MAP_UNION")
    sql = given[0].sql
    for item in given[1:]:
        others = f"MAP_FILTER({sql}, (_k, _v) -> NOT ARRAY_CONTAINS(MAP_KEYS({item.sql}), _k))"
        sql = f"MAP_CONCAT({others}, {item.sql})"
    return made(sql, given[0].type, *given)


def _of_map(name: str) -> Handler:
    def render(arguments: Sequence[Rendered]) -> Rendered:
        value = argument("m", arguments[0], name)
        kind = value.type
        assert kind is not None and kind.key is not None and kind.element is not None
        entry = LogicalType(TypeName.ROW, fields=(RowField("key", kind.key), RowField("value", kind.element)))
        element = {"MAP_KEYS": kind.key, "MAP_VALUES": kind.element, "MAP_ENTRIES": entry}[name]
        return made(f"{name}({value.sql})", _array_of(element), value)

    return render


def _map_from_arrays(arguments: Sequence[Rendered]) -> Rendered:
    keys, values = (argument("a", item, "MAP_FROM_ARRAYS") for item in arguments)
    assert keys.type is not None and values.type is not None
    kind = LogicalType(TypeName.MAP, key=keys.type.element, element=values.type.element)
    return _map_of(keys.wrapped, values.wrapped, kind, [keys], [values])


_CONTAINS: Final = "CASE WHEN {0} IS NOT NULL THEN EXISTS({0}, _e -> _e <=> {1}) END"

FUNCTIONS: Final[dict[str, Overloads]] = {
    "ARRAY": {ANY: _array},
    "MAP": {ANY: _map},
    "ROW": {ANY: _row},
    "CARDINALITY": {1: _cardinality},
    "ELEMENT": {1: _element},
    "ARRAY_CONTAINS": {2: _of_array("ARRAY_CONTAINS", _CONTAINS, BOOLEAN, element=1)},
    "ARRAY_POSITION": {2: _of_array("ARRAY_POSITION", "CAST(ARRAY_POSITION({0}, {1}) AS INT)", INT, element=1)},
    "ARRAY_REMOVE": {2: _of_array("ARRAY_REMOVE", "FILTER({0}, _e -> NOT (_e <=> {1}))", element=1)},
    "ARRAY_APPEND": {2: _of_array("ARRAY_APPEND", "ARRAY_APPEND({0}, {1})", element=1)},
    "ARRAY_PREPEND": {2: _of_array("ARRAY_PREPEND", "ARRAY_PREPEND({0}, {1})", element=1)},
    "ARRAY_DISTINCT": {1: _of_array("ARRAY_DISTINCT", "ARRAY_DISTINCT({0})")},
    "ARRAY_SLICE": dict.fromkeys((2, 3), _slice),
    "ARRAY_SORT": dict.fromkeys((1, 2, 3), _sorted),
    "ARRAY_REVERSE": {1: _of_array("ARRAY_REVERSE", "REVERSE({0})")},
    "ARRAY_CONCAT": {ANY: _together("ARRAY_CONCAT", "CONCAT({0})")},
    "ARRAY_UNION": {2: _together("ARRAY_UNION", "ARRAY_UNION({0})")},
    "ARRAY_EXCEPT": {2: _together("ARRAY_EXCEPT", "ARRAY_EXCEPT({0})")},
    "ARRAY_INTERSECT": {2: _together("ARRAY_INTERSECT", "ARRAY_INTERSECT({0})")},
    "ARRAY_JOIN": {2: _join, 3: _join},
    "ARRAY_MAX": {1: _most("ARRAY_MAX")},
    "ARRAY_MIN": {1: _most("ARRAY_MIN")},
    "MAP_UNION": {ANY: _union_of_maps},
    "MAP_KEYS": {1: _of_map("MAP_KEYS")},
    "MAP_VALUES": {1: _of_map("MAP_VALUES")},
    "MAP_ENTRIES": {1: _of_map("MAP_ENTRIES")},
    "MAP_FROM_ARRAYS": {2: _map_from_arrays},
}  # fmt: skip
