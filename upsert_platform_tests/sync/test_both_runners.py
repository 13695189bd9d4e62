"""What this process computes of an insert is what Spark computes of it: types, extreme values, nulls, conditions."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from upsert_platform.changelog import latest_in_tasks, rows
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.summed_in_tasks import ExpectedRows
from upsert_platform.core.model import Table
from upsert_platform.core.types import arrow_type
from upsert_platform.sync import equal_in_tasks
from upsert_platform.sync.arrow_insert import ArrowInsert
from upsert_platform.sync.binding import Target
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform_tests.sql.reading import errors
from upsert_platform_tests.sql.reading import read as read_sql
from upsert_platform_tests.sync.test_one_task import TaskMemory
from upsert_platform_tests.writing.in_memory import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

COLUMNS = """id BIGINT, k STRING, b BOOLEAN, t TINYINT, s SMALLINT, i INT, f FLOAT, d DOUBLE, n DECIMAL(20, 5),
  c CHAR(3), v VARCHAR(5), y BYTES, p BINARY(3), da DATE, ti TIME(6),
  ts TIMESTAMP(6), tl TIMESTAMP_LTZ(6), a ARRAY<STRING>, m MAP<STRING, INT>,
  r ROW<x INT, y DOUBLE>, PRIMARY KEY (id, k) NOT ENFORCED"""
KAFKA = "'connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'key.format' = '{format}'"
KAFKA += ", 'value.format' = '{format}'"
TARGETS = {
    "tablestore": "'connector' = 'tablestore'",
    "maxcompute": "'connector' = 'maxcompute', 'sink.operation' = 'upsert'",
    "json": KAFKA.format(format="json"),
    "avro": KAFKA.format(format="avro"),  # which holds milliseconds: moments are cut
}
CONDITIONS = (
    "", "b", "NOT b", "b IS NULL OR i > 3", "k = 'b' OR k >= 'c'", "v <> c", "t < s AND NOT (i <= 3)", "b = TRUE",
    "i IS NOT NULL AND k > ''", "f IS NULL", "9223372036854775807 > id", "ts IS NULL OR NOT (b IS NULL)",
)  # fmt: skip
DAY = dt.date(1970, 1, 1)
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123_456)  # noqa: DTZ001 - TIMESTAMP has no zone
MOMENTS = (NOON, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31))  # noqa: DTZ001
VALUES: dict[str, tuple[Any, ...]] = {
    "b": (True, False), "t": (-128, 0, 127), "s": (-1, 127, 32_767), "i": (-1, 3, 4, 2**31 - 1),
    "f": (-0.0, 0.0, float("nan"), float("-inf"), 1.5), "d": (-0.0, float("nan"), 5e-324, 1e308, 0.1),
    "n": (Decimal("-0.00001"), Decimal("123456789012345.12345"), Decimal(0)),
    "c": ("", "a", "abc", "ä\0"), "v": ("a", "abc", "", "\U0001f600"), "y": (b"", b"\0\xff"), "p": (b"\0\0\0", b"abc"),
    "da": (DAY, dt.date(1, 1, 1), dt.date(9999, 12, 31)), "ti": (0, 86_399_999_999, 3_600_000_001),
    "ts": MOMENTS, "tl": tuple(at.replace(tzinfo=dt.UTC) for at in MOMENTS), "a": ([], ["x", None], ["", "\0"]),
    "m": ([], [("a", 1), ("b", None)]), "r": ({"x": 1, "y": -0.0}, {"x": None, "y": None}),
}  # fmt: skip


def declared(name: str, condition: str) -> tuple[Table, Table, Any]:
    where = f" WHERE {condition}" if condition else ""
    scripts, problems = read_sql(
        f"CREATE TABLE src ({COLUMNS}) WITH ({KAFKA.format(format='json')});"
        f"CREATE TABLE dst ({COLUMNS}) WITH ({TARGETS[name]});INSERT INTO dst SELECT * FROM src{where};"
    )
    assert errors(problems) == []
    return scripts.tables["src"], scripts.tables["dst"], scripts.inserts[0]


def hop_of(name: str, condition: str, store: ChangelogStore) -> DestinationHop:
    source, target, insert = declared(name, condition)
    destination = TaskMemory(Place(), {column.name: str(column.type) for column in target.physical_columns})
    destination.primary_key = ("id", "k")
    bound = Target(target, insert, type("Source", (), {"table": source})(), None, None)  # type: ignore[arg-type]
    return DestinationHop(bound, store, destination, refused=RefusedStore(f"{store.uri}-refused"), run="run")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ChangelogStore:
    """Three batches of random rows of two partitions, whose times go back."""
    table, _, _ = declared("json", "")
    found = ChangelogStore(str(tmp_path_factory.mktemp("here") / "src"), table)
    schema, rng = rows.arrow_schema(table), random.Random(7)
    for batch in range(1, 4):
        given = []
        for offset in range(120):
            row: dict[str, Any] = {"id": rng.choice([-1, 2**63 - 1, rng.randrange(20)]), "k": rng.choice("aäbc\0")}
            deleted = rng.random() < 0.2
            if not deleted:
                row |= {name: rng.choice([None, *values]) for name, values in VALUES.items()}
            given.append({
                **row, rows.KIND: rows.KIND_DELETE if deleted else rng.choice(["+I", "+U"]), rows.TOPIC: "t",
                rows.PARTITION: rng.randrange(2), rows.OFFSET: 1000 * batch + offset, rows.ROW: 0,
                rows.TIMESTAMP: rng.choice([None, NOON.replace(tzinfo=dt.UTC), dt.datetime(2025, 1, 1, tzinfo=dt.UTC)]),
            })  # fmt: skip
        rng.shuffle(given)
        head = found.create()
        files = write_rows([pa.RecordBatch.from_pylist(given, schema=schema)], location=found.location, schema=schema,
                           batch=batch)  # fmt: skip
        assert found.append(files, head=head, positions=head.positions, run="run") is not None
    return found


def texts(table: pa.Table) -> list[str]:
    """Rows as texts that tell every difference, of zones but their names."""
    names = sorted(table.column_names)
    return sorted(repr([_plain(row[name]) for name in names]) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo is not None else value


@pytest.mark.parametrize("name", TARGETS)
def test_changes_are_those_of_spark(
    name: str, store: ChangelogStore, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest_in_tasks, "MOST_ROWS", 0)  # Spark's own reduction judges
    for condition in CONDITIONS if name == "tablestore" else CONDITIONS[:3]:
        hop = hop_of(name, condition, store)
        here = ArrowInsert.of(hop.target, hop.destination)
        assert here is not None, condition
        for after, upto in ((0, 3), (1, 2)) if condition in CONDITIONS[:3] else ((0, 3),):
            paths = [item.path for item in store.files()]
            found, _ = here.of_span(store, paths, after=after, upto=upto)()
            expected = texts(hop.changes(spark, after=after, upto=upto).toArrow())
            assert texts(found) == expected, (condition, after)
            with here.shares_of(spark, store, after=after, upto=upto) as made:  # dealt by files
                assert made is not None
                for shares in (1, 5):
                    assert texts(_of_shares(made[0], shares)) == expected, (condition, after, shares)
            with monkeypatch.context() as short:
                short.setattr(latest_in_tasks, "MOST_ROWS", 10**6)
                short.setattr(latest_in_tasks, "_WORTHWHILE_ROWS", 100)
                with here.shares_of(spark, store, after=after, upto=upto) as made:  # each task by itself
                    assert made is not None
                    assert made[0].tasks > 1
                    assert texts(_of_shares(made[0], 2)) == texts(_of_shares(made[0], 1)) == expected


def _of_shares(share: Any, shares: int) -> pa.Table:
    return pa.concat_tables([table for number in range(shares) for table, _ in share(number, shares)])


@pytest.mark.parametrize("name", TARGETS)
def test_tasks_sum_up_the_rows_that_spark_computes(
    name: str, store: ChangelogStore, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every type that is not nested: what a check expects does not depend on who computes it."""
    hop = hop_of(name, "b IS NULL OR i > 3", store)
    kinds = [(column.name, arrow_type(column.type)) for column in hop.destination.columns if column.type is not None]
    fields = pa.schema([(name, kind) for name, kind in kinds if not pa.types.is_nested(kind)])
    task = ExpectedRows(fields, pa.schema([fields.field("id"), fields.field("k")]))
    by_arrow = equal_in_tasks._by_arrow(spark, hop, since=0, upto=3, drawn=None)
    assert by_arrow is not None
    here, _ = equal_in_tasks._expected(spark, hop, task, by_arrow, since=0, upto=3)
    dealt, _ = equal_in_tasks._expected(spark, hop, task, None, since=0, upto=3)
    monkeypatch.setattr(DestinationHop, "arrow_insert", lambda *_, **__: None)
    by_spark, _ = equal_in_tasks._expected(spark, hop, task, None, since=0, upto=3)
    assert here == dealt == by_spark
    assert here.expected.rows > 20
    assert here.deleted.rows > 20
