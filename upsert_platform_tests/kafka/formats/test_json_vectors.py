"""Format json against what Flink's classes gave for the same input."""

from __future__ import annotations

from typing import Any

import pytest

from upsert_platform.errors import DeclarationError, SourceLocation
from upsert_platform.kafka.formats import build_decoder, build_encoder, validate_format
from upsert_platform.kafka.formats.json_decoder import JsonDecoder, json_manner, row_reader
from upsert_platform.kafka.formats.options import JsonSettings
from upsert_platform.types import LogicalType, TypeName
from upsert_platform_tests.kafka.formats.differences import JSON_DECODE
from upsert_platform_tests.kafka.formats.support import (
    Vector,
    batch_of_vector,
    cut_nanoseconds,
    differing,
    expected,
    load,
    plain_rows,
)

KNOWN = tuple(sorted(number for difference in JSON_DECODE.values() for number in difference.vectors))


def decodable(name: str) -> list[Vector]:
    return [item for item in load(name) if item.error != "config-error" and item.message is not None]


def outcome(vector: Vector, messages: list[bytes], place: int) -> list[list[Any]] | None:
    decoded = build_decoder(vector.format, vector.columns, vector.options).decode(messages)
    if place in decoded.errors:
        assert place not in decoded.message.to_pylist()
        return None
    rows = plain_rows(decoded.rows, vector.columns)
    return [row for row, message in zip(rows, decoded.message.to_pylist(), strict=True) if message == place]


def test_decoded_rows_are_flinks() -> None:
    vectors = decodable("json_decode")
    found = {item.id: (outcome(item, [item.message or b""], 0), expected(item)) for item in vectors}
    assert differing(found, "json-decode") == KNOWN
    assert len(KNOWN) * 50 < len(vectors)


def test_neighbours_in_a_block_change_nothing() -> None:
    found = {}
    for item in decodable("json_decode"):
        message = item.message or b""
        found[item.id] = (outcome(item, [b"{}", message, b'{"":[{}]}', message], 3), expected(item))
    assert differing(found, "json-decode") == KNOWN


def exact(value: Any, logical: LogicalType) -> Any:
    """Timestamps of a vector's value in nanoseconds, everything else left out."""
    if value is None or logical.name not in (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ):
        return None
    return value["ms"] * 1_000_000 + value["ns"]


def test_timestamps_are_read_to_the_nanosecond() -> None:
    seen = 0
    for item in decodable("json_decode"):
        want = expected(item)
        if want is None or int(item.id[-6:]) in KNOWN:
            continue
        manner = json_manner(JsonSettings.model_validate(item.options), item.columns, exact=True)
        rows = row_reader(item.columns, manner)(item.message or b"")
        for got, row in zip(rows, item.rows, strict=True):
            for value, raw, (_, logical) in zip(got, row["values"], item.columns, strict=True):
                stamp = exact(raw, logical)
                if stamp is not None:
                    seen += 1
                    assert value == stamp, item.id
    assert seen > 300


@pytest.mark.parametrize("name", ["json_decode", "json_encode"])
def test_refused_declarations_are_refused(name: str) -> None:
    refused = [item for item in load(name) if item.error == "config-error"]
    assert refused
    for item in refused:
        problems = validate_format(
            item.format, item.options, item.columns, side="value", direction="source", subject="table 't'",
            location=SourceLocation("t.sql", 1), truncate_timestamps=True,
        )  # fmt: skip
        assert any(problem.severity == "error" for problem in problems), item.id


def test_accepted_declarations_are_accepted() -> None:
    for item in load("json_decode") + load("json_encode"):
        if item.error == "config-error":
            continue
        problems = validate_format(
            item.format, item.options, item.columns, side="value",
            direction="source" if item.raw["direction"] == "decode" else "sink", subject="table 't'",
            location=SourceLocation("t.sql", 1), truncate_timestamps=True,
        )  # fmt: skip
        assert problems == [], item.id


def encoded(vector: Vector) -> tuple[bytes | None, bytes | None]:
    batch, cut = batch_of_vector(vector)
    messages, refusals = build_encoder(vector.format, vector.columns, vector.options).encode(batch)
    assert len(messages) == 1
    assert (messages[0].as_py() is None) == bool(refusals)
    want = vector.message
    return messages[0].as_py(), cut_nanoseconds(want) if cut and want is not None else want


def test_encoded_bytes_are_flinks() -> None:
    found = {item.id: encoded(item) for item in load("json_encode") if item.error != "config-error"}
    assert differing(found, "json-encode") == ()


def test_rows_of_a_block_are_encoded_as_alone() -> None:
    import pyarrow as pa

    by_columns: dict[str, list[Vector]] = {}
    for item in load("json_encode"):
        if item.error != "config-error":
            by_columns.setdefault(f"{item.raw['type']} {item.options}", []).append(item)
    groups = [group for group in by_columns.values() if len(group) > 1]
    assert len(groups) > 100
    for group in groups:
        batches = [batch_of_vector(item)[0] for item in group]
        if len({batch.schema for batch in batches}) > 1:
            continue
        empty = [pa.nulls(1, field.type) for field in batches[0].schema]
        table = pa.Table.from_batches([*batches, pa.RecordBatch.from_arrays(empty, schema=batches[0].schema), *batches])
        encoder = build_encoder(group[0].format, group[0].columns, group[0].options)
        messages, refusals = encoder.encode(table.combine_chunks().to_batches()[0].slice(1))
        want = [encoder.encode(batch) for batch in batches]
        alone = [message[0].as_py() for message, _ in want]
        assert messages.to_pylist()[: len(group) - 1] == alone[1:], group[0].id
        assert messages.to_pylist()[len(group) :] == alone, group[0].id
        assert {at - len(group) for at in refusals if at >= len(group)} == {
            at for at, (_, refused) in enumerate(want) if refused
        }


def test_a_decoder_keeps_no_state() -> None:
    columns = load("json_decode")[0].columns
    decoder = JsonDecoder(columns, JsonSettings())
    first = decoder.decode([b'{"a":true}', b"?"])
    second = decoder.decode([b'{"a":true}', b"?"])
    assert (first.rows, first.errors) == (second.rows, second.errors)


def test_unknown_formats_and_options_are_refused() -> None:
    columns = load("json_decode")[0].columns
    with pytest.raises(DeclarationError, match="unknown format 'jsn'"):
        build_decoder("jsn", columns, {})
    with pytest.raises(DeclarationError, match=r"did you mean 'json.ignore-parse-errors'"):
        build_decoder("json", columns, {"json.ignore-parse-error": "true"})
