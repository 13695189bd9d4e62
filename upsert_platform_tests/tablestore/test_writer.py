"""The writing task against a real server: limits, modes, refused rows (specification sections 5 and 8)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform.core.destination import OPERATION
from upsert_platform.core.errors import DestinationError, RecordError
from upsert_platform.tablestore.rows import blocks_of
from upsert_platform.tablestore.writer import writing_task
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.declared import change_batch, table_on
from upsert_platform_tests.tablestore.writing import COLUMNS, Stored, cells_of, prepared, rows_of, run_task
from upsert_platform_tests.writing.leases import terms


def test_83_201_rows_are_two_requests(server: ServerHandle, stored: Stored) -> None:
    table = prepared(table_on(server, COLUMNS, ["id"]))
    rows = rows_of(201)
    stats, refused = run_task(table, change_batch(table, rows))
    assert (stats.requests, stats.puts, refused) == (2, 201, [])
    assert stored(server, table) == cells_of(rows)


def test_84_requests_keep_to_four_megabytes(server: ServerHandle, stored: Stored) -> None:
    table = prepared(table_on(server, {"id": "STRING", "name": "STRING"}, ["id"]))
    rows = [{"id": f"k{row}", "name": "x" * 500_000} for row in range(10)]
    stats, _ = run_task(table, change_batch(table, rows))
    assert stats.requests == 2
    assert stored(server, table) == cells_of(rows)


def test_90_a_replay_leaves_the_same_table(server: ServerHandle, stored: Stored) -> None:
    table = prepared(table_on(server, COLUMNS, ["id"]))
    rows = rows_of(300)
    batch = change_batch(table, [*rows[:250], *({**row, OPERATION: "D"} for row in rows[250:])])
    run_task(table, batch)
    first = stored(server, table)
    stats, _ = run_task(table, batch)
    assert (stats.puts, stats.deletes) == (250, 50)
    assert stored(server, table) == first == cells_of(rows[:250])


def test_nulls_are_absent_columns_and_put_replaces_the_row(server: ServerHandle, stored: Stored) -> None:
    table = prepared(table_on(server, COLUMNS, ["id"]))
    run_task(table, change_batch(table, [{"id": "a", "name": "x", "score": 1.5, "visits": 3}]))
    run_task(table, change_batch(table, [{"id": "a", "visits": 4}, {"id": "b"}]))
    assert stored(server, table) == {("a",): {"visits": 4}, ("b",): {}}


MODES = [
    # insert, delete, change -> the row that was {name: "old", score: 1.0, extra: "kept"}, or a reason
    ("put", "none", "D", {}),
    ("put", "row", "D", None),
    ("put", "column", "D", {}),
    ("put", "row_and_column", "D", None),
    ("update", "none", "D", "'delete.mode' = 'none' deletes nothing"),
    ("update", "row", "D", None),
    ("update", "column", "D", {"extra": "kept"}),
    ("update", "row_and_column", "D", None),
    ("put", "none", "all null", {}),
    ("put", "row", "all null", {}),
    ("put", "column", "all null", {}),
    ("put", "row_and_column", "all null", {}),
    ("update", "none", "all null", "every column is null"),
    ("update", "row", "all null", "every column is null"),
    ("update", "column", "all null", {"extra": "kept"}),
    ("update", "row_and_column", "all null", {"extra": "kept"}),
    ("put", "none", "some null", {"name": "new"}),
    ("put", "row_and_column", "some null", {"name": "new"}),
    ("update", "none", "some null", {"name": "new", "score": 1.0, "extra": "kept"}),
    ("update", "row", "some null", {"name": "new", "score": 1.0, "extra": "kept"}),
    ("update", "column", "some null", {"name": "new", "extra": "kept"}),
    ("update", "row_and_column", "some null", {"name": "new", "extra": "kept"}),
]


@pytest.mark.parametrize(("insert", "delete", "change", "expected"), MODES, ids=lambda value: str(value)[:24])
def test_2_4_modes(
    server: ServerHandle,
    stored: Stored,
    sdk_client: Callable[[ServerHandle], Any],
    insert: str,
    delete: str,
    change: str,
    expected: Any,
) -> None:
    options = {"insert.mode": insert, "delete.mode": delete}
    table = prepared(table_on(server, {"id": "STRING", "name": "STRING", "score": "DOUBLE"}, ["id"], options))
    from tablestore.metadata import Row

    before = {"name": "old", "score": 1.0, "extra": "kept"}
    sdk_client(server).put_row(table.table_name, Row([("id", "a")], list(before.items())))
    row = {"D": {OPERATION: "D"}, "all null": {}, "some null": {"name": "new"}}[change]
    _, refused = run_task(table, change_batch(table, [{"id": "a", **row}]))
    if isinstance(expected, str):
        assert expected in refused[0]["reason"]
        assert stored(server, table) == {("a",): before}
    else:
        assert refused == []
        assert stored(server, table) == ({} if expected is None else {("a",): expected})


@pytest.mark.parametrize(
    ("insert", "delete", "expected"),
    [
        ("update", "column", {("new",): {}, ("old",): {"extra": "kept"}}),
        ("update", "row_and_column", {("new",): {}, ("old",): {"extra": "kept"}}),
        ("put", "row", {("new",): {}, ("old",): {}}),
    ],
)
def test_a_row_of_nulls_is_a_row(
    server: ServerHandle,
    stored: Stored,
    sdk_client: Callable[[ServerHandle], Any],
    insert: str,
    delete: str,
    expected: Any,
) -> None:
    """An update that only removes cells makes no row, and the source says that there is one."""
    table = prepared(table_on(server, COLUMNS, ["id"], {"insert.mode": insert, "delete.mode": delete}))
    from tablestore.metadata import Row

    sdk_client(server).put_row(table.table_name, Row([("id", "old")], [("name", "x"), ("extra", "kept")]))
    gone = {"id": "never there", OPERATION: "D"}
    rows = [{"id": "new"}, {"id": "old"}, gone] if delete != "column" else [{"id": "new"}, {"id": "old"}]
    for _ in range(2):
        stats, refused = run_task(table, change_batch(table, rows))
        assert (refused, stats.puts + stats.updates, stats.superseded) == ([], 2, 0)
        assert stored(server, table) == expected


def test_a_row_of_nulls_whose_update_is_refused_is_not_made(disturbed: ServerHandle, stored: Stored) -> None:
    options = {"insert.mode": "update", "delete.mode": "row_and_column"}
    table = prepared(table_on(disturbed, COLUMNS, ["id"], options))
    disturbed.faults("row-error:code=OTSInvalidPK,rows=0,times=1")
    stats, refused = run_task(table, change_batch(table, [{"id": "a"}, {"id": "b"}]))
    assert (len(refused), stats.refused, stats.updates) == (1, 1, 1)
    assert stored(disturbed, table) == {("b",): {}}


def test_92_limits_are_checked_before_any_request(server: ServerHandle, stored: Stored) -> None:
    columns = {"id": "STRING", "name": "STRING", "score": "DOUBLE", "raw": "BYTES", "more": "BYTES", "last": "BYTES"}
    table = prepared(table_on(server, columns, ["id"]))
    two = 2 * 1024 * 1024
    rows = [
        {"id": "k" * 1024, "name": "longest key"},
        {"id": "k" * 1025},
        {"id": "é" * 513},
        {"id": None},
        {"id": "nan", "score": float("nan")},
        {"id": "inf", "score": float("-inf")},
        {"id": "long", "name": "x" * (two + 1)},
        {"id": "longest", "name": "x" * two},
        {"id": "big", "raw": b"x" * two, "more": b"x" * two, "last": b"x"},
        {"id": "", "name": "an empty key is one"},
    ]
    stats, refused = run_task(table, change_batch(table, rows))
    reasons = {json.loads(row["key"])["id"]: row["reason"] for row in refused}
    assert "1025 bytes; Tablestore takes 1 KB" in reasons["k" * 1025]
    assert "1026 bytes" in reasons["é" * 513]
    assert reasons[None] == "primary key column 'id' is null"
    assert "NaN or Infinity" in reasons["nan"]
    assert "NaN or Infinity" in reasons["inf"]
    assert "2097153 bytes; Tablestore takes 2 MB" in reasons["long"]
    assert "4 MB in a request" in reasons["big"]
    assert (len(refused), stats.refused, stats.puts) == (7, 7, 3)
    assert sorted(stored(server, table)) == [("",), ("k" * 1024,), ("longest",)]
    whole = json.loads(next(row["row"] for row in refused if row["reason"] == reasons["long"]))
    assert whole["name"] == "x" * (two + 1)
    assert whole[OPERATION] == "U"
    assert json.loads(next(row["row"] for row in refused if row["reason"] == reasons["nan"]))["score"] == "nan"


def test_on_error_fail_stops_at_a_refused_row(server: ServerHandle) -> None:
    table = prepared(table_on(server, COLUMNS, ["id"], {"on-error": "fail"}))
    with pytest.raises(RecordError, match=r'"id":"a".*NaN or Infinity.*\'on-error\' = \'quarantine\''):
        run_task(table, change_batch(table, [{"id": "a", "score": float("nan")}]))


def test_too_many_refused_rows_fail_the_write(server: ServerHandle) -> None:
    table = prepared(table_on(server, COLUMNS, ["id"], {"max.refused.rows": "3"}))
    rows = [{"id": f"k{row}", "score": float("inf")} for row in range(4)]
    with pytest.raises(DestinationError, match=r"4 rows were refused, more than 'max.refused.rows' = 3"):
        run_task(table, change_batch(table, rows))


def test_refused_rows_are_not_limited_by_their_size(server: ServerHandle) -> None:
    table = prepared(table_on(server, {"id": "STRING", "raw": "STRING"}, ["id"]))
    text = "x" * (2 * 1024 * 1024 + 1)
    batches = [change_batch(table, [{"id": f"{batch}-{row}", "raw": text} for row in range(5)]) for batch in range(7)]
    stats, refused = run_task(table, *batches)
    assert (stats.refused, len(refused)) == (35, 35)
    assert sum(len(row["row"]) for row in refused) > 64 * 1024 * 1024


def test_91_the_version_column_keeps_a_late_write_off(server: ServerHandle, stored: Stored) -> None:
    table = prepared(table_on(server, COLUMNS, ["id"], {"version.column": "_version"}))
    run_task(table, change_batch(table, [{"id": "a", "visits": 5}, {"id": "b", "visits": 5}], sequence=5))
    late = [{"id": "a", "visits": 4}, {"id": "b", OPERATION: "D"}]
    stats, refused = run_task(table, change_batch(table, late, sequence=4))
    assert (stats.superseded, stats.puts, stats.deletes, refused) == (2, 0, 0, [])
    assert stored(server, table) == {("a",): {"visits": 5, "_version": 5}, ("b",): {"visits": 5, "_version": 5}}
    replay = [{"id": "a", "visits": 5}, {"id": "b", OPERATION: "D"}]
    stats, _ = run_task(table, change_batch(table, replay, sequence=5))
    assert (stats.superseded, stats.puts, stats.deletes) == (0, 1, 1)
    assert stored(server, table) == {("a",): {"visits": 5, "_version": 5}}


def test_wide_rows_are_encoded_in_smaller_blocks() -> None:
    """Names weigh more than values here: five thousand such rows would be 1.1 GB of cells."""
    values = pa.array([True] * 5000)
    batch = pa.RecordBatch.from_arrays([values] * 1000, names=[f"c{number}".ljust(200, "_") for number in range(1000)])
    sizes = [block.num_rows for block in blocks_of(batch)]
    assert sum(sizes) == 5000
    assert max(sizes) * 1000 * 200 < 32 * 1024 * 1024


def test_memory_is_bounded_by_requests_in_flight(server: ServerHandle) -> None:
    table = prepared(table_on(server, {"id": "STRING", "name": "STRING"}, ["id"], {"max.concurrency": "2"}))
    handed_out = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal handed_out
        for number in range(30):
            handed_out += 1
            yield change_batch(table, [{"id": f"{number}-{row}", "name": "x" * 1000} for row in range(200)])

    import tracemalloc

    tracemalloc.start()
    task = writing_task(table, terms=terms())
    for _ in task(batches()):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert handed_out == 30
    assert peak < 3_000_000
