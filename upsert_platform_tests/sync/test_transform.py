from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from upsert_platform.changelog.rows import stored_columns
from upsert_platform.core.destination import RefusedRow
from upsert_platform.core.model import Insert, Table
from upsert_platform.core.types import quote_name, spark_type
from upsert_platform.sync import transform
from upsert_platform.sync.transform import change_frame, change_query, computed, failed_rows
from upsert_platform_tests.sql.reading import errors, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = dt.datetime.fromisoformat("2024-02-29 12:00:00.123456")
SOURCE = """CREATE TABLE users (
  user_id BIGINT, name STRING, region STRING, balance DECIMAL(12, 2), `odd ``name` STRING,
  at TIMESTAMP(6) METADATA FROM 'timestamp', day_of AS DATE_FORMAT(at, 'yyyyMMdd'),
  PRIMARY KEY (user_id) NOT ENFORCED
) WITH ('connector' = 'upsert-kafka');
CREATE TABLE log (user_id BIGINT, name STRING) WITH ('connector' = 'kafka');
"""


def frame(spark: SparkSession, sql: str, rows: list[tuple[object, ...]]) -> DataFrame:
    """Runs the change query of the only insert over rows: `_kind`, `_seq`, stored columns."""
    insert, source, target = declared(sql)
    view = f"changes_{source.name}"
    schema = ", ".join(
        ["_kind STRING", "_seq BIGINT"]
        + [f"{quote_name(column.name)} {spark_type(column.type)}" for column in stored_columns(source) if column.type]
    )
    spark.createDataFrame(rows, schema).createOrReplaceTempView(view)
    return change_frame(spark, insert, source, target, view)


def declared(sql: str) -> tuple[Insert, Table, Table]:
    scripts, problems = read(SOURCE + sql)
    assert errors(problems) == []
    (insert,) = scripts.inserts
    return insert, scripts.tables[insert.source], scripts.tables[insert.target]


def set_aside(changes: DataFrame) -> list[RefusedRow]:
    """The rows that cannot be computed, as tasks yield them to who takes no files."""
    kept: list[RefusedRow] = []
    written = failed_rows(changes, ["id"], what="table 't'", keep=kept.extend)
    if written is not None:
        assert written.total.refused == len(written.rows)
        written.keep_refused()
    return kept


def test_rows_that_do_not_meet_the_predicate_become_deletes(spark: SparkSession) -> None:
    changes = frame(
        spark,
        """CREATE TABLE t (id BIGINT, n STRING, day_of STRING, cents BIGINT, PRIMARY KEY (id) NOT ENFORCED)
           WITH ('connector' = 'tablestore');
           INSERT INTO t SELECT user_id, UPPER(name), day_of, CAST(balance * 100 AS BIGINT) FROM users
           WHERE region <> 'test';""",
        [
            ("+I", 1, 10, "ann", "eu", Decimal("1.25"), None, NOON),
            ("+U", 2, 20, "bob", "test", Decimal("2.00"), None, NOON),
            ("+U", 3, 30, "cid", None, None, None, NOON),
            ("-D", 4, 40, None, None, None, None, None),
            ("+U", 5, 50, None, "us", None, None, None),
        ],
    )
    assert changes.columns == ["id", "n", "day_of", "cents", "_op", "_seq"]
    assert [kind for _, kind in changes.dtypes] == ["bigint", "string", "string", "bigint", "string", "bigint"]
    assert sorted(map(tuple, changes.collect())) == [
        (10, "ANN", "20240229", 125, "U", 1),
        (20, None, None, None, "D", 2),
        (30, None, None, None, "D", 3),
        (40, None, None, None, "D", 4),
        (50, None, None, None, "U", 5),
    ]


