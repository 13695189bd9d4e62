"""Records that the declared format cannot read: the reason names the one that can."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from upsert_platform.kafka.source.decode import RecordDecoder
from upsert_platform.kafka.source.records import RecordBlock
from upsert_platform_tests.kafka.tables import FakeRecord, declare, read

VALUE = b'{"v":"x"}'
PAGE = Path(__file__).parents[3] / "docs" / "choosing-a-format.md"


def reasons(kind: str, keys: list[bytes], *, declared: str = "json", values: list[bytes] | None = None) -> list[str]:
    """Why records are refused, of a table with one key column of a type."""
    options = {"key.format": declared, "value.fields-include": "EXCEPT_KEY"}
    table = read(declare({"id": kind, "v": "STRING"}, **options))
    given = values or [VALUE] * len(keys)
    records = [FakeRecord(offset, key, value) for offset, (key, value) in enumerate(zip(keys, given, strict=True))]
    refused = RecordDecoder(table).decode(RecordBlock.of(records, keep=True)).verdicts.refused
    return [refused[index] for index in sorted(refused)]


@pytest.mark.parametrize(
    ("kind", "keys", "declared", "named"),
    [
        ("STRING", [b"c-1", b"c-2"], "json", "raw"),
        ("STRING", [b"7"], "json", "raw"),
        ("BIGINT", [b"7", b"12345678"], "json", "csv"),
        ("BIGINT", [b'{"id":7}'], "csv", "json"),
        ("BIGINT", [b"\x00\x01\x00\x00\x00\x00\x00\x07", b"\xff" * 8], "json", "raw"),
    ],
)
def test_the_reason_names_the_format_that_reads_the_keys(
    kind: str, keys: list[bytes], declared: str, named: str
) -> None:
    found = reasons(kind, keys, declared=declared)
    assert len(found) == len(keys)
    assert all(text.endswith(f"; the keys are not {declared}; 'key.format' = '{named}' reads them") for text in found)
    assert reasons(kind, keys, declared=named) == []


def test_records_of_a_registry_are_named() -> None:
    (found,) = reasons("STRING", [b"\x00\x00\x00\x00\x01\x06abc"])
    assert "begin as records of a schema registry do: try 'key.format' = 'avro-confluent'" in found


def test_a_broken_record_among_others_names_no_other_format() -> None:
    (found,) = reasons("STRING", [b'{"id":"a"}', b"c-1"])
    assert "key.format" not in found
    broken = reasons("STRING", [b'{"id":"a"}'], values=[b"x"])
    assert "value.format" not in broken[0]
    assert all("value.format" not in text for text in reasons("STRING", [b'{"id":"a"}'] * 3, values=[b"\xff{"] * 3))


def test_the_page_names_the_formats_that_read_its_keys() -> None:
    shown = dict(re.findall(r"^\| `([^`]+)`.*\| `(\w+)`", PAGE.read_text("utf-8"), re.MULTILINE))
    kinds = {"c-1": "STRING", "7": "BIGINT", '{"id": 7}': "BIGINT"}
    assert kinds.keys() <= shown.keys()
    for key, kind in kinds.items():
        assert reasons(kind, [key.encode()], declared=shown[key]) == []
