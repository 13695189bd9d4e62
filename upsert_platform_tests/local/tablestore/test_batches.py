"""BatchWriteRow, BulkImport and BatchGetRow: results per row, refusals of the whole request (section 5.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tablestore import (
    INF_MAX,
    INF_MIN,
    BatchGetRowRequest,
    BatchWriteRowRequest,
    ComparatorType,
    Condition,
    DeleteRowItem,
    PutRowItem,
    Row,
    SingleColumnCondition,
    TableInBatchGetRowItem,
    TableInBatchWriteRowItem,
    UpdateRowItem,
)

from upsert_platform.local.tablestore.messages import BulkImportRequest, BulkImportResponse, pb
from upsert_platform_tests.local.tablestore.conftest import error_of
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.local.tablestore.wire import call

MakeTable = Callable[..., str]
IGNORE, EXIST, NOT_EXIST = Condition("IGNORE"), Condition("EXPECT_EXIST"), Condition("EXPECT_NOT_EXIST")


def put(key: str, condition: Any = IGNORE, **columns: Any) -> Any:
    return PutRowItem(Row([("k", key)], list(columns.items())), condition)


def update(key: str, condition: Any = IGNORE, **columns: Any) -> Any:
    return UpdateRowItem(Row([("k", key)], {"put": list(columns.items())}), condition)


def delete(key: str, condition: Any = IGNORE) -> Any:
    return DeleteRowItem(Row([("k", key)]), condition)


def write(client: Any, **tables: list[Any]) -> Any:
    request = BatchWriteRowRequest()
    for name, items in tables.items():
        request.add(TableInBatchWriteRowItem(name, items))
    return client.batch_write_row(request)


def read(client: Any, table: str, *keys: str) -> list[dict[str, Any] | None]:
    request = BatchGetRowRequest()
    request.add(TableInBatchGetRowItem(table, [[("k", key)] for key in keys], [], None, 1))
    found = client.batch_get_row(request).get_result_by_table(table)
    assert all(item.is_ok for item in found)
    return [None if item.row is None else {c[0]: c[1] for c in item.row.attribute_columns} for item in found]


def test_rows_of_every_kind_over_two_tables(client: Any, make_table: MakeTable) -> None:
    one, two = make_table(), make_table()
    write(client, **{one: [put("a", n=1), put("b", n=2), put("c", n=3)]})
    done = write(client, **{one: [put("a", m=5), update("b", m=6), delete("c")], two: [put("z", n=9)]})
    assert done.is_all_succeed()
    assert read(client, one, "a", "b", "c", "d") == [{"m": 5}, {"m": 6, "n": 2}, None, None]
    assert read(client, two, "z") == [{"n": 9}]


def test_failures_are_results_of_their_rows(client: Any, table: str) -> None:
    write(client, **{table: [put("there", n=1)]})
    misfit = PutRowItem(Row([("wrong", "x")], [("n", 1)]), IGNORE)
    items = [
        put("there", NOT_EXIST, n=2),
        put("new", NOT_EXIST, n=2),
        misfit,
        put("absent", EXIST, n=2),
        put("last", n=2),
        put("there2", Condition("IGNORE", SingleColumnCondition("n", 1, ComparatorType.EQUAL, False)), n=3),
    ]
    result = write(client, **{table: items}).table_of_put[table]
    assert [row.error_code for row in result] == [
        "OTSConditionCheckFail",
        None,
        "OTSInvalidPK",
        "OTSConditionCheckFail",
        None,
        "OTSConditionCheckFail",
    ]
    assert read(client, table, "there", "new", "absent", "last") == [{"n": 1}, {"n": 2}, None, {"n": 2}]


def test_a_row_that_is_written_twice_is_written_in_order(client: Any, table: str) -> None:
    assert write(client, **{table: [put("a", n=1), update("a", m=2), put("b", n=1), delete("b")]}).is_all_succeed()
    assert read(client, table, "a", "b") == [{"m": 2, "n": 1}, None]


@pytest.mark.parametrize(
    "condition",
    [EXIST, Condition("IGNORE", SingleColumnCondition("n", 1, ComparatorType.EQUAL))],
    ids=["row", "column"],
)
def test_a_row_that_is_written_twice_takes_no_condition(client: Any, table: str, condition: Any) -> None:
    twice = [put("a", n=1), put("a", condition, n=2)]
    assert error_of(lambda: write(client, **{table: twice})) == (400, "OTSParameterInvalid")
    assert read(client, table, "a") == [None]


def test_two_hundred_rows_and_no_more(client: Any, table: str) -> None:
    assert write(client, **{table: [put(f"{i}", n=i) for i in range(200)]}).is_all_succeed()
    more = [put(f"x{i}", n=i) for i in range(201)]
    assert error_of(lambda: write(client, **{table: more})) == (400, "OTSParameterInvalid")
    assert read(client, table, "199", "x0") == [{"n": 199}, None]


def test_one_bad_row_refuses_the_request(client: Any, table: str) -> None:
    bad = [put("good", n=1), PutRowItem(Row([("k", "bad")], [("1a", 1)]), IGNORE)]
    assert error_of(lambda: write(client, **{table: bad})) == (400, "OTSParameterInvalid")
    assert read(client, table, "good") == [None]


def test_an_unknown_table_refuses_the_request(client: Any, table: str) -> None:
    wanted = {table: [put("a", n=1)], "unknown": [put("a", n=1)]}
    assert error_of(lambda: write(client, **wanted)) == (404, "OTSObjectNotExist")
    assert read(client, table, "a") == [None]


def test_nothing_to_do(client: Any, table: str) -> None:
    refused = (400, "OTSParameterInvalid")
    assert error_of(lambda: write(client)) == refused
    assert error_of(lambda: write(client, **{table: []})) == refused
    assert error_of(lambda: client.batch_get_row(BatchGetRowRequest())) == refused


def test_four_megabytes_in_all(client: Any, table: str) -> None:
    half = "x" * (2 * 1024 * 1024 - 100)
    assert write(client, **{table: [put("a", c=half), put("b", c=half)]}).is_all_succeed()
    more = [put("a", c=half), put("b", c=half), put("c", c="x" * 300)]
    assert error_of(lambda: write(client, **{table: more})) == (400, "OTSParameterInvalid")


def test_batch_read_of_misfitting_keys(client: Any, table: str) -> None:
    request = BatchGetRowRequest()
    request.add(TableInBatchGetRowItem(table, [[("wrong", "a")], [("k", "a")]], [], None, 1))
    done, failed = client.batch_get_row(request).get_result()
    assert [item.error_code for item in failed] == ["OTSInvalidPK"]
    assert [item.row for item in done] == [None]


def test_batch_read_of_more_than_a_hundred(client: Any, table: str) -> None:
    request = BatchGetRowRequest()
    request.add(TableInBatchGetRowItem(table, [[("k", f"{i}")] for i in range(101)], [], None, 1))
    assert error_of(lambda: client.batch_get_row(request)) == (400, "OTSParameterInvalid")


def test_the_same_table_twice(server: ServerHandle, table: str) -> None:
    from tablestore.plainbuffer.plain_buffer_builder import PlainBufferBuilder

    row = bytes(PlainBufferBuilder.serialize_for_put_row([("k", "a")], [("n", 1)]))
    request = pb.BatchWriteRowRequest()
    for _ in range(2):
        item = request.tables.add(table_name=table).rows.add(type=pb.PUT, row_change=row)
        item.condition.row_existence = pb.IGNORE
    status, body = call(server, "BatchWriteRow", request.SerializeToString())
    assert (status, pb.Error.FromString(body).code) == (400, "OTSParameterInvalid")


@pytest.mark.parametrize("atomic", [False, True])
def test_an_atomic_batch_is_applied_whole_or_not_at_all(
    server: ServerHandle, client: Any, table: str, atomic: bool
) -> None:
    from tablestore.plainbuffer.plain_buffer_builder import PlainBufferBuilder

    client.put_row(table, Row([("k", "old")], [("n", 1)]), Condition("IGNORE"))

    def write(*names: str) -> tuple[int, str]:
        request = pb.BatchWriteRowRequest()
        rows = request.tables.add(table_name=table).rows
        for name in names:
            row = bytes(PlainBufferBuilder.serialize_for_put_row([("k", name)], [("n", 2)]))
            rows.add(type=pb.PUT, row_change=row).condition.row_existence = pb.EXPECT_NOT_EXIST
        # Field 3, `is_atomic`, as the Java client sends it.
        status, body = call(server, "BatchWriteRow", request.SerializeToString() + b"\x18" + bytes([atomic]))
        return status, pb.Error.FromString(body).code if status != 200 else ""

    assert write("a", "old", "b") == ((403, "OTSConditionCheckFail") if atomic else (200, ""))
    read = client.get_range(table, "FORWARD", [("k", INF_MIN)], [("k", INF_MAX)], max_version=1)[2]
    found = {row.primary_key[0][1]: row.attribute_columns[0][1] for row in read}
    assert found == ({"old": 1} if atomic else {"a": 2, "b": 2, "old": 1})
    assert write("c") == (200, "")


def test_bulk_import(server: ServerHandle, client: Any, table: str) -> None:
    from tablestore.plainbuffer.plain_buffer_builder import PlainBufferBuilder

    request = BulkImportRequest(table_name=table)
    for key in ("a", "b", "a"):
        row = PlainBufferBuilder.serialize_for_put_row([("k", key)], [("n", len(request.rows))])
        request.rows.add(type=pb.PUT, row_change=bytes(row))
    request.rows.add(type=pb.PUT, row_change=bytes(PlainBufferBuilder.serialize_for_put_row([("x", "a")], [])))
    request.rows.add(type=pb.DELETE, row_change=bytes(PlainBufferBuilder.serialize_for_delete_row([("k", "b")])))
    status, body = call(server, "BulkImport", request.SerializeToString(), compress=True)
    assert status == 200
    rows = BulkImportResponse.FromString(body).rows
    assert [(row.is_ok, row.error.code) for row in rows] == [
        (True, ""),
        (True, ""),
        (True, ""),
        (False, "OTSInvalidPK"),
        (True, ""),
    ]
    assert read(client, table, "a", "b") == [{"n": 2}, None]
