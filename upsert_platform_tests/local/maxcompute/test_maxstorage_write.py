"""Writes of the storage API, by an unmodified PyODPS client: catalogue 6.2, numbers 34 to 42 and 49 to 51."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from odps.errors import NoSuchTable, ODPSError
from odps.maxstorage import MaxStorageClient, WriteMode

Rows = Callable[..., list[tuple[Any, ...]]]
UPSERT, DELETE = 85, 68


def write(session: Any, stream: str, table: pa.Table, *, version: int = 1, close: bool = True, **options: Any) -> Any:
    writer = session.open_arrow_writer(stream_id=stream, stream_version=version, **options)
    writer.write_batch(table)
    writer.flush()
    if close:
        writer.close()
    return writer


def values(start: int, count: int) -> pa.Table:
    numbers = list(range(start, start + count))
    return pa.table({"k": pa.array(numbers, pa.int64()), "v": [f"v{number}" for number in numbers]})


def operations(keys: Sequence[int], texts: Sequence[str | None], marks: Sequence[int]) -> pa.Table:
    return pa.table(
        {"k": pa.array(keys, pa.int64()), "v": pa.array(texts, pa.string()), "__operation": pa.array(marks, pa.int8())}
    )


def delta_table(odps: Any, name: str) -> Any:
    return odps.create_table(
        name,
        "k bigint not null, v string",
        transactional=True,
        primary_key="k",
        table_properties={"write.bucket.num": "4"},
    )


@pytest.fixture(params=["2", "3"])
def client(odps: Any, request: pytest.FixtureRequest) -> Any:
    return MaxStorageClient(odps, api_version=request.param)


def test_34_upsert_keeps_the_last_value_of_each_key(odps: Any, client: Any, name: str, rows: Rows) -> None:
    delta_table(odps, name)
    session = client.create_table_write_session(name)
    numbers = list(range(1024))
    table = operations([n % 128 for n in numbers], [str(n) for n in numbers], [UPSERT] * 1024)
    table = table.append_column("__value_cols", pa.array([[]] * 1024, pa.list_(pa.int64())))
    write(session, "s", table)
    assert rows(f"select count(*) from {name}") == [(0,)]
    session.commit()
    assert rows(f"select k, v from {name} order by k", ordered=True) == [(k, str(896 + k)) for k in range(128)]


def test_35_append_of_one_stream(odps: Any, client: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, "k bigint, v string")
    session = client.create_table_write_session(name)
    write(session, "0", values(0, 100))
    session.commit()
    assert rows(f"select count(*), min(k), max(v) from {name}") == [(100, 0, "v99")]


@pytest.mark.parametrize(
    ("spec", "columns"),
    [
        pytest.param("p1=aaa,p2=bbb", [], id="36-full-spec-that-does-not-exist"),
        pytest.param("p1=aaa", ["p2"], id="37-partial-spec"),
        pytest.param("", ["p1", "p2"], id="38-dynamic"),
    ],
)
def test_partitions(odps: Any, client: Any, name: str, rows: Rows, spec: str, columns: list[str]) -> None:
    table = odps.create_table(name, ("k bigint, v string", "p1 string, p2 string"))
    session = client.create_table_write_session(name, partition_spec=spec)
    batch = values(0, 3)
    for column, text in (("p1", "aaa"), ("p2", "bbb")):
        if column in columns:
            batch = batch.append_column(column, pa.array([text] * 3))
    write(session, "0", batch)
    assert not table.exist_partition("p1='aaa',p2='bbb'")
    session.commit()
    assert [str(partition) for partition in table.partitions] == ["p1='aaa',p2='bbb'"]
    assert rows(f"select k, p1, p2 from {name}") == [(k, "aaa", "bbb") for k in range(3)]


def test_38_rows_land_by_value(odps: Any, client: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, ("k bigint, v string", "p1 string, p2 string"))
    session = client.create_table_write_session(name)
    batch = values(0, 4).append_column("p1", pa.array(["a", "a", "b", "b"]))
    write(session, "0", batch.append_column("p2", pa.array(["x", "y", "x", "x"])))
    session.commit()
    assert rows(f"select p1, p2, count(*) from {name} group by p1, p2") == [("a", "x", 1), ("a", "y", 1), ("b", "x", 2)]


def test_39_only_named_and_closed_versions_are_committed(odps: Any, client: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, "k bigint, v string")
    session = client.create_table_write_session(name)
    write(session, "s1", values(0, 1), version=1)
    write(session, "s2", values(10, 1), close=False)
    write(session, "s1", values(20, 1), version=2)
    write(session, "s3", values(30, 1), version=2)
    write(session, "s3", values(40, 1), version=3, close=False)
    found = client.stub.get_table_write_session(client._resolve_table_id(name), session.id, WriteMode.BATCH)
    assert found.streams == {"s1": 2, "s3": 2}
    with pytest.raises(ODPSError, match="s1 version 3 does not exist"):
        session.commit(["s1"], [3])
    with pytest.raises(ODPSError, match="s3 version 3 is not closed"):
        session.commit(["s3"], [3])
    session.commit(["s1", "s3"], [2, 2])
    assert rows(f"select k from {name}") == [(20,), (30,)]


def test_39_without_a_list_the_latest_closed_versions_are_committed(
    odps: Any, client: Any, name: str, rows: Rows
) -> None:
    odps.create_table(name, "k bigint, v string")
    session = client.create_table_write_session(name)
    write(session, "s1", values(0, 1), version=1)
    write(session, "s1", values(1, 1), version=2)
    write(session, "s2", values(2, 1), close=False)
    session.commit()
    assert rows(f"select k from {name}") == [(1,)]


def test_40_dynamic_overwrite(odps: Any, client: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, ("k bigint, v string", "p1 string"))
    for overwrite, expected in ((False, 10), (False, 20), (True, 10)):
        session = client.create_table_write_session(name, overwrite=overwrite)
        write(session, "0", values(0, 10).append_column("p1", pa.array(["a"] * 10)))
        session.commit()
        assert rows(f"select count(*) from {name}") == [(expected,)]


def test_41_after_abort_no_stream_can_be_created(odps: Any, client: Any, name: str) -> None:
    odps.create_table(name, "k bigint, v string")
    session = client.create_table_write_session(name)
    session.abort()
    with pytest.raises(ODPSError) as caught:
        session.open_arrow_writer(stream_id="0")
    assert caught.value.code == "SessionAborted"


def test_42_missing_table(client: Any) -> None:
    with pytest.raises(NoSuchTable):
        client.create_table_write_session("there_is_no_such_table")


def test_49_delta_record_writer(odps: Any, client: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, "k bigint not null, n bigint, v string", transactional=True, primary_key="k")
    for records in ([[1, 100, "alice"], [2, 200, "bob"]], [[2, 999, "bob-updated"]]):
        session = client.create_table_write_session(name)
        writer = session.open_arrow_writer(stream_id="0").get_as_record_writer()
        for record in records:
            writer.write(record)
        writer.close()
        session.commit()
    assert rows(f"select * from {name}") == [(1, 100, "alice"), (2, 999, "bob-updated")]
    session = client.create_table_write_session(name)
    writer = session.open_arrow_writer(stream_id="0").get_as_record_writer()
    writer.delete([1, None, None])
    writer.close()
    session.commit()
    assert rows(f"select k from {name}") == [(2,)]


@pytest.mark.parametrize(
    ("batches", "options", "expected"),
    [
        pytest.param(1, {}, 100, id="50-one-batch"),
        pytest.param(4, {}, 100, id="50-several-batches"),
        pytest.param(2, {"compress_algo": "zstd"}, 50, id="50-zstd"),
        pytest.param(2, {"compress_algo": "lz4"}, 50, id="50-lz4"),
    ],
)
def test_written_rows_are_read_back(
    odps: Any, client: Any, name: str, rows: Rows, batches: int, options: dict[str, Any], expected: int
) -> None:
    odps.create_table(name, "k bigint, v string")
    session = client.create_table_write_session(name)
    writer = session.open_arrow_writer(stream_id="0", **options)
    size = expected // batches
    for number in range(batches):
        writer.write_batch(values(number * size, size))
    writer.close()
    session.commit()
    assert rows(f"select count(*), count(distinct k), max(k) from {name}") == [(expected, expected, expected - 1)]


def test_50_two_partitions_of_a_delta_table(odps: Any, client: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, ("k bigint not null, v string", "ds string"), transactional=True, primary_key="k")
    session = client.create_table_write_session(name)
    table = operations(list(range(30)) * 2, ["x"] * 60, [UPSERT] * 60)
    write(session, "0", table.append_column("ds", pa.array(["a"] * 30 + ["b"] * 30)))
    session.commit()
    assert rows(f"select ds, count(*) from {name} group by ds") == [("a", 30), ("b", 30)]


def test_50_record_writer(odps: Any, client: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, "k bigint, v string")
    session = client.create_table_write_session(name)
    writer = session.open_arrow_writer(stream_id="0").get_as_record_writer()
    for number in range(25):
        writer.write([number, f"v{number}"])
    writer.close()
    session.commit()
    assert rows(f"select count(*) from {name}") == [(25,)]


def test_51_abort_leaves_no_rows(odps: Any, client: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, "k bigint, v string")
    session = client.create_table_write_session(name)
    write(session, "0", values(0, 10))
    session.abort()
    assert rows(f"select count(*) from {name}") == [(0,)]
    with pytest.raises(ODPSError) as caught:
        client.create_table_write_session(name, session_id=session.id).commit()
    assert caught.value.code == "SessionAborted"


def test_a_commit_is_repeatable_through_another_handle(odps: Any, client: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, "k bigint, v string")
    session = client.create_table_write_session(name)
    write(session, "0", values(0, 10))
    again = client.create_table_write_session(name, session_id=session.id)
    session.commit(["0"], [1])
    again.commit(["0"], [1])
    assert rows(f"select count(*) from {name}") == [(10,)]


@pytest.mark.parametrize(
    ("keys", "texts", "marks", "code"),
    [
        pytest.param([1], ["x"], [1], None, id="operation-1-is-an-upsert"),
        pytest.param([1], [None], [UPSERT], "DataStoreError", id="null-in-not-null-column"),
        pytest.param([None], ["x"], [UPSERT], "InternalError", id="null-key"),
        pytest.param([1], [None], [DELETE], None, id="a-delete-needs-only-the-key"),
    ],
)
def test_rows_are_checked(
    odps: Any, client: Any, name: str, keys: list[Any], texts: list[Any], marks: list[int], code: str | None
) -> None:
    odps.create_table(name, "k bigint not null, v string not null", transactional=True, primary_key="k")
    session = client.create_table_write_session(name)
    session.open_arrow_writer(stream_id="0")
    body = pa.BufferOutputStream()
    table = operations(keys, texts, marks)
    with pa.ipc.new_stream(body, table.schema) as writer:
        writer.write_table(table)

    def send() -> Any:
        target = client._resolve_table_id(name)
        return client.storage_rest.post(
            f"{client.storage_rest.endpoint}/api/storage/v2",
            data=bytes(body.getvalue()),
            params={
                "Action": "TableWrite",
                "Target": target.to_target(),
                "SessionId": session.id,
                "StreamId": "0",
                "StreamVersion": "1",
                "Count": "1",
            },
        )

    if code is None:
        assert send().status_code == 200
    else:
        with pytest.raises(ODPSError) as caught:
            send()
        assert caught.value.code == code


def test_values_are_stored_as_their_column_is(odps: Any, client: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, "a char(4), b int, c decimal(10,2), d timestamp, e string, f datetime")
    session = client.create_table_write_session(name)
    batch = pa.table(
        {
            "A": ["x"],
            "b": pa.array([7], pa.int64()),
            "c": pa.array(["1.5"]).cast(pa.decimal128(5, 1)),
            "d": pa.array([1], pa.timestamp("us", "Asia/Shanghai")),
            "e": pa.array(["text"], pa.large_string()),
        }
    )
    write(session, "0", batch)
    session.commit()
    assert rows(f"select a, b, cast(c as string), cast(d as string), e, f from {name}") == [
        ("x   ", 7, "1.50", "1970-01-01 00:00:00.000001", "text", None)
    ]


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        pytest.param(pa.array([2**40]), "cannot be stored as int32", id="too-large"),
        pytest.param(pa.array(["x"]), "cannot be stored as int32", id="no-number"),
    ],
)
def test_values_that_do_not_fit_are_refused(odps: Any, client: Any, name: str, column: pa.Array, reason: str) -> None:
    odps.create_table(name, "a int")
    session = client.create_table_write_session(name)
    with pytest.raises(ODPSError, match=reason):
        write(session, "0", pa.table({"a": column}))


def test_unknown_columns_are_refused(odps: Any, client: Any, name: str) -> None:
    odps.create_table(name, "a int")
    session = client.create_table_write_session(name)
    with pytest.raises(ODPSError, match="column 'b' does not exist"):
        write(session, "0", pa.table({"b": [1]}))


def test_exactly_once_writes_resume_at_their_offset(odps: Any, client: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, "k bigint, v string")
    session = client.create_table_write_session(name)
    writer = write(session, "0", values(0, 5), close=False, exactly_once_mode=True)
    assert writer._row_offset == 5
    writer._row_offset = 0
    writer.write_batch(values(0, 5))
    writer.flush()
    assert writer._row_offset == 5
    resumed = session.open_arrow_writer(stream_id="0", resume=True, exactly_once_mode=True)
    resumed.write_batch(values(5, 5))
    resumed.close()
    session.commit()
    assert rows(f"select count(*), count(distinct k) from {name}") == [(10, 10)]


def test_streaming_writes_are_visible_at_once(odps: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, ("k bigint, v string", "p string"))
    client = MaxStorageClient(odps, api_version="3")
    session = client.create_table_write_session(name, write_mode=WriteMode.STREAMING)
    writer = session.open_arrow_writer(stream_id="0")
    for number in range(2):
        writer.write_batch(values(number * 5, 5).append_column("p", pa.array(["a"] * 5)))
        writer.flush()
        assert rows(f"select count(*) from {name}") == [((number + 1) * 5,)]
    writer.close()


def test_blocks_commit_one_attempt_each(odps: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, ("k bigint, v string", "p string"))
    client = MaxStorageClient(odps, api_version="3")
    session = client.create_table_write_session(name, write_mode=WriteMode.BATCH_COMPATIBLE)
    results = []
    for block, attempt in ((0, 0), (0, 1), (1, 0)):
        writer = session.open_block_writer(block, attempt)
        writer.write_batch(values(block * 10 + attempt * 100, 10).append_column("p", pa.array(["a"] * 10)))
        results.append(writer.commit())
    session.commit(block_results=results[1:])
    assert rows(f"select min(k), max(k), count(*) from {name}") == [(10, 109, 20)]


def test_what_was_committed_survives_a_killed_server(odps: Any, server: Any, name: str, rows: Rows) -> None:
    delta_table(odps, name)
    client = MaxStorageClient(odps)
    committed = client.create_table_write_session(name)
    write(committed, "0", operations([1, 2], ["a", "b"], [UPSERT] * 2))
    committed.commit()
    open_session = client.create_table_write_session(name)
    write(open_session, "0", operations([1, 3], ["c", "d"], [DELETE, UPSERT]))
    server.restart()
    assert rows(f"select * from {name}") == [(1, "a"), (2, "b")]
    client.create_table_write_session(name, session_id=committed.id).commit()
    assert rows(f"select * from {name}") == [(1, "a"), (2, "b")]
    client.create_table_write_session(name, session_id=open_session.id).commit(["0"], [1])
    assert rows(f"select * from {name}") == [(2, "b"), (3, "d")]
