"""What a writing task sends, when the network and other attempts misbehave (sections 4.4, 4.6, defects of 6.5)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upsert_platform.maxcompute.connection import ServiceError
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.maxcompute.writer import TaskWriter, WriteJob, stream_version
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.fault_proxy import Fault, FaultProxy, fault_proxy
from upsert_platform_tests.maxcompute.frames import stored
from upsert_platform_tests.maxcompute.sending import batch, open_job, send

Make = Callable[..., MaxComputeTable]


@pytest.fixture
def proxy(maxcompute: ServerHandle) -> Iterator[FaultProxy]:
    with fault_proxy(maxcompute) as opened:
        yield opened


def test_34_the_last_operation_of_a_key_in_a_stream_wins(maxcompute: ServerHandle, make_table: Make) -> None:
    table = make_table({"id": "BIGINT", "v": "BIGINT"})
    job, storage, _ = open_job(table)
    send(job, [batch(table, [("U", (number % 128, number)) for number in range(1024)])])
    assert stored(maxcompute, table) == []
    storage.commit(job.session, [("0", 1)])
    assert stored(maxcompute, table) == sorted(((key, 896 + key) for key in range(128)), key=repr)


def test_39_only_the_named_versions_count(maxcompute: ServerHandle, make_table: Make) -> None:
    table = make_table()
    job, storage, _ = open_job(table)
    send(job, [batch(table, [("U", (1, "first attempt"))])], stream="1", version=1)
    send(job, [batch(table, [("U", (1, "second attempt"))])], stream="1", version=2)
    left = TaskWriter(job, stream_id="2", version=1)
    left.add(batch(table, [("U", (2, "never closed"))]))
    left._flush()
    left._wait()
    left.close()
    send(job, [batch(table, [("U", (3, "x"))])], stream="3", version=2)
    with pytest.raises(ServiceError):
        storage.commit(job.session, [("1", 2), ("3", 3)])
    storage.commit(job.session, [("1", 2), ("3", 2)])
    assert stored(maxcompute, table) == [(1, "second attempt"), (3, "x")]


def test_114_an_attempt_that_died_half_way_leaves_nothing(maxcompute: ServerHandle, make_table: Make) -> None:
    table = make_table({"id": "BIGINT", "v": "STRING"}, key=())
    job, storage, _ = open_job(table, body_bytes=1 << 10)
    rows = [batch(table, [("U", (n, "x" * 20)) for n in range(start, start + 50)]) for start in range(0, 500, 50)]
    dead = TaskWriter(job, stream_id="0", version=1)
    for part in rows[:4]:
        dead.add(part)
    dead.close()
    retried = send(job, rows, version=2)
    assert retried.result.requests > 4
    storage.commit(job.session, [("0", 2)])
    assert [row[0] for row in stored(maxcompute, table, "count(*)")] == [500]


def test_84_versions_grow_with_attempts() -> None:
    assert [stream_version(attempt) for attempt in (0, 1, 65_536)] == [1, 2, 65_537]


@pytest.mark.parametrize("status", [308, 408, 429, 500, 502, 503, 0])
@pytest.mark.parametrize("reached", [False, True], ids=["lost", "answer-lost"])
def test_98_101_102_spoiled_bodies_are_sent_again_for_upsert(
    maxcompute: ServerHandle, make_table: Make, proxy: FaultProxy, status: int, reached: bool
) -> None:
    table = make_table(**{"odps_tunnel_end_point": proxy.endpoint})
    job, storage, _ = open_job(table)
    proxy.faults.append(Fault("TableWrite", times=2, status=status, reached=reached))
    writer = send(job, [batch(table, [("U", (n, "x")) for n in range(20)])])
    assert (writer.result.rows, writer.result.retries) == (20, 2)
    storage.commit(job.session, [("0", 1)])
    assert len(stored(maxcompute, table)) == 20


@pytest.mark.parametrize(("status", "repeated"), [(429, True), (500, False), (308, False), (0, False)])
def test_insert_repeats_only_what_certainly_did_not_arrive(
    maxcompute: ServerHandle, make_table: Make, proxy: FaultProxy, status: int, repeated: bool
) -> None:
    table = make_table(key=(), **{"odps_tunnel_end_point": proxy.endpoint})
    job, storage, _ = open_job(table)
    proxy.faults.append(Fault("TableWrite", status=status, reached=not repeated))
    rows = [batch(table, [("U", (1, "a"))])]
    if repeated:
        send(job, rows)
    else:
        with pytest.raises(ServiceError):
            send(job, rows)
        send(job, rows, version=2)
    storage.commit(job.session, [("0", 1 if repeated else 2)])
    assert stored(maxcompute, table) == [(1, "a")]


def test_103_without_end_refused_bodies_fail_after_the_declared_retries(make_table: Make, proxy: FaultProxy) -> None:
    table = make_table(**{"odps_tunnel_end_point": proxy.endpoint, "upsert_writer_max__retries": "1"})
    job, _, _ = open_job(table)
    proxy.faults.append(Fault("TableWrite", times=99, status=429))
    with pytest.raises(ServiceError) as raised:
        send(job, [batch(table, [("U", (1, "a"))])])
    assert raised.value.status == 429
    assert proxy.actions.count("TableWrite") == 2


def test_99_a_moved_slot_is_no_commit(maxcompute: ServerHandle, make_table: Make, proxy: FaultProxy) -> None:
    table = make_table(**{"odps_tunnel_end_point": proxy.endpoint})
    job, storage, _ = open_job(table)
    send(job, [batch(table, [("U", (1, "a"))])])
    proxy.faults.append(Fault("TableCommitWriteSession", times=9, status=308))
    with pytest.raises(ServiceError) as raised:
        storage.commit(job.session, [("0", 1)], retries=1)
    assert raised.value.status == 308
    assert stored(maxcompute, table) == []


def test_100_bodies_have_the_declared_size_however_many_rows_come(make_table: Make, proxy: FaultProxy) -> None:
    table = make_table(**{"odps_tunnel_end_point": proxy.endpoint, "write_body__size": "64 kb"})
    job, _, _ = open_job(table)
    rows = batch(table, [("U", (n, "x" * 100)) for n in range(1000)])
    writer = send(job, [rows] * 20)
    assert writer.result.rows == 20_000
    sent = proxy.actions.count("TableWrite")
    assert 20 * rows.nbytes / (64 << 10) * 0.8 < sent < 20 * rows.nbytes / (64 << 10) * 2.5


def test_a_single_row_may_be_larger_than_a_body(maxcompute: ServerHandle, make_table: Make) -> None:
    table = make_table()
    job, storage, _ = open_job(table, body_bytes=1 << 10)
    send(job, [batch(table, [("U", (1, "x" * 5000)), ("U", (2, "y"))])])
    storage.commit(job.session, [("0", 1)])
    assert [len(row[1]) for row in stored(maxcompute, table)] == [5000, 1]


def test_108_a_null_key_is_refused_before_any_request(make_table: Make, proxy: FaultProxy) -> None:
    table = make_table(**{"odps_tunnel_end_point": proxy.endpoint})
    job, _, _ = open_job(table)
    writer = send(job, [batch(table, [("U", (None, "a")), ("D", (None, None))])])
    assert (writer.result.rows, writer.result.refused, writer.result.stream_id) == (0, 2, None)
    assert "TableWrite" not in proxy.actions


def test_a_commit_names_its_streams(make_table: Make) -> None:
    job, storage, _ = open_job(make_table())
    with pytest.raises(ValueError, match="names its streams"):
        storage.commit(job.session, [])


def test_a_job_travels_to_workers_and_shows_no_secret(make_table: Make) -> None:
    job, _, _ = open_job(make_table())
    copied = pickle.loads(pickle.dumps(job))
    assert isinstance(copied, WriteJob)
    assert copied.connection.access_key.get_secret_value() == "test_key"
    assert "test_key" not in repr(job)
    assert "test_id" not in repr(job)


OPERATIONS = st.lists(
    st.dictionaries(st.integers(0, 9), st.none() | st.text("abcü", max_size=3), min_size=1, max_size=8),
    min_size=1,
    max_size=4,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=OPERATIONS)
def test_invariant_2_the_table_is_the_last_value_per_key(
    maxcompute: ServerHandle, make_table: Make, batches: list[dict[int, str | None]]
) -> None:
    table, expected = make_table(), dict[int, str]()
    for changes in batches:
        job, storage, _ = open_job(table)
        rows = [("D" if value is None else "U", (key, value)) for key, value in changes.items()]
        send(job, [batch(table, rows)])
        storage.commit(job.session, [("0", 1)])
        expected = {key: value for key, value in {**expected, **changes}.items() if value is not None}
    assert stored(maxcompute, table) == sorted(expected.items(), key=repr)


def test_41_an_aborted_session_takes_nothing_more(make_table: Make) -> None:
    table = make_table()
    job, storage, _ = open_job(table)
    storage.abort(job.session)
    with pytest.raises(ServiceError):
        send(job, [batch(table, [("U", (1, "a"))])])


def test_112_a_body_that_is_sent_again_stays_before_the_next(
    maxcompute: ServerHandle, make_table: Make, proxy: FaultProxy
) -> None:
    table = make_table(**{"odps_tunnel_end_point": proxy.endpoint})
    job, storage, _ = open_job(table, body_bytes=1)
    proxy.faults.append(Fault("TableWrite", status=500))
    writer = send(job, [batch(table, [("U", (1, value))]) for value in ("old", "new")])
    assert (writer.result.retries, proxy.actions.count("TableWrite")) == (1, 3)
    storage.commit(job.session, [("0", 1)])
    assert stored(maxcompute, table) == [(1, "new")]
