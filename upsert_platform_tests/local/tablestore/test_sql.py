"""SQLQuery through the official client: mapping tables and plain SELECT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tablestore import Condition, Row

from upsert_platform_tests.local.tablestore.conftest import error_of

COLUMNS = (
    "uid VARCHAR(1024), pid BIGINT(20), name MEDIUMTEXT, age BIGINT(20), grade DOUBLE, male BOOLEAN,"
    " picture MEDIUMBLOB, PRIMARY KEY(uid, pid)"
)


@pytest.fixture
def people(client: Any, make_table: Callable[..., str]) -> Iterator[str]:
    table = make_table(("uid", "STRING"), ("pid", "INTEGER"))
    for i in range(10):
        columns = [("name", f"n{i}"), ("age", i % 3), ("grade", i + 0.25), ("male", i % 2 == 0)]
        client.put_row(table, Row([("uid", f"{i}"), ("pid", i)], [*columns, ("picture", bytearray([i]))]))
    client.exe_sql_query(f"create table {table} ({COLUMNS});")
    yield table
    client.exe_sql_query(f"drop mapping table {table}")


def select(client: Any, text: str) -> list[tuple[Any, ...]]:
    return [tuple(value for _, value in row.attribute_columns) for row in client.exe_sql_query(text)[0]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select count(*) from {t}", [(10,)]),
        ("select sum(age) from {t}", [(9,)]),
        ("select pid from {t} where grade > 5.5", [(6,), (7,), (8,), (9,)]),
        ("select age, avg(grade) as g from {t} group by age order by age", [(0, 4.75), (1, 4.25), (2, 5.25)]),
        ("select pid from {t} order by grade desc limit 1", [(9,)]),
        ("select * from {t} where uid = '3'", [("3", 3, "n3", 0, 3.25, False, b"\3")]),
        ("select name, male from {t} where pid in (2, 3)", [("n2", True), ("n3", False)]),
        ("select `name` from {t} where name like 'n%' and pid <= 1", [("n0",), ("n1",)]),
    ],
)
def test_select(client: Any, people: str, text: str, expected: list[tuple[Any, ...]]) -> None:
    assert select(client, text.format(t=people)) == expected


def test_nulls(client: Any, people: str) -> None:
    key = [("uid", "x"), ("pid", 99)]
    client.put_row(people, Row(key, [("name", 5)]), Condition("IGNORE"))
    assert select(client, f"select * from {people} where pid = 99") == [("x", 99, None, None, None, None, None)]


def test_describe_and_show(client: Any, people: str) -> None:
    described = select(client, f"desc {people}")
    assert described[:3] == [
        ("uid", "varchar(1024)", "NO", "PRI", None, ""),
        ("pid", "bigint(20)", "NO", "PRI", None, ""),
        ("name", "mediumtext", "YES", "", None, ""),
    ]
    assert (people,) in select(client, "show tables")


@pytest.mark.parametrize(
    "text",
    [
        "select * from unmapped",
        "selec * from {t}",
        "select nothing from {t}",
        "delete from {t}",
        "create table {t} (uid VARCHAR(1024), pid BIGINT(20), PRIMARY KEY(uid, pid))",
        "drop mapping table unmapped",
    ],
)
def test_refused(client: Any, people: str, text: str) -> None:
    assert error_of(lambda: client.exe_sql_query(text.format(t=people))) == (400, "OTSParameterInvalid")


@pytest.mark.parametrize(
    "columns",
    [
        "k BIGINT(20), PRIMARY KEY(k)",
        "other VARCHAR(10), PRIMARY KEY(other)",
        "k DATETIME, PRIMARY KEY(k)",
        "k VARCHAR(9)",
    ],
    ids=["type of key", "name of key", "unknown type", "no key"],
)
def test_refused_mappings(client: Any, table: str, columns: str) -> None:
    statement = f"create table {table} ({columns})"
    assert error_of(lambda: client.exe_sql_query(statement)) == (400, "OTSParameterInvalid")
