"""The writing task against a real server: limits, modes, faults, refusals (specification sections 5 and 8)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform.destination import OPERATION
from upsert_platform.errors import DestinationError, LeaseHeldError, RecordError
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.rows import blocks_of
from upsert_platform.tablestore.schema import prepare_table
from upsert_platform.tablestore.table import TablestoreTable
from upsert_platform.tablestore.task import TaskStats
from upsert_platform.tablestore.writer import writing_task
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.declared import change_batch, table_on
from upsert_platform_tests.writing.leases import terms

COLUMNS = {"id": "STRING NOT NULL", "name": "STRING", "score": "DOUBLE", "visits": "BIGINT"}
Stored = Callable[[ServerHandle, TablestoreTable], dict[Any, Any]]


def _prepare(table: TablestoreTable) -> TablestoreTable:
    client = Client.of(table.settings)
    prepare_table(client, table)
    client.close()
    return table


def _run(
    table: TablestoreTable, *batches: pa.RecordBatch, left: float | None = None
) -> tuple[TaskStats, list[dict[str, Any]]]:
    task = writing_task(table, terms=terms(600 if left is None else left))
    outcomes = [row for batch in task(iter(batches)) for row in batch.to_pylist()]
    stats = [TaskStats.from_json(row["stats"]) for row in outcomes if row["stats"] is not None]
    assert len(stats) == 1
    return stats[0], [row for row in outcomes if row["stats"] is None]


def _rows(count: int) -> list[dict[str, Any]]:
    return [{"id": f"k{row:05}", "name": f"name {row}", "score": row / 2, "visits": row} for row in range(count)]


def _cells(rows: Sequence[Mapping[str, Any]]) -> dict[Any, Any]:
    return {
        (row["id"],): {name: value for name, value in row.items() if name != "id" and value is not None} for row in rows
    }


def test_83_201_rows_are_two_requests(server: ServerHandle, stored: Stored) -> None:
    table = _prepare(table_on(server, COLUMNS, ["id"]))
    rows = _rows(201)
    stats, refused = _run(table, change_batch(table, rows))
    assert (stats.requests, stats.puts, refused) == (2, 201, [])
    assert stored(server, table) == _cells(rows)


def test_84_requests_keep_to_four_megabytes(server: ServerHandle, stored: Stored) -> None:
    table = _prepare(table_on(server, {"id": "STRING", "name": "STRING"}, ["id"]))
    rows = [{"id": f"k{row}", "name": "x" * 500_000} for row in range(10)]
    stats, _ = _run(table, change_batch(table, rows))
    assert stats.requests == 2
    assert stored(server, table) == _cells(rows)


def test_90_a_replay_leaves_the_same_table(server: ServerHandle, stored: Stored) -> None:
    table = _prepare(table_on(server, COLUMNS, ["id"]))
    rows = _rows(300)
    batch = change_batch(table, [*rows[:250], *({**row, OPERATION: "D"} for row in rows[250:])])
    _run(table, batch)
    first = stored(server, table)
    stats, _ = _run(table, batch)
    assert (stats.puts, stats.deletes) == (250, 50)
    assert stored(server, table) == first == _cells(rows[:250])


def test_nulls_are_absent_columns_and_put_replaces_the_row(server: ServerHandle, stored: Stored) -> None:
    table = _prepare(table_on(server, COLUMNS, ["id"]))
    _run(table, change_batch(table, [{"id": "a", "name": "x", "score": 1.5, "visits": 3}]))
    _run(table, change_batch(table, [{"id": "a", "visits": 4}, {"id": "b"}]))
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
    table = _prepare(table_on(server, {"id": "STRING", "name": "STRING", "score": "DOUBLE"}, ["id"], options))
    from tablestore.metadata import Row

    before = {"name": "old", "score": 1.0, "extra": "kept"}
    sdk_client(server).put_row(table.table_name, Row([("id", "a")], list(before.items())))
    row = {"D": {OPERATION: "D"}, "all null": {}, "some null": {"name": "new"}}[change]
    _, refused = _run(table, change_batch(table, [{"id": "a", **row}]))
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
    table = _prepare(table_on(server, COLUMNS, ["id"], {"insert.mode": insert, "delete.mode": delete}))
    from tablestore.metadata import Row

    sdk_client(server).put_row(table.table_name, Row([("id", "old")], [("name", "x"), ("extra", "kept")]))
    gone = {"id": "never there", OPERATION: "D"}
    rows = [{"id": "new"}, {"id": "old"}, gone] if delete != "column" else [{"id": "new"}, {"id": "old"}]
    for _ in range(2):
        stats, refused = _run(table, change_batch(table, rows))
        assert (refused, stats.puts + stats.updates, stats.superseded) == ([], 2, 0)
        assert stored(server, table) == expected


def test_a_row_of_nulls_whose_update_is_refused_is_not_made(disturbed: ServerHandle, stored: Stored) -> None:
    options = {"insert.mode": "update", "delete.mode": "row_and_column"}
    table = _prepare(table_on(disturbed, COLUMNS, ["id"], options))
    disturbed.faults("row-error:code=OTSInvalidPK,rows=0,times=1")
    stats, refused = _run(table, change_batch(table, [{"id": "a"}, {"id": "b"}]))
    assert (len(refused), stats.refused, stats.updates) == (1, 1, 1)
    assert stored(disturbed, table) == {("b",): {}}


def test_92_limits_are_checked_before_any_request(server: ServerHandle, stored: Stored) -> None:
    columns = {"id": "STRING", "name": "STRING", "score": "DOUBLE", "raw": "BYTES", "more": "BYTES", "last": "BYTES"}
    table = _prepare(table_on(server, columns, ["id"]))
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
    stats, refused = _run(table, change_batch(table, rows))
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
    table = _prepare(table_on(server, COLUMNS, ["id"], {"on-error": "fail"}))
    with pytest.raises(RecordError, match=r'"id":"a".*NaN or Infinity.*\'on-error\' = \'quarantine\''):
        _run(table, change_batch(table, [{"id": "a", "score": float("nan")}]))


def test_too_many_refused_rows_fail_the_write(server: ServerHandle) -> None:
    table = _prepare(table_on(server, COLUMNS, ["id"], {"max.refused.rows": "3"}))
    rows = [{"id": f"k{row}", "score": float("inf")} for row in range(4)]
    with pytest.raises(DestinationError, match=r"4 rows were refused, more than 'max.refused.rows' = 3"):
        _run(table, change_batch(table, rows))


def test_refused_rows_are_not_limited_by_their_size(server: ServerHandle) -> None:
    table = _prepare(table_on(server, {"id": "STRING", "raw": "STRING"}, ["id"]))
    text = "x" * (2 * 1024 * 1024 + 1)
    batches = [change_batch(table, [{"id": f"{batch}-{row}", "raw": text} for row in range(5)]) for batch in range(7)]
    stats, refused = _run(table, *batches)
    assert (stats.refused, len(refused)) == (35, 35)
    assert sum(len(row["row"]) for row in refused) > 64 * 1024 * 1024


def test_86_failed_rows_are_sent_again_alone(disturbed: ServerHandle, stored: Stored) -> None:
    table = _prepare(table_on(disturbed, COLUMNS, ["id"], {"max.concurrency": "1"}))
    disturbed.faults("row-error:code=OTSServerBusy,rows=3+7,times=2")
    rows = _rows(20)
    stats, refused = _run(table, change_batch(table, rows))
    assert (stats.requests, stats.retried_rows, stats.throttled, refused) == (2, 2, 1, [])
    assert stored(disturbed, table) == _cells(rows)


def test_87_one_refused_row_leaves_the_others(disturbed: ServerHandle, stored: Stored) -> None:
    table = _prepare(table_on(disturbed, COLUMNS, ["id"]))
    disturbed.faults("row-error:code=OTSInvalidPK,rows=5,times=1")
    rows = _rows(200)
    stats, refused = _run(table, change_batch(table, rows))
    assert (stats.puts, stats.refused) == (199, 1)
    assert refused[0]["key"] == '{"id":"k00005"}'
    assert refused[0]["reason"].startswith("OTSInvalidPK")
    assert stored(disturbed, table) == _cells([*rows[:5], *rows[6:]])


def test_88_a_refused_request_is_bisected_to_the_guilty_row(
    server: ServerHandle, stored: Stored, sdk_client: Callable[[ServerHandle], Any]
) -> None:
    from tablestore.metadata import CapacityUnit, ReservedThroughput, TableMeta, TableOptions

    # The declaration says that `id` is text; a foreign table where it is a number refuses every row's key.
    wrong = table_on(server, COLUMNS, ["id"])
    meta = TableMeta(wrong.table_name, [("id", "INTEGER")])
    sdk_client(server).create_table(meta, TableOptions(), ReservedThroughput(CapacityUnit(0, 0)))
    stats, refused = _run(wrong, change_batch(wrong, _rows(9)))
    assert (stats.puts, stats.refused, len(refused)) == (0, 9, 9)
    assert all("OTSInvalidPK" in row["reason"] or "OTSParameterInvalid" in row["reason"] for row in refused)
    assert stored(server, wrong) == {}


def test_88_the_other_rows_of_a_refused_request_are_written(disturbed: ServerHandle, stored: Stored) -> None:
    table = _prepare(table_on(disturbed, COLUMNS, ["id"], {"max.concurrency": "1"}))
    # 64 rows whole, then halves down the left side: only the first row meets the fault to the end.
    disturbed.faults("error:code=OTSParameterInvalid,operation=BatchWriteRow,times=7")
    rows = _rows(64)
    stats, refused = _run(table, change_batch(table, rows))
    assert [json.loads(row["key"])["id"] for row in refused] == ["k00000"]
    assert stats.puts == 63
    assert stored(disturbed, table) == _cells(rows[1:])


def test_88_rows_that_have_their_result_are_not_sent_again_when_the_rest_is_refused(
    disturbed: ServerHandle, stored: Stored
) -> None:
    table = _prepare(table_on(disturbed, COLUMNS, ["id"], {"version.column": "_version"}))
    _run(table, change_batch(table, [{"id": "a", "visits": 9}], sequence=9))
    # Of four rows one is superseded, one written and two throttled; their repetition is refused once as a whole.
    disturbed.faults(
        "row-error:code=OTSServerBusy,rows=2+3,times=2",
        "error:code=OTSParameterInvalid,operation=BatchWriteRow,skip=1,times=1",
    )
    stats, refused = _run(table, change_batch(table, [{"id": name, "visits": 1} for name in "abcd"], sequence=1))
    assert (stats.superseded, stats.puts, refused, stats.requests) == (1, 3, [], 4)
    assert {key: cells["visits"] for (key,), cells in stored(disturbed, table).items()} == {
        "a": 9, "b": 1, "c": 1, "d": 1,
    }  # fmt: skip


@pytest.mark.parametrize("fault", ["cut-after", "cut-before", "bad-gateway"])
def test_89_an_answer_that_is_lost_is_asked_for_again(disturbed: ServerHandle, stored: Stored, fault: str) -> None:
    table = _prepare(table_on(disturbed, COLUMNS, ["id"]))
    disturbed.faults(f"{fault}:operation=BatchWriteRow,times=3")
    rows = _rows(500)
    stats, refused = _run(table, change_batch(table, [*rows[:400], *({**row, OPERATION: "D"} for row in rows[400:])]))
    assert (stats.puts, stats.deletes, refused) == (400, 100, [])
    assert stats.requests == 6
    assert stored(disturbed, table) == _cells(rows[:400])


def test_some_throttled_rows_in_every_request_do_not_stop_the_rest(disturbed: ServerHandle, stored: Stored) -> None:
    """A tenth of all rows: if each such request doubled the interval, nothing would move any more."""
    table = _prepare(table_on(disturbed, COLUMNS, ["id"]))
    disturbed.faults("row-error:code=OTSNotEnoughCapacityUnit,probability=0.1")
    rows = _rows(8000)
    stats, refused = _run(table, change_batch(table, rows))
    assert (stats.puts, refused) == (8000, [])
    assert stats.throttled >= 40
    assert stats.seconds < 30
    disturbed.faults()
    assert stored(disturbed, table) == _cells(rows)


def test_throttling_slows_down_and_loses_nothing(disturbed: ServerHandle, stored: Stored) -> None:
    table = _prepare(table_on(disturbed, COLUMNS, ["id"], {"max.concurrency": "4"}))
    disturbed.faults("error:code=OTSServerBusy,operation=BatchWriteRow,times=6")
    rows = _rows(2000)
    stats, refused = _run(table, change_batch(table, rows))
    assert (stats.puts, stats.throttled, refused) == (2000, 6, [])
    assert stored(disturbed, table) == _cells(rows)


@pytest.mark.parametrize(("concurrency", "least", "most"), [(2, 0.8, 60), (8, 0.2, 1.4)])
def test_so_many_requests_are_in_flight(disturbed: ServerHandle, concurrency: int, least: float, most: float) -> None:
    options = {"max.concurrency": str(concurrency), "sink.buffer-flush.max-rows": "1"}
    table = _prepare(table_on(disturbed, COLUMNS, ["id"], options))
    disturbed.faults("delay:seconds=0.2,operation=BatchWriteRow")
    stats, _ = _run(table, change_batch(table, _rows(8)))
    assert stats.requests == 8
    assert least <= stats.seconds < most


def test_93_retries_end_at_the_deadline(disturbed: ServerHandle) -> None:
    table = _prepare(table_on(disturbed, COLUMNS, ["id"], {"retry.deadline": "1 s"}))
    disturbed.faults("error:code=OTSServerUnavailable,operation=BatchWriteRow")
    started = time.monotonic()
    with pytest.raises(DestinationError, match=r"5 rows could not be written within 1 s \('retry.deadline'\)"):
        _run(table, change_batch(table, _rows(5)))
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("code", ["OTSAuthFailed", "OTSMethodNotAllowed", "OTSObjectNotExist"])
def test_5_4_hopeless_errors_stop_at_once(disturbed: ServerHandle, code: str) -> None:
    table = _prepare(table_on(disturbed, COLUMNS, ["id"]))
    disturbed.faults(f"error:code={code},operation=BatchWriteRow")
    with pytest.raises(DestinationError, match=code):
        _run(table, change_batch(table, _rows(5)))


def test_a_task_stops_before_its_lease_ends(server: ServerHandle) -> None:
    table = _prepare(table_on(server, COLUMNS, ["id"]))
    with pytest.raises(LeaseHeldError, match="lease of this write was lost, and nobody holds it"):
        _run(table, change_batch(table, _rows(5)), left=-1)


def test_credentials_are_fetched_before_the_lease_is_asked_for_time(
    server: ServerHandle, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assuming a role can take seconds; between the look at the lease and the request it could outlast the lease."""
    from upsert_platform.tablestore.credentials import KeySource
    from upsert_platform.writing.lease import LeaseGuard

    table = _prepare(table_on(server, COLUMNS, ["id"]))
    order: list[str] = []
    get, time_for_request = KeySource.get, LeaseGuard.time_for_request
    monkeypatch.setattr(KeySource, "get", lambda source: order.append("key") or get(source))
    monkeypatch.setattr(LeaseGuard, "time_for_request", lambda guard: order.append("lease") or time_for_request(guard))
    _run(table, change_batch(table, _rows(5)))
    assert order == ["key", "lease", "key"]
    monkeypatch.undo()
    assert stored(server, table) == _cells(_rows(5))


