"""Whatever happens to a topic, changelog and table are those of the model, in every format."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from upsert_platform.changelog.latest import VERSION_ORDER
from upsert_platform_tests.kafka.histories import (
    BAD,
    FORMATS,
    STEPS,
    Codec,
    Log,
    Put,
    Step,
    schema_server,
    table_of,
)


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with schema_server() as found:
        yield found


def table_from(log: Log) -> dict[int, int]:
    """The last row per key, in the order that the changelog is read in."""
    last: dict[int, dict] = {}
    changes = (row for row in log.rows if row["_kind"] != "?")
    for row in sorted(changes, key=lambda row: [row[name] for name in VERSION_ORDER]):
        last[row["id"]] = row
    return {key: row["number"] for key, row in last.items() if row["_kind"] == "+U"}


@pytest.mark.parametrize("format_id", FORMATS)
def test_any_history_ends_in_the_table_of_the_model(format_id: str, options: dict[str, str]) -> None:
    table = table_of(format_id, options)
    codec = Codec(table, FORMATS[format_id])

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(STEPS)
    def holds(steps: list[Step]) -> None:
        log = Log(table, codec)
        log.play(steps)
        assert table_from(log) == log.model

    holds()


def test_the_model_knows_what_it_should() -> None:
    table = table_of("json", {})
    log = Log(table, Codec(table, FORMATS["json"]))
    log.play(
        [Put(1, 5), Put(1, 6), Put(1, BAD), Put(2, 7), "batch", Put(2, None), 2, "partition", Put(1, 8), "compact"]
    )
    assert log.model == {1: 8}
    assert sorted((row["_batch"], row["_partition"], row["_offset"], row["_kind"]) for row in log.rows) == [
        (1, 0, 1, "+U"),
        (1, 0, 2, "?"),
        (1, 0, 3, "+U"),
        (2, 0, 4, "-D"),
        (2, 1, 0, "+U"),
    ]
