"""Tables made from declarations, and tables that differ from them (section 2.2, rules 1.6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from upsert_platform.errors import DestinationError, EndpointError
from upsert_platform.maxcompute.client import Client
from upsert_platform.maxcompute.connection import Connection
from upsert_platform.maxcompute.ddl import create_statement, prepare_table
from upsert_platform.maxcompute.settings import MaxComputeTable

EVERY_TYPE = {
    "id": "BIGINT", "c": "CHAR(4)", "v": "VARCHAR(9)", "s": "STRING", "b": "BOOLEAN", "i1": "TINYINT", "i2": "SMALLINT",
    "i4": "INT", "f": "FLOAT", "d": "DOUBLE", "n": "DECIMAL(12, 2)", "n0": "DECIMAL(10, 0)", "day": "DATE",
    "clock": "TIME(3)", "dt": "TIMESTAMP(3)", "ts": "TIMESTAMP(6)", "tz": "TIMESTAMP_LTZ(3)", "bin": "BYTES",
    "arr": "ARRAY<INT>", "m": "MAP<STRING, BIGINT>", "r": "ROW<a INT, b STRING>",
}  # fmt: skip


def test_a_missing_table_is_created_from_its_declaration(
    client: Client, make_table: Callable[..., MaxComputeTable]
) -> None:
    table = make_table(EVERY_TYPE, table_lifecycle="7", acid_data_retain_hours="12")
    actual = prepare_table(client, table)
    assert actual.transactional
    assert actual.primary_key == ("id",)
    assert actual.buckets == 4
    assert {column.name: column.type for column in actual.columns} == {
        column.name: kind for column, kind in table.data_columns
    }
    assert [column.name for column in actual.columns if not column.nullable] == ["id"]
    assert prepare_table(client, table) == actual


def test_key_columns_need_not_be_first_and_partition_columns_leave_the_key(
    client: Client, make_table: Callable[..., MaxComputeTable]
) -> None:
    columns = {"v": "STRING", "ds": "STRING", "k1": "STRING", "k2": "STRING"}
    actual = prepare_table(client, make_table(columns, key=["k1", "k2", "ds"], partitioned_by=["ds"]))
    assert sorted(actual.primary_key) == ["k1", "k2"]
    assert [column.name for column in actual.partition_columns] == ["ds"]


def test_without_auto_create_the_error_shows_the_statement(
    client: Client, make_table: Callable[..., MaxComputeTable]
) -> None:
    table = make_table(auto_create="false")
    with pytest.raises(DestinationError, match=r"(?s)does not exist.*auto\.create.*CREATE TABLE"):
        prepare_table(client, table)
    client.run_sql(create_statement(table))
    assert prepare_table(client, table).primary_key == ("id",)


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ('(id BIGINT NOT NULL, PRIMARY KEY (id)) TBLPROPERTIES ("transactional"="true", "write.bucket.num"="4")',
         "column 'name' STRING is missing"),
        ('(id BIGINT NOT NULL, name BIGINT, PRIMARY KEY (id)) TBLPROPERTIES ("transactional"="true",'
         ' "write.bucket.num"="4")', "column 'name' is BIGINT in the table"),
        ('(id BIGINT NOT NULL, name STRING, x INT NOT NULL, PRIMARY KEY (id)) TBLPROPERTIES ("transactional"="true",'
         ' "write.bucket.num"="4")', "column 'x' INT NOT NULL of the table is not declared"),
        ('(id BIGINT NOT NULL, name STRING NOT NULL, PRIMARY KEY (name)) TBLPROPERTIES ("transactional"="true",'
         ' "write.bucket.num"="4")', "the primary key is (name) in the table, (id) as declared"),
        ("(id BIGINT NOT NULL, name STRING)", "no Delta table with a primary key"),
        ('(id BIGINT NOT NULL, name STRING, PRIMARY KEY (id)) TBLPROPERTIES ("transactional"="true",'
         ' "write.bucket.num"="8")', "'upsert.write.bucket.num' is 4, the table has 8 buckets"),
        ('(id BIGINT NOT NULL, name STRING, PRIMARY KEY (id)) PARTITIONED BY (ds STRING)'
         ' TBLPROPERTIES ("transactional"="true", "write.bucket.num"="4")', "the table is partitioned by (ds)"),
    ],
    ids=["missing", "type", "undeclared-not-null", "key", "1.6.3-no-delta-table", "1.6.4-buckets", "1.6.6-partitions"],
)  # fmt: skip
def test_every_difference_is_named(
    client: Client, make_table: Callable[..., MaxComputeTable], ddl: str, expected: str
) -> None:
    table = make_table()
    client.run_sql(f"CREATE TABLE {table.target.sql} {ddl}")
    with pytest.raises(DestinationError) as raised:
        prepare_table(client, table)
    assert expected in str(raised.value)


def test_1_6_6_a_partition_of_a_table_without_partitions_is_refused(
    client: Client, make_table: Callable[..., MaxComputeTable]
) -> None:
    table = make_table(sink_partition="ds=1")
    client.run_sql(create_statement(make_table(table_name=table.target.table)))
    with pytest.raises(DestinationError, match="the table has no partitions"):
        prepare_table(client, table)


def test_insert_into_a_table_with_a_key_is_refused(client: Client, make_table: Callable[..., MaxComputeTable]) -> None:
    keyed = make_table()
    prepare_table(client, keyed)
    with pytest.raises(DestinationError, match="has the primary key"):
        prepare_table(client, make_table(key=(), table_name=keyed.target.table))


def test_nobody_answers(make_table: Callable[..., MaxComputeTable]) -> None:
    table = make_table(odps_end_point="http://127.0.0.1:9/api", upsert_writer_max__retries="0")
    with pytest.raises(EndpointError, match=r"odps\.end\.point") as raised:
        prepare_table(Client(Connection.of(table.settings)), table)
    assert "test_key" not in str(raised.value)


def test_refused_credentials_name_the_options_and_show_no_secret(make_table: Callable[..., MaxComputeTable]) -> None:
    table = make_table(odps_access_key="not-the-key-of-anyone")
    with pytest.raises(EndpointError, match=r"odps\.access\.key") as raised:
        prepare_table(Client(Connection.of(table.settings)), table)
    assert "not-the-key-of-anyone" not in str(raised.value)
