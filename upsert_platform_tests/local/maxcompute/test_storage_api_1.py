"""Storage API version 1, by the client of PyODPS for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from odps.apis.storage_api import (
    Compression,
    ReadRowsRequest,
    SessionRequest,
    SessionStatus,
    SplitOptions,
    Status,
    StorageApiArrowClient,
    TableBatchScanRequest,
    TableBatchWriteRequest,
    WriteRowsRequest,
)
from odps.errors import ODPSError

Rows = Callable[..., list[tuple[Any, ...]]]
ROWS = 10_000


@pytest.fixture
def client(odps: Any, name: str) -> StorageApiArrowClient:
    odps.create_table(name, ("k bigint, v string", "ds string"))
    return StorageApiArrowClient(odps, odps.get_table(name))


def write(client: Any, session: str, block: int, rows: pa.RecordBatch, *, attempt: int = 0, **options: Any) -> str:
    writer = client.write_rows_arrow(WriteRowsRequest(session, block_number=block, attempt_number=attempt, **options))
    assert writer.write(rows)
    message, fine = writer.finish()
    assert fine
    return str(message)


def values(start: int, count: int) -> pa.RecordBatch:
    numbers = range(start, start + count)
    return pa.RecordBatch.from_pydict({"k": list(numbers), "v": [f"v{number}" for number in numbers]})


def read(client: Any, session: Any, **options: Any) -> list[int]:
    found: list[int] = []
    for split in range(session.split_count):
        reader = client.read_rows_arrow(ReadRowsRequest(session.session_id, split_index=split, **options))
        while (batch := reader.read()) is not None:
            found += batch.column(0).to_pylist()
    return found


@pytest.mark.parametrize("compression", list(Compression))
def test_what_is_written_in_blocks_is_read_in_splits(
    client: Any, rows: Rows, name: str, compression: Compression
) -> None:
    session = client.create_write_session(TableBatchWriteRequest(partition_spec="ds=1", overwrite=False))
    assert (session.status, session.session_status) == (Status.OK, SessionStatus.NORMAL)
    messages = [
        write(client, session.session_id, number, values(number * ROWS, ROWS), compression=compression)
        for number in range(2)
    ]
    write(client, session.session_id, 1, values(0, 5), attempt=1)  # an attempt that is not committed
    assert rows(f"select count(*) from {name}") == [(0,)]
    committed = client.commit_write_session(SessionRequest(session.session_id), messages)
    assert (committed.status, committed.session_status) == (Status.OK, SessionStatus.COMMITTED)
    again = client.commit_write_session(SessionRequest(session.session_id), messages)
    assert again.session_status == SessionStatus.COMMITTED
    assert client.get_write_session(SessionRequest(session.session_id)).session_status == SessionStatus.COMMITTED
    request = TableBatchScanRequest(split_options=SplitOptions(split_mode="Parallelism", split_number=3))
    scan = client.create_read_session(request)
    assert (scan.status, scan.split_count, scan.record_count) == (Status.OK, 3, 2 * ROWS)
    assert client.get_read_session(SessionRequest(scan.session_id)).session_status == SessionStatus.NORMAL
    assert sorted(read(client, scan, compression=compression, max_batch_rows=1000)) == list(range(2 * ROWS))


def test_a_split_for_every_bucket(odps: Any, name: str) -> None:
    """Buckets by the hash of the key, as the client's upsert sessions sort rows into them."""
    from odps.tunnel.hasher import RecordHasher

    properties = {"write.bucket.num": "5"}
    schema = ("k bigint not null, v string", "ds string")
    made = odps.create_table(name, schema, transactional=True, primary_key="k", table_properties=properties)
    for day in ("a", "b"):
        odps.execute_sql(f"insert into {name} partition (ds='{day}') select range, '{day}' from range(40)")
    hasher = RecordHasher(made.table_schema, "default", ["k"])
    bucket = {key: hasher.hash_list([key]) % 5 for key in range(40)}
    client = StorageApiArrowClient(odps, odps.get_table(name))

    def keys(**asked: Any) -> list[list[int]]:
        request = TableBatchScanRequest(split_options=SplitOptions(split_mode="Bucket"), **asked)
        scan = client.create_read_session(request)
        assert (scan.status, scan.split_count, scan.record_count > 0) == (Status.OK, 5, True)
        found = []
        for split in range(5):
            reader = client.read_rows_arrow(ReadRowsRequest(scan.session_id, split_index=split))
            batches = iter(reader.read, None)
            found.append(sorted(key for batch in batches for key in batch.column("k").to_pylist()))
        return found

    assert keys() == [sorted([key for key in range(40) if bucket[key] == number] * 2) for number in range(5)]
    some = keys(required_bucket_ids=[1, 3], filter_predicate="k < 20 and ds = 'b'")
    assert some == [
        [key for key in range(20) if bucket[key] == number] if number in (1, 3) else [] for number in range(5)
    ]


def test_rows_are_read_by_their_offset_columns_and_predicate(client: Any, odps: Any, name: str) -> None:
    session = client.create_write_session(TableBatchWriteRequest(partition_spec="ds=1", overwrite=False))
    client.commit_write_session(
        SessionRequest(session.session_id), [write(client, session.session_id, 0, values(0, 100))]
    )
    options = SplitOptions.get_default_options(SplitOptions.SplitMode.ROW_OFFSET)
    scan = client.create_read_session(TableBatchScanRequest(split_options=options, required_data_columns=["v"]))
    assert scan.record_count == 100
    reader = client.read_rows_arrow(ReadRowsRequest(scan.session_id, row_index=10, row_count=20))
    found = []
    while (batch := reader.read()) is not None:
        assert batch.schema.names == ["v"]
        found += batch.column(0).to_pylist()
    assert found == [f"v{number}" for number in range(10, 30)]
    scan = client.create_read_session(TableBatchScanRequest(filter_predicate="k >= 95"))
    assert sorted(read(client, scan)) == list(range(95, 100))


def test_overwrite_replaces_and_dynamic_partitions_are_made(client: Any, rows: Rows, name: str) -> None:
    for start in (0, 50):
        session = client.create_write_session(TableBatchWriteRequest(partition_spec="ds=1", overwrite=True))
        message = write(client, session.session_id, 0, values(start, 3))
        client.commit_write_session(SessionRequest(session.session_id), [message])
    assert rows(f"select k from {name}") == [(50,), (51,), (52,)]
    session = client.create_write_session(TableBatchWriteRequest(overwrite=False))
    mixed = pa.RecordBatch.from_pydict({"k": [7, 8], "v": ["a", "b"], "ds": ["x", "y"]})
    client.commit_write_session(SessionRequest(session.session_id), [write(client, session.session_id, 0, mixed)])
    assert rows(f"select k, ds from {name} where k < 10") == [(7, "x"), (8, "y")]


def test_what_was_not_written_is_not_committed(client: Any, odps: Any) -> None:
    session = client.create_write_session(TableBatchWriteRequest(partition_spec="ds=1"))
    message = write(client, session.session_id, 0, values(0, 3)).replace('"BlockNumber": 0', '"BlockNumber": 5')
    with pytest.raises(ODPSError, match="was not written"):
        client.commit_write_session(SessionRequest(session.session_id), [message])
    assert client.get_write_session(SessionRequest(session.session_id)).session_status == SessionStatus.NORMAL
    with pytest.raises(ODPSError, match="does not exist"):
        client.get_write_session(SessionRequest("no-such-session"))
