from __future__ import annotations

import pytest

from upsert_platform_tests.sql.reading import NONE, errors, one_insert, read

TABLES = """CREATE TABLE users (
  user_id BIGINT, name STRING, region STRING, balance DECIMAL(12, 2), address ROW<city STRING, geo ROW<lat DOUBLE>>,
  at TIMESTAMP(3) METADATA FROM 'timestamp', upper_name AS UPPER(name), PRIMARY KEY (user_id) NOT ENFORCED
) WITH ('connector' = 'upsert-kafka');
CREATE TABLE target (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
"""
AFTER = TABLES.count("\n") + 1  # line of the first statement after the tables


def test_select_star_takes_all_columns_in_declared_order() -> None:
    insert = one_insert(
        TABLES
        + """CREATE TABLE copy (a BIGINT, b STRING, c STRING, d DECIMAL(12, 2), e ROW<city STRING, geo ROW<lat DOUBLE>>,
             f TIMESTAMP(3), g STRING, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'tablestore');
             INSERT INTO copy SELECT * FROM users;"""
    )
    assert insert.projections == (
        "`user_id`", "`name`", "`region`", "`balance`", "`address`", "`at`", "`upper_name`",
    )  # fmt: skip
    assert (insert.source, insert.target, insert.predicate) == ("users", "copy", None)


@pytest.mark.parametrize(
    ("statement", "projections", "predicate"),
    [
        ("SELECT user_id, name FROM users", ("`user_id`", "`name`"), None),
        ("SELECT u.user_id AS x, u.name y FROM users AS u", ("`user_id`", "`name`"), None),
        ("SELECT users.user_id, users.name FROM users", ("`user_id`", "`name`"), None),
        ("(name, id) SELECT name, user_id FROM users", ("`user_id`", "`name`"), None),
        ("(id) SELECT user_id FROM users", ("`user_id`", "NULL"), None),
        ("SELECT user_id, address.city FROM users", ("`user_id`", "`address`.`city`"), None),
        ("SELECT u.user_id, u.address.city FROM users u", ("`user_id`", "`address`.`city`"), None),
        (
            "SELECT user_id, CAST(u.address.geo.lat AS STRING) FROM users u",
            ("`user_id`", "CAST(`address`.`geo`.`lat` AS STRING)"),
            None,
        ),
        ("SELECT user_id, 'it''s \\ ok' FROM users", ("`user_id`", r"'it\'s \\ ok'"), None),
        ("SELECT user_id, upper_name FROM users", ("`user_id`", "`upper_name`"), None),
        (
            "SELECT user_id, name FROM users WHERE region <> 'test' AND balance > 10 OR name IS NULL",
            ("`user_id`", "`name`"),
            "((`region` <> 'test') AND (`balance` > 10)) OR (`name` IS NULL)",
        ),
        (
            "SELECT * FROM (SELECT user_id, LOWER(name) AS n FROM users WHERE region = 'a') AS t WHERE n <> ''",
            ("`user_id`", "LOWER(`name`)"),
            "(`region` = 'a') AND (LOWER(`name`) <> '')",
        ),
        (
            "SELECT * FROM (SELECT user_id, name FROM users) AS t (a, b) WHERE t.a > 1",
            ("`user_id`", "`name`"),
            "`user_id` > 1",
        ),
        (
            "WITH u AS (WITH users AS (SELECT * FROM users WHERE region = 'a') SELECT * FROM users) SELECT user_id,"
            " name FROM users",
            ("`user_id`", "`name`"),
            None,
        ),
        (
            "WITH u AS (SELECT user_id, name FROM users) SELECT user_id, name FROM u",
            ("`user_id`", "`name`"),
            None,
        ),
    ],
)
def test_projections_and_predicate(statement: str, projections: tuple[str, ...], predicate: str | None) -> None:
    insert = one_insert(f"{TABLES}INSERT INTO target {statement};")
    assert insert.projections == projections
    assert insert.predicate == predicate


