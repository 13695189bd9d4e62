"""Whatever happens to a topic, changelog and table are those of the model, in every format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.changelog import rows
from upsert_platform.changelog.latest import latest_per_key
from upsert_platform.kafka.source.reduce import LatestByKey
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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with schema_server() as found:
        yield found


@dataclass
class Played:
    """Histories that were played, to be reduced in one go: Spark would take longer to start once per history."""

    schema: pa.Schema
    rows: list[dict[str, Any]] = field(default_factory=list)
    models: list[tuple[list[Step], dict[int, int]]] = field(default_factory=list)

    def add(self, log: Log, steps: list[Step]) -> None:
        self.rows += [{**row, "history": len(self.models)} for row in log.rows if row["_kind"] != "?"]
        self.models.append((steps, log.model))

    def check(self, spark: SparkSession) -> None:
        """Compares the tables that the product makes of the rows with the models."""
        frame = spark.createDataFrame(pa.Table.from_pylist(self.rows, schema=self.schema))
        found: dict[int, dict[int, int]] = {}
        latest = latest_per_key(frame, key=["history", "id"], columns=["number"])
        for row in latest.where(f"{rows.KIND} = '{rows.KIND_UPDATE_AFTER}'").collect():
            found.setdefault(row.history, {})[row.id] = row.number
        for number, (steps, model) in enumerate(self.models):
            assert found.get(number, {}) == model, steps


@pytest.mark.parametrize("format_id", FORMATS)
def test_any_history_ends_in_the_table_of_the_model(
    format_id: str, options: dict[str, str], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when times go back, keys have two spellings, tasks share a range, and few records fit the buffer."""
    table = table_of(format_id, options)
    codec = Codec(table, FORMATS[format_id])
    played = Played(rows.arrow_schema(table.table).append(pa.field("history", pa.int32())))
    monkeypatch.setattr(LatestByKey, "is_full", lambda buffer: buffer.records >= 9)

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(STEPS, st.sampled_from([3, 7]), st.integers(1, 3))
    def plays(steps: list[Step], piece: int, tasks: int) -> None:
        log = Log(table, codec, piece=piece, tasks=tasks)
        log.play(steps)
        played.add(log, steps)

    plays()
    played.check(spark)


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
