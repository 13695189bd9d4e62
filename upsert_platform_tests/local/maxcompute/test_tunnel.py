"""Download, upload and stream upload through the tunnel, by an unmodified PyODPS client (spec 3.6, catalogue 6.3)."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from odps import ODPS
from odps.errors import NoSuchPartition, ODPSError
from odps.tunnel import CompressOption, TableTunnel

Rows = Callable[..., list[tuple[Any, ...]]]
COLUMNS = "k bigint, v string, d decimal(10,2), t timestamp, m datetime, b boolean, x binary, day date"
VALUES = [
    (
        1,
        "a\n\u4e2d",
        Decimal("1.50"),
        pd.Timestamp("2020-01-01 00:00:00.123456789"),
        datetime(2020, 1, 1),  # noqa: DTZ001 - the client gives naive times
        True,
        b"\x00\xff",
        date(1960, 2, 29),
    ),
    (2, None, None, None, None, None, None, None),
    (3, "", Decimal("-0.01"), pd.Timestamp("1965-01-01 00:00:00.000000001"), None, False, b"", date(2020, 1, 1)),
]


def values_of(reader: Any) -> list[tuple[Any, ...]]:
    return [tuple(record.values) for record in reader]


@pytest.mark.parametrize("compress", [pytest.param({}, id="raw"), pytest.param({"compress": True}, id="zlib")])
def test_records_of_every_kind(odps: Any, tunnel: Any, name: str, compress: dict[str, Any]) -> None:
    odps.create_table(name, COLUMNS)
    session = tunnel.create_upload_session(name)
    with session.open_record_writer(0, **compress) as writer:
        for row in VALUES:
            writer.write(session.new_record(list(row)))
    assert session.get_block_list() == [0]
    session.commit([0])
    session.reload()
    assert session.status.value == "CLOSED"
    download = tunnel.create_download_session(name)
    assert download.count == 3
    with download.open_record_reader(0, 3, **compress) as reader:
        assert values_of(reader) == VALUES
    with download.open_record_reader(1, 2, columns=["v", "k"]) as reader:
        assert values_of(reader) == [(None, 2), ("", 3)]


def test_arrow(odps: Any, tunnel: Any, name: str) -> None:
    odps.create_table(name, "k bigint, v string, t timestamp, l array<bigint>")
    rows = pa.table(
        {
            "k": pa.array(range(100_000), pa.int64()),
            "v": [f"value {number}" for number in range(100_000)],
            "t": pa.array(range(100_000), pa.timestamp("ns", "UTC")),
            "l": pa.array([[number, None] for number in range(100_000)], pa.list_(pa.int64())),
        }
    )
    session = tunnel.create_upload_session(name)
    with session.open_arrow_writer(0) as writer:
        writer.write(rows)
    session.commit([0])
    download = tunnel.create_download_session(name)
    with download.open_arrow_reader(0, download.count) as reader:
        found = pa.Table.from_batches(list(reader))
    expected = rows.set_column(2, "t", rows.column("t").cast(pa.timestamp("ns")))
    assert found.combine_chunks() == expected.combine_chunks()
    with download.open_arrow_reader(99_998, 2, columns=["v"]) as reader:
        assert pa.Table.from_batches(list(reader)).to_pydict() == {"v": ["value 99998", "value 99999"]}


def test_table_reader_and_writer(odps: Any, name: str) -> None:
    table = odps.create_table(name, ("k bigint, v string", "pt string"))
    with table.open_writer(partition="pt='a'", create_partition=True) as writer:
        writer.write([[1, "x"], [2, "y"]])
    with table.open_reader(partition="pt='a'") as reader:
        assert reader.count == 2
        assert values_of(reader[0:1]) == [(1, "x", "a")]
    assert table.to_pandas(partition="pt='a'").values.tolist() == [[1, "x"], [2, "y"]]
    assert values_of(table.head(1, partition="pt='a'")) == [(1, "x", "a")]
    with pytest.raises(NoSuchPartition):
        table.open_reader(partition="pt='b'").close()


def test_74_overwrite_of_one_leaf(odps: Any, name: str, rows: Rows) -> None:
    table = odps.create_table(name, ("k bigint", "pt string"))
    for options, expected in (({}, 1), ({}, 2), ({"overwrite": True}, 1)):
        odps.write_table(table, [[1]], partition="pt='a'", create_partition=True, **options)
        assert rows(f"select count(*) from {name}") == [(expected,)]


def test_72_dynamic_partitions_of_a_frame(odps: Any, name: str, rows: Rows) -> None:
    table = odps.create_table(name, ("a string, b bigint", "p1 string, p2 string"))
    frame = pd.DataFrame(
        [["p", 1, "a", "a"], ["q", 2, "a", "b"], ["r", 3, "a", "a"], ["s", 4, "a", "b"]],
        columns=["a", "b", "p1", "p2"],
    )
    odps.write_table(table, frame, partitions=["p1", "p2"], create_partition=True)
    assert rows(f"select a, p2 from {name}") == [("p", "a"), ("q", "b"), ("r", "a"), ("s", "b")]


def test_73_records_with_dynamic_and_static_partitions(odps: Any, name: str, rows: Rows) -> None:
    table = odps.create_table(name, ("v bigint", "p1 string, pt string"))
    records = [[0, "a", "test"], [1, "b", "test"], [2, "a", "test"], [3, "b", "test"]]
    odps.write_table(
        table, [[v, p] for v, p, _ in records], partition="pt=test", partitions=["p1"], create_partition=True
    )
    assert rows(f"select v, p1, pt from {name}") == [tuple(record) for record in records]


def test_78_a_frame_brings_a_new_column(odps: Any, name: str, rows: Rows) -> None:
    table = odps.create_table(name, "a string, b bigint")
    frame = pd.DataFrame([["x", 1, 2.5]], columns=["a", "b", "c"])
    odps.write_table(table, frame, append_missing_cols=True)
    assert rows(f"select * from {name}") == [("x", 1, 2.5)]


def test_77_explicit_block_ids(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, "k bigint")
    session = tunnel.create_upload_session(name)
    for block in (7, 3, 3):
        with session.open_record_writer(block) as writer:
            writer.write(session.new_record([block]))
    with pytest.raises(ODPSError):
        session.commit([3])
    session.commit([3, 7])
    assert rows(f"select k from {name}", ordered=True) == [(3,), (7,)]


def _write_block(endpoint: str, project: str, name: str, session_id: str, block: int) -> None:
    odps = ODPS("test_id", "test_key", project, endpoint=endpoint)
    session = TableTunnel(odps).create_upload_session(name, upload_id=session_id)
    with session.open_record_writer(block) as writer:
        writer.write(session.new_record([block]))


def test_76_processes_share_one_session(odps: Any, server: Any, tunnel: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, "k bigint")
    session = tunnel.create_upload_session(name)
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_write_block, args=(server.endpoint, server.project, name, session.id, block))
        for block in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    session.commit([0, 1])
    assert rows(f"select k from {name}") == [(0,), (1,)]


def test_79_null_rows(odps: Any, name: str, rows: Rows) -> None:
    table = odps.create_table(name, "a string, b bigint")
    odps.write_table(table, [[None, None]] * 5)
    assert rows(f"select * from {name}") == [(None, None)] * 5


def test_upload_to_a_table_with_a_primary_key_is_refused(odps: Any, tunnel: Any, name: str) -> None:
    odps.create_table(name, "k bigint not null", transactional=True, primary_key="k")
    with pytest.raises(ODPSError, match="upsert session"):
        tunnel.create_upload_session(name)


def test_stream_upload_is_visible_at_once(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, ("k bigint, v string", "pt string"))
    session = tunnel.create_stream_upload_session(name, partition_spec="pt=a", create_partition=True)
    with session.open_record_writer() as writer:
        writer.write(session.new_record([1, "x"]))
        writer._flush()
        assert rows(f"select * from {name}") == [(1, "x", "a")]
        writer.write(session.new_record([2, "y"]))
    assert rows(f"select count(*) from {name}") == [(2,)]
    session.abort()
    with pytest.raises(ODPSError):
        _stream(session, [3, "z"])


def _stream(session: Any, values: list[Any]) -> None:
    with session.open_record_writer() as writer:
        writer.write(session.new_record(values))


def test_80_a_stream_goes_on_behind_a_bad_gateway(odps: Any, tunnel: Any, server: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, "k bigint")
    session = tunnel.create_stream_upload_session(name)
    server.faults({"operation": "stream.write", "action": "answer", "status": 502, "code": "html", "table": name})
    try:
        _stream(session, [1])
    finally:
        server.faults()
    assert rows(f"select k from {name}") == [(1,)]
    assert [entry["status"] for entry in server.journal("stream.*") if name in entry["path"]] == [200, 502, 200, 200]


def test_stream_upload_with_dynamic_partitions(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    odps.create_table(name, ("k bigint", "pt string"))
    session = tunnel.create_stream_upload_session(name, dynamic_partition=True)
    with session.open_record_writer() as writer:
        for values in ([1, "a"], [2, "b"]):
            writer.write(session.new_record(values))
    assert rows(f"select * from {name}") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(CompressOption.CompressAlgorithm.ODPS_ZLIB, id="zlib"),
        pytest.param(CompressOption.CompressAlgorithm.ODPS_RAW, id="raw"),
    ],
)
def test_compressed_arrow(odps: Any, tunnel: Any, name: str, rows: Rows, algorithm: Any) -> None:
    odps.create_table(name, "k bigint")
    session = tunnel.create_upload_session(name, compress_option=CompressOption(algorithm))
    with session.open_arrow_writer(0, compress=True) as writer:
        writer.write(pa.table({"k": list(range(1000))}))
    session.commit([0])
    assert rows(f"select count(*), sum(k) from {name}") == [(1000, 499_500)]


def test_a_partition_is_required(odps: Any, tunnel: Any, name: str) -> None:
    odps.create_table(name, ("k bigint", "pt string"))
    with pytest.raises(ODPSError, match="partition spec is required"):
        tunnel.create_download_session(name)