def test_names_types_and_order_are_the_targets(spark: SparkSession) -> None:
    changes = frame(
        spark,
        """CREATE TABLE t (at TIMESTAMP(3), odd STRING, b DOUBLE, k DECIMAL(20, 0), missing INT,
             PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'maxcompute');
           INSERT INTO t (k, odd, b, at) SELECT user_id, `odd ``name`, balance, at FROM users;""",
        [("+I", 1, 10, None, None, Decimal("1.25"), "x", NOON)],
    )
    assert changes.dtypes == [
        ("at", "timestamp_ntz"), ("odd", "string"), ("b", "double"), ("k", "decimal(20,0)"), ("missing", "int"),
        ("_op", "string"), ("_seq", "bigint"),
    ]  # fmt: skip
    expected = (NOON.replace(microsecond=123000), "x", 1.25, Decimal(10), None, "U", 1)
    assert [tuple(row) for row in changes.collect()] == [expected]


def test_an_expression_of_a_row_that_does_not_meet_the_predicate_does_not_fail(spark: SparkSession) -> None:
    changes = frame(
        spark,
        """CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
           INSERT INTO t SELECT user_id, CAST(name AS INT) FROM users WHERE region = 'number';""",
        [
            ("+I", 1, 10, "7", "number", None, None, None),
            ("+I", 2, 20, "seven", "text", None, None, None),
            ("-D", 3, 30, "seven", "number", None, None, None),
        ],
    )
    assert set_aside(changes) == []
    assert sorted(map(tuple, computed(changes).collect())) == [(10, 7, "U", 1), (20, None, "D", 2), (30, None, "D", 3)]


FAILING = """CREATE TABLE t (id BIGINT, n INT, share DECIMAL(4, 1), PRIMARY KEY (id) NOT ENFORCED)
  WITH ('connector' = 'tablestore');
INSERT INTO t SELECT user_id, CASE WHEN region = 'x' THEN -1 ELSE 100 / CAST(name AS INT) END, balance
  FROM {} WHERE region = 'x' OR CAST(region AS INT) > 0;"""


@pytest.mark.parametrize("source", ["users", "keyless"])
def test_only_rows_that_cannot_be_computed_are_set_aside(spark: SparkSession, source: str) -> None:
    """Spark would end the task, and with it every row of the batch, in every run."""
    keyless = """CREATE TABLE keyless (user_id BIGINT, name STRING, region STRING, balance DECIMAL(12, 2))
      WITH ('connector' = 'kafka');"""
    rows = [
        ("+I", 1, 10, "7", "1", Decimal("1.25")),
        ("+U", 2, 20, "0", "1", Decimal("2.00")),
        ("+U", 3, 30, "none", "1", None),
        ("+U", 4, 40, "none", "x", None),
        ("+U", 5, 50, "5", "east", None),
        ("+U", 6, 60, "none", "-1", None),
        ("+U", 7, 70, None, "1", Decimal("123456.00")),
        ("-D", 8, 80, "none", "east", None),
    ]
    sql = FAILING.format(source)
    changes = frame(spark, keyless + sql if source == "keyless" else sql,
                    [row if source == "keyless" else (*row, None, None) for row in rows])  # fmt: skip
    refused = {row.key: row.reason for row in set_aside(changes)}
    assert refused == {
        '{"id": 20}': "division by zero",
        '{"id": 30}': "a text cannot be cast to INT: none",
        '{"id": 50}': "a text cannot be cast to INT: east",
        '{"id": 70}': "a number does not fit DECIMAL(4, 1)",
    }
    kept = {(row["id"], row["n"], row["_op"]) for row in computed(changes).collect()}
    # With a key in the source a row that does not count any more is deleted; without, one that never did is nobody's.
    left_out = {(60, None, "D"), (80, None, "D")} if source == "users" else set()
    assert kept == {(10, 14, "U"), (40, -1, "U"), *left_out}


