"""Every format against what Flink's classes gave for the same input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform.core.errors import SourceLocation
from upsert_platform.core.types import LogicalType, TypeName
from upsert_platform.formats import FORMATS, build_decoder, build_encoder, validate_format
from upsert_platform.formats.avro.schema import derive_schema
from upsert_platform.formats.csv.values import record_reader
from upsert_platform.formats.json.decoder import json_manner, row_reader
from upsert_platform.formats.options import CsvSettings, JsonSettings
from upsert_platform_tests.formats.differences import DIFFERENCES
from upsert_platform_tests.formats.support import (
    Vector,
    batch_of_vector,
    columns_of,
    cut_nanoseconds,
    differing,
    expected,
    load,
    plain_rows,
)

DECODED = ["json_decode", "csv_decode", "raw_decode", "avro_decode"]
ENCODED = ["json_encode", "csv_encode", "raw_encode", "avro_encode"]
BLANK = {"json": b"{}", "csv": b",", "raw": b"\0", "avro": b"\0\0\0"}
"""A message that most tables of a format can read, to stand beside the one under test."""


def known(name: str) -> tuple[int, ...]:
    return tuple(sorted(number for item in DIFFERENCES.get(name, {}).values() for number in item.vectors))


def known_results(name: str) -> tuple[int, ...]:
    refused = {int(item.id[-6:]) for item in load(name) if item.error == "config-error"}
    return tuple(number for number in known(name) if number not in refused)


def usable(name: str) -> list[Vector]:
    return [item for item in load(name) if item.error != "config-error"]


def decodable(name: str) -> list[Vector]:
    return [item for item in usable(name) if item.message is not None]


def outcome(vector: Vector, messages: list[bytes], place: int) -> list[list[Any]] | None:
    decoded = build_decoder(vector.format, vector.columns, vector.options).decode(messages)
    sources = decoded.message.to_pylist()
    assert sources == sorted(sources)
    assert not set(sources) & set(decoded.errors)
    if place in decoded.errors:
        return None
    rows = plain_rows(decoded.rows, vector.columns)
    return [row for row, message in zip(rows, sources, strict=True) if message == place]


@pytest.mark.parametrize("name", DECODED)
def test_decoded_rows_are_flinks(name: str) -> None:
    found = {item.id: (outcome(item, [item.message or b""], 0), expected(item)) for item in decodable(name)}
    assert differing(found, name.replace("_", "-")) == known_results(name)


def test_differences_are_few() -> None:
    assert sum(len(known(name)) for name in DECODED) * 50 < sum(len(load(name)) for name in DECODED)


@pytest.mark.parametrize("name", DECODED)
def test_neighbours_in_a_block_change_nothing(name: str) -> None:
    found = {}
    for item in decodable(name):
        message, blank = item.message or b"", BLANK[item.format]
        found[item.id] = (outcome(item, [blank, message, blank, message, b"?"], 3), expected(item))
    assert differing(found, name.replace("_", "-")) == known_results(name)


def exact_rows(vector: Vector) -> list[list[Any]]:
    if vector.format == "csv":
        read = record_reader(vector.columns, CsvSettings.model_validate(vector.options), exact=True)
        return [read(vector.message or b"")]
    manner = json_manner(JsonSettings.model_validate(vector.options), vector.columns, exact=True)
    return row_reader(vector.columns, manner)(vector.message or b"")


def nanoseconds(value: Any, logical: LogicalType) -> int | None:
    if value is None or logical.name not in (TypeName.TIMESTAMP, TypeName.TIMESTAMP_LTZ):
        return None
    return int(value["ms"] * 1_000_000 + value["ns"])


@pytest.mark.parametrize(("name", "least"), [("json_decode", 500), ("csv_decode", 90)])
def test_timestamps_are_read_to_the_nanosecond(name: str, least: int) -> None:
    seen = 0
    for item in decodable(name):
        if expected(item) is None or int(item.id[-6:]) in known(name):
            continue
        for got, row in zip(exact_rows(item), item.rows, strict=True):
            for value, raw, (_, logical) in zip(got, row["values"], item.columns, strict=True):
                stamp = nanoseconds(raw, logical)
                if stamp is not None:
                    seen += 1
                    assert value == stamp, item.id
    assert seen > least


def problems_of(vector: Vector) -> list[str]:
    direction: Any = "source" if vector.raw["direction"] == "decode" else "sink"
    found = validate_format(
        vector.format, vector.options, vector.columns, side="value", direction=direction, subject="table 't'",
        location=SourceLocation("t.sql", 1),
    )  # fmt: skip
    return [problem.message for problem in found if problem.severity == "error"]


@pytest.mark.parametrize("name", DECODED + ENCODED)
def test_declarations_are_refused_where_flink_refuses(name: str) -> None:
    refused = [item for item in load(name) if item.error == "config-error"]
    assert refused
    for item in load(name):
        if item.error != "config-error" or int(item.id[-6:]) not in known(name):
            assert bool(problems_of(item)) == (item.error == "config-error"), (item.id, problems_of(item))


def encoded(vector: Vector) -> tuple[bytes | None, bytes | None]:
    batch, cut = batch_of_vector(vector)
    messages, refusals = build_encoder(vector.format, vector.columns, vector.options).encode(batch)
    assert len(messages) == 1
    assert messages.type == pa.binary()
    assert bool(refusals) == (vector.error is not None)
    want = vector.message
    return messages[0].as_py(), cut_nanoseconds(want) if cut and want is not None else want


@pytest.mark.parametrize("name", ENCODED)
def test_encoded_bytes_are_flinks(name: str) -> None:
    found = {item.id: encoded(item) for item in usable(name)}
    for item in usable(name):
        got, want = found[item.id]
        if item.format == "avro" and got != want:  # entries of a map stand in another order
            found[item.id] = (outcome(item, [got or b""], 0), outcome(item, [want or b""], 0))
            assert len(got or b"") == len(want or b"")
    assert differing(found, name.replace("_", "-")) == known_results(name)


def groups_of(vectors: list[Vector], key: Callable[[Vector], str]) -> list[list[Vector]]:
    groups: dict[str, list[Vector]] = {}
    for item in vectors:
        groups.setdefault(key(item), []).append(item)
    return [group for group in groups.values() if len(group) > 1]


@pytest.mark.parametrize(("name", "least"), [("json_encode", 100), ("csv_encode", 50), ("avro_encode", 50)])
def test_rows_of_a_block_are_encoded_as_alone(name: str, least: int) -> None:
    groups = groups_of(usable(name), lambda item: f"{item.raw['type']} {item.options}")
    assert len(groups) > least
    for group in groups:
        batches = [batch_of_vector(item)[0] for item in group]
        if len({str(batch.schema) for batch in batches}) > 1:
            continue
        empty = [pa.nulls(1, field.type) for field in batches[0].schema]
        table = pa.Table.from_batches([*batches, pa.RecordBatch.from_arrays(empty, schema=batches[0].schema), *batches])
        encoder = build_encoder(group[0].format, group[0].columns, group[0].options)
        messages, refusals = encoder.encode(table.combine_chunks().to_batches()[0].slice(1))
        want = [encoder.encode(batch) for batch in batches]
        alone = [message[0].as_py() for message, _ in want]
        assert messages.to_pylist()[: len(group) - 1] == alone[1:], group[0].id
        assert messages.to_pylist()[len(group) :] == alone, group[0].id
        refused = {at for at, (_, reasons) in enumerate(want) if reasons}
        assert {at - len(group) for at in refusals if at >= len(group)} == refused


@pytest.mark.parametrize("name", ["avro_decode", "avro_encode"])
def test_avro_schemas_are_derived_as_flink_derives_them(name: str) -> None:
    for item in load(name):
        if "avro_schema" in item.raw:
            legacy = item.options.get("avro.timestamp_mapping.legacy") != "false"
            assert derive_schema(item.columns, legacy=legacy) == item.raw["avro_schema"], item.id


@pytest.mark.parametrize(
    "format_id", ["json", "csv", "avro", "debezium-json", "canal-json", "maxwell-json", "ogg-json"]
)
def test_an_empty_block_gives_empty_results(format_id: str) -> None:
    columns = columns_of("a INT, b STRING, c DECIMAL(9, 2), d TIMESTAMP(3), e ARRAY<DOUBLE>, f ROW<x TIME(0)>, g BYTES")
    decoded = build_decoder(format_id, columns, {}).decode([])
    assert (decoded.rows.num_rows, len(decoded.message), decoded.errors) == (0, 0, {})
    messages, refusals = build_encoder(format_id, columns, {}).encode(decoded.rows)
    assert (messages.to_pylist(), refusals) == ([], {})


@pytest.mark.parametrize("format_id", ["json", "csv", "avro", "debezium-json"])
def test_a_time_beyond_the_day_is_refused(format_id: str) -> None:
    columns = columns_of("a INT, b TIME(0)")
    rows = pa.record_batch(
        [pa.array([1, 2, 3], pa.int32()), pa.array([5_000_000, 86_400_000_000, None])], names=["a", "b"]
    )
    messages, refusals = build_encoder(format_id, columns, {}).encode(rows)
    assert [message is None for message in messages.to_pylist()] == [False, True, False]
    assert list(refusals) == [1]
    assert "column 'b'" in refusals[1]


def test_every_difference_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    for differences in DIFFERENCES.values():
        for behaviour in differences:
            assert f"| {behaviour} |" in text


def test_every_format_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    assert all(f"`{format_id}`" in text for format_id in FORMATS)


def test_declaring_a_format_loads_nothing_heavy() -> None:
    heavy = ("pyarrow", "numpy", "requests", "orjson", "fastavro", "dagster", "pyspark")
    program = f"import sys, upsert_platform.formats; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
