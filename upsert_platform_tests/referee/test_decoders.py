"""The referee's decoders against what Flink's classes gave: never another value, and few messages left open."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from upsert_platform.referee.csv_values import csv_decoder
from upsert_platform.referee.errors import RefereeError, UndecodableError, UnjudgedError
from upsert_platform.referee.formats import Side
from upsert_platform.referee.kinds import Kind, kind_of
from upsert_platform_tests.formats.support import Vector, expected, load

OPEN = "open"
JUDGED = {"json": 1900, "csv": 150, "raw": 80, "avro": 110}
"""Messages of the vectors on which the referee has to have an opinion, at least."""


def _comparable(value: Any, kind: Kind) -> Any:
    """A value of the referee in the form of the vectors."""
    if value is None:
        return None
    match kind.root:
        case "FLOAT" | "DOUBLE":
            return "NaN" if value != value else struct.pack(">f" if kind.root == "FLOAT" else ">d", value).hex()
        case "CHAR" | "VARCHAR" | "STRING":
            return value.encode()
        case "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ":
            return value // 1000
        case "ARRAY":
            return [_comparable(item, kind.parts[0][1]) for item in value]
        case "ROW":
            return [_comparable(item, part) for item, (_, part) in zip(value, kind.parts, strict=True)]
        case "MAP":
            (_, key), (_, item) = kind.parts
            return sorted(((_comparable(name, key), _comparable(found, item)) for name, found in value), key=repr)
    return value


def _outcome(vector: Vector) -> Any:
    columns = {name: str(kind) for name, kind in vector.columns}
    side = Side(vector.format, columns, tuple(columns), vector.options)
    try:
        values = side.decoder()(vector.message or b"")
    except (RefereeError, UnjudgedError):
        return OPEN
    except UndecodableError:
        return None
    kinds = [kind_of(text) for text in columns.values()]
    return [[_comparable(value, kind) for value, kind in zip(values, kinds, strict=True)]]


@pytest.mark.parametrize("name", JUDGED)
def test_referee_reads_what_flink_reads_or_leaves_it_open(name: str) -> None:
    judged = 0
    for vector in load(f"{name}_decode"):
        if vector.error == "config-error" or vector.message is None:
            continue
        found = _outcome(vector)
        if found == OPEN:
            continue
        judged += 1
        wanted = expected(vector)
        assert found == wanted or (found is None and not any(wanted or [])), vector.id
    assert judged >= JUDGED[name]


def test_csv_reads_the_first_line_of_a_message() -> None:
    decode = csv_decoder({"id": kind_of("STRING")}, {})
    for message in (b"k\n20", b"k\r20\n", b"k\r\n", b"k"):
        assert decode(message) == ["k"]
    for message in (b"\n", b"\nk", b"\r\n1,2"):  # an empty line is a line
        assert decode(message) == [""]
    for message in (b'"k\n20', b"  ", b'k\n"'):
        with pytest.raises(UnjudgedError):
            decode(message)


def test_csv_passes_over_one_blank_field_at_the_end_of_a_line() -> None:
    decode = csv_decoder({"id": kind_of("STRING")}, {})
    for message in (b"k,", b"k, ", b'k,""', b'"k",\t'):
        assert decode(message) == ["k"]
    for message in (b"k,,", b"k,x"):
        with pytest.raises(UndecodableError):
            decode(message)