def test_views_are_folded_away() -> None:
    insert = one_insert(
        TABLES
        + """CREATE VIEW active AS SELECT user_id, name || '!' AS shout FROM users WHERE region <> 'test';
             CREATE TEMPORARY VIEW short (k, v) AS SELECT user_id, shout FROM active WHERE CHAR_LENGTH(shout) < 9;
             INSERT INTO target SELECT k, UPPER(v) FROM short;"""
    )
    assert insert.source == "users"
    assert insert.projections == ("`user_id`", "UPPER(CONCAT(`name`, '!'))")
    assert insert.predicate == "(`region` <> 'test') AND (CHAR_LENGTH(CONCAT(`name`, '!')) < 9)"


def test_static_partition_columns() -> None:
    insert = one_insert(
        """CREATE TABLE s (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
        CREATE TABLE t (id BIGINT, dd STRING, v STRING, hh BIGINT, PRIMARY KEY (id) NOT ENFORCED)
        PARTITIONED BY (dd, hh) WITH ('connector' = 'maxcompute');
        INSERT INTO t PARTITION (dd = '20240101', hh = 7) SELECT id, v FROM s;"""
    )
    assert insert.projections == ("`id`", "'20240101'", "`v`", "CAST(7 AS BIGINT)")


def test_metadata_columns_that_are_not_virtual_are_written_after_the_physical_ones() -> None:
    insert = one_insert(
        TABLES
        + """CREATE TABLE topic (ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', id BIGINT, name STRING,
             o BIGINT METADATA FROM 'offset' VIRTUAL, twice AS id * 2,
             PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
             INSERT INTO topic SELECT at, user_id, name FROM users;"""
    )
    assert insert.projections == ("`user_id`", "`name`", "CAST(`at` AS TIMESTAMP)")


@pytest.mark.parametrize(
    "wrapped",
    [
        "EXECUTE STATEMENT SET BEGIN {} {} END",
        "BEGIN STATEMENT SET; {} {} END",
        "STATEMENT SET BEGIN {} {} END",
        "EXECUTE {} {}",
    ],
)
def test_statement_sets(wrapped: str) -> None:
    first = "INSERT INTO target SELECT user_id, name FROM users;"
    second = "INSERT INTO other SELECT user_id, name FROM users;"
    other = "CREATE TABLE other LIKE target;"
    scripts, problems = read(f"{TABLES}{other}\n{wrapped.format(first, second)};")
    assert errors(problems) == []
    assert [insert.target for insert in scripts.inserts] == ["target", "other"]
    assert scripts.inserts[1].sql == second.rstrip(";")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("BEGIN STATEMENT SET; INSERT INTO target SELECT user_id, name FROM users;", "is never closed"),
        ("END", "END without STATEMENT SET"),
        ("EXECUTE STATEMENT SET BEGIN EXECUTE STATEMENT SET BEGIN", "a statement cannot begin so"),
        ("BEGIN STATEMENT SET; BEGIN STATEMENT SET; END", "STATEMENT SET inside another one"),
    ],
)
def test_faults_of_statement_sets(statement: str, message: str) -> None:
    _, problems = read(TABLES + statement)
    assert any(message in found for found in errors(problems)) or message in str(problems[-1])


