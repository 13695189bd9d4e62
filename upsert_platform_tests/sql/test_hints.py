"""Hints: those about execution are passed over with a warning, others are refused with what to write instead."""

from __future__ import annotations

import pytest

from upsert_platform_tests.sql.reading import errors, read

TABLES = """
CREATE TABLE users (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
CREATE TABLE views (uid INT, page STRING) WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE t (a INT, b STRING, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'tablestore');
"""


@pytest.mark.parametrize(
    ("hint", "names"),
    [
        ("/*+ BROADCAST(users) */", ["BROADCAST"]),
        (
            "/*+ SHUFFLE_HASH(u), LOOKUP('table'='users', 'retry-strategy'='fixed_delay(1)') */",
            ["SHUFFLE_HASH", "LOOKUP"],
        ),
    ],
)
@pytest.mark.parametrize("view", [False, True])
def test_hints_about_execution_have_no_effect(hint: str, names: list[str], view: bool) -> None:
    select = f"SELECT {hint} id, name FROM users"
    statement = f"CREATE VIEW v AS {select}; INSERT INTO t SELECT * FROM v;" if view else f"INSERT INTO t {select};"
    scripts, problems = read(TABLES + statement)
    assert errors(problems) == []
    assert len(scripts.inserts) == 1
    found = [item.message for item in problems if "hint" in item.message]
    assert len(found) == len(names)
    assert all(f"the hint {name} has no effect: " in message for name, message in zip(names, found, strict=True))


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        ("/*+ OPTIONS(a) */", "the hint OPTIONS takes options"),
        ("/*+ AGG_STRATEGY('ONE_PHASE') */", "the hint AGG_STRATEGY is not one of STATE_TTL, OPTIONS, BROADCAST"),
        ("/*+ */", "a hint is written /*+ NAME(...) */"),
    ],
)
def test_other_hints_are_refused(hint: str, reason: str) -> None:
    _, problems = read(f"{TABLES}INSERT INTO t SELECT id, name FROM users {hint};")
    assert any(reason in message for message in errors(problems))


OF_GROUP = "OPTIONS('properties.group.id' = 'Two')"


