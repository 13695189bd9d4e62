"""Checks of topics whose format holds less than rows have: what a reader of the topic finds is what is expected."""

from __future__ import annotations

from datetime import date, datetime

import pytest

from upsert_platform.changelog.refused import RefusedStore
from upsert_platform_tests.kafka.writing import frame, write
from upsert_platform_tests.sync.expecting import checked

pytestmark = pytest.mark.whole_runs


def compared(spark, destination, changes, tmp_path):
    """Counts of a whole check of a destination against a change frame."""
    return checked(spark, destination, changes, RefusedStore(str(tmp_path / "refused")), upto=1)


@pytest.mark.parametrize(
    ("options", "columns", "rows", "in_topic"),
    [
        (
            {"value.format": "csv"},
            {"id": "INT", "name": "STRING"},
            [(1, None), (2, ""), (3, "c")],
            {1: "", 2: "", 3: "c"},
        ),
        (
            {"value.format": "csv"},
            {"id": "INT", "d": "DATE"},
            [(1, date(1, 1, 1)), (2, date(9999, 12, 31))],
            {1: date(1, 1, 1), 2: date(9999, 12, 31)},
        ),
        ({"value.format": "csv"}, {"id": "INT", "n": "INT"}, [(1, None), (2, 5)], {2: 5}),
        (
            {"value.format": "csv", "value.csv.null-literal": "null"},
            {"id": "INT", "name": "STRING"},
            [(1, None), (2, "null"), (3, "")],
            {1: None, 2: None, 3: ""},
        ),
        ({}, {"id": "INT", "d": "DOUBLE"}, [(1, 0.1), (2, None), (3, 1e300)], {1: 0.1, 2: None, 3: 1e300}),
    ],
)
def test_what_a_format_cannot_hold_is_not_missed(
    spark, destination_of, name, tmp_path, options, columns, rows, in_topic
):
    destination = destination_of(name, columns, **options)
    ddl = ", ".join(f"{column} {kind}" for column, kind in columns.items()) + ", _op STRING, _seq BIGINT"
    changes = frame(spark, [(*row, "U", 1) for row in rows], ddl)
    write(destination, changes, 1)
    assert {row[0]: row[1] for row in destination.read(spark).collect()} == in_topic
    found = compared(spark, destination, changes, tmp_path)
    assert (found.passed, found.sample) == (True, ())
    other = frame(spark, [(*row[:-1], 7 if type(row[-1]) is int else row[-1], "U", 1) for row in rows[:-1]], ddl)
    assert not compared(spark, destination, other, tmp_path).passed  # a row too many is still seen


def test_a_fraction_that_a_time_loses_in_json_is_not_missed(spark, destination_of, name, tmp_path):
    columns = {"id": "INT", "t": "TIME(3)"}
    destination = destination_of(name, columns)
    changes = frame(spark, [(1, 3_723_456_000, "U", 1)], "id INT, t BIGINT, _op STRING, _seq BIGINT")  # 01:02:03.456
    write(destination, changes, 1)
    assert compared(spark, destination, changes, tmp_path).passed


@pytest.mark.parametrize(
    ("options", "columns", "rows", "reason"),
    [
        (
            {"value.format": "csv"},
            {"id": "INT", "name": "STRING NOT NULL"},
            [(1, ""), (2, "b")],
            "value: it would be an",
        ),
        (
            {"key.format": "csv", "value.fields-include": "ALL"},
            {"id": "STRING", "n": "INT"},
            [("", 1), ("b", 2)],
            "key: it would be an empty message, which is read as no row",
        ),
        (
            {},
            {"t": "TIME(3)", "n": "INT"},
            [(36_000_123_000, 1), (36_000_000_000, 2)],
            "key: column 't': format 'json' does not keep its value, so keys would be one",
        ),
        (
            {"key.format": "raw", "key.raw.charset": "US-ASCII"},
            {"id": "STRING", "n": "INT"},
            [("\xe9", 1), ("e", 2)],
            "key: column 'id': format 'raw' does not keep its value",
        ),
        (
            {"key.format": "csv", "key.csv.null-literal": "n/a", "value.fields-include": "EXCEPT_KEY"},
            {"id": "STRING", "n": "INT"},
            [("n/a", 1), ("e", 2)],
            "key: column 'id': format 'csv' does not keep its value",
        ),
        (
            {"key.format": "avro", "key.avro.timestamp_mapping.legacy": "false"},
            {"t": "TIMESTAMP(6)", "n": "INT"},
            [(datetime(2024, 5, 1, 0, 0, 0, 7), 1), (datetime(2024, 5, 1, 0, 0, 0, 7000), 2)],  # noqa: DTZ001
            "key: column 't': format 'avro' does not keep its value",
        ),
    ],
)
def test_rows_that_could_not_be_read_back_are_set_aside(
    spark, destination_of, name, tmp_path, options, columns, rows, reason
):
    if "value.format" in options:
        options = {**options, "value.fields-include": "EXCEPT_KEY"}
    destination = destination_of(name, columns, key=[next(iter(columns))], **options)
    kinds = {column: _spark_type(kind) for column, kind in columns.items()}
    ddl = ", ".join(f"{column} {kind}" for column, kind in kinds.items()) + ", _op STRING, _seq BIGINT"
    changes = frame(spark, [(*row, "U", 1) for row in rows], ddl)
    refused = []
    assert write(destination, changes, 1, keep_refused=refused.extend).upserts == 1
    assert [row.reason.startswith(reason) for row in refused] == [True], refused
    assert [tuple(row) for row in destination.read(spark).collect()] == [rows[1]]


def _spark_type(kind: str) -> str:
    return {"TIME(3)": "BIGINT", "TIMESTAMP(6)": "TIMESTAMP_NTZ"}.get(kind, kind.split()[0])
