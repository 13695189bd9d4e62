"""What this process does without Spark: the changes that Spark would compute, written and checked, if they are few."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pytest

from upsert_platform.changelog import compaction, rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.capabilities import WritesInTask
from upsert_platform.core.destination import RefusedRow
from upsert_platform.core.model import Insert, SourceLocation, Table
from upsert_platform.core.task_runner import LocalTaskRunner, SparkTaskRunner
from upsert_platform.graph.metadata import of_comparison
from upsert_platform.kafka.source.topic_source import TopicSource
from upsert_platform.sync import arrow_insert
from upsert_platform.sync.arrow_insert import ArrowInsert
from upsert_platform.sync.binding import Target
from upsert_platform.sync.comparison import Comparison
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.few_files import few_files
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.verify import check_batch, check_everything
from upsert_platform_tests.changelog.places import Placed, batches_of, last_values, random_records
from upsert_platform_tests.kafka.tables import declare, read
from upsert_platform_tests.sql.reading import errors
from upsert_platform_tests.sql.reading import read as read_sql
from upsert_platform_tests.writing.in_memory import MemoryDestination, Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

INSERT = Insert("users", "memory", ("`id`", "`name`"), None, "", SourceLocation("tables.sql", 1))
NOON = dt.datetime.fromisoformat("2024-02-29 12:00:00.123456")
OLD = dt.datetime.fromisoformat("1969-12-31 23:59:59.999999")
SOURCE = """CREATE TABLE users (
  user_id BIGINT, name STRING, region STRING, balance DECIMAL(12, 2), at TIMESTAMP(3), tags ARRAY<STRING>,
  since AS CURRENT_DATE, nick AS REPEAT(name, 2),
  PRIMARY KEY (user_id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
CREATE TABLE log (user_id BIGINT, name STRING) WITH ('connector' = 'kafka');
"""


def never() -> NoReturn:
    raise AssertionError("Spark is not needed")


class TaskMemory(MemoryDestination, WritesInTask):
    """A destination that this process writes and reads."""

    def writes_in_task(self) -> bool:
        return True

    def key_reader(self, *, since: int, most: int) -> Callable[[pa.Table], pa.Table | None]:
        return partial(_rows_of_keys, dict(self._place.rows))


def _rows_of_keys(rows: dict[int, tuple[int, str | None]], keys: pa.Table) -> pa.Table:
    found = [rows[key] for key in keys.column("id").to_pylist() if key in rows]
    ids, names = zip(*found, strict=True) if found else ((), ())
    return pa.table({"id": pa.array(ids, pa.int32()), "name": pa.array(names, pa.string())})


def append(store: ChangelogStore, batch: int, records: list[Placed]) -> None:
    found: list[dict[str, Any]] = [
        {
            rows.KIND: rows.KIND_DELETE if record.value is None else rows.KIND_UPDATE_AFTER,
            rows.TOPIC: "users",
            rows.PARTITION: record.partition,
            rows.OFFSET: record.offset,
            rows.TIMESTAMP: record.at,
            rows.ROW: 0,
            "id": record.key,
            "name": record.value,
        }
        for record in records
    ]
    account = RangeAccount("users", 0, 0, len(records), records=len(records), rows=len(records)).to_json()
    found.append({rows.KIND: rows.KIND_ACCOUNTING, rows.ACCOUNTING: account})
    found.append({rows.KIND: rows.KIND_QUARANTINED, rows.TOPIC: "users", rows.OFFSET: 10**6, "id": records[0].key})
    head = store.create()
    schema = rows.arrow_schema(store.table)
    files = write_rows(
        [pa.RecordBatch.from_pylist(found, schema=schema)], location=store.location, schema=schema, batch=batch
    )
    assert store.append(files, head=head, positions=head.positions, run="run") is not None


def hop_to(place: Place, path: Path, *, insert: Insert = INSERT) -> DestinationHop:
    declared = declare()
    source = TopicSource(declared, read(declared))
    target = Target(replace(declared, name="memory"), insert, source, None, None)  # type: ignore[arg-type]
    store = ChangelogStore(str(path / "lake"), declared)
    refused = RefusedStore(str(path / "refused"))
    return DestinationHop(target, store, TaskMemory(place), refused=refused, run="run")


@pytest.mark.parametrize("runner", ["this process", "a task of Spark", "tasks of Spark"])
def test_batch_after_batch_the_table_is_that_of_the_offsets(
    runner: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With clocks that go back, several partitions, quarantined rows beside, and small files merged in between."""
    records = random_records(random.Random(11), keys=80, batches=4, partitions=3, each=200)
    place = Place()
    hop = hop_to(place, tmp_path)
    spark = OnDemand(never)
    if runner != "this process":
        session: SparkSession = request.getfixturevalue("spark")
        spark = OnDemand(lambda: session, rows=0) if runner == "a task of Spark" else OnDemand.dividing(session)
    read_so_far: list[Placed] = []
    for batch, of_batch in batches_of(records):
        append(hop.store, batch, of_batch)
        read_so_far += of_batch
        run = hop.execute(spark, hop.plan())
        assert run is not None
        expected = {key: value for key, value in last_values(read_so_far).items() if value is not None}
        assert dict(place.rows.values()) == expected
        met = {key: {item.partition for item in of_batch if item.key == key} for key in {r.key for r in of_batch}}
        assert run.multi_partition_keys == sum(len(partitions) > 1 for partitions in met.values())
        found = check_batch(spark, hop, after=batch - 1, upto=batch)
        assert (found.passed, found.compared) == (True, len(last_values(read_so_far)))
        if batch == 2:
            assert compaction.merge_locally(hop.store)
            assert [(item.first_batch, item.last_batch) for item in hop.store.files()] == [(1, 2)]


@pytest.mark.parametrize("runner", ["this process", "a task of Spark", "tasks of Spark"])
def test_a_check_finds_what_is_missing_extra_and_stale(
    runner: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    records = [Placed(1, 0, offset, None, offset, f"name {offset}") for offset in range(50)]
    records += [Placed(1, 0, 50 + key, None, key, None) for key in range(5)]
    place = Place()
    hop = hop_to(place, tmp_path)
    append(hop.store, 1, records)
    hop.execute(OnDemand(never), hop.plan())
    del place.rows[10], place.rows[11]
    place.rows[3] = (3, "back again")
    for key in (20, 21, 22):
        place.rows[key] = (key, None if key == 22 else "another")
    by = OnDemand(never)
    if runner != "this process":
        session: SparkSession = request.getfixturevalue("spark")
        by = OnDemand(lambda: session, rows=0) if runner == "a task of Spark" else OnDemand.dividing(session)
    found = check_batch(by, hop, after=0, upto=1)
    assert (found.compared, found.missing, found.extra, found.stale) == (50, 2, 1, 3)
    assert not found.passed
    assert {row["status"] for row in found.sample} == {"missing", "extra", "stale"}
    assert {row["key"]: row["difference"] for row in found.sample}["id=20"] == (
        "name: expected 'name 20', found 'another'"
    )


@pytest.mark.parametrize("whole", [True, False])
def test_rows_that_another_run_is_writing_are_no_difference(whole: bool, spark: SparkSession, tmp_path: Path) -> None:
    place = Place()
    hop = hop_to(place, tmp_path)
    append(hop.store, 1, [Placed(1, 0, key, None, key, "first") for key in range(6)])
    hop.execute(OnDemand(never), hop.plan())
    append(hop.store, 2, [Placed(2, 0, 10 + key, None, key, None if key == 1 else "second") for key in (0, 1, 9)])
    place.rows[0], place.rows[9] = (0, "second"), (9, "second")  # the batch is not recorded yet
    del place.rows[1]

    def check() -> Comparison:
        if whole:
            return check_everything(spark, hop, upto=1)
        return check_batch(OnDemand(lambda: spark), hop, after=0, upto=1)

    assert check().passed
    place.rows[4] = (4, "of another writer")
    found = check()
    assert (found.stale, found.missing, found.extra) == (1, 0, 0)
    assert found.rows == (len(place.rows) if whole else None)  # those in flight too


def test_what_is_not_little_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    place = Place()
    hop = hop_to(place, tmp_path)
    append(hop.store, 1, [Placed(1, 0, offset, None, offset, "x") for offset in range(50)])
    opened: list[int] = []

    def session() -> SparkSession:
        opened.append(1)
        return spark

    assert hop.execute(OnDemand(session, rows=51), hop.plan()) is not None  # 50 rows, an account and a quarantined one
    assert (len(opened), len(place.rows)) == (1, 50)
    assert check_batch(OnDemand(session, rows=51), hop, after=0, upto=1).passed
    assert len(opened) == 2
    place.state = replace(place.state, applied_batch=0)
    assert hop.execute(OnDemand(never, rows=52), hop.plan()) is not None


def test_a_large_batch_in_a_file_with_small_ones_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Merged files hold batches of any size: what one of them holds is told by its accounts."""
    place, opened = Place(), Counter[str]()
    hop = hop_to(place, tmp_path)
    sizes = [1, 1, 1, 1, 1, 1, 1, 1, 60, 2]
    for batch, size in enumerate(sizes, 1):
        append(hop.store, batch, [Placed(batch, 0, 100 * batch + row, None, row, f"of {batch}") for row in range(size)])
    assert compaction.merge_locally(hop.store)
    assert len(hop.store.files()) == 1

    def session() -> SparkSession:
        opened["session"] += 1
        return spark

    for applied, upto, needed in ((7, 8, 0), (8, 9, 1), (9, 10, 0)):
        place.state = replace(place.state, applied_batch=applied)
        opened.clear()
        found = few_files(OnDemand(session, rows=40), hop.store, after=applied, upto=upto)
        assert found is not None
        assert isinstance(found.runner, SparkTaskRunner if needed else LocalTaskRunner)
    place.state = replace(place.state, applied_batch=8)
    assert hop.execute(OnDemand(session, rows=40), hop.plan()) is not None
    assert opened["session"] == 1
    assert len(place.rows) == 60
    place.state = replace(place.state, applied_batch=9, commit="")
    assert hop.execute(OnDemand(never, rows=40), hop.plan()) is not None


def test_earlier_keys_are_sampled_behind_large_files_and_it_is_told_of_how_many_batches(tmp_path: Path) -> None:
    place = Place()
    hop = hop_to(place, tmp_path)
    for batch in (1, 2, 3, 4, 5):
        keys = range(9000) if batch < 3 else range(1000 * batch, 1000 * batch + 4)
        records = [Placed(batch, 0, 1000 * batch + key, None, key, f"of {batch}") for key in keys]
        append(hop.store, batch, records)
        if batch == 2:
            assert compaction.merge_locally(hop.store)
        hop.execute(OnDemand(never), hop.plan())
    *small, large = sorted(item.size for item in hop.store.files())
    assert large > sum(small)
    found = check_batch(OnDemand(never), hop, after=4, upto=5)
    assert (found.passed, found.compared, found.earlier_batches) == (True, found.compared, 4)
    assert found.compared > 12  # some of the first keys too
    place.rows[3001] = (3001, "of another writer")
    found = check_batch(OnDemand(never, size=large - 1), hop, after=4, upto=5)
    assert (found.stale, found.compared, found.earlier_batches) == (1, 12, 2)
    assert of_comparison(found)["sampled_earlier_batches"] == 2


def test_while_rows_are_refused_spark_looks(tmp_path: Path) -> None:
    hop = hop_to(Place(), tmp_path)
    append(hop.store, 1, [Placed(1, 0, 0, None, 1, "x")])
    run = hop.execute(OnDemand(never), hop.plan())
    assert run is not None
    hop.refused.of(run.span)([RefusedRow('{"id": 1}', "{}", "it is wrong")])
    with pytest.raises(AssertionError, match="Spark is not needed"):
        check_batch(OnDemand(never), hop, after=0, upto=1)


def of_sql(text: str) -> tuple[ArrowInsert | None, Table, Table]:
    scripts, problems = read_sql(SOURCE + text)
    assert errors(problems) == []
    (insert,) = scripts.inserts
    source, target = scripts.tables[insert.source], scripts.tables[insert.target]
    destination = TaskMemory(Place(), {column.name: str(column.type) for column in target.physical_columns})
    destination.primary_key = target.primary_key or ("id",)
    bound = Target(target, insert, type("Source", (), {"table": source})(), None, None)  # type: ignore[arg-type]
    return ArrowInsert.of(bound, destination), source, target


def changes(text: str, records: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The change frame that an insert makes of rows: kind, batch, declared columns."""
    here, source, target = of_sql(text)
    assert here is not None
    names = [rows.KIND, rows.BATCH, *(column.name for column in source.columns if column.name not in ("since", "nick"))]
    schema = pa.schema([rows.arrow_schema(source).field(name) for name in names])
    table = pa.Table.from_pylist([dict(zip(names, record, strict=True)) for record in records], schema=schema)
    found = here.native.changes(table, sequence=rows.BATCH)
    assert found.column_names == [*(column.name for column in target.columns), "_op", "_seq"]
    return [tuple(row.values()) for row in found.to_pylist()]


def test_rows_that_do_not_meet_the_condition_become_deletes() -> None:
    found = changes(
        """CREATE TABLE t (id BIGINT, at TIMESTAMP(3), tags ARRAY<STRING>, n STRING, missing INT, kind STRING,
             PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
           INSERT INTO t (id, at, tags, n, kind) SELECT user_id, at, tags, name, 'user' FROM users
           WHERE region <> 'test';""",
        [
            ("+I", 1, 10, "ann", "eu", Decimal("1.25"), NOON, ["a", None]),
            ("+U", 2, 20, "bob", "test", None, NOON, ["b"]),
            ("+U", 3, 30, "cid", None, None, None, None),
            ("-D", 4, 40, None, None, None, None, None),
            ("+U", 5, 50, None, "us", None, OLD, []),
        ],
    )
    cut = NOON.replace(microsecond=123_000)
    assert found == [
        (10, cut, ["a", None], "ann", None, "user", "U", 1),
        (20, None, None, None, None, None, "D", 2),
        (30, None, None, None, None, None, "D", 3),
        (40, None, None, None, None, None, "D", 4),
        (50, OLD.replace(microsecond=999_000), [], None, None, "user", "U", 5),
    ]


def test_every_row_has_the_time_at_which_the_insert_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    midnight = dt.datetime(2003, 3, 3, 23, 59, 59, 999_000, tzinfo=dt.UTC)
    looks = iter([midnight, NOON.replace(tzinfo=dt.UTC)])
    monkeypatch.setattr(arrow_insert, "now_in_milliseconds", lambda: round(next(looks).timestamp() * 1000))
    found = changes(
        """CREATE TABLE t (id BIGINT, a TIMESTAMP_LTZ(3), b TIMESTAMP_LTZ(3), c TIMESTAMP(3), d DATE, e DATE, n BIGINT,
             PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
           INSERT INTO t SELECT user_id, NOW(), PROCTIME(), LOCALTIMESTAMP, CURRENT_DATE, since, UNIX_TIMESTAMP()
           FROM users WHERE UNIX_TIMESTAMP() < 1046735999 + user_id;""",
        [("+I", 1, key, "ann", "eu", None, None, None) for key in (0, 1, 2)],
    )
    day = dt.date(2003, 3, 3)
    row = (midnight, midnight, midnight.replace(tzinfo=None), day, day, 1_046_735_999, "U", 1)
    assert found == [(0, *[None] * 6, "D", 1), (1, *row), (2, *row)]


def unsure() -> Iterator[Any]:
    keyed = "CREATE TABLE t (id BIGINT, v {kind}, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');"
    for name, kind, query in [
        ("function", "STRING", "SELECT user_id, REPEAT(name, 2) FROM users"),
        ("cast", "STRING", "SELECT user_id, CAST(TRY_CAST(name AS DOUBLE) AS STRING) FROM users"),
        ("implicit cast", "DECIMAL(6, 1)", "SELECT user_id, balance FROM users"),
        ("computed column", "STRING", "SELECT user_id, nick FROM users"),
        ("chance", "STRING", "SELECT user_id, UUID() FROM users"),
        ("condition", "STRING", "SELECT user_id, name FROM users WHERE REPEAT(name, 2) > 'B'"),
        ("failing cast", "INT", "SELECT user_id, CAST(name AS INT) FROM users"),
        ("no key, a function", "STRING", "SELECT user_id, REPEAT(name, 2) FROM log"),
    ]:
        yield pytest.param(keyed.format(kind=kind) + f"INSERT INTO t {query};", id=name)


@pytest.mark.parametrize("text", list(unsure()))
def test_what_arrow_may_do_otherwise_is_left_to_spark(text: str) -> None:
    assert of_sql(text)[0] is None
