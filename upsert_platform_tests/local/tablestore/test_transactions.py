"""Local transactions: seen from within, locked to others, applied or forgotten (section 5.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tablestore import INF_MAX, INF_MIN, BatchWriteRowRequest, Condition, Row, TableInBatchWriteRowItem, UpdateRowItem

from upsert_platform_tests.local.tablestore.conftest import connect, error_of
from upsert_platform_tests.local.tablestore.server import ServerHandle

IGNORE = Condition("IGNORE")


def key(n: int, partition: str = "p") -> list[tuple[str, Any]]:
    return [("a", partition), ("b", n)]


@pytest.fixture
def table(client: Any, make_table: Callable[..., str]) -> str:
    name = make_table(("a", "STRING"), ("b", "INTEGER"))
    for n in (1, 2, 3):
        client.put_row(name, Row(key(n), [("n", n)]))
    return name


def scan(client: Any, table: str, transaction: str | None = None, backward: bool = False) -> list[tuple[int, Any]]:
    ends = [[("a", "p"), ("b", INF_MIN)], [("a", "p"), ("b", INF_MAX)]]
    direction = "FORWARD"
    if backward:
        direction, ends = "BACKWARD", ends[::-1]
    rows = client.get_range(table, direction, *ends, max_version=1, transaction_id=transaction)[2]
    return [(row.primary_key[1][1], row.attribute_columns[0][1]) for row in rows]


def change(client: Any, table: str, transaction: str) -> None:
    client.put_row(table, Row(key(0), [("n", "new")]), IGNORE, None, transaction)
    client.put_row(table, Row(key(5), [("n", "new")]), IGNORE, None, transaction)
    client.delete_row(table, Row(key(2)), IGNORE, transaction_id=transaction)
    request = BatchWriteRowRequest()
    request.add(TableInBatchWriteRowItem(table, [UpdateRowItem(Row(key(3), {"put": [("n", "batch")]}), IGNORE)]))
    request.set_transaction_id(transaction)
    assert client.batch_write_row(request).is_all_succeed()


BEFORE = [(1, 1), (2, 2), (3, 3)]
AFTER = [(0, "new"), (1, 1), (3, "batch"), (5, "new")]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_changes_are_seen_within_until_the_end(client: Any, table: str, commits: bool) -> None:
    transaction = client.start_local_transaction(table, [("a", "p")])
    change(client, table, transaction)
    assert scan(client, table, transaction) == AFTER
    assert scan(client, table, transaction, backward=True) == AFTER[::-1]
    assert scan(client, table) == BEFORE
    (client.commit_transaction if commits else client.abort_transaction)(transaction)
    assert scan(client, table) == (AFTER if commits else BEFORE)
    assert error_of(lambda: client.commit_transaction(transaction))[1] == "OTSSessionNotExist"


def test_the_partition_is_locked_to_others(server: ServerHandle, client: Any, table: str) -> None:
    other = connect(server)
    transaction = client.start_local_transaction(table, [("a", "p")])
    conflict = (409, "OTSRowOperationConflict")
    assert error_of(lambda: other.put_row(table, Row(key(1), [("n", 9)]))) == conflict
    assert error_of(lambda: other.start_local_transaction(table, [("a", "p")])) == conflict
    other.put_row(table, Row(key(1, "q"), [("n", 9)]))
    client.abort_transaction(transaction)
    other.put_row(table, Row(key(1), [("n", 9)]))


def test_four_megabytes_in_a_transaction(client: Any, table: str) -> None:
    transaction = client.start_local_transaction(table, [("a", "p")])
    megabyte = [("n", "x" * (1024 * 1024 - 100))]
    for number in range(4):
        client.put_row(table, Row(key(number), megabyte), IGNORE, None, transaction)
    refused = error_of(lambda: client.put_row(table, Row(key(9), megabyte), IGNORE, None, transaction))
    assert refused == (400, "OTSParameterInvalid")
    client.abort_transaction(transaction)


def test_rows_of_another_partition_are_out_of_scope(client: Any, table: str) -> None:
    transaction = client.start_local_transaction(table, [("a", "p")])
    outside = Row(key(1, "q"), [("n", 1)])
    failed = error_of(lambda: client.put_row(table, outside, IGNORE, None, transaction))
    assert failed == (400, "OTSParameterInvalid")
    client.abort_transaction(transaction)


def test_the_table_is_deleted_meanwhile(client: Any, table: str) -> None:
    transaction = client.start_local_transaction(table, [("a", "p")])
    client.put_row(table, Row(key(9), [("n", 1)]), IGNORE, None, transaction)
    client.delete_table(table)
    assert error_of(lambda: client.commit_transaction(transaction)) == (404, "OTSObjectNotExist")


@pytest.mark.parametrize("malformed", ["x", "0" * 31, "0" * 33, "G" * 32, "not-a-transaction"])
def test_an_id_that_no_transaction_can_have_is_an_invalid_parameter(client: Any, table: str, malformed: str) -> None:
    invalid = (400, "OTSParameterInvalid")
    assert error_of(lambda: client.commit_transaction(malformed)) == invalid
    assert error_of(lambda: client.abort_transaction(malformed)) == invalid
    assert error_of(lambda: client.get_row(table, key(1), max_version=1, transaction_id=malformed)) == invalid
    assert error_of(lambda: client.put_row(table, Row(key(1), [("n", 1)]), IGNORE, None, malformed)) == invalid
    assert error_of(lambda: client.commit_transaction("0" * 32)) == (404, "OTSSessionNotExist")
