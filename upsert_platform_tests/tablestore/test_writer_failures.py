"""The writing task against a server that fails: refusals, lost answers, throttling, deadlines (section 5)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from upsert_platform.core.destination import OPERATION
from upsert_platform.core.errors import DestinationError, LeaseHeldError
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.declared import change_batch, table_on
from upsert_platform_tests.tablestore.writing import COLUMNS, Stored, cells_of, prepared, rows_of, run_task


def test_86_failed_rows_are_sent_again_alone(disturbed: ServerHandle, stored: Stored) -> None:
    table = prepared(table_on(disturbed, COLUMNS, ["id"], {"max.concurrency": "1"}))
    disturbed.faults("row-error:code=OTSServerBusy,rows=3+7,times=2")
    rows = rows_of(20)
    stats, refused = run_task(table, change_batch(table, rows))
    assert (stats.requests, stats.retried_rows, stats.throttled, refused) == (2, 2, 1, [])
    assert stored(disturbed, table) == cells_of(rows)


def test_87_one_refused_row_leaves_the_others(disturbed: ServerHandle, stored: Stored) -> None:
    table = prepared(table_on(disturbed, COLUMNS, ["id"]))
    disturbed.faults("row-error:code=OTSInvalidPK,rows=5,times=1")
    rows = rows_of(200)
    stats, refused = run_task(table, change_batch(table, rows))
    assert (stats.puts, stats.refused) == (199, 1)
    assert refused[0]["key"] == '{"id":"k00005"}'
    assert refused[0]["reason"].startswith("OTSInvalidPK")
    assert stored(disturbed, table) == cells_of([*rows[:5], *rows[6:]])


def test_88_a_refused_request_is_bisected_to_the_guilty_row(
    server: ServerHandle, stored: Stored, sdk_client: Callable[[ServerHandle], Any]
) -> None:
    from tablestore.metadata import CapacityUnit, ReservedThroughput, TableMeta, TableOptions

    # The declaration says that `id` is text; a foreign table where it is a number refuses every row's key.
    wrong = table_on(server, COLUMNS, ["id"])
    meta = TableMeta(wrong.table_name, [("id", "INTEGER")])
    sdk_client(server).create_table(meta, TableOptions(), ReservedThroughput(CapacityUnit(0, 0)))
    stats, refused = run_task(wrong, change_batch(wrong, rows_of(9)))
    assert (stats.puts, stats.refused, len(refused)) == (0, 9, 9)
    assert all("OTSInvalidPK" in row["reason"] or "OTSParameterInvalid" in row["reason"] for row in refused)
    assert stored(server, wrong) == {}


def test_88_the_other_rows_of_a_refused_request_are_written(disturbed: ServerHandle, stored: Stored) -> None:
    table = prepared(table_on(disturbed, COLUMNS, ["id"], {"max.concurrency": "1"}))
    # 64 rows whole, then halves down the left side: only the first row meets the fault to the end.
    disturbed.faults("error:code=OTSParameterInvalid,operation=BatchWriteRow,times=7")
    rows = rows_of(64)
    stats, refused = run_task(table, change_batch(table, rows))
    assert [json.loads(row["key"])["id"] for row in refused] == ["k00000"]
    assert stats.puts == 63
    assert stored(disturbed, table) == cells_of(rows[1:])


def test_88_rows_that_have_their_result_are_not_sent_again_when_the_rest_is_refused(
    disturbed: ServerHandle, stored: Stored
) -> None:
    table = prepared(table_on(disturbed, COLUMNS, ["id"], {"version.column": "_version"}))
    run_task(table, change_batch(table, [{"id": "a", "visits": 9}], sequence=9))
    # Of four rows one is superseded, one written and two throttled; their repetition is refused once as a whole.
    disturbed.faults(
        "row-error:code=OTSServerBusy,rows=2+3,times=2",
        "error:code=OTSParameterInvalid,operation=BatchWriteRow,skip=1,times=1",
    )
    stats, refused = run_task(table, change_batch(table, [{"id": name, "visits": 1} for name in "abcd"], sequence=1))
    assert (stats.superseded, stats.puts, refused, stats.requests) == (1, 3, [], 4)
    assert {key: cells["visits"] for (key,), cells in stored(disturbed, table).items()} == {
        "a": 9, "b": 1, "c": 1, "d": 1,
    }  # fmt: skip


@pytest.mark.parametrize("fault", ["cut-after", "cut-before", "bad-gateway"])
def test_89_an_answer_that_is_lost_is_asked_for_again(disturbed: ServerHandle, stored: Stored, fault: str) -> None:
    table = prepared(table_on(disturbed, COLUMNS, ["id"]))
    disturbed.faults(f"{fault}:operation=BatchWriteRow,times=3")
    rows = rows_of(500)
    stats, refused = run_task(
        table, change_batch(table, [*rows[:400], *({**row, OPERATION: "D"} for row in rows[400:])])
    )
    assert (stats.puts, stats.deletes, refused) == (400, 100, [])
    assert stats.requests == 6
    assert stored(disturbed, table) == cells_of(rows[:400])


def test_some_throttled_rows_in_every_request_do_not_stop_the_rest(disturbed: ServerHandle, stored: Stored) -> None:
    """A tenth of all rows: if each such request doubled the interval, nothing would move any more."""
    table = prepared(table_on(disturbed, COLUMNS, ["id"]))
    disturbed.faults("row-error:code=OTSNotEnoughCapacityUnit,probability=0.1")
    rows = rows_of(8000)
    stats, refused = run_task(table, change_batch(table, rows))
    assert (stats.puts, refused) == (8000, [])
    assert stats.throttled >= 40
    assert stats.seconds < 30
    disturbed.faults()
    assert stored(disturbed, table) == cells_of(rows)


def test_throttling_slows_down_and_loses_nothing(disturbed: ServerHandle, stored: Stored) -> None:
    table = prepared(table_on(disturbed, COLUMNS, ["id"], {"max.concurrency": "4"}))
    disturbed.faults("error:code=OTSServerBusy,operation=BatchWriteRow,times=6")
    rows = rows_of(2000)
    stats, refused = run_task(table, change_batch(table, rows))
    assert (stats.puts, stats.throttled, refused) == (2000, 6, [])
    assert stored(disturbed, table) == cells_of(rows)


@pytest.mark.parametrize(("concurrency", "least", "most"), [(2, 2.0, 60), (8, 0.5, 3.5)])
def test_so_many_requests_are_in_flight(disturbed: ServerHandle, concurrency: int, least: float, most: float) -> None:
    options = {"max.concurrency": str(concurrency), "sink.buffer-flush.max-rows": "1"}
    table = prepared(table_on(disturbed, COLUMNS, ["id"], options))
    disturbed.faults("delay:seconds=0.5,operation=BatchWriteRow")
    stats, _ = run_task(table, change_batch(table, rows_of(8)))
    assert stats.requests == 8
    assert least <= stats.seconds < most


def test_93_retries_end_at_the_deadline(disturbed: ServerHandle) -> None:
    table = prepared(table_on(disturbed, COLUMNS, ["id"], {"retry.deadline": "1 s"}))
    disturbed.faults("error:code=OTSServerUnavailable,operation=BatchWriteRow")
    started = time.monotonic()
    with pytest.raises(DestinationError, match=r"5 rows could not be written within 1 s \('retry.deadline'\)"):
        run_task(table, change_batch(table, rows_of(5)))
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("code", ["OTSAuthFailed", "OTSMethodNotAllowed", "OTSObjectNotExist"])
def test_5_4_hopeless_errors_stop_at_once(disturbed: ServerHandle, code: str) -> None:
    table = prepared(table_on(disturbed, COLUMNS, ["id"]))
    disturbed.faults(f"error:code={code},operation=BatchWriteRow")
    with pytest.raises(DestinationError, match=code):
        run_task(table, change_batch(table, rows_of(5)))


def test_a_task_stops_before_its_lease_ends(server: ServerHandle) -> None:
    table = prepared(table_on(server, COLUMNS, ["id"]))
    with pytest.raises(LeaseHeldError, match="lease of this write was lost, and nobody holds it"):
        run_task(table, change_batch(table, rows_of(5)), left=-1)


def test_credentials_are_fetched_before_the_lease_is_asked_for_time(
    server: ServerHandle, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assuming a role can take seconds; between the look at the lease and the request it could outlast the lease."""
    from upsert_platform.tablestore.credentials import KeySource
    from upsert_platform.writing.lease import LeaseGuard

    table = prepared(table_on(server, COLUMNS, ["id"]))
    order: list[str] = []
    get, time_for_request = KeySource.get, LeaseGuard.time_for_request
    monkeypatch.setattr(KeySource, "get", lambda source: order.append("key") or get(source))
    monkeypatch.setattr(LeaseGuard, "time_for_request", lambda guard: order.append("lease") or time_for_request(guard))
    run_task(table, change_batch(table, rows_of(5)))
    assert order == ["key", "lease", "key"]
    monkeypatch.undo()
    assert stored(server, table) == cells_of(rows_of(5))


def test_a_slow_answer_is_given_up_within_the_margin(disturbed: ServerHandle, stored: Stored) -> None:
    table = prepared(table_on(disturbed, COLUMNS, ["id"], {"request.timeout": "500 ms"}))
    disturbed.faults("delay:seconds=2,operation=BatchWriteRow,times=1")
    stats, _ = run_task(table, change_batch(table, rows_of(5)))
    assert stats.requests == 2
    assert stored(disturbed, table) == cells_of(rows_of(5))
