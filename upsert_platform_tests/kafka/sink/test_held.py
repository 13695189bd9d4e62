"""Checks of topics whose format holds less than rows have: what a reader of the topic finds is what is expected."""

from __future__ import annotations

import pytest

from upsert_platform.changelog.refused import RefusedStore
from upsert_platform_tests.kafka.writing import frame, write
from upsert_platform_tests.sync.expecting import checked


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
