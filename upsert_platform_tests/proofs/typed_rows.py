"""Rows with a column of every type, as JSON records have them; how they are made says what a proof has to find."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

TYPES: Mapping[str, str] = {
    "flag": "BOOLEAN",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "whole": "INT",
    "long": "BIGINT",
    "single": "FLOAT",
    "twofold": "DOUBLE",
    "amount": "DECIMAL(12, 2)",
    "fine": "DECIMAL(38, 18)",
    "fixed": "CHAR(4)",
    "bounded": "VARCHAR(20)",
    "text": "STRING",
    "raw": "BYTES",
    "day": "DATE",
    "moment": "TIME",
    "at": "TIMESTAMP(3)",
    "since": "TIMESTAMP_LTZ(3)",
    "list": "ARRAY<INT>",
    "pairs": "MAP<STRING, INT>",
    "part": "ROW<a INT, b STRING>",
}
FLAT = tuple(name for name, kind in TYPES.items() if not kind.startswith(("ARRAY", "MAP", "ROW")))
"""Columns that every destination takes."""


def row_of(number: int) -> dict[str, Any]:
    """The values of a row, without its key; two rows whose numbers differ by an odd one differ in every column."""
    return {
        "flag": number % 2 == 0,
        "tiny": number % 101,
        "small": number % 9973,
        "whole": number,
        "long": number * 10_000_000_019,
        "single": number + 0.5,
        "twofold": number + 0.1,
        "amount": f"{number}.25",
        "fine": f"{number}.000000000000000001",
        "fixed": f"{number % 9973:04}",
        "bounded": f"bounded {number}",
        "text": f"text {number}",
        "raw": base64.b64encode(number.to_bytes(4, "big")).decode(),
        "day": f"2024-{number % 12 + 1:02}-{number % 27 + 1:02}",
        "moment": f"{number % 23:02}:{number % 59:02}:{number % 57:02}",
        "at": f"2024-05-06 {number % 23:02}:{number % 59:02}:00.{number % 997:03}",
        "since": f"2024-05-07 {number % 23:02}:{number % 59:02}:00.{number % 997:03}Z",
        "list": [number, None, number + 1],
        "pairs": {"a": number, "b": None},
        "part": {"a": number, "b": f"b {number}"},
    }


def columns(names: tuple[str, ...] = tuple(TYPES)) -> str:
    """The columns of a table, with its key."""
    return ", ".join(["id BIGINT", *(f"`{name}` {TYPES[name]}" for name in names), "PRIMARY KEY (id) NOT ENFORCED"])


def key_of(number: int) -> bytes:
    """The key of a record, as Flink spells it."""
    return json.dumps({"id": number}, separators=(",", ":")).encode()


def value_of(number: int, values: Mapping[str, Any]) -> bytes:
    """The value of a record."""
    return json.dumps({"id": number, **values}).encode()


def respelled(number: int, values: Mapping[str, Any]) -> bytes:
    """The same value as another program spells it."""
    return json.dumps({**dict(reversed(values.items())), "id": number}, indent=1).encode()
