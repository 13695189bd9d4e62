"""CreateTable, ListTable, DescribeTable, UpdateTable, DeleteTable through the official client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tablestore import CapacityUnit, ReservedThroughput, TableMeta, TableOptions, metadata

from upsert_platform_tests.local.tablestore.conftest import connect, create_table, error_of
from upsert_platform_tests.local.tablestore.server import tablestore_server

MakeTable = Callable[..., str]
FREE = ReservedThroughput(CapacityUnit(0, 0))


def test_described_as_created(client: Any, make_table: MakeTable) -> None:
    name = make_table(
        ("a", "STRING"),
        ("b", "INTEGER"),
        ("c", "INTEGER", metadata.PK_AUTO_INCR),
        ("d", "BINARY"),
        defined_columns=[("x", "DOUBLE")],
        time_to_live=86_400,
        max_version=3,
        max_time_deviation=1000,
    )
    found = client.describe_table(name)
    assert found.table_meta.schema_of_primary_key == [
        ("a", "STRING"),
        ("b", "INTEGER"),
        ("c", "INTEGER", metadata.PK_AUTO_INCR),
        ("d", "BINARY"),
    ]
    assert found.table_meta.defined_columns == [("x", "DOUBLE")]
    options = found.table_options
    assert (options.time_to_live, options.max_version, options.max_time_deviation) == (86_400, 3, 1000)


def test_default_options(client: Any, table: str) -> None:
    options = client.describe_table(table).table_options
    assert (options.time_to_live, options.max_version, options.max_time_deviation) == (-1, 1, 86_400)


def test_listed_until_deleted(client: Any, make_table: MakeTable) -> None:
    name = make_table()
    assert name in client.list_table()
    client.delete_table(name)
    assert name not in client.list_table()
    assert error_of(lambda: client.describe_table(name)) == (404, "OTSObjectNotExist")
    assert error_of(lambda: client.delete_table(name)) == (404, "OTSObjectNotExist")


def test_a_table_created_again_is_empty(client: Any, make_table: MakeTable) -> None:
    name = make_table()
    client.put_row(name, metadata.Row([("k", "a")], [("c", 1)]))
    client.delete_table(name)
    create_table(client, name, [("k", "STRING")])
    assert client.get_row(name, [("k", "a")], max_version=1)[1] is None


def test_update_options(client: Any, table: str) -> None:
    client.update_table(table, TableOptions(86_400, 5, 1234), ReservedThroughput(CapacityUnit(0, 0)))
    options = client.describe_table(table).table_options
    assert (options.time_to_live, options.max_version, options.max_time_deviation) == (86_400, 5, 1234)


def test_name_taken(client: Any, table: str) -> None:
    meta = TableMeta(table, [("other", "STRING")])
    assert error_of(lambda: client.create_table(meta, TableOptions(), FREE)) == (409, "OTSObjectAlreadyExist")


@pytest.mark.parametrize(
    ("name", "key", "options"),
    [
        ("1a", [("k", "STRING")], {}),
        ("a-b", [("k", "STRING")], {}),
        ("a" * 256, [("k", "STRING")], {}),
        ("t", [], {}),
        ("t", [(f"k{i}", "STRING") for i in range(5)], {}),
        ("t", [("k", "STRING"), ("k", "INTEGER")], {}),
        ("t", [("1k", "STRING")], {}),
        ("t", [("k", "INTEGER", metadata.PK_AUTO_INCR)], {}),
        ("t", [("k", "STRING"), ("a", "STRING", metadata.PK_AUTO_INCR)], {}),
        (
            "t",
            [("k", "STRING"), ("a", "INTEGER", metadata.PK_AUTO_INCR), ("b", "INTEGER", metadata.PK_AUTO_INCR)],
            {},
        ),
        ("t", [("k", "STRING")], {"time_to_live": 0}),
        ("t", [("k", "STRING")], {"time_to_live": 86_399}),
        ("t", [("k", "STRING")], {"max_version": 0}),
        ("t", [("k", "STRING")], {"max_time_deviation": 0}),
    ],
    ids=[
        "name starts with a digit",
        "name with a hyphen",
        "name of 256",
        "no key",
        "five key columns",
        "key column twice",
        "key column name",
        "auto-increment first",
        "auto-increment string",
        "two auto-increments",
        "ttl 0",
        "ttl under a day",
        "no versions",
        "no deviation",
    ],
)
def test_refused_declarations(client: Any, name: str, key: list[Any], options: dict[str, int]) -> None:
    assert error_of(lambda: create_table(client, name, key, **options)) == (400, "OTSParameterInvalid")


def test_number_of_tables(tmp_path: Any) -> None:
    with tablestore_server(tmp_path, arguments=["--max-tables", "2"]) as handle:
        client = connect(handle)
        create_table(client, "a", [("k", "STRING")])
        create_table(client, "b", [("k", "STRING")])
        assert error_of(lambda: create_table(client, "c", [("k", "STRING")])) == (403, "OTSQuotaExhausted")
        client.delete_table("a")
        create_table(client, "c", [("k", "STRING")])
