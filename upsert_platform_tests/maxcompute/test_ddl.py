"""Tables made from declarations, and tables that differ from them (section 2.2, rules 1.6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from upsert_platform.core.errors import DestinationError, EndpointError
from upsert_platform.maxcompute.client import Client, TableColumn, TableState
from upsert_platform.maxcompute.connection import Connection
from upsert_platform.maxcompute.ddl import compare, create_statement, evolve_statements, prepare_table, unprepared_table
from upsert_platform.maxcompute.table import MaxComputeTable
from upsert_platform.maxcompute.types import parse_maxcompute_type
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.frames import stored
from upsert_platform_tests.maxcompute.sending import append

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
        ("(id BIGINT NOT NULL, name STRING)", "not a Delta table with a primary key"),
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


def test_insert_into_a_table_with_a_key_needs_that_key(
    client: Client, make_table: Callable[..., MaxComputeTable]
) -> None:
    keyed = make_table()
    prepare_table(client, keyed)
    shared = {"table_name": keyed.target.table, "sink_operation": "insert"}
    for key, message in (((), "Declare PRIMARY KEY (id) NOT ENFORCED, or name a table"), (("name",), "(name) as decl")):
        with pytest.raises(DestinationError) as raised:
            prepare_table(client, make_table(key=key, **shared))
        assert "the primary key" in str(raised.value)
        assert message in str(raised.value)
    assert prepare_table(client, make_table(key=("id",), **shared)).primary_key == ("id",)


def test_the_tunnel_appends_to_tables_with_a_key_alone(
    client: Client, make_table: Callable[..., MaxComputeTable]
) -> None:
    with pytest.raises(DestinationError, match="its rows cannot go through"):
        prepare_table(client, make_table(key=("id",), sink_operation="insert", write_api="tunnel"))


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


def test_65_a_partitioned_table_without_a_spec_is_refused(make_table: Callable[..., MaxComputeTable]) -> None:
    table = make_table(key=())
    text = parse_maxcompute_type("STRING")
    actual = TableState(
        columns=tuple(TableColumn(column.name, kind, True) for column, kind in table.data_columns),
        partition_columns=(TableColumn("ds", text, True),),
        primary_key=(),
        transactional=False,
        buckets=None,
    )
    (difference,) = compare(table, actual)
    assert "is partitioned by (ds): name the columns in PARTITIONED BY" in difference


def test_90_91_92_a_table_follows_its_declaration(
    maxcompute: ServerHandle, client: Client, make_table: Callable[..., MaxComputeTable]
) -> None:
    first = make_table({"id": "BIGINT", "gone": "STRING", "n": "INT", "short": "VARCHAR(3)"})
    prepare_table(client, first)
    append(first, [("U", (1, "x", 1, "abc")), ("U", (2, "y", 2, None)), ("U", (3, None, None, None))])
    wanted = {"id": "BIGINT", "n": "BIGINT", "short": "STRING", "id3": "BIGINT", "name": "STRING"}
    shared = {"table_name": first.target.table, "control_table": first.settings.control_table}
    with pytest.raises(DestinationError, match="= 'evolve' adds columns and widens types"):
        prepare_table(client, make_table(wanted, **shared))
    second = make_table(wanted, schema_change_behavior="evolve", **shared)
    for _ in range(2):  # looking adds none
        assert "column 'name' STRING is missing in the table" in unprepared_table(client, second)
    with pytest.raises(DestinationError, match="columns 'gone' of the table are not declared, and a row that is put"):
        prepare_table(client, second)
    client.run_sql(f"ALTER TABLE {first.target.sql} DROP COLUMN gone")
    actual = prepare_table(client, second)
    assert unprepared_table(client, second) == ""
    assert [f"{column.name} {column.type}" for column in actual.columns] == [
        "id BIGINT", "n BIGINT", "short STRING", "id3 BIGINT", "name STRING",
    ]  # fmt: skip
    assert evolve_statements(second, actual) == []
    append(second, [("D", (1, None, None, None, None)), ("U", (2, 2**40, "longer", 3, "x"))])
    assert stored(maxcompute, first, "id, n, short, id3, name") == [
        (2, 2**40, "longer", 3, "x"), (3, None, None, None, None),
    ]  # fmt: skip


def test_what_would_lose_values_or_touch_the_key_is_no_evolution(
    client: Client, make_table: Callable[..., MaxComputeTable]
) -> None:
    first = make_table({"id": "INT", "n": "BIGINT"})
    prepare_table(client, first)
    shared = {"table_name": first.target.table, "schema_change_behavior": "evolve"}
    for columns, name in (({"id": "INT", "n": "INT"}, "n"), ({"id": "BIGINT", "n": "BIGINT"}, "id")):
        with pytest.raises(DestinationError, match=f"column '{name}' is"):
            prepare_table(client, make_table(columns, **shared))
