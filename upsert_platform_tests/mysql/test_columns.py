from __future__ import annotations

import pytest

from upsert_platform.mysql.catalog import key_problem
from upsert_platform.mysql.columns import MySqlColumn, MySqlTable, TypeRules, ZeroDates, read_elements, sql_type
from upsert_platform.mysql.declared import declared_columns

TYPES = [
    (MySqlColumn("c", "tinyint", length=1), "TINYINT"),
    (MySqlColumn("c", "tinyint", length=4), "TINYINT"),
    (MySqlColumn("c", "tinyint", unsigned=True, length=1), "SMALLINT"),
    (MySqlColumn("c", "smallint", unsigned=True), "INT"),
    (MySqlColumn("c", "mediumint", unsigned=True), "INT"),
    (MySqlColumn("c", "int", unsigned=True), "BIGINT"),
    (MySqlColumn("c", "bigint"), "BIGINT"),
    (MySqlColumn("c", "bigint", unsigned=True), "DECIMAL(20, 0)"),
    (MySqlColumn("c", "decimal", precision=38, fraction=30), "DECIMAL(38, 30)"),
    (MySqlColumn("c", "decimal", precision=65, fraction=30), "STRING"),
    (MySqlColumn("c", "year"), "INT"),
    (MySqlColumn("c", "time", fraction=3), "TIME(3)"),
    (MySqlColumn("c", "datetime", fraction=6), "TIMESTAMP(6)"),
    (MySqlColumn("c", "timestamp"), "TIMESTAMP_LTZ(0)"),
    (MySqlColumn("c", "char", length=5), "CHAR(5)"),
    (MySqlColumn("c", "varchar", length=0), "VARCHAR(1)"),
    (MySqlColumn("c", "bit", length=1), "BOOLEAN"),
    (MySqlColumn("c", "bit", length=10), "BINARY(2)"),
    (MySqlColumn("c", "varbinary", length=9), "VARBINARY(9)"),
    (MySqlColumn("c", "longblob"), "BYTES"),
    (MySqlColumn("c", "json"), "STRING"),
    (MySqlColumn("c", "set"), "STRING"),
    (MySqlColumn("c", "multipolygon"), "STRING"),
    (MySqlColumn("c", "inet6"), "None"),
]


@pytest.mark.parametrize(("column", "expected"), TYPES, ids=[f"{c.kind}-{e}" for c, e in TYPES])
def test_a_column_is_carried_as(column: MySqlColumn, expected: str) -> None:
    assert str(sql_type(column, TypeRules())) == expected


def test_not_null_is_kept_but_for_dates_that_may_become_null() -> None:
    rules, strict = TypeRules(), TypeRules(zero_dates=ZeroDates.FAIL)
    for kind, told, strictly in (("date", "DATE", "DATE NOT NULL"), ("int", "INT NOT NULL", "INT NOT NULL")):
        column = MySqlColumn("c", kind, nullable=False)
        assert (str(sql_type(column, rules)), str(sql_type(column, strict))) == (told, strictly)


def test_a_small_number_is_declared_as_a_boolean_but_for_one_of_a_key() -> None:
    """A key of BOOLEAN would be one row of all numbers but 0."""
    flags = (MySqlColumn("id", "int"), MySqlColumn("k", "tinyint", length=1), MySqlColumn("v", "tinyint", length=1))
    table = MySqlTable("shop", "t", flags, ("id", "k"))
    for rules, told in ((TypeRules(), "BOOLEAN"), (TypeRules(tinyint1_as_boolean=False), "TINYINT")):
        columns, _ = declared_columns(table, rules)
        assert [str(column.type) for column in columns] == ["INT NOT NULL", "TINYINT NOT NULL", told]


def test_a_table_without_a_primary_key_is_told_with_the_remedy() -> None:
    assert key_problem(MySqlTable("shop", "t", (), ("id",))) is None
    told = key_problem(MySqlTable("shop", "t", (), ()))
    assert told is not None
    assert "table shop.t has no primary key" in told
    assert "'tables.exclude'" in told


def test_elements_of_enums_and_sets() -> None:
    assert read_elements(r"enum('a','it''s','x\\y','',',','(1)')") == ("a", "it's", "x\\y", "", ",", "(1)")