REFUSED = [
    ("SELECT user_id FROM users", "the query gives 1 columns (user_id) for 2 of the target (id, name)"),
    ("(id, nam) SELECT user_id, name FROM users", "the target has no column 'nam' to write; did you mean 'name'?"),
    ("(id, id) SELECT user_id, name FROM users", "column 'id' is given twice"),
    ("(name) SELECT name FROM users", "primary key column 'id' is not written; add it to the column list"),
    ("SELECT user_id, nam FROM users", "unknown column 'nam'; did you mean 'name'?"),
    ("SELECT user_id, NAME FROM users", "unknown column 'NAME'"),
    ("SELECT user_id, x.name FROM users", "unknown column 'x' (there is no table 'x' in FROM either)"),
    ("SELECT user_id, users.name FROM users u", "unknown column 'users'"),
    ("SELECT user_id, address.cit FROM users", "`address` has no field 'cit'; did you mean 'city'?"),
    ("SELECT user_id, name.x FROM users", "'x' is not a field: `name` is STRING, not a ROW"),
    ("SELECT user_id, name FROM user", "unknown table 'user' in FROM"),
    ("SELECT user_id, balance FROM users", "column 'balance' is DECIMAL(12, 2), column 'name' is STRING; write"
     " CAST(balance AS STRING)"),
    ("SELECT user_id, user_id + 1 FROM users", "the expression is BIGINT, column 'name' is STRING"),
    ("SELECT user_id, CAST(name AS NOTYPE) FROM users", "unknown type 'NOTYPE'"),
    ("SELECT user_id, name FROM users WHERE balance", "WHERE takes a condition, not DECIMAL(12, 2)"),
    ("SELECT user_id, name FROM users WHERE", "the query is not SQL: WHERE is not complete"),
    ("SELECT user_id, name users", "SELECT without FROM"),
    ("SELECT user_id, DATE_FORMAT(at, 'YYYY') FROM users", "Spark has no pattern letter 'Y'; 'yyyy' is the year"),
    ('SELECT user_id, "name" FROM users', "not in double quotes"),
    ("SELECT balance, name FROM users", "primary key column 'id' is filled from column 'balance'; it must be a primary"
     " key column of 'users' (user_id)"),
    ("SELECT user_id, address FROM users", "column 'address' is ROW<`city` STRING"),
    ("SELECT user_id + 1, name FROM users", "primary key column 'id' is filled from an expression"),
    ("PARTITION (name = 'x') SELECT user_id FROM users", "PARTITION names 'name', which is not a partition column"),
    ("SELECT user_id, JSON_UNQUOTE(name) FROM users", "JSON_UNQUOTE is not supported: JSON_VALUE"),
    ("SELECT user_id, UPPR(name) FROM users", "unknown function UPPR; did you mean 'UPPER'?"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "message"), REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_faults_name_the_column_and_line(statement: str, message: str) -> None:
    _, problems = read(f"{NONE}{TABLES}INSERT INTO target\n  {statement};")
    found = errors(problems)[0]
    assert message in found
    assert found.split(":")[0] in (str(AFTER), str(AFTER + 1))


def test_lines_of_faults_inside_a_long_query() -> None:
    _, problems = read(f"{TABLES}INSERT INTO target\nSELECT\n  user_id,\n  UPPER(\n    nam)\nFROM users;")
    assert errors(problems)[0].startswith(f"{AFTER + 4}: ")


def test_an_unknown_target_is_told_with_the_nearest_name() -> None:
    _, problems = read(f"{TABLES}INSERT INTO targets SELECT user_id, name FROM users;")
    assert errors(problems) == [
        f"{AFTER}: INSERT INTO targets: no CREATE TABLE declares the target; did you mean 'target'?"
    ]


KEYS = """CREATE TABLE s (a INT, b INT, v STRING, PRIMARY KEY (a, b) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
CREATE TABLE log (a INT, b INT, v STRING) WITH ('connector' = 'kafka');
CREATE TABLE one (a INT, v STRING, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'tablestore');
CREATE TABLE two (x INT, y BIGINT, v STRING, PRIMARY KEY (y, x) NOT ENFORCED) WITH ('connector' = 'tablestore');
"""


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT INTO two SELECT b, a, v FROM s", None),
        ("INSERT INTO one SELECT a, v FROM s", "the key of the target lacks b"),
        ("INSERT INTO two SELECT a, a, v FROM s", "the key of the target lacks b"),
        ("INSERT INTO two SELECT a + 1, CHAR_LENGTH(v), v FROM log", None),
    ],
    ids=["renamed, reordered, widened", "subset", "same column twice", "append-only source has no deletes"],
)
def test_the_key_of_the_target_is_the_key_of_the_source(statement: str, message: str | None) -> None:
    _, problems = read(NONE + KEYS + statement)
    if message is None:
        assert errors(problems) == []
    else:
        assert message in errors(problems)[0]