def test_a_slow_answer_is_given_up_within_the_margin(disturbed: ServerHandle, stored: Stored) -> None:
    table = _prepare(table_on(disturbed, COLUMNS, ["id"], {"request.timeout": "500 ms"}))
    disturbed.faults("delay:seconds=2,operation=BatchWriteRow,times=1")
    stats, _ = _run(table, change_batch(table, _rows(5)))
    assert stats.requests == 2
    assert stored(disturbed, table) == _cells(_rows(5))


def test_91_the_version_column_keeps_a_late_write_off(server: ServerHandle, stored: Stored) -> None:
    table = _prepare(table_on(server, COLUMNS, ["id"], {"version.column": "_version"}))
    _run(table, change_batch(table, [{"id": "a", "visits": 5}, {"id": "b", "visits": 5}], sequence=5))
    late = [{"id": "a", "visits": 4}, {"id": "b", OPERATION: "D"}]
    stats, refused = _run(table, change_batch(table, late, sequence=4))
    assert (stats.superseded, stats.puts, stats.deletes, refused) == (2, 0, 0, [])
    assert stored(server, table) == {("a",): {"visits": 5, "_version": 5}, ("b",): {"visits": 5, "_version": 5}}
    replay = [{"id": "a", "visits": 5}, {"id": "b", OPERATION: "D"}]
    stats, _ = _run(table, change_batch(table, replay, sequence=5))
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
    table = _prepare(table_on(server, {"id": "STRING", "name": "STRING"}, ["id"], {"max.concurrency": "2"}))
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