@pytest.mark.parametrize(
    ("rest", "name", "options"),
    [
        ("users /*+ OPTIONS('a' = 'b') */", "users_a_b", {"a": "b"}),
        ("users /*+ OPTIONS('a' = 'b') */ AS u WHERE u.id > 1", "users_a_b", {"a": "b"}),
        ("users /*+ OPTIONS('a' = 'b') */ u WHERE u.id > 1", "users_a_b", {"a": "b"}),
        ("users /*+ OPTIONS('a' = 'b') */ WHERE users.id > 1", "users_a_b", {"a": "b"}),
        ("users /*+ BROADCAST(users), OPTIONS('b.c' = '1', 'a' = 'b', 'scan.parallelism' = '2') */", "users_a_b_b_c_1",
         {"a": "b", "b.c": "1"}),
        (f"users /*+ {OF_GROUP} */ JOIN views ON users.id = views.uid", "users_properties_group_id_two",
         {"properties.group.id": "Two"}),
        ("users /*+ OPTIONS('properties.sasl.password' = 'hidden') */", "users_properties_sasl_password",
         {"properties.sasl.password": "hidden"}),
        ("users /*+ OPTIONS('value.avro-confluent.url' = 'http://me:hidden@r:1') */", "users_value_avro_confluent_url",
         {"value.avro-confluent.url": "http://me:hidden@r:1"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("view", [False, True])
def test_a_table_with_options_of_its_own_is_another_one(
    rest: str, name: str, options: dict[str, str], view: bool
) -> None:
    select = f"SELECT id, name FROM {rest}"
    statement = f"CREATE VIEW v AS {select}; INSERT INTO t SELECT * FROM v;" if view else f"INSERT INTO t {select};"
    scripts, problems = read(TABLES + statement)
    assert errors(problems) == []
    table, declared = scripts.tables[name], scripts.tables["users"]
    assert dict(table.options) == {**declared.options, **options}
    assert dict(declared.options) == {"connector": "upsert-kafka"}
    assert "users" in scripts.mentioned, "no warning that nothing reads it"
    assert (table.columns, table.primary_key) == (declared.columns, declared.primary_key)
    (insert,) = scripts.inserts
    assert name in insert.tables
    said = [item.message for item in problems if item.severity == "warning" and f"makes '{name}'" in item.message]
    assert len(said) == 1
    assert not any("hidden" in item.message for item in problems)
    assert "hidden" not in insert.sql


def test_options_of_a_table_are_one_table_wherever_they_stand_and_others_another() -> None:
    first, second = (f"users /*+ OPTIONS('scan.startup.mode' = '{mode}-offset') */" for mode in ("earliest", "latest"))
    scripts, problems = read(
        f"{TABLES}INSERT INTO t SELECT id, name FROM {first} UNION ALL SELECT id, name FROM {first} UNION ALL SELECT"
        f" id, name FROM {second};"
    )
    assert errors(problems) == []
    names = {f"users_scan_startup_mode_{mode}_offset" for mode in ("earliest", "latest")}
    assert set(scripts.tables) == {"users", "views", "t", *names}


def test_two_tables_of_one_name_are_refused() -> None:
    first, second = (f"SELECT id, name FROM users /*+ OPTIONS('a' = '{value}') */" for value in ("b-1", "b_1"))
    _, problems = read(f"{TABLES}INSERT INTO t {first} UNION ALL {second};")
    assert any("makes a table 'users_a_b_1', and there is another one" in message for message in errors(problems))
    declared = "CREATE TABLE users_a_b_1 (id INT) WITH ('connector' = 'kafka', 'format' = 'json');"
    _, problems = read(f"{TABLES}{declared}INSERT INTO t {first};")
    assert any("makes a table 'users_a_b_1', and there is another one" in message for message in errors(problems))
    _, problems = read(f"{TABLES}INSERT INTO t SELECT id, name FROM users /*+ OPTIONS('a' = '{'x' * 99}') */;")
    assert errors(problems) == []


def test_options_behind_a_target_are_those_of_the_target() -> None:
    scripts, problems = read(
        f"{TABLES}INSERT INTO t /*+ OPTIONS('a' = 'b', 'sink.parallelism' = '2') */ SELECT id, name FROM users;"
    )
    assert errors(problems) == []
    assert dict(scripts.tables["t"].options) == {"connector": "tablestore", "a": "b"}
    assert any("'sink.parallelism'" in item.message for item in problems if item.severity == "warning")
    _, problems = read(
        f"{TABLES}INSERT INTO t /*+ OPTIONS('a' = 'b') */ SELECT id, name FROM users WHERE id > 1; INSERT INTO t SELECT"
        " id, name FROM users WHERE id < 1;"
    )
    assert any("a table has its options once" in message for message in errors(problems))


def test_options_of_what_is_no_table_are_refused() -> None:
    view = "CREATE VIEW v AS SELECT id, name FROM users;"
    _, problems = read(f"{TABLES}{view}INSERT INTO t SELECT id, name FROM v /*+ OPTIONS('a' = 'b') */;")
    assert any("stands behind a declared table, and 'v' is none" in message for message in errors(problems))


@pytest.mark.parametrize(
    ("select", "fine"),
    [
        ("SELECT uid, CAST(COUNT(page) / COUNT(*) AS STRING) FROM views GROUP BY uid", True),
        ("SELECT uid, CAST(COUNT(*) / COUNT(page) AS STRING) FROM views GROUP BY uid", False),
        ("SELECT uid, CAST(1 / COUNT(*) FILTER (WHERE page = 'a') AS STRING) FROM views GROUP BY uid", False),
        ("SELECT CAST(COUNT(page) / COUNT(*) AS INT), 'x' FROM views", False),
        ("SELECT uid, CAST(1 / COUNT(*) AS STRING) FROM views GROUP BY ROLLUP (uid)", False),
        ("SELECT uid, CAST(COUNT(*) / NULLIF(COUNT(page), 0) AS STRING) FROM views GROUP BY uid", True),
    ],
)
def test_what_counts_the_rows_of_a_group_is_divided_by(select: str, fine: bool) -> None:
    """A group has a row at least; other counts may be zero, for which a division has no value."""
    _, problems = read(f"{TABLES}INSERT INTO t {select};")
    found = errors(problems)
    assert found == [] if fine else "can fail for a row" in found[0]


def test_variables_in_a_hint_have_their_values() -> None:
    select = "SELECT id, name FROM users /*+ OPTIONS('properties.group.id' = '${GROUP}') */"
    scripts, problems = read(f"{TABLES}INSERT INTO t {select};", {"GROUP": "two"})
    assert errors(problems) == []
    assert scripts.tables["users_properties_group_id_two"].options["properties.group.id"] == "two"
