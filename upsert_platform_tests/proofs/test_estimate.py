"""An estimate draws the same keys on both sides, also where a table stores keys in another form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.capabilities import StoresOtherValues
from upsert_platform.core.model import Column
from upsert_platform.core.types import parse_type
from upsert_platform.proofs.plan import _Planning
from upsert_platform_tests.sync.expecting import UNMASKED

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.whole_runs

ROWS = 400


@dataclass
class WithoutBlanks(StoresOtherValues):
    """A destination whose keys lose the blanks at their end, as those of CHAR columns do."""

    rows: DataFrame
    name: str = "held"
    primary_key: tuple[str, ...] = ("key",)
    columns: tuple[Column, ...] = (Column("key", parse_type("STRING")), Column("n", parse_type("BIGINT")))

    def read(self, spark: SparkSession, **_: Any) -> DataFrame:
        return self.rows

    def folded_key(self) -> tuple[str, ...]:
        return ("key",)

    def stored_value(self, name: str, value: SparkColumn) -> SparkColumn:
        return F.rtrim(value) if name == "key" else value


def test_keys_that_a_table_stores_otherwise_are_drawn_alike(spark: SparkSession, tmp_path: Path) -> None:
    changes = spark.sql(
        f"SELECT concat('k', id, repeat(' ', id % 3)) AS key, id AS n, 'U' AS _op, CAST(1 AS BIGINT) AS _seq"
        f" FROM range({ROWS})"
    )
    found = spark.sql(f"SELECT concat('k', id) AS key, IF(id % 5 = 0, -id, id) AS n FROM range(1, {ROWS})")
    table: Any = UNMASKED
    hop: Any = SimpleNamespace(
        destination=WithoutBlanks(found),
        target=SimpleNamespace(table=table, source=SimpleNamespace(table=table), insert=None),
        refused=SimpleNamespace(keys=RefusedStore(TableLocation(str(tmp_path / "none"))).keys),
        changes_with_failures=lambda spark, *, after, upto: changes,
    )
    nothing: Any = None
    planning = _Planning(spark, nothing, nothing, nothing, None, estimate=True, examples=0)
    every, _ = planning._rows(hop, 1, 1)
    assert (every.compared, every.missing, every.extra, every.stale) == (ROWS, 1, 0, ROWS // 5 - 1)
    some, _ = planning._rows(hop, 1, 4)
    assert ROWS // 8 < some.compared < ROWS // 2
    assert (some.missing <= 4, some.extra, 0 < some.stale < ROWS // 2) == (True, 0, True)
