"""Which columns of a database's table are carried when they change, by `schema.change.behavior`."""

from __future__ import annotations

import pytest

from upsert_platform.hops.databases import evolved
from upsert_platform.mysql.columns import MySqlColumn, MySqlTable, table_from_data, table_to_data


def table(*columns: MySqlColumn) -> MySqlTable:
    return MySqlTable("shop", "t", columns, ("id",))


ID, NAME = MySqlColumn("id", "int", "int(11)"), MySqlColumn("name", "varchar", "varchar(9)", length=9, nullable=False)
LONGER, MORE = MySqlColumn("name", "varchar", "varchar(90)", length=90), MySqlColumn("more", "int", "int(11)")
BEFORE = table(ID, NAME)


@pytest.mark.parametrize(
    ("behavior", "now", "names"),
    [
        ("lenient", table(ID, NAME, MORE), ["id", "name", "more"]),
        ("lenient", table(ID, MORE), ["id", "more", "name"]),
        ("try_evolve", table(MORE, ID), ["more", "id", "name"]),
        ("evolve", table(ID, MORE), ["id", "more"]),
        ("ignore", table(ID, MORE), ["id", "name"]),
        ("exception", table(ID, NAME), ["id", "name"]),
    ],
)
def test_columns_that_are_carried(behavior: str, now: MySqlTable, names: list[str]) -> None:
    assert [column.name for column in evolved(BEFORE, now, behavior).columns] == names
    assert evolved(None, now, behavior) == now


def test_a_dropped_column_accepts_null() -> None:
    found = evolved(BEFORE, table(ID), "lenient")
    assert [column.nullable for column in found.columns] == [True, True]


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (table(ID, NAME, MORE), "column 'more' is new"),
        (table(ID), "column 'name' is gone"),
        (table(ID, LONGER), r"column 'name' is varchar\(90\) and was varchar\(9\)"),
    ],
)
def test_exception_names_every_difference(now: MySqlTable, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        evolved(BEFORE, now, "exception")


def test_a_table_is_kept_as_it_was_told() -> None:
    told = table(ID, MySqlColumn("kind", "enum", "enum('a')", elements=("a",), charset="utf8mb4"))
    assert table_from_data(table_to_data(told)) == told
