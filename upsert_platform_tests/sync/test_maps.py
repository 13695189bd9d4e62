"""Columns that hold maps are compared entry by entry, in any order, to the last digit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.model import Column
from upsert_platform.core.types import parse_type
from upsert_platform_tests.sync.expecting import checked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.whole_runs

AT = "TIMESTAMP_NTZ'2024-05-06 07:08:09.{}'"
SOON, LATER = AT.format("123456"), AT.format("123457")
INSTANT = "TIMESTAMP'2024-05-06 07:08:09.{}'"
CASES: dict[str, tuple[str, str, list[str]]] = {
    "a microsecond of a value": (
        "MAP<STRING, TIMESTAMP(6)>", f"map('a', {SOON}, 'b', NULL)",
        [f"map('a', {LATER}, 'b', NULL)", f"map('a', {SOON})", f"map('b', {SOON}, 'a', NULL)", "NULL"],
    ),
    "a microsecond of a key": (
        "MAP<TIMESTAMP_LTZ(6), INT>", f"map({INSTANT.format('000001')}, 1)", [f"map({INSTANT.format('000002')}, 1)"],
    ),
    "a microsecond beside a map": (
        "ROW<at TIMESTAMP(6), m MAP<STRING, INT>>", f"named_struct('at', {SOON}, 'm', map('a', 1))",
        [f"named_struct('at', {LATER}, 'm', map('a', 1))", f"named_struct('at', {SOON}, 'm', map('a', 2))",
         f"named_struct('at', {SOON}, 'm', NULL)", "NULL"],
    ),
    "bytes as keys": (
        "MAP<BYTES, STRING>", "map(X'ff00', 'a', X'01', 'b')",
        ["map(X'ff01', 'a', X'01', 'b')", "map(X'ff00', 'b', X'01', 'a')", "map()"],
    ),
    "a multiset": ("MULTISET<STRING>", "map('a', 2, 'b', 1)", ["map('a', 1, 'b', 2)", "map('a', 2)"]),
    "maps in maps": (
        "MAP<STRING, ARRAY<MAP<INT, STRING>>>", "map('a', array(map(1, 'x', 2, 'y')), 'b', NULL)",
        ["map('a', array(map(1, 'x', 2, 'z')), 'b', NULL)", "map('a', array(map(1, 'x', 2, 'y'), NULL), 'b', NULL)"],
    ),
}  # fmt: skip
TURNED = {
    "a microsecond of a value": f"map('b', NULL, 'a', {SOON})",
    "bytes as keys": "map(X'01', 'b', X'ff00', 'a')",
    "a multiset": "map('b', 1, 'a', 2)",
    "maps in maps": "map('b', NULL, 'a', array(map(2, 'y', 1, 'x')))",
}


@dataclass
class Held:
    """A destination that holds rows of a frame."""

    rows: DataFrame
    columns: tuple[Column, ...]
    name: str = "held"
    primary_key: tuple[str, ...] = ("id",)

    def read(self, spark: SparkSession, **_: Any) -> DataFrame:
        return self.rows


@pytest.mark.parametrize("case", CASES)
def test_maps_are_equal_where_all_of_their_entries_are(case: str, spark: SparkSession, tmp_path: Path) -> None:
    kind, value, others = CASES[case]
    values = [value, TURNED.get(case, value), *others]
    ddl = spark.sql(f"SELECT {value} AS v").schema["v"].dataType.simpleString()
    rows = [f"SELECT CAST({number} AS BIGINT) AS id, CAST({item} AS {ddl}) AS v" for number, item in enumerate(values)]
    found = spark.sql(" UNION ALL ".join(rows))
    expected = spark.sql(
        f"SELECT id, CAST({value} AS {ddl}) AS v, 'U' AS _op, CAST(1 AS BIGINT) AS _seq FROM range({len(values)})"
    )
    columns = (Column("id", parse_type("BIGINT")), Column("v", parse_type(kind)))
    refused = SimpleNamespace(keys=RefusedStore(TableLocation(str(tmp_path / "none"))).keys)
    compared = checked(spark, Held(found, columns), expected, refused, upto=1)  # type: ignore[arg-type]
    named = {row["key"] for row in compared.sample}
    assert (compared.stale, compared.missing, compared.extra) == (len(others), 0, 0), compared
    assert named == {f"id={number}" for number in range(2, len(values))}
    assert all(row["difference"].startswith("v: expected ") for row in compared.sample)
