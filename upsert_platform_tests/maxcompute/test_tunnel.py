"""Writes through upsert sessions (sections 2.4, 3.7, 4.3), on a server that refuses rows in a wrong bucket."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.maxcompute.choices import WriteApi
from upsert_platform.maxcompute.connection import Connection, ServiceError
from upsert_platform.maxcompute.control import Pending
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.recovery import commit_recorded
from upsert_platform.maxcompute.rows import PARTITION_PREFIX
from upsert_platform.maxcompute.sending import wire_plan
from upsert_platform.maxcompute.table import MaxComputeTable, read_maxcompute_table
from upsert_platform.maxcompute.tunnel_writer import TunnelJob, TunnelTaskWriter
from upsert_platform_tests.local.maxcompute.server import ServerHandle, maxcompute_server
from upsert_platform_tests.maxcompute.declare import declare
from upsert_platform_tests.maxcompute.fault_proxy import Fault, FaultProxy, fault_proxy
from upsert_platform_tests.maxcompute.frames import frame, stored, write
from upsert_platform_tests.maxcompute.sending import batch, open_tunnel_job
from upsert_platform_tests.maxcompute.test_ddl import EVERY_TYPE
from upsert_platform_tests.maxcompute.test_round_trip import NULLS, ROW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., MaxComputeTable]
MINUTE = timedelta(seconds=60)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    """A server that refuses rows in a wrong bucket."""
    with maxcompute_server(tmp_path_factory.mktemp("strict"), arguments=["--strict-buckets"]) as server:
        yield server


@pytest.fixture
def proxy(strict: ServerHandle) -> Iterator[FaultProxy]:
    with fault_proxy(strict) as opened:
        yield opened


def tunnel_table(make_table: Make, server: ServerHandle, *arguments: Any, **options: Any) -> MaxComputeTable:
    return make_table(*arguments, server=server, **{"write_api": "tunnel", **options})


def send(job: TunnelJob, rows: list[Any]) -> TunnelTaskWriter:
    with closing(TunnelTaskWriter(job)) as writer:
        for part in rows:
            writer.add(part)
        writer.finish()
    return writer


def test_1_rows_are_visible_after_the_commit_alone(strict: ServerHandle, make_table: Make) -> None:
    table = tunnel_table(make_table, strict)
    job, tunnel = open_tunnel_job(table)
    session = job.sessions[0][1]
    writer = send(job, [batch(table, [("U", (1, "a")), ("U", (2, None)), ("U", (3, "c")), ("D", (9, None))])])
    assert (writer.result.rows, writer.result.deletes) == (4, 1)
    assert stored(strict, table) == []
    tunnel.commit("", session.session_id)
    assert stored(strict, table) == [(1, "a"), (2, None), (3, "c")]
    tunnel.commit("", session.session_id)
    with pytest.raises(ServiceError, match="SessionStatusConflict"):
        send(job, [batch(table, [("U", (4, "late"))])])


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_bodies_may_be_compressed(strict: ServerHandle, make_table: Make, compression: str) -> None:
    table = tunnel_table(make_table, strict)
    job, tunnel = open_tunnel_job(table, compression=compression)
    send(job, [batch(table, [("U", (n, "x" * 50)) for n in range(500)])])
    tunnel.commit("", job.sessions[0][1].session_id)
    assert len(stored(strict, table)) == 500


KEYS: list[tuple[str, list[Any]]] = [
    ("TINYINT", [-128, 127]),
    ("INT", [-1, 2**31 - 1]),
    ("DOUBLE", [1.99, -0.5]),
    ("BOOLEAN", [True, False]),
    ("CHAR(20)", ["a", "äöü"]),
    ("STRING", ["", "中文"]),
    ("DATE", [dt.date(2021, 1, 1), dt.date(1960, 2, 3)]),
    ("DECIMAL(10, 0)", [Decimal(1), Decimal(10), Decimal(-7)]),
    ("DECIMAL(38, 10)", [Decimal("-1.5"), Decimal("123456789012345678.5")]),
    ("DECIMAL(19, 2)", [Decimal("-1.50")]),
    ("TIMESTAMP(3)", [dt.datetime(1960, 1, 1, 0, 0, 0, 5000), dt.datetime(2021, 1, 1)]),  # noqa: DTZ001
    ("TIMESTAMP(6)", [dt.datetime(1960, 1, 1, 0, 0, 0, 500_000), dt.datetime(2021, 1, 1)]),  # noqa: DTZ001
]


@pytest.mark.parametrize(("kind", "values"), KEYS, ids=[row[0] for row in KEYS])
def test_24_105_106_keys_of_every_type_reach_their_bucket(
    strict: ServerHandle, make_table: Make, kind: str, values: list[Any]
) -> None:
    table = tunnel_table(make_table, strict, {"k": kind, "n": "INT"}, key=["k"], upsert_write_bucket_num="16")
    job, tunnel = open_tunnel_job(table)
    send(job, [batch(table, [("U", (value, number)) for number, value in enumerate(values)])])
    tunnel.commit("", job.sessions[0][1].session_id)
    assert sorted(stored(strict, table, "n")) == [(number,) for number in range(len(values))]


@pytest.mark.parametrize("kind", ["BYTES", "BINARY(4)"])
def test_keys_without_a_sure_bucket_are_refused_when_declared(kind: str) -> None:
    options = {"sink.operation": "upsert", "write.api": "tunnel"}
    table, problems = read_maxcompute_table(declare({"k": kind, "v": "INT"}, key=["k"], options=options))
    assert table is None
    assert "no sure bucket" in problems[0].message


@pytest.mark.parametrize("kind", ["ARRAY<DECIMAL(10, 0)>", "ROW<a MAP<STRING, DECIMAL(3, 0)>>"])
def test_nested_decimals_without_scale_are_refused_for_the_tunnel(kind: str) -> None:
    options = {"sink.operation": "upsert", "write.api": "tunnel"}
    table, problems = read_maxcompute_table(declare({"k": "INT", "v": kind}, key=["k"], options=options))
    assert table is None
    assert "misread by the tunnel" in problems[0].message


def test_insert_without_a_key_does_not_go_through_the_tunnel() -> None:
    table, problems = read_maxcompute_table(declare(options={"write.api": "tunnel"}))
    assert table is None
    assert "'write.api' = 'tunnel' needs a PRIMARY KEY" in problems[0].message


@pytest.mark.parametrize("status", [308, 429, 500, 0])
@pytest.mark.parametrize("reached", [False, True], ids=["lost", "answer-lost"])
def test_98_101_102_spoiled_bodies_are_sent_again(
    strict: ServerHandle, make_table: Make, proxy: FaultProxy, status: int, reached: bool
) -> None:
    table = tunnel_table(make_table, strict, odps_tunnel_end_point=proxy.endpoint)
    job, tunnel = open_tunnel_job(table)
    proxy.faults.append(Fault("PUT upserts", times=3, status=status, reached=reached))
    writer = send(job, [batch(table, [("U", (n, "x")) for n in range(200)])])
    assert writer.result.retries == 3
    tunnel.commit("", job.sessions[0][1].session_id)
    assert len(stored(strict, table)) == 200


def test_100_a_bucket_is_sent_when_it_is_full_and_not_row_by_row(
    strict: ServerHandle, make_table: Make, proxy: FaultProxy
) -> None:
    table = tunnel_table(make_table, strict, odps_tunnel_end_point=proxy.endpoint)
    job, tunnel = open_tunnel_job(table, bucket_bytes=8 << 10, buffer_bytes=64 << 10)
    rows = [batch(table, [("U", (n, "x" * 100)) for n in range(s, s + 100)]) for s in range(0, 3000, 100)]
    writer = send(job, rows)
    bodies = proxy.actions.count("PUT upserts")
    assert writer.result.bytes / bodies > 6 << 10
    tunnel.commit("", job.sessions[0][1].session_id)
    assert len(stored(strict, table)) == 3000


def test_104_a_commit_whose_answer_is_lost_is_found_done(
    strict: ServerHandle, make_table: Make, proxy: FaultProxy
) -> None:
    table = tunnel_table(make_table, strict, odps_tunnel_end_point=proxy.endpoint)
    job, tunnel = open_tunnel_job(table)
    send(job, [batch(table, [("U", (1, "a"))])])
    proxy.faults.append(Fault("POST upserts", times=1, status=500, reached=True))
    tunnel.commit("", job.sessions[0][1].session_id)
    assert stored(strict, table) == [(1, "a")]


def test_9_an_aborted_session_is_not_committed(strict: ServerHandle, make_table: Make) -> None:
    table = tunnel_table(make_table, strict)
    job, tunnel = open_tunnel_job(table)
    session = job.sessions[0][1]
    send(job, [batch(table, [("U", (1, "a"))])])
    tunnel.abort("", session.session_id)
    with pytest.raises(ServiceError, match="aborted"):
        tunnel.commit("", session.session_id)
    assert stored(strict, table) == []


def test_111_113_a_writer_that_fails_leaves_the_session_to_the_driver(strict: ServerHandle, make_table: Make) -> None:
    table = tunnel_table(make_table, strict)
    job, tunnel = open_tunnel_job(table, bucket_bytes=1)
    rows = [batch(table, [("U", (n, "x")) for n in range(start, start + 20)]) for start in range(0, 100, 20)]

    def send_and_fail() -> None:
        with closing(TunnelTaskWriter(job)) as writer:
            for part in rows[:2]:
                writer.add(part)
            raise RuntimeError("of the task")

    with pytest.raises(RuntimeError):
        send_and_fail()
    send(job, rows)
    assert stored(strict, table) == []
    tunnel.commit("", job.sessions[0][1].session_id)
    assert stored(strict, table) == sorted(((n, "x") for n in range(100)), key=repr)


def test_115_other_buckets_than_rows_were_sorted_into_are_an_error(
    strict: ServerHandle, make_table: Make, proxy: FaultProxy
) -> None:
    table = tunnel_table(make_table, strict, odps_tunnel_end_point=proxy.endpoint)
    job, _ = open_tunnel_job(table)
    (key, session), *_ = job.sessions
    before = replace(session, routes=session.routes[:2])
    proxy.faults.append(Fault("PUT upserts", times=9, status=308))
    with pytest.raises(ServiceError, match="the table has 4 buckets now, rows were sorted into 2"):
        send(replace(job, sessions=((key, before),)), [batch(table, [("U", (1, "a"))])])
    assert stored(strict, table) == []


def open_destination(table: MaxComputeTable) -> MaxComputeDestination:
    destination = MaxComputeDestination(table)
    destination.prepare()
    return destination


def test_invariant_4_a_recorded_commit_of_several_partitions_is_finished(
    strict: ServerHandle, make_table: Make
) -> None:
    columns = {"id": "BIGINT", "ds": "STRING"}
    table = tunnel_table(make_table, strict, columns, key=["id", "ds"], partitioned_by=["ds"])
    with closing(open_destination(table)) as destination:
        tunnel = destination._clients.tunnel()
        sessions = []
        for day in ("1", "2"):
            destination._client.run_sql(f"ALTER TABLE {table.target.sql} ADD PARTITION (ds='{day}')")
            sessions.append(((day,), tunnel.create(f"ds={day}")))
        job, _ = open_job_on(table, destination, tuple(sessions))
        rows = batch_with_partitions(table, [("U", (1, "1")), ("U", (1, "2")), ("U", (2, "2"))])
        send(job, [rows])
        with destination.lease(owner="dead", duration=MINUTE) as lease:
            named = tuple((session.partition, session.session_id) for _, session in sessions)
            pending = Pending("tunnel", named, (), 0, 1, "changelog-1", "run", 3)
            lease.change(pending=pending.to_text())
            tunnel.commit(*named[0])
        assert stored(strict, table) == [(1, "1")]
        assert destination.state().applied_batch == 1
        assert stored(strict, table) == [(1, "1"), (1, "2"), (2, "2")]


def test_a_session_that_is_gone_means_the_batch_is_written_again(strict: ServerHandle, make_table: Make) -> None:
    table = tunnel_table(make_table, strict)
    with (
        closing(open_destination(table)) as destination,
        destination.lease(owner="run", duration=MINUTE) as lease,
    ):
        pending = Pending("tunnel", (("", "no-such-session"),), (), 0, 1, "changelog-1", "run", 3)
        lease.change(pending=pending.to_text())
        reason = commit_recorded(lease, destination.committing(WriteApi.TUNNEL), table)
        assert reason is not None
        assert (lease.record.applied_batch, lease.record.pending) == (0, "")


def open_job_on(table: MaxComputeTable, destination: MaxComputeDestination, sessions: Any) -> tuple[TunnelJob, Any]:
    """A job into sessions of partitions."""
    tunnel = destination._clients.tunnel()
    plan = wire_plan(table, destination._actual())
    connection = Connection.of(table.settings)
    return TunnelJob(connection, tunnel.endpoint, table.target, sessions, plan, 1 << 20, 64 << 20, 2, None), tunnel


def batch_with_partitions(table: MaxComputeTable, rows: list[Any]) -> Any:
    """A batch with its partition column as the writer gets it."""
    made = batch(table, rows)
    return made.append_column(f"{PARTITION_PREFIX}0", made.column("ds"))


def test_a_destination_writes_and_reads_through_the_tunnel(
    spark: SparkSession, strict: ServerHandle, make_table: Make
) -> None:
    table = tunnel_table(make_table, strict, EVERY_TYPE)
    with closing(open_destination(table)) as destination:
        changes = [("U", ROW), ("U", NULLS), ("U", (3, *ROW[1:]))]
        report = write(spark, destination, 1, changes)
        assert (report.upserts, report.refused_count) == (3, 0)
        write(spark, destination, 2, [("D", (3, *NULLS[1:]))])
        assert destination.state().applied_batch == 2
        expected = frame(spark, table, changes[:2]).drop("_op", "_seq").orderBy("id").collect()
        assert destination.read(spark).orderBy("id").collect() == expected
        keys = spark.createDataFrame([(2,), (7,)], "id BIGINT")
        assert destination.read(spark, keys=keys).select("id").collect() == [(2,)]


def test_partitions_are_made_and_rows_move(spark: SparkSession, strict: ServerHandle, make_table: Make) -> None:
    columns = {"id": "BIGINT", "v": "STRING", "ds": "STRING"}
    moves = {"sink_partition_move-rows": "true"}
    table = tunnel_table(make_table, strict, columns, key=["id"], partitioned_by=["ds"], **moves)
    with closing(open_destination(table)) as destination:
        write(spark, destination, 1, [("U", (n, "a", f"d{n % 2}")) for n in range(4)])
        write(spark, destination, 2, [("U", (1, "b", "d2")), ("D", (2, None, None)), ("U", (3, "c", None))])
        expected = [(0, "a", "d0"), (1, "b", "d2"), (3, "c", "__DEFAULT_PARTITION__")]
        assert stored(strict, table) == expected
        assert sorted(destination.read(spark).collect()) == expected
