"""Clauses that decide which rows a query has, over rows that tell two readings apart and random ones: as in DuckDB."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from upsert_platform.engine import store
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.sql.evaluation import prepared
from upsert_platform.sql.reader import Fault
from upsert_platform_tests.campaign import first_of
from upsert_platform_tests.engine.test_older_state import put
from upsert_platform_tests.engine.world import Kept, World, plan_query, same_rows

ROWS = {
    "users": [(1, "eu", 3), (2, "us", 4), (9, None, 5)],
    "orders": [(1, 1, 5, "b"), (2, 1, 9, "b"), (3, 7, 6, "a"), (4, 2, None, None)],
    "views": [(1, "p", 1), (1, "q", 4), (2, "r", 2), (9, "p", 3)],
}
NUMBERED = "SELECT oid, uid, ROW_NUMBER() OVER (PARTITION BY uid ORDER BY oid) AS rn FROM orders"
CASES: dict[str, tuple[str, str | None]] = {
    # BETWEEN
    "between ends in any order": (
        "SELECT uid, COUNT(*) AS n FROM orders WHERE amount BETWEEN SYMMETRIC 9 AND 1 GROUP BY uid",
        "SELECT uid, COUNT(*) AS n FROM orders WHERE amount BETWEEN 1 AND 9 GROUP BY uid",
    ),
    "not between ends in any order": (
        "SELECT oid FROM orders WHERE amount NOT BETWEEN SYMMETRIC uid AND 3",
        "SELECT oid FROM orders WHERE NOT (amount BETWEEN uid AND 3 OR amount BETWEEN 3 AND uid)",
    ),
    "between ends in one order": (
        "SELECT oid FROM orders WHERE amount BETWEEN ASYMMETRIC 9 AND 1 OR kind = 'a'",
        "SELECT oid FROM orders WHERE amount BETWEEN 9 AND 1 OR kind = 'a'",
    ),
    "row numbers between ends in any order": (
        f"SELECT oid, uid FROM ({NUMBERED}) t WHERE rn BETWEEN SYMMETRIC 2 AND 1",
        f"SELECT oid, uid FROM ({NUMBERED}) t WHERE rn BETWEEN 1 AND 2",
    ),
    "row numbers between ends in any order, not from the first": (
        f"SELECT oid, rn FROM ({NUMBERED}) t WHERE rn BETWEEN SYMMETRIC 3 AND 2",
        f"SELECT oid, rn FROM ({NUMBERED}) t WHERE rn BETWEEN 2 AND 3",
    ),
    "row numbers that are not greater": (
        f"SELECT oid, uid FROM ({NUMBERED}) t WHERE NOT (2 < rn) AND NOT rn >= 3",
        f"SELECT oid, uid FROM ({NUMBERED}) t WHERE rn <= 2",
    ),
    # ORDER BY a position
    "ordered by the second column": (
        "SELECT kind, COUNT(*) AS n FROM orders GROUP BY kind ORDER BY 2 DESC, 1 NULLS FIRST LIMIT 1",
        None,
    ),
    "ordered by positions of all columns": (
        "SELECT oid, o.* FROM orders AS o ORDER BY 4 DESC NULLS LAST, (1) LIMIT 2", None,
    ),
    "ordered by positions and by what is not selected": (
        "SELECT oid, amount FROM orders ORDER BY kind NULLS FIRST, 2 NULLS FIRST, 1 DESC LIMIT 3", None,
    ),
    "different rows ordered by positions": (
        "SELECT DISTINCT kind, uid FROM orders ORDER BY 2 DESC NULLS LAST, 1 NULLS FIRST LIMIT 2", None,
    ),
    "sets ordered by positions": (
        "SELECT region AS r, id FROM users UNION ALL SELECT kind, uid FROM orders ORDER BY 2 DESC NULLS LAST, 1 NULLS"
        " FIRST LIMIT 3",
        None,
    ),
    "rows of each ordered by position": (
        "SELECT u.id, t.x, t.oid FROM users u, LATERAL (SELECT amount AS oid, oid AS x FROM orders o WHERE o.uid = u.id"
        " ORDER BY 2 DESC LIMIT 1) AS t",
        None,
    ),
    # USING
    "all columns of the left table": (
        "SELECT o.*, page, v.secs FROM orders o JOIN views v USING (uid)",
        "SELECT o.oid, o.uid, o.amount, o.kind, o.ts, v.page, v.secs FROM orders o JOIN views v ON o.uid = v.uid",
    ),
    "all columns of both tables": (
        "SELECT o.*, v.page AS p, v.uid AS w, uid AS x FROM orders o RIGHT JOIN views v USING (uid)",
        "SELECT o.oid, o.uid, o.amount, o.kind, o.ts, v.page AS p, v.uid AS w, v.uid AS x FROM orders o RIGHT JOIN"
        " views v ON o.uid = v.uid",
    ),
    "each column once": (
        "SELECT * FROM orders o LEFT JOIN views v USING (uid)",
        "SELECT o.uid, o.oid, o.amount, o.kind, o.ts, v.page, v.secs, v.ts AS t2 FROM orders o LEFT JOIN views v ON"
        " o.uid = v.uid",
    ),
    "three tables": (
        "SELECT a.oid, b.oid AS o2, c.page, a.uid AS x, c.uid AS y, uid AS z FROM orders a JOIN orders b USING (uid)"
        " JOIN views c USING (uid)",
        "SELECT a.oid, b.oid AS o2, c.page, a.uid AS x, c.uid AS y, a.uid AS z FROM orders a JOIN orders b ON a.uid ="
        " b.uid JOIN views c ON c.uid = a.uid",
    ),
    "of a group": (
        "SELECT o.uid, COUNT(*) AS n FROM orders o JOIN views v USING (uid) GROUP BY o.uid",
        "SELECT o.uid, COUNT(*) AS n FROM orders o JOIN views v ON o.uid = v.uid GROUP BY o.uid",
    ),
    "of a group, and its column with and without its table": (
        "SELECT o.uid, uid AS w, COUNT(*) AS n FROM orders o JOIN views v USING (uid) GROUP BY uid",
        "SELECT o.uid, o.uid AS w, COUNT(*) AS n FROM orders o JOIN views v ON o.uid = v.uid GROUP BY o.uid",
    ),
    # subqueries that aggregate
    "counts with a filter, of each row": (
        "SELECT id, (SELECT COUNT(*) FILTER (WHERE kind = 'b') FROM orders o WHERE o.uid = u.id) AS n, (SELECT"
        " COUNT(DISTINCT kind) FILTER (WHERE amount > 3) FROM orders o WHERE o.uid = u.id) AS m, (SELECT"
        " SUM(amount) FILTER (WHERE kind = 'b') FROM orders o WHERE o.uid = u.id) AS s FROM users u",
        None,
    ),
    "an aggregate exists for every row": (
        "SELECT id, age FROM users u WHERE EXISTS (SELECT COUNT(*), 1 FROM orders o WHERE o.uid = u.id)", None,
    ),
    "an aggregate is missing for no row": (
        "SELECT id, age FROM users u WHERE NOT EXISTS (SELECT MAX(amount) FROM orders o WHERE o.uid = u.id)", None,
    ),
    "an aggregate exists, below or": (
        "SELECT id, age FROM users u WHERE (age > 3 OR EXISTS (SELECT COUNT(*), 1 FROM orders o WHERE o.uid = u.id))"
        " AND NOT (region = 'us' AND EXISTS (SELECT 1 + MIN(amount) AS x FROM orders o WHERE o.uid = u.id))",
        None,
    ),
    "a constant in a list": (
        "SELECT id, age FROM users u WHERE 1 IN (SELECT 1 FROM (SELECT uid FROM orders) o WHERE o.uid = u.id)", None,
    ),
    # joins
    "an equality of WHERE before a right join": (
        "SELECT u.id, a.oid, b.oid AS o2 FROM orders a JOIN orders b ON a.kind = b.kind RIGHT JOIN users u ON a.uid ="
        " u.id WHERE a.amount = b.amount",
        None,
    ),
    "an equality of WHERE before a full join": (
        "SELECT u.id, a.oid, b.oid AS o2 FROM orders a CROSS JOIN orders b FULL JOIN users u ON a.uid = u.id WHERE"
        " a.amount = b.amount",
        None,
    ),
    "an equality of WHERE before a left join": (
        "SELECT u.id, a.oid, b.oid AS o2 FROM orders a JOIN orders b ON a.kind = b.kind LEFT JOIN users u ON a.uid ="
        " u.id WHERE a.amount = b.amount",
        None,
    ),
    "a right join behind a comma": (
        "SELECT o.oid, v.page, u.id FROM orders o, views v RIGHT JOIN users u ON v.uid = u.id", None,
    ),
    "a full join behind a comma, and an equality of WHERE": (
        "SELECT o.oid, v.page, u.id FROM orders o, views v FULL JOIN users u ON v.uid = u.id AND v.secs > 1 WHERE o.uid"
        " = u.id",
        None,
    ),
    "commas around a right join": (
        "SELECT o.oid, v.page, u.id, x.id AS y FROM users x, views v RIGHT JOIN users u ON v.uid = u.id, orders o LEFT"
        " JOIN users z ON z.id = o.uid WHERE o.uid = u.id AND x.age = u.age",
        None,
    ),
    "a join between a join and its condition": (
        "SELECT a.oid, u.id, v.page FROM orders a LEFT JOIN users u JOIN views v ON v.uid = u.id ON a.uid = u.id", None,
    ),
    "a subquery between a join and its condition": (
        "SELECT a.oid, u.id, v.page FROM orders a JOIN (SELECT id FROM users WHERE age > 3) u LEFT JOIN views v ON"
        " v.uid = u.id ON a.uid = u.id",
        None,
    ),
    "joins in parentheses": (
        "SELECT a.oid, u.id, v.page FROM (views v FULL JOIN users u ON v.uid = u.id) LEFT JOIN ((orders a) JOIN users w"
        " ON a.uid = w.id) ON a.uid = v.uid WHERE v.secs > 1 OR v.secs IS NULL",
        None,
    ),
    # parentheses, OFFSET and FETCH
    "the first of a union in parentheses": (
        "(SELECT oid FROM orders WHERE amount > 0 UNION ALL SELECT id FROM users) ORDER BY oid DESC LIMIT 1", None,
    ),
    "the first of a subquery in parentheses": (
        "SELECT x, kind FROM ((SELECT oid AS x, kind FROM orders) ORDER BY x DESC LIMIT 2) t WHERE x > 0", None,
    ),
    "values in the first of a subquery in parentheses": (
        "SELECT id, age, ((SELECT oid FROM orders) ORDER BY oid DESC LIMIT 1) AS o FROM users WHERE id IN ((SELECT uid"
        " FROM orders WHERE uid IS NOT NULL) ORDER BY uid DESC LIMIT 1)",
        None,
    ),
    "branches with their own first rows": (
        "(SELECT id FROM users ORDER BY id LIMIT 1) UNION ALL ((SELECT oid FROM orders) ORDER BY 1 DESC LIMIT 2)", None,
    ),
    "rows of a union behind the first": (
        "SELECT id AS x FROM users UNION ALL SELECT oid FROM orders ORDER BY x LIMIT 2 OFFSET 4", None,
    ),
    "rows behind the first": (
        "SELECT oid, kind FROM orders ORDER BY amount DESC NULLS LAST, oid OFFSET 1 ROW FETCH NEXT 2 ROWS ONLY",
        "SELECT oid, kind FROM orders ORDER BY amount DESC NULLS LAST, oid LIMIT 2 OFFSET 1",
    ),
    "rows of what is added behind the first": (
        "SELECT uid, page, secs FROM views ORDER BY 1 NULLS FIRST, 2 NULLS FIRST, 3 NULLS FIRST LIMIT 3 OFFSET 2", None,
    ),
    # WINDOW
    "an order added to a window": (
        "SELECT oid, COUNT(*) OVER (w ORDER BY oid) AS n, COUNT(amount) OVER (w ORDER BY oid DESC) AS m FROM orders"
        " WINDOW w AS (PARTITION BY uid)",
        None,
    ),
    "a frame added to a window": (
        "SELECT oid, COUNT(*) OVER (w ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS n, COUNT(*) OVER w AS m FROM orders"
        " WINDOW w AS (PARTITION BY uid ORDER BY oid)",
        None,
    ),
    "a window of a window": (
        "SELECT oid, COUNT(*) OVER v AS n, SUM(amount) OVER (v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM"
        " orders WINDOW w AS (PARTITION BY kind), v AS (w ORDER BY oid DESC)",
        None,
    ),
    "windows of one name in two queries": (
        "SELECT oid, n, COUNT(*) OVER w AS m FROM (SELECT oid, kind, COUNT(*) OVER w AS n FROM orders WINDOW w AS"
        " (PARTITION BY uid ORDER BY oid)) t WINDOW w AS (PARTITION BY kind ORDER BY oid)",
        None,
    ),
    "row numbers of a named window": (
        "SELECT oid, uid FROM (SELECT *, ROW_NUMBER() OVER (w ORDER BY oid DESC) AS rn FROM orders WINDOW w AS"
        " (PARTITION BY uid)) t WHERE rn = 1",
        None,
    ),
}  # fmt: skip


COMPUTED: dict[str, tuple[str, str | None]] = {
    "ordered by a name and what is not selected": (
        "SELECT oid, -oid AS x FROM orders ORDER BY x + uid, oid LIMIT 2",
        "SELECT oid, -oid AS x FROM orders ORDER BY -oid + uid, oid LIMIT 2",
    ),
    "ordered by a name that a column has too": (
        "SELECT oid, -uid AS uid FROM orders o ORDER BY uid * 10 + o.oid, 1 LIMIT 2",
        "SELECT oid, -uid AS uid FROM orders o ORDER BY -o.uid * 10 + o.oid, 1 LIMIT 2",
    ),
    "an expression with and without its table": (
        "SELECT o.uid + 1 AS g, COUNT(*) AS n, MAX(amount) + (o.uid + 1) AS m FROM orders o GROUP BY uid + 1",
        "SELECT uid + 1 AS g, COUNT(*) AS n, MAX(amount) + (uid + 1) AS m FROM orders GROUP BY uid + 1",
    ),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_rows_are_those_of_expressions_that_spark_computes(name: str, tmp_path: Path, spark: SparkSession) -> None:
    sql, judged = COMPUTED[name]
    world = World(tmp_path, random.Random(name))
    kept = Kept(world, plan_query(sql), runner=LocalRunner(lambda: prepared(spark)))
    put(world, {"orders": ROWS["orders"]})
    for _ in range(2):
        kept.advance()
        assert same_rows(kept.result(), world.judge(judged or sql))
        world.change("orders", 12)


@pytest.mark.parametrize("name", first_of(CASES, every=2))
def test_rows_are_those_of_the_clauses(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUCKETS", 2)
    sql, judged = CASES[name]
    world = World(tmp_path, random.Random(name))
    kept = Kept(world, plan_query(sql))
    put(world, {name: rows for name, rows in ROWS.items() if name in kept.query.tables})
    for _ in range(4):
        kept.advance()
        assert same_rows(kept.result(), world.judge(judged or sql))
        for table in kept.query.tables:
            world.change(table, world.rng.randrange(1, 20))


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT oid FROM orders ORDER BY 2 LIMIT 1", "ORDER BY 2: the select list has 1 columns"),
        ("SELECT oid FROM orders ORDER BY kind, 0 LIMIT 1", "ORDER BY 0: the select list has 1 columns"),
        ("SELECT oid FROM orders ORDER BY oid FETCH FIRST 2 ROWS WITH TIES", "FETCH takes a number of rows"),
        ("SELECT oid FROM orders ORDER BY oid LIMIT 1 OFFSET 'a'", "OFFSET takes a number"),
        ("SELECT oid FROM orders OFFSET 3", "OFFSET needs an ORDER BY and a LIMIT"),
        ("SELECT COUNT(*) OVER (w ORDER BY oid) AS n FROM orders", "unknown window 'w'"),
        ("SELECT COUNT(*) OVER v AS n FROM orders WINDOW w AS (ORDER BY oid)", "unknown window 'v'"),
        (
            "SELECT COUNT(*) OVER (w ORDER BY uid) AS n FROM orders WINDOW w AS (PARTITION BY uid ORDER BY oid)",
            "where that has none",
        ),
        ("SELECT COUNT(*) OVER (w PARTITION BY uid) AS n FROM orders WINDOW w AS (ORDER BY oid)", "where that has no"),
        ("SELECT a.oid FROM orders a JOIN users u", "JOIN needs ON or USING"),
        ("SELECT a.oid FROM orders a JOIN users u JOIN views v ON v.uid = u.id", "JOIN needs ON or USING"),
        ("SELECT o.id FROM users o, UNNEST(a) AS t (x) FULL JOIN users u ON u.id = x", "stand behind CROSS JOIN"),
        ("SELECT o.oid FROM orders o, views v RIGHT JOIN users u ON o.uid = u.id", "unknown column 'o.uid'"),
        ("SELECT a.oid FROM orders a JOIN users u ON a.uid = u.id JOIN users w ON a.uid = w.id WHERE age = a.amount",
         "column 'age' is in several tables"),
        ("SELECT id FROM users u WHERE id IN (SELECT MAX(oid) FROM orders o WHERE o.uid = u.id)", "aggregate"),
        ("SELECT id FROM users u WHERE id IN (SELECT oid, uid FROM orders o WHERE o.uid = u.id)", "IN compares one"),
        ("SELECT id FROM users u WHERE EXISTS (SELECT x FROM orders o WHERE o.uid = u.id)", "unknown column 'x'"),
        ("SELECT id FROM users u WHERE EXISTS (SELECT 1 FROM orders o WHERE o.uid = u.id ORDER BY 1 LIMIT 1 OFFSET 1)",
         "a subquery with LIMIT"),
        ("SELECT id, COUNT(*) AS n FROM users GROUP BY DISTINCT ROLLUP (id), ROLLUP (id)", "GROUP BY DISTINCT"),
    ],
)  # fmt: skip
def test_clauses_that_are_refused(sql: str, reason: str) -> None:
    with pytest.raises(Fault, match=reason):
        plan_query(sql)
