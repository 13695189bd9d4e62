"""Flink's functions that read JSON, over Arrow batches, for Spark's workers. Imports no module of the driver's.

JSON is read as Jackson does by default: what follows a complete value is not looked at, the last of several members of
one name counts, and NaN is none. Paths are those of `json_path`: where a lax one finds nothing, or no JSON at all, that
is EMPTY; where a strict one does, it is an ERROR.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from upsert_platform.sql.arrow_batches import over_columns
from upsert_platform.sql.json_path import JsonPath, read_path

EMPTY, ERROR = "EMPTY", "ERROR"
_BLANKS: Final = " \t\n\r"
_PLAIN: Final = re.compile(r"[\[{\"]")
_path = lru_cache(maxsize=256)(read_path)


class NoJson(ValueError):  # noqa: N818 - what a text is, not what a user did
    """The text is not JSON."""


class Missing(LookupError):  # noqa: N818
    """A strict path leads to nothing."""


def _refuse(_name: str) -> Any:
    raise NoJson


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=Decimal)


def parse(text: str) -> Any:
    """The value at the beginning of a text.

    Raises:
        NoJson: there is none.
    """
    start = len(text) - len(text.lstrip(_BLANKS))
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        raise NoJson from None
    if not _PLAIN.match(text, start) and text[end : end + 1] not in ("", *_BLANKS):
        raise NoJson
    return value


def follow(value: Any, path: JsonPath) -> Any:
    """Return the value at a path; a list if the path names every member or element.

    Raises:
        Missing: the path is strict, and something on it is not there.
    """
    found: list[Any] = [value]
    several = False
    for step in path.steps:
        reached: list[Any] = []
        for item in found:
            if step is None:
                reached += item.values() if isinstance(item, dict) else item if isinstance(item, list) else []
            elif _has(item, step):
                reached.append(item[step])
            elif not several and not path.lax:
                raise Missing
        several = several or step is None
        found = reached
    if several:
        return found
    return found[0] if found else None


def _has(item: Any, step: str | int) -> bool:
    if isinstance(step, str):
        return isinstance(item, dict) and step in item
    return isinstance(item, list) and -len(item) <= step < len(item)


def java_text(value: Any) -> str:
    """A scalar as Java's String.valueOf writes it: a fraction keeps its digits, as BigDecimal has them."""
    if isinstance(value, Decimal) and not value:
        return str(abs(value))  # there is no negative zero
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def write(value: Any) -> str:
    """JSON text as Flink writes it: members in the order of their names, no blanks."""
    if isinstance(value, dict):
        return (
            "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{write(value[key])}" for key in sorted(value)) + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return "null" if value is None else java_text(value)


Found = tuple[str | None, str | None]
"""A text, and why there is none: EMPTY or ERROR."""


def read_value(text: str, path: str) -> Found:
    """JSON_VALUE."""
    steps = _path(path)
    try:
        value = follow(parse(text), steps)
    except (NoJson, Missing):
        value = None
    if isinstance(value, (dict, list)) or value is None:
        return None, EMPTY if steps.lax else ERROR
    return java_text(value), None


def read_query(text: str, path: str, wrapper: str) -> Found:
    """JSON_QUERY.

    Args:
        wrapper: ``WITHOUT``, ``CONDITIONAL`` or ``UNCONDITIONAL``.
    """
    steps = _path(path)
    try:
        value = follow(parse(text), steps)
    except (NoJson, Missing):
        value = None
    if value is not None and (wrapper == "UNCONDITIONAL" or (wrapper == "CONDITIONAL" and not isinstance(value, list))):
        value = [value]
    if not isinstance(value, (dict, list)):
        return None, EMPTY if steps.lax else ERROR
    return write(value), None


def read_exists(text: str, path: str) -> str:
    """JSON_EXISTS: TRUE, FALSE or ERROR."""
    steps = _path(path)
    try:
        value = follow(parse(text), steps)
    except (NoJson, Missing):
        value = None
    return "TRUE" if value is not None else "FALSE" if steps.lax else ERROR


def check(text: str, kind: str) -> bool:
    """IS JSON.

    Args:
        kind: ``VALUE``, ``SCALAR``, ``ARRAY`` or ``OBJECT``.
    """
    try:
        value = parse(text)
    except NoJson:
        return False
    is_kind: dict[str, Callable[[], bool]] = {
        "ARRAY": lambda: isinstance(value, list),
        "OBJECT": lambda: isinstance(value, dict),
        "SCALAR": lambda: not isinstance(value, (dict, list)),
    }
    return is_kind.get(kind, lambda: True)()


_FOUND: Final = pa.struct([("value", pa.string()), ("fate", pa.string())])
_READERS: Final[dict[str, tuple[Callable[..., Any], pa.DataType]]] = {
    "value": (read_value, _FOUND),
    "query": (read_query, _FOUND),
    "exists": (read_exists, pa.string()),
    "check": (check, pa.bool_()),
}


@dataclass(frozen=True)
class JsonCalls:
    """A function of this module over Arrow arrays; null in, null out.

    Attributes:
        name: ``value`` and ``query``, which give a struct of value and fate, ``exists`` or ``check``.
    """

    name: str

    def __call__(self, *columns: pa.Array) -> pa.Array:
        """The values of rows."""
        function, kind = _READERS[self.name]
        rows: Iterable[tuple[Any, ...]] = zip(*(column.to_pylist() for column in columns), strict=True)
        values = [function(*row) if row[0] is not None else None for row in rows]
        if kind == _FOUND:
            values = [value if value is None else {"value": value[0], "fate": value[1]} for value in values]
        return pa.array(values, kind)

    def of_columns(self, *columns: pa.ChunkedArray) -> pa.ChunkedArray:
        """As a call, of the columns of a table."""
        return over_columns(self, columns, [pa.string()] * len(columns))
