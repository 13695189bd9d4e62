"""Mode `insert`: rows are appended once, whatever is replayed (section 2.8, catalogue 6.3)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from upsert_platform.core.errors import DestinationError
from upsert_platform.maxcompute.client import Client
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.maxstorage import MaxStorage, WriteSession
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.frames import frame, span, stored, write
from upsert_platform_tests.maxcompute.sending import append, batch, let_lease_end, open_job, send
from upsert_platform_tests.soak.partition_kills import open_sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

Make = Callable[..., MaxComputeTable]
Opened = Callable[..., MaxComputeDestination]


def test_52_duplicates_are_kept_and_replays_are_not(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened({"name": "STRING", "n": "INT"}, key=())
    rows = [("U", (name, n)) for name, n in [("Bob", 1), ("Tom", 22), ("Kim", 42), ("Kim", 42), ("Bob", 1)]]
    assert write(spark, destination, 1, rows).upserts == 5
    assert write(spark, destination, 2, rows).upserts == 5
    assert write(spark, destination, 2, rows).metrics == {"already_applied": 1}
    assert len(stored(maxcompute, destination.table)) == 10
    assert destination.primary_key == ()
    assert destination.read(spark).count() == 10


@pytest.mark.soak
def test_55_many_rows_of_ten_tasks_are_added_and_replaced(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened({"id": "BIGINT", "name": "STRING"}, key=(), sink_parallelism="10")
    rows = spark.range(100_000).selectExpr("id", "concat('name ', id) AS name", "'U' AS _op", "id AS _seq")
    for number, replaces, expected in ((1, False, 100_000), (2, False, 200_000), (3, True, 100_000)):
        with destination.lease(owner="test", duration=timedelta(seconds=60)) as lease:
            report = destination.write(rows, span=span(number, replaces=replaces), lease=lease)
        assert (report.upserts, report.metrics["tasks"]) == (100_000, 10)
        assert stored(maxcompute, destination.table, "count(*), count(distinct id)") == [(expected, 100_000)]


def test_56_59_88_rows_of_all_tasks_are_visible_with_their_commit(maxcompute: ServerHandle, make_table: Make) -> None:
    table = make_table({"n": "INT"}, key=())
    append(table, [("U", (n,)) for n in (2, 10, 20)])
    job, storage, _ = open_job(table)
    for number in range(3):
        send(job, [batch(table, [("U", (n,)) for n in range(1000 + number, 2000, 3)])], stream=str(number))
    assert stored(maxcompute, table) == [(10,), (2,), (20,)]
    storage.commit(job.session, [("0", 1), ("1", 1), ("2", 1)])
    assert stored(maxcompute, table, "count(*), count(distinct n)") == [(1003, 1003)]


def test_57_rows_get_the_value_of_the_static_partition(maxcompute: ServerHandle, make_table: Make) -> None:
    table = make_table({"content": "STRING"}, key=(), sink_partition="id=1")
    append(table, [("U", (f"Comment#{n}",)) for n in range(5, 10)])
    assert stored(maxcompute, table) == [(f"Comment#{n}", "1") for n in range(5, 10)]


def test_86_two_tables_hold_what_each_was_sent(maxcompute: ServerHandle, make_table: Make) -> None:
    tables = [make_table(key=()), make_table(key=())]
    for name, table in zip("ab", tables, strict=True):
        append(table, [("U", (n, f"{name}{n}")) for n in range(3)])
    assert [stored(maxcompute, table) for table in tables] == [[(n, f"{name}{n}") for n in range(3)] for name in "ab"]


def test_87_an_update_replaces_a_row_and_a_delete_removes_it(maxcompute: ServerHandle, make_table: Make) -> None:
    table = make_table({"id": "BIGINT", "name": "STRING", "score": "INT"})
    append(table, [("U", (1, "A", 99)), ("U", (2, "B", 100))])
    append(table, [("U", (1, "UPSERT_TEST", 100))])
    assert stored(maxcompute, table) == [(1, "UPSERT_TEST", 100), (2, "B", 100)]
    append(table, [("D", (1, None, None))])
    assert stored(maxcompute, table) == [(2, "B", 100)]


def test_96_moments_days_and_bytes_of_the_epoch(maxcompute: ServerHandle, make_table: Make) -> None:
    table = make_table({"d": "DATE", "t": "TIMESTAMP(3)", "z": "TIMESTAMP_LTZ(9)", "b": "BYTES"}, key=())
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    append(table, [("U", (dt.date(1970, 1, 1) + dt.timedelta(12345), epoch.replace(tzinfo=None), epoch, b"\x01"))])
    ((day, moment, zoned, content),) = stored(maxcompute, table)
    assert (day, moment.timestamp(), zoned.timestamp(), content) == (dt.date(2003, 10, 20), 0, 0, b"\x01")


def without_coordinator(opened: Opened, **options: str) -> MaxComputeDestination:
    return opened({"n": "INT"}, key=(), sink_coordinator_enable="false", sink_parallelism="3", **options)


def test_every_task_has_a_session_when_there_is_no_coordinator(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = without_coordinator(opened, **{"insert_commit_thread-num": "1"})
    open_before = open_sessions(maxcompute)
    assert write(spark, destination, 1, [("U", (n,)) for n in range(50)]).metrics["tasks"] == 3
    assert write(spark, destination, 1, [("U", (1,))]).metrics == {"already_applied": 1}
    report = write(spark, destination, 2, [("U", (100,)), ("D", (1,))])  # sessions of tasks without rows are dropped
    assert (report.upserts, report.refused_count) == (1, 1)
    assert write(spark, destination, 3, []).upserts == 0
    assert stored(maxcompute, destination.table, "count(*), count(distinct n)") == [(51, 51)]
    assert destination.state().applied_batch == 3
    assert open_sessions(maxcompute) == open_before
    with destination.lease(owner="test", duration=timedelta(seconds=60)) as lease:
        changes = frame(spark, destination.table, [("U", (1,))])
        with pytest.raises(DestinationError, match=r"leave 'sink\.coordinator\.enable' out"):
            destination.write(changes, span=span(4, replaces=True), lease=lease)


def recorded_apart(destination: MaxComputeDestination, rows: Sequence[int]) -> tuple[MaxStorage, list[WriteSession]]:
    """A dead run: a session per row is filled and recorded, none is committed."""
    table, sessions = destination.table, []
    for task, row in enumerate(rows):
        job, storage, identity = open_job(table)
        send(job, [batch(table, [("U", (row,))])], stream=str(task))
        sessions.append(job.session)
    named = tuple(("", session.session_id) for session in sessions)
    streams = tuple((str(task), 1) for task in range(len(rows)))
    pending = Pending(
        "maxstorage", named, streams, 0, 1, "changelog-1", "dead", len(rows), table_id=identity, paired=True
    )
    with destination.lease(owner="dead", duration=timedelta(seconds=60)) as lease:
        lease.change(pending=pending.to_text())
    let_lease_end(destination._control)
    return storage, sessions


def test_sessions_of_tasks_are_committed_by_the_next_run_once(maxcompute: ServerHandle, opened: Opened) -> None:
    destination = without_coordinator(opened)
    storage, sessions = recorded_apart(destination, [1, 2, 3])
    storage.commit(sessions[1], [("1", 1)])
    assert stored(maxcompute, destination.table) == [(2,)]
    assert destination.state().applied_batch == 1
    assert stored(maxcompute, destination.table) == [(1,), (2,), (3,)]


def test_a_session_that_is_refused_after_others_were_committed_is_left_to_a_person(
    maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = without_coordinator(opened)
    storage, sessions = recorded_apart(destination, [1, 2])
    storage.abort(sessions[0])
    with pytest.raises(DestinationError, match="a part of its 2 rows may be missing"):
        destination.state()
    assert stored(maxcompute, destination.table) == [(2,)]


def test_a_delta_table_without_a_key_is_appended_to_by_one_session(
    spark: SparkSession, maxcompute: ServerHandle, client: Client, opened: Opened, make_table: Make
) -> None:
    name = make_table({"n": "INT"}, key=()).target.table
    properties = '"transactional"="true", "table.format.version"="2"'
    client.run_sql(f"CREATE TABLE {name} (n INT) TBLPROPERTIES ({properties})")
    shared = {"table_name": name, "control_table": f"control_{name}"}
    with pytest.raises(DestinationError, match=r"leave 'sink\.coordinator\.enable' out"):
        without_coordinator(opened, **shared)
    destination = opened({"n": "INT"}, key=(), **shared)
    for number in (1, 2):
        write(spark, destination, number, [("U", (1,)), ("U", (2,))])
    assert stored(maxcompute, destination.table) == [(1,), (1,), (2,), (2,)]


def test_a_span_that_overlaps_is_refused_rather_than_doubled(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened
) -> None:
    destination = opened({"n": "INT"}, key=())
    write(spark, destination, 1, [("U", (1,))])
    with pytest.raises(DestinationError, match="Nothing was written; run again"):
        write(spark, destination, 2, [("U", (1,)), ("U", (2,))], after=0)
    assert stored(maxcompute, destination.table) == [(1,)]


def test_a_delete_cannot_be_appended(spark: SparkSession, maxcompute: ServerHandle, opened: Opened) -> None:
    destination = opened({"n": "INT"}, key=())
    report = write(spark, destination, 1, [("U", (1,)), ("D", (2,))])
    assert (report.upserts, report.refused_count) == (1, 1)
    assert "cannot be appended" in report.refused[0].reason
    assert stored(maxcompute, destination.table) == [(1,)]


@pytest.mark.parametrize("api", ["maxstorage", "tunnel"])
def test_rows_that_are_inserted_take_the_place_of_those_with_their_key(
    spark: SparkSession, maxcompute: ServerHandle, opened: Opened, make_table: Make, client: Client, api: str
) -> None:
    columns = {"id": "BIGINT", "name": "STRING", "ds": "STRING"}
    name = f"keyed_{api}"
    client.run_sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, name STRING, PRIMARY KEY (id)) PARTITIONED BY (ds STRING)"
        ' TBLPROPERTIES ("transactional"="true", "write.bucket.num"="4")'
    )
    options = {"table_name": name, "sink_operation": "insert", "write_api": api}
    destination = MaxComputeDestination(make_table(columns, key=["id"], partitioned_by=["ds"], **options))
    assert destination.primary_key == ()
    destination.prepare()
    assert (destination.primary_key, destination.places) == (("id",), ("ds",))
    write(spark, destination, 1, [("U", (1, "a", "x")), ("U", (2, "a", "x"))])
    report = write(spark, destination, 2, [("U", (1, "b", "x")), ("U", (2, "b", "y")), ("D", (2, None, None))])
    assert (report.upserts, report.refused_count) == (2, 1)
    assert "cannot be appended" in report.refused[0].reason
    assert stored(maxcompute, destination.table) == [(1, "b", "x"), (2, "a", "x"), (2, "b", "y")]
    again = MaxComputeDestination(destination.table)
    assert again.state().applied_batch == 2
    assert again.primary_key == ("id",)
    if api == "maxstorage":
        write(spark, again, 3, [("U", (3, "c", "x"))], replaces=True)
        assert stored(maxcompute, destination.table) == [(2, "b", "y"), (3, "c", "x")]
    else:
        with pytest.raises(DestinationError, match="INSERT OVERWRITE goes through"):
            write(spark, again, 3, [("U", (3, "c", "x"))], replaces=True)
    again.close()
    destination.close()
