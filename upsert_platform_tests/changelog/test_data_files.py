"""Data files of a changelog: what workers write is what Spark and delta-rs read."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from upsert_platform.changelog import data_files, rows
from upsert_platform.changelog.change_rows import change_batches
from upsert_platform.changelog.data_files import DataFile, write_files, write_rows
from upsert_platform.changelog.store import ChangelogStore, Positions
from upsert_platform.core.errors import ChangelogError, SourceLocation
from upsert_platform.core.model import Column, Options, Table
from upsert_platform.core.types import parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES: dict[str, tuple[str, list[Any]]] = {
    "flag": ("BOOLEAN", [True, False]),
    "tiny": ("TINYINT", [-128, 127]),
    "small": ("SMALLINT", [-(2**15), 2**15 - 1]),
    "count": ("INT", [-(2**31), 2**31 - 1]),
    "id": ("BIGINT", [-(2**63), 2**63 - 1]),
    "ratio": ("FLOAT", [1.5, float("inf")]),
    "exact": ("DOUBLE", [-0.0, 5e-324]),
    "cents": ("DECIMAL(9, 2)", [Decimal("-9999999.99"), Decimal("0.01")]),
    "price": ("DECIMAL(18, 4)", [Decimal("99999999999999.9999"), Decimal("-0.0001")]),
    "wide": ("DECIMAL(38, 10)", [Decimal("9999999999999999999999999999.9999999999"), Decimal("-1E-10")]),
    "text": ("STRING", ["", "naïve \U0001f680 \x00"]),
    "code": ("CHAR(3)", ["abc", "xyz"]),
    "data": ("BYTES", [b"", b"\x00\xff"]),
    "day": ("DATE", [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "clock": ("TIME(6)", [0, 86_399_999_999]),
    "at": (
        "TIMESTAMP(6)",
        [
            dt.datetime.fromisoformat("1500-02-03T04:05:06.000007"),
            dt.datetime.fromisoformat("9999-12-31T23:59:59.999999"),
        ],
    ),
    "instant": ("TIMESTAMP_LTZ(3)", [dt.datetime(1883, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]),
    "tags": ("ARRAY<STRING>", [["a", None], []]),
    "prices": ("MAP<STRING, DECIMAL(10, 2)>", [[("a", Decimal("1.00")), ("b", None)], []]),
    "bag": ("MULTISET<STRING>", [[("x", 2)], []]),
    "address": (
        "ROW<city STRING, geo ROW<lat DOUBLE>>",
        [{"city": None, "geo": {"lat": 1.0}}, {"city": "", "geo": None}],
    ),
}


def declared(columns: dict[str, str]) -> Table:
    return Table(
        "things",
        tuple(Column(name, parse_type(kind)) for name, kind in columns.items()),
        (next(iter(columns)),),
        Options({}),
        SourceLocation("things.sql", 1),
    )


def batch_of(table: Table, found: list[dict[str, Any]]) -> pa.RecordBatch:
    """Rows as a reader yields them: without `_batch`."""
    schema = rows.arrow_schema(table)
    schema = schema.remove(schema.get_field_index(rows.BATCH))
    return pa.RecordBatch.from_pylist([{rows.KIND: rows.KIND_UPDATE_AFTER, **row} for row in found], schema=schema)


def write(store: ChangelogStore, batches: Iterator[pa.RecordBatch], *, batch: int = 1) -> list[DataFile]:
    store.create()
    manifests = write_files(batches, location=store.location, schema=rows.arrow_schema(store.table), batch=batch)
    return [DataFile(**row) for manifest in manifests for row in manifest.to_pylist()]


def commit(store: ChangelogStore, files: list[DataFile]) -> None:
    assert store.append(files, head=store.create(), positions=Positions(), run="run") is not None


def as_read_by_delta_rs(store: ChangelogStore) -> pa.Table:
    delta = store._delta()
    assert delta is not None
    return delta.to_pyarrow_dataset().to_table()


def test_every_type_is_read_back_by_spark_and_delta_rs(spark: SparkSession, tmp_path: Path) -> None:
    table = declared({name: kind for name, (kind, _) in VALUES.items()})
    store = ChangelogStore(str(tmp_path / "a folder" / "things"), table)
    given = [{name: values[index] for name, (_, values) in VALUES.items()} for index in range(2)]
    batch = batch_of(table, [*given, dict.fromkeys(VALUES)])
    commit(store, write(store, iter([batch])))
    expected = pa.Table.from_batches([batch]).select(list(VALUES))
    by_spark = store.read(spark, after=0, upto=1).toArrow().select(list(VALUES))
    assert by_spark.to_pylist() == expected.to_pylist()
    assert as_read_by_delta_rs(store).select(list(VALUES)).to_pylist() == expected.to_pylist()


def test_statistics_let_readers_pass_over_files(tmp_path: Path) -> None:
    table = declared({"id": "BIGINT"})
    store = ChangelogStore(str(tmp_path / "things"), table)
    kinds = [rows.KIND_UPDATE_AFTER, rows.KIND_QUARANTINED, rows.KIND_ACCOUNTING]
    batch = batch_of(table, [{"id": 1, rows.KIND: kind} for kind in kinds])
    (file,) = write(store, iter([batch, batch.slice(0, 0), batch]), batch=7)
    assert (file.rows, file.least_kind, file.greatest_kind) == (6, "#", "?")
    assert file.size == (Path(store.uri) / file.path).stat().st_size
    stored = pq.read_metadata(Path(store.uri) / file.path)
    assert stored.num_rows == json.loads(file.statistics(7))["numRecords"] == 6
    assert pc.unique(pq.read_table(Path(store.uri) / file.path).column(rows.BATCH)).to_pylist() == [7]


def test_codes_are_read_of_files_that_lack_the_column_or_have_nulls(tmp_path: Path) -> None:
    table = declared({"id": "BIGINT"})
    store = ChangelogStore(str(tmp_path / "things"), table)
    store.create()
    coded = pa.schema([("id", pa.int64()), (rows.KIND, pa.dictionary(pa.int32(), pa.string()))])
    kinds = pa.array([None, rows.KIND_DELETE, None, rows.KIND_UPDATE_AFTER])
    whole = pa.table({"id": range(4), rows.KIND: kinds, rows.BATCH: [1] * 4})
    for name, columns in (("without", ["id", rows.BATCH]), ("with", whole.column_names)):
        pq.write_table(whole.select(columns), Path(store.uri) / f"{name}.parquet")
    told = {
        name: pa.Table.from_batches(data_files.read_rows(store.location, [f"{name}.parquet"], schema=coded))
        for name in ("without", "with")
    }
    assert told["without"].column(rows.KIND).to_pylist() == [None] * 4
    assert told["with"].column(rows.KIND).to_pylist() == kinds.to_pylist()
    for name, ids in (("without", []), ("with", [1, 3])):
        found = change_batches(
            table, store.location, [f"{name}.parquet"], columns=["id"], after=0, upto=1, ordered=False
        )
        assert [key for part in found for key in part.column("id").to_pylist()] == ids


def test_long_ranges_fill_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "FILE_BYTES", 1)
    table = declared({"id": "BIGINT"})
    store = ChangelogStore(str(tmp_path / "things"), table)
    files = write(store, (batch_of(table, [{"id": number}]) for number in range(3)))
    assert [file.rows for file in files] == [1, 1, 1]
    commit(store, files)
    assert sorted(as_read_by_delta_rs(store).column("id").to_pylist()) == [0, 1, 2]


def test_nothing_read_writes_no_file_and_still_commits(tmp_path: Path) -> None:
    store = ChangelogStore(str(tmp_path / "things"), declared({"id": "BIGINT"}))
    files = write(store, iter(()))
    assert files == []
    commit(store, files)
    head = store.head()
    assert head is not None
    assert head.batch == 1


def test_failed_task_leaves_no_half_file(tmp_path: Path) -> None:
    table = declared({"id": "BIGINT"})
    store = ChangelogStore(str(tmp_path / "things"), table)

    def broken() -> Iterator[pa.RecordBatch]:
        yield batch_of(table, [{"id": 1}])
        raise OSError("the broker went away")

    with pytest.raises(OSError, match="went away"):
        write(store, broken())
    assert list(Path(store.uri).glob("*.parquet")) == []


def test_uri_is_written_through_delta_rs(tmp_path: Path) -> None:
    table = declared({"id": "BIGINT"})
    (tmp_path / "things").mkdir()
    store = ChangelogStore((tmp_path / "things").as_uri(), table)
    files = write(store, iter([batch_of(table, [{"id": 1}])]))
    assert files[0].size == (tmp_path / "things" / files[0].path).stat().st_size
    commit(store, files)
    assert as_read_by_delta_rs(store).column("id").to_pylist() == [1]


def test_other_commits_between_do_not_stop_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction or a property that was set meanwhile is not a batch: the commit is tried again behind it."""
    from deltalake import DeltaTable

    store = ChangelogStore(str(tmp_path / "things"), declared({"id": "BIGINT"}))
    head = store.create()
    looked_at = [DeltaTable(store.uri)]
    DeltaTable(store.uri).alter.set_table_properties({"some": "thing"}, raise_if_not_exists=False)
    opened = ChangelogStore.opened
    monkeypatch.setattr(ChangelogStore, "opened", lambda self: looked_at.pop() if looked_at else opened(self))
    after = store.append([], head=head, positions=Positions({"t": {0: 5}}), run="run")
    assert after is not None
    assert (after.batch, after.positions.offsets) == (1, {"t": {0: 5}})