def test_a_computed_column_that_fails_is_its_rows_fate(spark: SparkSession) -> None:
    changes = frame(
        spark,
        """CREATE TABLE s (id BIGINT, v STRING, n AS CAST(v AS INT), PRIMARY KEY (id) NOT ENFORCED)
             WITH ('connector' = 'upsert-kafka');
           CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
           INSERT INTO t SELECT id, n + 1 FROM s;""",
        [("+U", 1, 1, "7"), ("+U", 2, 2, "x"), ("+U", 3, 3, None)],
    )
    assert [row.key for row in set_aside(changes)] == ['{"id": 2}']
    assert sorted(map(tuple, computed(changes).collect())) == [(1, 8, "U", 1), (3, None, "U", 3)]


def test_without_a_source_key_rows_that_do_not_meet_the_predicate_are_left_out(spark: SparkSession) -> None:
    changes = frame(
        spark,
        """CREATE TABLE t (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
           INSERT INTO t SELECT user_id, name FROM log WHERE name <> 'test';""",
        [
            ("+I", 1, 1, "ann"),
            ("+I", 2, 2, "test"),
            ("-U", 3, 3, "old"),
            ("+U", 4, 3, "new"),
            ("-D", 5, 4, "gone"),
            ("-D", 1, 5, "test"),  # the row of another one that was left out
        ],
    )
    assert sorted(map(tuple, changes.collect()), key=lambda row: row[3]) == [
        (1, "ann", "U", 1),
        (3, None, "D", 3),
        (3, "new", "U", 4),
        (4, None, "D", 5),
    ]


def test_changes_of_a_source_without_a_key_leave_the_rows_that_there_are(spark: SparkSession) -> None:
    """Updates that change the key, swap keys or leave the predicate; the model replays them on a plain dict."""
    from random import Random

    from upsert_platform.changelog.latest import every_row, last_written

    insert, source, target = declared(
        """CREATE TABLE t (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
           INSERT INTO t SELECT user_id, name FROM log WHERE name <> 'test';"""
    )
    chance = Random(7)
    table: dict[int, str] = {}
    changes: list[tuple[str, int, int, int, str]] = []
    for offset in range(300):
        key, name = chance.randrange(12), chance.choice(["ann", "bob", "test"])
        if table and chance.random() < 0.7:
            old = chance.choice(sorted(table))
            gone = table.pop(old)
            if chance.random() < 0.2:
                changes.append(("-D", offset, 0, old, gone))
                continue
            key = key if key not in table else old
            changes += [("-U", offset, 0, old, gone), ("+U", offset, 1, key, name)]
            table[key] = name
        elif key not in table:
            changes.append(("+I", offset, 0, key, name))
            table[key] = name
    schema = "_kind STRING, _offset BIGINT, _row INT, user_id BIGINT, name STRING"
    rows = spark.createDataFrame(changes, schema).selectExpr(
        "*", "1L AS _batch", "timestamp'2024-01-01' AS _timestamp", "'log' AS _topic", "0 AS _partition"
    )
    every_row(rows, columns=["user_id", "name"]).createOrReplaceTempView("changes_without_key")
    frame = spark.sql(change_query(insert, source, target, "changes_without_key"))
    last = {row["id"]: row["name"] for row in last_written(frame, key=["id"]).where("_op = 'U'").collect()}
    assert last == {key: name for key, name in table.items() if name != "test"}
    assert last


def test_without_a_target_key_deletes_keep_the_row(spark: SparkSession) -> None:
    changes = frame(
        spark,
        """CREATE TABLE t (id BIGINT, name STRING) WITH ('connector' = 'maxcompute');
           INSERT INTO t SELECT * FROM log;""",
        [("+I", 1, 1, "ann"), ("-D", 2, 2, "gone")],
    )
    assert sorted(map(tuple, changes.collect())) == [(1, "ann", "U", 1), (2, "gone", "D", 2)]


@pytest.mark.parametrize("name", ["v", "odd view`s name"])
def test_the_view_may_have_any_name(name: str) -> None:
    insert, source, target = declared("CREATE TABLE t LIKE log; INSERT INTO t SELECT * FROM log;")
    assert quote_name(name) in change_query(insert, source, target, name)