def test_values_that_differ_each_time_are_warned_of() -> None:
    _, problems = read(f"{TABLES}INSERT INTO target SELECT user_id, UUID() FROM users WHERE at < CURRENT_TIMESTAMP;")
    assert [problem.severity for problem in problems] == ["warning", "warning"]
    assert "column 'name' depends on UUID" in problems[0].message
    assert "WHERE depends on CURRENT_TIMESTAMP" in problems[1].message


def test_faults_of_a_table_are_not_repeated_for_what_uses_it() -> None:
    _, problems = read(
        """CREATE TABLE s (id BIGNT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
        CREATE VIEW v AS SELECT id FROM s;
        CREATE TABLE t LIKE s;
        INSERT INTO t SELECT id FROM s; INSERT INTO t SELECT id FROM v;"""
    )
    assert errors(problems) == ["1: column 'id': 'BIGNT' is not a SQL type: unknown type 'BIGNT'"]


@pytest.mark.parametrize(
    ("views", "message"),
    [
        ("CREATE VIEW v AS SELECT user_id FROM v;", "view 'v' reads itself"),
        ("CREATE VIEW v AS SELECT user_id, user_id FROM users;", "two columns are named 'user_id'"),
        ("CREATE VIEW v (a) AS SELECT user_id, name FROM users;", "1 column names for 2 columns"),
        ("CREATE VIEW users AS SELECT 1 FROM target;", "'users' is declared twice"),
    ],
)
def test_faults_of_views(views: str, message: str) -> None:
    _, problems = read(TABLES + views)
    assert message in errors(problems)[0]


def test_a_key_of_another_type_is_declared_anew_not_cast() -> None:
    _, problems = read(
        """CREATE TABLE s (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
        CREATE TABLE t (id STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
        INSERT INTO t SELECT id FROM s;"""
    )
    assert errors(problems) == ["3: INSERT INTO t: column 'id' is BIGINT, column 'id' is STRING; declare it BIGINT too"]


def test_insert_overwrite_is_the_same_statement_that_replaces() -> None:
    plain = one_insert(TABLES + "INSERT INTO target SELECT user_id, name FROM users;")
    overwriting = one_insert(TABLES + "INSERT OVERWRITE target SELECT user_id, name FROM users;")
    assert (plain.overwrite, overwriting.overwrite) == (False, True)
    assert overwriting.projections == plain.projections
    _, problems = read(TABLES + "INSERT OVERWRITE target SELECT user_id FROM users;")
    assert errors(problems) == [
        f"{AFTER}: INSERT OVERWRITE target: the query gives 1 columns (user_id) for 2 of the target (id, name)"
    ]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("TIMESTAMP(3)", "DATE"),
        ("DOUBLE", "DECIMAL(10, 2)"),
        ("DECIMAL(10, 4)", "DECIMAL(10, 2)"),
        ("TIMESTAMP(6)", "TIMESTAMP(0)"),
    ],
)
def test_a_key_is_not_narrowed_without_a_word(source: str, target: str) -> None:
    """Two keys would be one row, and the tombstone of one would take the row of the other."""
    tables = """CREATE TABLE s (k {}, v STRING{}) WITH ('connector' = '{}');
    CREATE TABLE t (k {}, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'maxcompute');
    INSERT INTO t SELECT {}, v FROM s;"""
    key = ", PRIMARY KEY (k) NOT ENFORCED"
    lost = f"3: INSERT INTO t: column 'k' is {source}, column 'k' is {target}, where different keys could become one; "
    _, problems = read(tables.format(source, key, "upsert-kafka", target, "k"))
    assert errors(problems) == [f"{lost}declare it {source} too"]
    _, problems = read(tables.format(source, "", "kafka", target, "k"))
    assert errors(problems) == [f"{lost}write CAST(k AS {target}) if one row per such value is meant"]
    _, problems = read(tables.format(source, "", "kafka", target, f"CAST(k AS {target})"))
    assert errors(problems) == []
    _, problems = read(tables.format(source, key, "upsert-kafka", source, "k"))
    assert errors(problems) == []
