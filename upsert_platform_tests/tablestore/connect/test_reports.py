"""Section 1.4: what is told of records that were kept aside, and that they are kept whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from upsert_platform.tablestore.connect.error_rows import error_row
from upsert_platform.tablestore.connect.record import ConnectRecord, Envelope, MessageFormat, SideFormat
from upsert_platform.tablestore.connect.refusals import RefusedRecord, from_row, place_text, to_row
from upsert_platform.tablestore.connect.reports import dead_letter, error_message, with_schema
from upsert_platform.tablestore.encoder import RowOperation

JSON = SideFormat()
PLAIN = SideFormat(MessageFormat.JSON, Envelope.NEVER)
TEXT = SideFormat(MessageFormat.STRING)
RECORD = ConnectRecord("t", 3, 42, b"k", b"[1]", 1_000, (("h", b"x"), ("h", None)))
REFUSED = RefusedRecord(RECORD, "DirtyRecordError", "the value is a JSON array")
WRAPPED = '{"schema":{"type":"string"},"payload":"x"}'


def _text(payload: str) -> dict[str, Any]:
    return {"schema": {"type": "string", "optional": False}, "payload": payload}


@pytest.mark.parametrize(
    ("data", "side", "expected"),
    [
        ("x", TEXT, _text("x")),
        ("", TEXT, _text("")),
        ('{"a": 1}', JSON, {"schema": None, "payload": {"a": 1}}),
        ("[1]", JSON, {"schema": None, "payload": [1]}),
        (WRAPPED, JSON, json.loads(WRAPPED)),
        (WRAPPED, PLAIN, {"schema": None, "payload": json.loads(WRAPPED)}),
        ("null", JSON, None),
        ('{"a":', JSON, _text('{"a":')),
        ("NaN", JSON, _text("NaN")),
        (b"\xff", TEXT, _text("\\xff")),
        (None, JSON, None),
    ],
)
def test_a_side_with_its_schema(data: Any, side: SideFormat, expected: Any) -> None:
    found = with_schema(data.encode() if isinstance(data, str) else data, side)
    assert (None if found is None else json.loads(found)) == expected


def test_numbers_keep_their_digits() -> None:
    assert with_schema(b'{"a":1.10}', JSON) == b'{"schema":null,"payload":{"a":1.10}}'


def test_49_the_letter_of_the_kafka_reporter() -> None:
    message = error_message(REFUSED, TEXT, JSON)
    assert json.loads(message.key or b"") == _text("k")
    assert message.timestamp == 1_000
    information = b"Error: DirtyRecordError, Message: the value is a JSON array"
    assert message.headers == (("h", b"x"), ("h", None), ("ErrorInfo", information))


def test_a_dead_letter_is_the_record_as_it_is() -> None:
    assert dead_letter(REFUSED, connector="c", context=False).headers == RECORD.headers
    message = dead_letter(REFUSED, connector="c", context=True)
    assert (message.key, message.value) == (b"k", b"[1]")
    headers = dict(message.headers)
    assert headers["__connect.errors.partition"] == b"3"
    assert headers["__connect.errors.connector.name"] == b"c"
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"


def test_48_the_row_of_the_tablestore_reporter() -> None:
    row = error_row(REFUSED, TEXT, JSON)
    assert (row.operation, row.key) == (RowOperation.PUT, (("topic_partition", "t_3"), ("offset", 42)))
    assert set(row.cells) == {"error_info", "key", "value"}
    nothing = RefusedRecord(ConnectRecord("t", 0, 1, None, None), "DirtyRecordError", "r")
    assert error_row(nothing, TEXT, JSON).cells == {"error_info": "Error: DirtyRecordError, Message: r"}


@pytest.mark.parametrize(("key", "value", "kept"), [(10, 2_200_000, "key"), (1_900_000, 1_900_000, "key")])
def test_a_side_that_is_too_large_for_the_error_table_is_told_of(key: int, value: int, kept: str) -> None:
    record = ConnectRecord("t", 0, 1, b"k" * key, b"v" * value)
    cells = error_row(RefusedRecord(record, "DirtyRecordError", "r"), TEXT, TEXT).cells
    assert set(cells) == {"error_info", kept}
    assert f"(the value has {value} bytes and is kept in the lake alone)" in str(cells["error_info"])


@pytest.mark.parametrize("record", [RECORD, ConnectRecord("é", 0, 0, None, b"\x00\xff")])
def test_a_refused_record_comes_back_from_its_text(record: ConnectRecord) -> None:
    refused = RefusedRecord(record, "UndecodableError", "r")
    row = to_row(refused)
    assert from_row(row) == refused
    assert row.key == place_text(record)