FINE = """CREATE TABLE fine ({columns}, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
CREATE TABLE t ({columns}, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = '{connector}');
INSERT INTO t SELECT * FROM fine;"""
COLUMNS = """id BIGINT, at TIMESTAMP(3), z TIMESTAMP_LTZ(0), clock TIME(3), six TIMESTAMP(6),
  inner_ ROW<`a b` TIMESTAMP(1), n INT>, several ARRAY<TIMESTAMP(3)>, named MAP<STRING, ROW<at TIMESTAMP(0)>>"""


@pytest.mark.parametrize("connector", ["tablestore", "maxcompute"])
def test_digits_beyond_the_declared_ones_are_cut_where_a_table_has_no_room_for_them(
    spark: SparkSession, connector: str
) -> None:
    """Formats read them, whatever is declared; a check would call the row stale for ever."""
    before = dt.datetime.fromisoformat("1969-12-31 23:59:59.999999")
    given = (NOON, NOON, 43_200_123_456, NOON, (NOON, 1), [before, None], {"k": (before,), "none": None})
    changes = frame(
        spark,
        FINE.format(columns=COLUMNS, connector=connector),
        [("+U", 1, 1, *given), ("+U", 2, 2, None, None, None, None, None, None, None)],
    )
    first, second = changes.orderBy("id").collect()
    assert first["at"] == NOON.replace(microsecond=123000)
    assert first["z"] == NOON.replace(microsecond=0)
    assert first["clock"] == 43_200_123_000
    assert first["six"] == NOON
    assert tuple(first["inner_"]) == (NOON.replace(microsecond=100000), 1)
    assert first["several"] == [before.replace(microsecond=999000), None]
    assert first["named"] == {"k": (before.replace(microsecond=0),), "none": None}
    assert {second[name] for name in ("at", "z", "clock", "six", "inner_", "several", "named")} == {None}


@pytest.mark.parametrize(("formats", "steps"), [("json", ["1000000"]), ("avro", ["1000", "1000000"])])
def test_topics_get_the_digits_that_are_declared_and_that_a_format_holds(formats: str, steps: list[str]) -> None:
    columns = "id BIGINT, at TIMESTAMP(6), z TIMESTAMP(0)"
    sql = FINE.format(columns=columns, connector=f"upsert-kafka', 'value.format' = '{formats}")
    assert re.findall(r"PMOD\(.*?, (\d+)\)", change_query(*declared(sql), "v")) == steps


def test_a_frame_has_one_time_however_often_spark_computes_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    midnight = dt.datetime(2003, 3, 3, 23, 59, 59, 999_000, tzinfo=dt.UTC)
    looks = iter([midnight, NOON.replace(tzinfo=dt.UTC)])
    monkeypatch.setattr(transform, "now_in_milliseconds", lambda: round(next(looks).timestamp() * 1000))
    changes = frame(
        spark,
        """CREATE TABLE t (id BIGINT, n STRING, a TIMESTAMP_LTZ(3), b TIMESTAMP(3), d DATE, s TIME(0), x BIGINT,
             PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'tablestore');
           INSERT INTO t SELECT user_id, UPPER(name), NOW(), LOCALTIMESTAMP, CURRENT_DATE, CURRENT_TIME,
             UNIX_TIMESTAMP() FROM users;""",
        [("+I", 1, key, "NOW()", "eu", None, None, NOON) for key in (1, 2)],
    )
    last_second = 86_399_000_000
    row = (midnight, midnight.replace(tzinfo=None), midnight.date(), last_second, 1_046_735_999, "U", 1)
    for _ in range(2):
        assert [tuple(found.values()) for found in changes.orderBy("id").toArrow().to_pylist()] == [
            (1, "NOW()", *row), (2, "NOW()", *row),
        ]  # fmt: skip
