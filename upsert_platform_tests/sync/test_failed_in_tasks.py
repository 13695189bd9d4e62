"""Rows that cannot be computed, where tasks compute the insert that they write: set aside as Spark sets them aside."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from upsert_platform.changelog import latest, rows
from upsert_platform.changelog.accounting import RangeAccount
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.summed_in_tasks import ExpectedRows
from upsert_platform.core.destination import FAILED
from upsert_platform.core.errors import DestinationError, RecordError
from upsert_platform.core.model import Options
from upsert_platform.core.task_runner import LocalTaskRunner, RowsOfTask
from upsert_platform.engine import dealt_rows as dealing
from upsert_platform.sql.variables import Variables
from upsert_platform.sync import equal_in_tasks
from upsert_platform.sync.binding import Target
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.verify import check_batch
from upsert_platform.writing.outcomes import TaskStats, run_tasks
from upsert_platform.writing.refused_output import RefusedOutput
from upsert_platform_tests.sql.reading import errors, read_scripts
from upsert_platform_tests.sync.test_one_task import TaskMemory, never
from upsert_platform_tests.writing.in_memory import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

MODULE = """
import pyarrow as pa
from upsert_platform import udf

@udf(result_type="STRING", arguments=["STRING", "INT"])
def shown(texts, counts):
    found = []
    for text, count in zip(texts.to_pylist(), counts.to_pylist(), strict=True):
        if count is not None and count % 5 == 3:
            raise ValueError(f"no {count}")
        found.append(None if text is None else f"<{text}>")
    return pa.array(found, pa.string())
