"""USE, CREATE DATABASE and CREATE CATALOG: what they mean for the names behind them."""

from __future__ import annotations

import pytest

from upsert_platform_tests.sql.reading import errors, read
from upsert_platform_tests.sql.test_table_names import scripts, table


def test_use_holds_for_the_statements_behind_it() -> None:
    found = scripts(
        table("a")
        + "CREATE DATABASE IF NOT EXISTS ods COMMENT 'of sources';\nUSE ods;\n"
        + "CREATE TABLE a LIKE default_database.a;\n"
        + "CREATE VIEW v AS WITH b AS (SELECT * FROM a) SELECT b.id, b.name, b.r FROM b;\n"
        + "CREATE TABLE copied LIKE a;\n"
        + "INSERT INTO copied SELECT v.id, v.name, v.r FROM v JOIN default_database.a ON v.id = a.id;\n"
        + "USE default_catalog.default_database;\n"
        + "CREATE TABLE other LIKE a;\nINSERT INTO other SELECT * FROM a;\n"
    )
    assert list(found.tables) == ["a", "ods.a", "ods.copied", "other"]
    joined, copied = found.inserts
    assert joined.query is not None and (joined.target, set(joined.query.tables)) == ("ods.copied", {"ods.a", "a"})
    assert (copied.source, copied.target) == ("a", "other")


def test_a_query_of_with_hides_a_table_only_from_what_can_see_it() -> None:
    found = scripts(
        "USE ods;\n"
        + table("a")
        + table("b")
        + "INSERT INTO b WITH a AS (SELECT * FROM a WHERE id > 1) SELECT * FROM a;"
    )
    (insert,) = found.inserts
    assert (insert.source, insert.predicate) == ("ods.a", "`id` > 1")


@pytest.mark.parametrize(
    ("statements", "name"),
    [
        ("USE CATALOG vvp", "t"),
        ("USE CATALOG default_catalog", "t"),
        ("USE CATALOG vvp; USE ods", "ods.t"),
        ("USE vvp.ods", "ods.t"),
        ("CREATE CATALOG c WITH ('type' = 'generic_in_memory'); USE CATALOG c", "c.default.t"),
        ("CREATE CATALOG IF NOT EXISTS c COMMENT 'x' WITH ('type' = 'generic_in_memory', 'default-database' = 'd'); USE"
         " CATALOG c", "c.d.t"),
        ("CREATE CATALOG c WITH ('type' = 'generic_in_memory'); USE CATALOG c; CREATE DATABASE d; USE d", "c.d.t"),
    ],
)  # fmt: skip
def test_a_catalog_begins_with_its_default_database(statements: str, name: str) -> None:
    assert list(scripts(f"{statements};\n{table('t')}").tables) == [name]


@pytest.mark.parametrize(
    ("statement", "severity", "message"),
    [
        ("CREATE CATALOG h WITH ('type' = 'hive', 'hive-conf-dir' = '/x')", "error",
         "CREATE CATALOG h: tables of a catalog of the type 'hive' are not known without it. Write 'type' ="
         " 'generic_in_memory'"),
        ("CREATE CATALOG j WITH ('type' = 'jdbc', 'password' 's3cret')", "error", "an option is written 'name' ="),
        ("CREATE CATALOG c WITH ('type' = 'generic_in_memory', 'owner' = 'me')", "warning", "option 'owner' of CREATE"),
        ("CREATE DATABASE d WITH ('owner' = 'me')", "warning", "WITH of CREATE DATABASE has no effect"),
        ("USE CATALOG hive", "error", "catalog 'hive' is not known"),
        ("USE a.b.c", "error", "'a.b.c' has 3 parts: catalog and database are two"),
        ("USE a b", "error", "';' expected, but 'b' stands there"),
    ],
)  # fmt: skip
def test_what_catalogs_cannot_do_is_said(statement: str, severity: str, message: str) -> None:
    _, problems = read(f"{table('t')}{statement};")
    (problem,) = problems
    assert (problem.severity, message in problem.message) == (severity, True), problem.message
    assert "s3cret" not in problem.message


def test_a_file_begins_as_a_session_of_its_own() -> None:
    _, problems = read(f"USE CATALOG c; CREATE CATALOG c WITH ('type' = 'generic_in_memory');\n{table('t')}")
    assert errors(problems) == []
