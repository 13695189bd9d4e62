"""Tables named with their catalogs and databases, as files of Flink and of Alibaba's platform have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from upsert_platform.sql.scripts import Scripts
from upsert_platform.sql.variables import Variables
from upsert_platform_tests.sql.reading import errors, read, read_scripts

_AT: Final = "'properties.bootstrap.servers' = 'b:1'"
WITH: Final = (
    f"WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'key.format' = 'json', 'value.format' = 'json', {_AT})"
)
COLUMNS: Final = "(id BIGINT, name STRING, r ROW<a BIGINT>, PRIMARY KEY (id) NOT ENFORCED)"
TIMED: Final = "(id BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (id) NOT ENFORCED)"
DEFAULTS: Final = (
    "default_catalog.default_database",
    "default_database",
    "vvp.`default`",
    "`vvp`.`default`",
    "`default`",
)


def table(name: str, columns: str = COLUMNS) -> str:
    return f"CREATE TABLE {name} {columns} {WITH};\n"


def scripts(sql: str) -> Scripts:
    found, problems = read(sql)
    assert errors(problems) == []
    return found


@pytest.mark.parametrize("database", DEFAULTS)
def test_a_table_of_the_default_database_is_named_by_its_last_part(database: str) -> None:
    found = scripts(
        table(f"{database}.a")
        + f"CREATE TABLE b LIKE {database}.a;\n"
        + f"CREATE VIEW {database}.v AS SELECT id, name, r FROM {database}.a;\n"
        + f"INSERT INTO {database}.b SELECT * FROM {database}.v;\n"
    )
    assert list(found.tables) == ["a", "b"]
    (insert,) = found.inserts
    assert (insert.source, insert.target) == ("a", "b")


@pytest.mark.parametrize("written", ["a", *(f"{database}.a" for database in DEFAULTS)])
@pytest.mark.parametrize("read_as", ["a", "default_database.a", "`vvp`.`default`.a"])
def test_one_table_is_read_by_every_way_to_write_its_name(written: str, read_as: str) -> None:
    found = scripts(table(written) + table("b") + f"INSERT INTO b SELECT * FROM {read_as};")
    assert [item.source for item in found.inserts] == ["a"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT default_database.a.id, a.name, default_catalog.default_database.a.r FROM default_database.a",
        "SELECT vvp.`default`.a.* FROM vvp.`default`.a WHERE `default`.a.r.a > 1",
        "SELECT x.id, x.name, x.r FROM default_database.a AS x",
        "SELECT id, name, r FROM (SELECT * FROM default_database.a) AS q",
        "WITH q AS (SELECT * FROM default_database.a) SELECT id, name, r FROM q",
    ],
)
def test_names_before_columns_may_be_those_of_databases_too(query: str) -> None:
    (insert,) = scripts(table("a") + table("b") + f"INSERT INTO b {query};").inserts
    assert insert.source == "a" and insert.query is None
    assert insert.projections == ("`id`", "`name`", "`r`")


@pytest.mark.parametrize(
    ("query", "reads"),
    [
        ("SELECT ods.a.id, COUNT(*) FROM ods.a JOIN dwd.a ON ods.a.id = default_catalog.dwd.a.id GROUP BY ods.a.id",
         {"ods.a", "dwd.a"}),
        ("SELECT l.id, COUNT(*) FROM ods.a AS l LEFT JOIN default_database.a AS r ON l.id = r.id GROUP BY l.id",
         {"ods.a", "a"}),
        ("SELECT id, COUNT(*) FROM dwd.a WHERE id IN (SELECT ods.a.id FROM ods.a) GROUP BY id", {"ods.a", "dwd.a"}),
        ("SELECT id, COUNT(*) FROM (SELECT id FROM ods.a UNION ALL SELECT id FROM vvp.dwd.a) GROUP BY id",
         {"ods.a", "dwd.a"}),
        ("SELECT id, COUNT(*) FROM TABLE(TUMBLE(TABLE ods.timed, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY id,"
         " window_start, window_end", {"ods.timed"}),
        ("SELECT l.id, COUNT(*) FROM default_database.timed AS l JOIN ods.timed FOR SYSTEM_TIME AS OF l.ts AS r ON"
         " l.id = r.id GROUP BY l.id", {"timed", "ods.timed"}),
    ],
)  # fmt: skip
def test_tables_of_one_last_name_stay_apart(query: str, reads: set[str]) -> None:
    tables = "".join(table(f"{name}.a") for name in ("ods", "dwd", "default_database"))
    tables += "".join(table(name, TIMED) for name in ("timed", "ods.timed"))
    target = table("out", "(id BIGINT, n BIGINT, PRIMARY KEY (id) NOT ENFORCED)")
    found = scripts(tables + target + f"INSERT INTO out {query};")
    (insert,) = found.inserts
    assert insert.query is not None and set(insert.query.tables) == reads
    assert list(found.tables) == ["ods.a", "dwd.a", "a", "timed", "ods.timed", "out"]


def test_hints_stand_behind_such_names() -> None:
    hint = "/*+ OPTIONS('properties.group.id' = 'g') */"
    found = scripts(table("ods.a") + table("b") + f"INSERT INTO b SELECT a.id, name, r FROM vvp.ods.a {hint};")
    assert [item.source for item in found.inserts] == ["ods.a_properties_group_id_g"]


def test_a_declaration_changes_no_name_of_another_table() -> None:
    alone = scripts(table("ods.a"))
    assert set(alone.tables) < set(scripts(table("ods.a") + table("dwd.a") + table("a")).tables)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (table("vvp.`default`.a") + table("default_catalog.default_database.a"),
         "2: tables `vvp`.`default`.`a` (at f.sql:1) and `default_catalog`.`default_database`.`a` have one name here,"
         " 'a': rename one"),
        (table("vvp.`default`.a") + table("IF NOT EXISTS default_catalog.default_database.a"), "2: tables `vvp`"),
        (table("a") + table("default_database.a"), "2: table 'a' is declared twice"),
        (table("ods.a") + table("`ods.a`"), "2: table 'ods.a' is declared twice"),
        (table("a") + "INSERT INTO a SELECT * FROM hive.ods.a;",
         "2: catalog 'hive' is not known: the tables of a project are those that it declares."
         " Write CREATE TABLE `hive`.<database>.<table> (...) WITH ('connector' = ...)"),
        (table("a.b.c.d"), "1: 'a.b.c.d' has 4 parts"),
        (table("a") + table("b") + "INSERT INTO b WITH a AS (SELECT * FROM b) SELECT * FROM default_database.a;",
         "3: table 'default_catalog.default_database.a' has the name of a query of WITH, 'a': rename that query"),
        (table("a") + table("b") + "INSERT INTO b SELECT * FROM ods.a;", "3: INSERT INTO b: unknown table 'ods.a'"),
    ],
)  # fmt: skip
def test_what_is_refused_is_refused_by_name(sql: str, message: str) -> None:
    assert errors(read(sql)[1])[0].startswith(message)


@pytest.mark.parametrize(
    ("files", "known"),
    [
        ({"a.sql": "USE CATALOG c;", "b.sql": "CREATE CATALOG c WITH ('type' = 'generic_in_memory');"}, True),
        ({"a.sql": "USE CATALOG c;", "b.sql": table("c.d.t")}, True),
        ({"a.sql": "USE CATALOG c;", "b.sql": table("d.t")}, False),
    ],
)
def test_a_catalog_is_declared_in_any_file(files: Mapping[str, str], known: bool) -> None:
    _, problems = read_scripts(files, Variables({}, {}, {}))
    assert (errors(problems) == []) == known


def test_tables_of_databases_are_in_use_where_a_statement_about_them_cannot_be_read() -> None:
    found, _ = read(table("ods.a") + table("b") + "INSERT INTO b SELECT FROM WHERE ods.a;")
    assert "ods.a" in found.mentioned
