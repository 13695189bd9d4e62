"""Ranges that are read in parallel, and rows by key (specification sections 5.1 and 6.2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tablestore import INF_MIN

from upsert_platform.core.task_runner import numbers_of
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.ranges import WHOLE, ranges_of, read_ranges
from upsert_platform.tablestore.reader import RangeRows, fetching_task
from upsert_platform.tablestore.schema import prepare_table
from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform.tablestore.writer import writing_task
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.declared import change_batch, table_on
from upsert_platform_tests.writing.leases import terms

KEYS: list[tuple[str, Callable[[int], Any], Any]] = [
    ("STRING", lambda number: f"k{number:05}", ["k05000"]),
    ("BIGINT", lambda number: number - 3000, [2000, 2]),
    ("BYTES", lambda number: number.to_bytes(2, "big"), [{"hex": (5000).to_bytes(2, "big").hex()}]),
]


def _filled(server: ServerHandle, kind: str, key: Callable[[int], Any], rows: int) -> TablestoreTable:
    table = table_on(server, {"id": kind, "part": "INT", "name": "STRING"}, ["id", "part"])
    client = Client.of(table.settings)
    prepare_table(client, table)
    client.close()
    batch = change_batch(table, [{"id": key(n), "part": n % 3, "name": f"n{n}"} for n in range(rows)])
    list(writing_task(table, terms=terms())(iter([batch])))
    return table


@pytest.mark.parametrize(("kind", "key", "split"), KEYS, ids=[case[0] for case in KEYS])
def test_ranges_cover_every_row_once(server: ServerHandle, kind: str, key: Callable[[int], Any], split: Any) -> None:
    table = _filled(server, kind, key, 7000)
    assert read_ranges(table) == ["[null, null]"]
    ranges = (json.dumps([None, split]), json.dumps([split, None]))
    pages = list(RangeRows(table, ranges)(numbers_of([0, 1])))
    assert [page.num_rows for page in pages] == [5000, 2000]
    found = [row for page in pages for row in page.to_pylist()]
    assert found == [{"id": key(n), "part": n % 3, "name": f"n{n}"} for n in range(7000)]


def test_ranges_lie_between_the_split_points_of_the_table(
    server: ServerHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_on(server, {"id": "STRING", "part": "INT", "name": "STRING"}, ["id", "part"])
    client = Client.of(table.settings)
    prepare_table(client, table)
    client.close()
    rows = [{"id": f"k{n // 4}", "part": n % 4, "name": "x" * 1_000_000} for n in range(10)]
    list(writing_task(table, terms=terms())(iter([change_batch(table, rows)])))
    monkeypatch.setattr("upsert_platform.tablestore.ranges.RANGE_MEGABYTES", 3)
    ranges = read_ranges(table)
    assert [json.loads(bounds) for bounds in ranges] == [
        [None, ["k1", 0]], [["k1", 0], ["k2", 0]], [["k2", 0], None],
    ]  # fmt: skip
    pages = list(RangeRows(table, tuple(ranges))(numbers_of(range(len(ranges)))))
    assert [row for page in pages for row in page.to_pylist()] == rows


def test_split_points_may_name_the_beginning_of_a_key_and_many_are_joined() -> None:
    from tablestore.plainbuffer.plain_buffer_builder import PlainBufferBuilder
    from tablestore.protobuf.table_store_pb2 import ComputeSplitPointsBySizeResponse

    def answer(*keys: list[tuple[str, Any]]) -> bytes:
        response = ComputeSplitPointsBySizeResponse()
        response.consumed.capacity_unit.read = 0
        response.split_points.extend(bytes(PlainBufferBuilder.serialize_primary_key(key)) for key in keys)
        return bytes(response.SerializeToString())

    assert ranges_of(answer()) == ["[null, null]"]
    found = ranges_of(answer([("a", bytearray(b"\x10"))], [("a", bytearray(b"\x80")), ("b", INF_MIN)]))
    assert found == ['[null, [{"hex": "10"}]]', '[[{"hex": "10"}], [{"hex": "80"}]]', '[[{"hex": "80"}], null]']
    many = ranges_of(answer(*([("a", number)] for number in range(1000))))
    assert 200 < len(many) <= 257
    assert (many[0], many[-1][:1]) == ("[null, [3]]", "[")


def test_keys_that_no_row_can_have_are_left_out(server: ServerHandle) -> None:
    table = _filled(server, "STRING", lambda number: f"k{number}", 450)
    keys = pa.record_batch(
        {
            "id": [*(f"k{n}" for n in range(450)), None, "x" * 1025, "absent"],
            "part": pa.array([*(n % 3 for n in range(450)), 0, 0, 0], pa.int32()),
        }
    )
    found = [row for batch in fetching_task(table)(iter([keys])) for row in batch.to_pylist()]
    assert sorted(row["name"] for row in found) == sorted(f"n{n}" for n in range(450))


@pytest.mark.parametrize("fault", ["row-error:code=OTSServerBusy,rows=0+5,times=2", "cut-after:times=1"])
def test_reads_survive_passing_faults(disturbed: ServerHandle, fault: str) -> None:
    table = _filled(disturbed, "STRING", lambda number: f"k{number}", 150)
    disturbed.faults(fault if fault.startswith("row") else f"{fault},operation=BatchGetRow")
    keys = pa.record_batch(
        {"id": [f"k{n}" for n in range(150)], "part": pa.array([n % 3 for n in range(150)], pa.int32())}
    )
    found = [row for batch in fetching_task(table)(iter([keys])) for row in batch.to_pylist()]
    assert len({row["id"] for row in found}) == len(found) == 150


@pytest.mark.parametrize("fault", ["error:code=OTSServerBusy,times=2", "cut-after:times=1"])
def test_ranges_survive_passing_faults(disturbed: ServerHandle, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    table = _filled(disturbed, "BIGINT", lambda number: number, 150)
    monkeypatch.setattr("upsert_platform.tablestore.reader.PAGE_ROWS", 40)
    disturbed.faults(f"{fault},operation=GetRange")
    pages = list(RangeRows(table, (WHOLE, "[[20], [60, 0]]"))(iter([pa.record_batch({"id": [0, 1]})])))
    assert [page.num_rows for page in pages] == [40, 40, 40, 30, 40]
    found = [row["id"] for page in pages for row in page.to_pylist()]
    assert found == [*range(150), *range(20, 60)]


def test_rows_with_other_cells_than_their_neighbours(server: ServerHandle) -> None:
    table = table_on(server, {"id": "BIGINT", "name": "STRING", "score": "DOUBLE", "on": "BOOLEAN"}, ["id"])
    client = Client.of(table.settings)
    prepare_table(client, table)
    client.close()
    whole = {"id": 0, "name": "a", "score": 1.5, "on": True}
    bare = dict.fromkeys(whole)
    for rows in (
        [{**whole, "id": n} for n in range(3)],
        [{**whole, "id": 0}, {**whole, "id": 1, "name": None}, {**bare, "id": 2}],
        [{**bare, "id": 0, "name": "a"}, {**bare, "id": 1, "score": 2.5}, {**bare, "id": 2, "on": False}],
        [{**bare, "id": n} for n in range(3)],
    ):
        list(writing_task(table, terms=terms())(iter([change_batch(table, rows)])))
        keys = pa.record_batch({"id": pa.array([0, 1, 2], pa.int64())})
        for task in (fetching_task(table)(iter([keys])), RangeRows(table, (WHOLE,))(iter([keys.slice(0, 1)]))):
            assert [row for batch in task for row in batch.to_pylist()] == rows
