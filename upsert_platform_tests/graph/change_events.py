"""Topics of changes, read without the platform's formats: every image before is what the topic said last of its key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from upsert_platform.referee.topic import Record

Row = dict[str, Any]


def _images(value: Row) -> tuple[str, Row | None, Row | None, tuple[Any, Any]]:
    """Kind, row before and after, and the names of database and table."""
    if "op" in value:
        source = value["source"]
        return value["op"], value["before"], value["after"], (source["db"], source["table"])
    kind = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}[value["type"]]
    (row,) = value["data"]
    old = value["old"][0] if value["old"] is not None else None
    named = (value["database"], value["table"])
    return kind, row if kind == "d" else old, None if kind == "d" else row, named


def followed(records: Iterable[Record], *, table: str, key: str) -> tuple[dict[Any, Row], list[str]]:
    """The rows that a topic of changes leaves, and the kinds of its changes.

    Raises:
        AssertionError: a change does not fit the one before it, or names another key or table.
    """
    state: dict[Any, Row] = {}
    kinds = []
    schema, _, name = table.rpartition(".")
    for record in records:
        kind, before, after, named = _images(json.loads(record.value or b""))
        kinds.append(kind)
        assert named == (schema or None, name)
        number = (before if after is None else after or {})[key]  # type: ignore[index]
        assert json.loads(record.key or b"") == {"TableId": table, key: number}
        assert state.get(number) == before
        assert (before is None, after is None) == {"c": (True, False), "u": (False, False), "d": (False, True)}[kind]
        if after is None:
            del state[number]
        else:
            state[number] = after
    return state, kinds
