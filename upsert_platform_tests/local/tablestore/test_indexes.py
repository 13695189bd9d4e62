"""Secondary indexes, by the official client: made, read, kept up with writes, dropped."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from tablestore import (
    INF_MAX,
    INF_MIN,
    BatchWriteRowRequest,
    CapacityUnit,
    Condition,
    DeleteRowItem,
    PutRowItem,
    ReservedThroughput,
    Row,
    SecondaryIndexMeta,
    SecondaryIndexType,
    TableInBatchWriteRowItem,
    TableMeta,
    TableOptions,
    UpdateRowItem,
)

from upsert_platform_tests.local.tablestore.conftest import connect, error_of
from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server

KEY = [("gid", "INTEGER"), ("uid", "STRING")]
DEFINED = [("i", "INTEGER"), ("flag", "BOOLEAN"), ("d", "DOUBLE"), ("s", "STRING"), ("b", "BINARY")]
NO_UNITS = ReservedThroughput(CapacityUnit(0, 0))
IGNORE = Condition("IGNORE")
Named = Callable[[], str]


@pytest.fixture
def main(make_table: Callable[..., str]) -> str:
    return make_table(*KEY, defined_columns=DEFINED)


@pytest.fixture
def name() -> str:
    return f"index_{uuid.uuid4().hex}"


def key(gid: int, uid: str) -> list[tuple[str, Any]]:
    return [("gid", gid), ("uid", uid)]


def rows(client: Any, index: str) -> list[tuple[Any, ...]]:
    """Keys and cells in the order of the index."""
    columns = [column for column, _ in client.describe_table(index).table_meta.schema_of_primary_key]
    ends = [[(column, end) for column in columns] for end in (INF_MIN, INF_MAX)]
    found = client.get_range(index, "FORWARD", *ends, max_version=1)[2]
    return [
        (*(value for _, value in row.primary_key), {cell: value for cell, value, _ in row.attribute_columns})
        for row in found
    ]


def test_an_index_is_described_and_its_key_is_completed(client: Any, name: str) -> None:
    table, local = f"t_{uuid.uuid4().hex}", f"{name}_local"
    wanted = [
        SecondaryIndexMeta(name, ["i", "s"], ["flag", "b", "d"]),
        SecondaryIndexMeta(local, ["gid", "b"], ["i"], SecondaryIndexType.LOCAL_INDEX),
    ]
    client.create_table(TableMeta(table, KEY, DEFINED), TableOptions(-1, 1), NO_UNITS, wanted)
    found = client.describe_table(table).secondary_indexes
    assert [vars(index) for index in found] == [vars(index) for index in wanted]
    schema = client.describe_table(name).table_meta
    assert schema.schema_of_primary_key == [("i", "INTEGER"), ("s", "STRING"), *KEY]
    assert schema.defined_columns == [("flag", "BOOLEAN"), ("b", "BINARY"), ("d", "DOUBLE")]
    assert client.describe_table(local).table_meta.schema_of_primary_key == [KEY[0], ("b", "BINARY"), KEY[1]]
    client.delete_secondary_index(table, name)
    assert [index.index_name for index in client.describe_table(table).secondary_indexes] == [local]
    assert error_of(lambda: client.describe_table(name)) == (404, "OTSObjectNotExist")
    assert error_of(lambda: client.delete_secondary_index(table, name)) == (404, "OTSObjectNotExist")
    client.delete_table(table)
    assert error_of(lambda: client.describe_table(local)) == (404, "OTSObjectNotExist")
    client.create_table(TableMeta(table, KEY, DEFINED), TableOptions(-1, 1), NO_UNITS, wanted)
    client.delete_table(table)


@pytest.mark.parametrize("with_rows", [True, False])
def test_rows_that_are_there_are_indexed_when_asked_for(client: Any, main: str, name: str, with_rows: bool) -> None:
    client.put_row(main, Row(key(0, "0"), [("s", "b"), ("d", 1.5), ("flag", True), ("other", 1)]))
    client.put_row(main, Row(key(0, "1"), [("d", 2.5)]))
    client.create_secondary_index(main, SecondaryIndexMeta(name, ["gid", "s"], ["flag", "d"]), with_rows)
    before = [(0, "b", "0", {"flag": True, "d": 1.5})] if with_rows else []
    assert rows(client, name) == before
    client.put_row(main, Row(key(0, "2"), [("s", "a"), ("d", 0.5)]))
    assert rows(client, name) == [(0, "a", "2", {"d": 0.5}), *before]
    found = client.get_row(name, [("gid", 0), ("s", "a"), ("uid", "2")], columns_to_get=["d"], max_version=1)[1]
    assert [cell[:2] for cell in found.attribute_columns] == [("d", 0.5)]
    assert name not in client.list_table()


def test_an_index_follows_every_kind_of_write(client: Any, main: str, name: str) -> None:
    client.create_secondary_index(main, SecondaryIndexMeta(name, ["i"], ["s"]), False)

    def state() -> list[tuple[Any, ...]]:
        return [(i, uid, cells.get("s")) for i, _, uid, cells in rows(client, name)]

    client.put_row(main, Row(key(1, "a"), [("i", 5), ("s", "x")]))
    client.put_row(main, Row(key(1, "b"), [("i", 3)]))
    assert state() == [(3, "b", None), (5, "a", "x")]
    client.update_row(main, Row(key(1, "b"), {"PUT": [("s", "y")], "INCREMENT": [("i", 4)]}), IGNORE)
    assert state() == [(5, "a", "x"), (7, "b", "y")]
    client.update_row(main, Row(key(1, "a"), {"DELETE_ALL": [("i", None)]}), IGNORE)
    assert state() == [(7, "b", "y")]
    batch = BatchWriteRowRequest()
    items = [
        PutRowItem(Row(key(1, "a"), [("i", 1)]), IGNORE),
        PutRowItem(Row(key(1, "a"), [("i", 2), ("s", "z")]), IGNORE),
        UpdateRowItem(Row(key(1, "b"), {"put": [("i", 0)]}), IGNORE),
        PutRowItem(Row(key(1, "c"), [("i", "text")]), IGNORE),
        PutRowItem(Row(key(1, "d"), [("i", 9)]), IGNORE),
        DeleteRowItem(Row(key(1, "d")), IGNORE),
    ]
    batch.add(TableInBatchWriteRowItem(main, items))
    assert client.batch_write_row(batch).is_all_succeed()
    assert state() == [(0, "b", "y"), (2, "a", "z")]
    transaction = client.start_local_transaction(main, [("gid", 1)])
    client.put_row(main, Row(key(1, "b"), [("i", 8)]), IGNORE, None, transaction)
    client.delete_row(main, Row(key(1, "a")), IGNORE, transaction_id=transaction)
    assert state() == [(0, "b", "y"), (2, "a", "z")]
    client.commit_transaction(transaction)
    assert state() == [(8, "b", None)]
    client.delete_row(main, Row(key(1, "b")), IGNORE)
    assert state() == []


REFUSED = [
    ("unknown column", ["nobody"], []), ("unknown attribute", ["i"], ["nobody"]), ("double as key", ["d"], []),
    ("boolean as key", ["flag"], []), ("named twice", ["i", "i"], []), ("key and attribute", ["i"], ["i"]),
    ("no column", [], []), ("five columns", ["i", "s", "b", "gid", "uid"], []),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "attributes"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_indexes_that_no_table_can_have(
    client: Any, main: str, name: str, columns: list[str], attributes: list[str]
) -> None:
    meta = SecondaryIndexMeta(name, columns, attributes)
    assert error_of(lambda: client.create_secondary_index(main, meta, True)) == (400, "OTSParameterInvalid")
    table = f"t_{uuid.uuid4().hex}"
    described = TableMeta(table, KEY, DEFINED)
    refused = error_of(lambda: client.create_table(described, TableOptions(-1, 1), NO_UNITS, [meta]))
    assert refused == (400, "OTSParameterInvalid")
    assert table not in client.list_table()
    assert error_of(lambda: client.describe_table(table)) == (404, "OTSObjectNotExist")
    assert client.describe_table(main).secondary_indexes == []


def test_what_indexes_and_their_tables_do_not_take(client: Any, main: str, name: str, make_table: Any) -> None:
    invalid = (400, "OTSParameterInvalid")
    meta = SecondaryIndexMeta(name, ["i"], [])
    versions = make_table(*KEY, defined_columns=DEFINED, max_version=2)
    assert error_of(lambda: client.create_secondary_index(versions, meta, False)) == invalid
    expiring = make_table(*KEY, defined_columns=DEFINED, time_to_live=86_400)
    assert error_of(lambda: client.create_secondary_index(expiring, meta, False)) == invalid
    client.create_secondary_index(main, meta, False)
    assert error_of(lambda: client.create_secondary_index(main, meta, False)) == (409, "OTSObjectAlreadyExist")
    entry = [("i", 1), *key(1, "a")]
    assert error_of(lambda: client.put_row(name, Row(entry, [("s", "x")]))) == invalid
    assert error_of(lambda: client.delete_row(name, Row(entry))) == invalid
    assert error_of(lambda: client.start_local_transaction(name, [("i", 1)])) == invalid
    assert error_of(lambda: client.delete_table(name)) == invalid
    assert error_of(lambda: client.update_table(main, TableOptions(-1, 2))) == invalid
    assert error_of(lambda: client.update_table(name, TableOptions(-1, 1))) == invalid
    for number in range(4):
        client.create_secondary_index(main, SecondaryIndexMeta(f"{name}_{number}", ["s"], []), False)
    assert error_of(
        lambda: client.create_secondary_index(main, SecondaryIndexMeta(f"{name}_5", ["s"], []), False)
    ) == invalid  # fmt: skip


def test_an_index_survives_the_server(tmp_path: Any) -> None:
    with tablestore_server(tmp_path) as handle:
        client = connect(handle)
        meta = SecondaryIndexMeta("by_i", ["i"], ["s"])
        client.create_table(TableMeta("t", KEY, DEFINED), TableOptions(-1, 1), NO_UNITS, [meta])
        client.put_row("t", Row(key(1, "a"), [("i", 5)]))
    with tablestore_server(tmp_path) as handle:
        client = connect(handle)
        client.put_row("t", Row(key(1, "a"), [("i", 6)]))
        assert rows(client, "by_i") == [(6, 1, "a", {})]


def _suite(handle: ServerHandle) -> list[Any]:
    """What a client's own tests do: clean up as they do, then everything that leaves something behind."""
    client = connect(handle)
    for table in client.list_table():
        assert client.list_search_index(table) == []
        client.delete_table(table)
    assert client.list_search_index() == []
    meta = SecondaryIndexMeta("by_i", ["i"], ["s"])
    client.create_table(TableMeta("t", KEY, DEFINED), TableOptions(-1, 1), NO_UNITS, [meta])
    client.create_table(TableMeta("v", KEY), TableOptions(-1, 3), NO_UNITS)
    found: list[Any] = [client.list_table(), rows(client, "by_i"), rows(client, "t"), rows(client, "v")]
    client.put_row("t", Row(key(1, "a"), [("i", 5)]), Condition("EXPECT_NOT_EXIST"))
    client.put_row("v", Row(key(1, "a"), [("x", 5)]), Condition("EXPECT_NOT_EXIST"))
    found += [rows(client, "by_i"), rows(client, "t"), rows(client, "v")]
    transaction = client.start_local_transaction("t", [("gid", 1)])
    client.put_row("t", Row(key(1, "open"), [("i", 1)]), IGNORE, None, transaction)
    found.append(error_of(lambda: connect(handle).put_row("t", Row(key(1, "b"), [("i", 5)]))))
    found.append(client.get_range("t", "FORWARD", *_whole(), max_version=1)[0].read)
    return found


def _whole() -> list[list[tuple[str, Any]]]:
    return [[(column, end) for column, _ in KEY] for end in (INF_MIN, INF_MAX)]


def test_a_clients_suite_gives_the_same_again_in_one_server(tmp_path: Any) -> None:
    with tablestore_server(tmp_path / "one") as handle:
        first = [_suite(handle) for _ in range(3)]
    with tablestore_server(tmp_path / "fresh") as handle:
        assert first == [_suite(handle)] * 3
