"""Which columns of a database's table are carried when they change, by `schema.change.behavior`."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from upsert_platform.changelog.lake import Lake
from upsert_platform.mysql.columns import MySqlColumn, MySqlTable, TypeRules, table_from_data, table_to_data
from upsert_platform.mysql.options import MySqlSource
from upsert_platform.sync.databases import _Kept, evolved, with_stored_types


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


INT, WIDE = MySqlColumn("v", "int", "int(11)"), MySqlColumn("v", "bigint", "bigint(20)", nullable=False)
UNSIGNED = MySqlColumn("v", "bigint", "bigint(20) unsigned", unsigned=True)
MONEY, MORE_MONEY = (MySqlColumn("v", "decimal", "", precision=digits, fraction=2) for digits in (8, 12))
FINER = MySqlColumn("v", "decimal", "", precision=12, fraction=4)
BOOLEAN = MySqlColumn("v", "tinyint", "tinyint(1)", length=1)
DOUBLE, TEXT = MySqlColumn("v", "double", "double"), MySqlColumn("v", "varchar", "varchar(20)", length=20)


@pytest.mark.parametrize(
    ("old", "new", "stays"),
    [
        (INT, WIDE, True),
        (WIDE, INT, True),
        (INT, UNSIGNED, True),
        (MONEY, MORE_MONEY, True),
        (MONEY, FINER, False),
        (BOOLEAN, INT, False),
        (INT, DOUBLE, False),
        (INT, TEXT, False),
        (TEXT, INT, False),
    ],
)
def test_exact_numbers_keep_the_type_that_their_changelog_has(old: MySqlColumn, new: MySqlColumn, stays: bool) -> None:
    before, now = table(ID, old), table(ID, new, MORE)
    carried = with_stored_types(before, now, TypeRules()).columns[1]
    assert carried == replace(old if stays else new, nullable=new.nullable)
    assert with_stored_types(None, now, TypeRules()) == now


def test_a_table_is_kept_as_it_was_told() -> None:
    told = table(ID, MySqlColumn("kind", "enum", "enum('a')", elements=("a",), charset="utf8mb4"))
    assert table_from_data(table_to_data(told)) == told


def test_who_loads_a_project_meets_the_last_answer_whole(tmp_path: Path) -> None:
    """Another process may be writing a newer one, or was killed while it did."""
    options = {"hostname": "h", "username": "u", "password": "p", "tables": "shop.\\.*"}
    kept = _Kept(MySqlSource.model_validate(options), Lake.at(str(tmp_path)))
    answers = [{f"shop.t{number}": table(ID, *[NAME] * (300 + number))} for number in range(2)]
    kept.write(answers[0], {})
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            kept.write(answers[number % 2], {})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert all(len(next(iter(kept.read().values())).columns) > 300 for _ in range(300))
    finally:
        ended.set()
        writer.join()
    assert len(list(tmp_path.rglob("*.json*"))) == 1