def test_commit_whose_answer_was_lost_counts_once_and_as_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError

    table = declared({"id": "BIGINT"})
    store = ChangelogStore(str(tmp_path / "things"), table)
    head = store.create()
    files = write(store, iter([batch_of(table, [{"id": 1}])]))
    commits = DeltaTable.create_write_transaction

    def lost(*arguments: Any, **named: Any) -> None:
        commits(*arguments, **named)
        raise CommitFailedError("no answer")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost)
    after = store.append(files, head=head, positions=Positions({"t": {0: 5}}), run="run")
    assert after is not None
    assert (after.batch, after.positions.offsets) == (1, {"t": {0: 5}})
    assert as_read_by_delta_rs(store).column("id").to_pylist() == [1]


def test_commit_that_never_comes_first_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake import DeltaTable

    store = ChangelogStore(str(tmp_path / "things"), declared({"id": "BIGINT"}))
    head = store.create()
    stale = DeltaTable(store.uri)
    DeltaTable(store.uri).alter.set_table_properties({"some": "thing"}, raise_if_not_exists=False)
    monkeypatch.setattr(ChangelogStore, "opened", lambda _: stale)
    monkeypatch.setattr("upsert_platform.changelog.store.time.sleep", lambda _: None)
    with pytest.raises(ChangelogError, match=r"batch 1 .* was not committed in 8 attempts"):
        store.append([], head=head, positions=Positions(), run="run")