"""
SQL = """CREATE FUNCTION shown AS '{module}.shown' LANGUAGE PYTHON;
  CREATE TABLE keyed (id BIGINT, name STRING, n INT, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'key.format' = 'json',
    'value.format' = 'json');
  CREATE TABLE keyless (id BIGINT, name STRING, n INT)
    WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'format' = 'debezium-json');
  CREATE TABLE dst (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
  INSERT INTO dst SELECT id, {value} FROM {source}{where};"""
CASES = {
    "a keyed source": ("keyed", ""),
    "a keyed source, filtered": ("keyed", " WHERE n <> 8"),
    "a source without a key": ("keyless", ""),
    "a source without a key, filtered": ("keyless", " WHERE n <> 8"),
    "a keyed source, by a condition that fails": ("keyed", " WHERE shown(name, n) <> '<a>'"),
    "a source without a key, by a condition that fails": ("keyless", " WHERE shown(name, n) <> '<a>'"),
}
KINDS = {
    "keyed": [rows.KIND_UPDATE_AFTER] * 5 + [rows.KIND_DELETE],
    "keyless": [rows.KIND_INSERT] * 5 + [rows.KIND_UPDATE_AFTER, rows.KIND_UPDATE_BEFORE, rows.KIND_DELETE],
}


class Several(TaskMemory):
    def writes_in_tasks(self) -> bool:
        return True


@pytest.fixture
def module(tmp_path: Path) -> Iterator[str]:
    """A module of the project's folder; of a name of its own, as modules stay loaded."""
    name = f"shown_{abs(hash(tmp_path)):x}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    yield name


def hop_of(case: str, module: str, folder: Path, place: Place, *, on_error: str = "") -> DestinationHop:
    source_name, where = CASES[case]
    value = "CASE WHEN n > 20 THEN shown(name, n) ELSE name END" if "shown" in where else "shown(name, n)"
    text = SQL.format(module=module, source=source_name, where=where, value=value)
    scripts, problems = read_scripts({str(folder / "f.sql"): text}, Variables({}, {}, {}))
    assert errors(problems) == []
    source, target, insert = scripts.tables[source_name], scripts.tables["dst"], scripts.inserts[0]
    if on_error:
        target = replace(target, options=Options({**target.options, "on-error": on_error}))
    bound = Target(target, insert, type("Source", (), {"table": source})(), None, None)  # type: ignore[arg-type]
    lake = folder / f"lake {id(place):x}"
    store = ChangelogStore(str(lake), source)
    return DestinationHop(bound, store, Several(place), refused=RefusedStore(f"{lake}-refused"), run="run")


def replace_refused(hop: DestinationHop, folder: Path) -> DestinationHop:
    return DestinationHop(hop.target, hop.store, hop.destination, refused=RefusedStore(str(folder)), run="run")


def fill(store: ChangelogStore, source: str, batch: int, *, step: int = 1) -> list[dict[str, Any]]:
    """Commits a batch, and returns its rows, those of a key in the order in which they count."""
    every: list[dict[str, Any]] = []
    schema, rng = rows.arrow_schema(store.table), random.Random(batch)
    head = store.create()
    files = []
    for partition in range(2):
        given: list[dict[str, Any]] = []
        for offset in range(60):
            # A key stays in its partition, so that the order of its rows does not follow from clocks.
            row = {
                "id": 2 * rng.randrange(20) + partition,
                "name": rng.choice([None, "a", "b"]),
                "n": step * rng.randrange(40),
            }
            kind = rng.choice(KINDS[source])
            if kind == rows.KIND_DELETE and source == "keyed":
                row = {"id": row["id"], "name": None, "n": None}
            place = {rows.TOPIC: "t", rows.PARTITION: partition, rows.OFFSET: 100 * batch + offset, rows.ROW: 0}
            given.append({**row, rows.KIND: kind, **place})
        every += given
        account = RangeAccount("t", partition, 100 * batch, 100 * batch + 60, records=60, rows=60)
        given = [*given, {rows.KIND: rows.KIND_ACCOUNTING, rows.ACCOUNTING: account.to_json()}]
        batch_of = pa.RecordBatch.from_pylist(given, schema=schema)
        files += write_rows([batch_of], location=store.location, schema=schema, batch=batch)
    assert store.append(files, head=head, positions=head.positions, run="run") is not None
    return every


FAILS = object()


def shown(row: dict[str, Any]) -> Any:
    """The model of the function."""
    if row["n"] is not None and row["n"] % 5 == 3:
        return FAILS
    return None if row["name"] is None else f"<{row['name']}>"


def is_met(case: str, row: dict[str, Any]) -> Any:
    """The model of the condition."""
    where = CASES[case][1]
    if "shown" in where:
        found = shown(row)
        return FAILS if found is FAILS else found not in (None, "<a>")
    return not where or row["n"] != 8


def model(case: str, batch: list[dict[str, Any]], table: dict[int, Any]) -> int:
    """Brings a table up to date by a loop over the rows of a batch, and returns how many are refused."""
    refused, source = 0, CASES[case][0]
    found = list({row["id"]: row for row in batch}.values()) if source == "keyed" else batch
    last: dict[int, Any] = {}
    for row in found:
        met, key = is_met(case, row), row["id"]
        if row[rows.KIND] not in (rows.KIND_INSERT, rows.KIND_UPDATE_AFTER):
            if source == "keyed" or met is True:
                last[key] = None
            continue
        value = FAILS if met is FAILS else shown(row) if row["n"] > 20 or "shown" not in CASES[case][1] else row["name"]
        if met is False:
            last |= {key: None} if source == "keyed" else {}
        elif value is FAILS:
            refused += 1
        else:
            last[key] = (key, value)
    for key, row_of in last.items():
        table.pop(key, None)
        table |= {} if row_of is None else {key: row_of}
    return refused


def ran(hop: DestinationHop, spark: OnDemand, case: str, place: Place) -> list[Any]:
    """What each batch does: rows of the table, counts, and the refused rows as texts. The first two are the model's."""
    told: list[Any] = []
    table: dict[int, Any] = {}
    for batch in (1, 2, 3):
        refused = model(case, fill(hop.store, CASES[case][0], batch), table)
        run = hop.execute(spark, hop.plan())
        assert run is not None
        kept = hop.refused.read()
        texts = sorted(zip(*(kept[name].to_pylist() for name in ("key", "row", "reason")), strict=True))
        counts = (run.report.upserts, run.report.deletes, run.report.refused_count, run.unmatched)
        assert (place.rows, run.report.refused_count) == (table, refused)
        told.append((dict(place.rows), counts, texts))
    return told


@pytest.mark.parametrize("runner", ["this process", "a task of Spark", "tasks of Spark"])
@pytest.mark.parametrize("case", CASES)
def test_rows_are_set_aside_as_spark_does(
    case: str, runner: str, module: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dealing, "_HELD_ROWS", 50)
    monkeypatch.setattr(latest, "TASK_ROWS", 10)
    session: SparkSession = request.getfixturevalue("spark")
    by_arrow, by_spark = Place(), Place()
    hop = hop_of(case, module, tmp_path, by_arrow)
    # In this process nothing is asked of Spark, but for keys of which refused rows are settled.
    spark = OnDemand(lambda: session, rows=0) if runner == "a task of Spark" else OnDemand.dividing(session)
    spark = OnDemand(lambda: session) if runner == "this process" else spark
    insert = hop.arrow_insert(after=0, upto=1, sets_aside=True)
    assert insert is not None
    assert insert.native.failure is not None
    found = ran(hop, spark, case, by_arrow)
    other = hop_of(case, module, tmp_path, by_spark)
    with monkeypatch.context() as patched:
        patched.setattr(DestinationHop, "arrow_insert", lambda *_, **__: None)
        expected = ran(other, OnDemand.dividing(session), case, by_spark)
    for mine, its in zip(found, expected, strict=True):
        assert mine == its
    reasons = {reason for _, _, texts in found for _, _, reason in texts}
    assert len(reasons) > 4
    assert all(re.fullmatch(rf"{module}.shown: ValueError: no \d*[38]", reason) for reason in reasons)
    assert f"{module}.shown: ValueError: no 8" not in reasons or "n <> 8" not in CASES[case][1]
    assert insert.native.condition_fails == ("shown" in CASES[case][1])
    assert all(set(json.loads(row)) == {"id", "name", "_op"} for _, _, texts in found for _, row, _ in texts)


def test_in_this_process_no_session_is_opened(module: str, tmp_path: Path) -> None:
    place = Place()
    hop = hop_of("a keyed source", module, tmp_path, place)
    fill(hop.store, "keyed", 1)
    run = hop.execute(OnDemand(never), hop.plan())
    assert run is not None
    assert run.report.refused_count == hop.refused.count() > 0
    assert place.rows


def test_where_every_row_is_computed_the_check_needs_no_session_either(module: str, tmp_path: Path) -> None:
    place = Place()
    hop = hop_of("a source without a key, filtered", module, tmp_path, place)
    fill(hop.store, "keyless", 1, step=5)
    assert hop.execute(OnDemand(never), hop.plan()) is not None
    assert hop.refused.count() == 0
    found = check_batch(OnDemand(never), hop, after=0, upto=1)
    assert found.passed
    assert found.compared > 30
    place.rows.pop(next(iter(place.rows)))
    assert check_batch(OnDemand(never), hop, after=0, upto=1).missing == 1


def test_rows_that_cannot_be_computed_are_looked_for_by_spark(module: str, tmp_path: Path, spark: SparkSession) -> None:
    """Where nothing is kept of them: somebody has discarded them."""
    place = Place()
    hop = hop_of("a keyed source", module, tmp_path, place)
    fill(hop.store, "keyed", 1)
    assert hop.execute(OnDemand(never), hop.plan()) is not None
    refused = hop.refused.count()
    emptied = replace_refused(hop, tmp_path / "nothing refused")
    with pytest.raises(AssertionError, match="Spark is not needed"):
        check_batch(OnDemand(never), emptied, after=0, upto=1)
    assert check_batch(OnDemand(lambda: spark), emptied, after=0, upto=1).missing == refused > 0


@pytest.mark.parametrize("step", [1, 5])
def test_sums_of_a_check_are_those_of_spark_unless_rows_cannot_be_computed(
    step: int, module: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    hop = hop_of("a source without a key", module, tmp_path, Place())
    fill(hop.store, "keyless", 1, step=step)
    fields = pa.schema([("id", pa.int64()), ("name", pa.string())])
    task = ExpectedRows(fields, pa.schema([fields.field("id")]), tells_keys=True)
    told, _ = equal_in_tasks._expected(spark, hop, task, None, since=0, upto=1)
    monkeypatch.setattr(DestinationHop, "arrow_insert", lambda *_, **__: None)
    by_spark, _ = equal_in_tasks._expected(spark, hop, task, None, since=0, upto=1)
    assert (told == by_spark) == (step == 5)
    assert told.rows > by_spark.rows or step == 5


def test_where_such_a_row_ends_the_write_nothing_is_written(module: str, tmp_path: Path, spark: SparkSession) -> None:
    place = Place()
    hop = hop_of("a keyed source", module, tmp_path, place, on_error="fail")
    fill(hop.store, "keyed", 1)
    with pytest.raises(RecordError, match=r"rows cannot be computed, the first .*no \d+"):
        hop.execute(OnDemand(lambda: spark), hop.plan())
    assert place.rows == {}


def test_whoever_does_not_set_rows_aside_leaves_such_an_insert_to_spark(module: str, tmp_path: Path) -> None:
    assert hop_of("a keyed source", module, tmp_path, Place()).arrow_insert(after=0, upto=1) is None


def _taken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    refused = sum(batch.column("id").to_pylist().count(7) for batch in batches)
    yield RefusedOutput("t", open_file=None).end(TaskStats(refused).to_json())


def test_rows_that_cannot_be_computed_are_no_reason_to_stop_a_write() -> None:
    """Any number of them; those that the destination refuses are counted against the option."""
    table = pa.table({"id": [1, 2, 3, 7, 7], "_op": ["U"] * 5, FAILED: ["a", None, "b", "c", None]})
    changes = RowsOfTask(lambda: (table, {}), LocalTaskRunner(), ("id",))
    kept: list[Any] = []
    written = run_tasks(changes, _taken, TaskStats, what="table 't'", keep=kept.extend, most=1)
    written.keep_refused()
    assert written.total.refused == 4
    assert [(row.key, row.reason) for row in kept] == [('{"id": 1}', "a"), ('{"id": 3}', "b"), ('{"id": 7}', "c")]
    more = RowsOfTask(lambda: (pa.concat_tables([table, table]), {}), LocalTaskRunner(), ("id",))
    with pytest.raises(DestinationError, match=r"2 rows were refused, more than 'max.refused.rows' = 1"):
        run_tasks(more, _taken, TaskStats, what="table 't'", keep=kept.extend, most=1)