HOSTILE = {
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
}
"""What the Spark settings of a site may say for other jobs."""


@pytest.fixture
def of_a_site(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with settings of a site, where paths without a scheme are those of a cluster that is not there."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    kept = {name: spark.conf.get(name, None) for name in HOSTILE}
    for name, value in HOSTILE.items():
        spark.conf.set(name, value)
    hadoop.set("fs.defaultFS", "hdfs://127.0.0.1:1")
    yield spark
    hadoop.set("fs.defaultFS", before)
    for name, value in kept.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def test_no_setting_of_a_site_has_rows_passed_over_or_changed(of_a_site: SparkSession, tmp_path: Path) -> None:
    day = dt.date(1500, 2, 3)
    columns = (Column("id", parse_type("BIGINT")), Column("day", parse_type("DATE")))
    table = Table("old days", columns, ("id",), Options({}), SourceLocation("t.sql", 1))
    store = ChangelogStore(str(tmp_path / "old days [1]*"), table)
    schema = rows.arrow_schema(table)
    for batch in (1, 2):
        row = {rows.KIND: rows.KIND_UPDATE_AFTER, rows.TOPIC: "t", rows.PARTITION: 0, rows.OFFSET: batch}
        given = pa.RecordBatch.from_pylist([{**row, "id": batch, "day": day}], schema=schema)
        head = store.create()
        files = write_rows([given], location=store.location, schema=schema, batch=batch)
        assert store.append(files, head=head, positions=Positions({"t": {0: batch + 1}}, {}), run="run") is not None
    found = store.read(of_a_site, after=0, upto=2).select("id", "day").collect()
    assert sorted(tuple(row) for row in found) == [(1, day), (2, day)]
    file = tmp_path / "old days [1]*" / store.files()[0].path
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    with pytest.raises((PySparkException, Py4JJavaError)):
        store.read(of_a_site, after=0, upto=2).collect()
    listed = store.read(of_a_site, after=0, upto=2)
    file.unlink()
    with pytest.raises((PySparkException, Py4JJavaError)):
        listed.collect()
    with pytest.raises((PySparkException, Py4JJavaError)):
        store.read(of_a_site, after=0, upto=2).collect()
