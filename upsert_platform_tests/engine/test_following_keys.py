"""Keys of targets that follow from the query's own: by windows, keys of tables, groups, and expressions.

DuckDB computes each result over the inputs' snapshots; the target's key tells its rows apart there too.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from upsert_platform.core.plan import Materialize
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.sql.evaluation import prepared
from upsert_platform.sql.variables import Variables
from upsert_platform_tests.engine.test_merge import query_of
from upsert_platform_tests.engine.world import DDL, Kept, World, same_rows
from upsert_platform_tests.sql.reading import NONE, read_scripts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TUMBLE = "TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' MINUTES))"
HOP = "TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' MINUTES, INTERVAL '20' MINUTES))"
CUMULATE = "TABLE(CUMULATE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' MINUTES, INTERVAL '20' MINUTES))"
IN_WINDOWS = (
    "(SELECT *, time_bucket(INTERVAL 10 MINUTE, ts) AS s, time_bucket(INTERVAL 10 MINUTE, ts) + INTERVAL 10 MINUTE AS e"
    " FROM orders WHERE ts IS NOT NULL)"
)
CASES = {
    "start of a window": (
        "k INT, s TIMESTAMP(3), n BIGINT, PRIMARY KEY (k, s) NOT ENFORCED",
        f"SELECT uid, window_start, COUNT(*) FROM {TUMBLE} WHERE uid IS NOT NULL GROUP BY uid,"
        " window_start, window_end",
        f"SELECT uid, s, COUNT(*) FROM {IN_WINDOWS} WHERE uid IS NOT NULL GROUP BY uid, s",
    ),
    "end of a window, and its text": (
        "k INT, e STRING, n BIGINT, PRIMARY KEY (k, e) NOT ENFORCED",
        f"SELECT uid, CAST(window_end AS STRING), SUM(amount) FROM {TUMBLE} WHERE uid IS NOT NULL GROUP BY uid,"
        " window_start, window_end",
        f"SELECT uid, strftime(e, '%Y-%m-%d %H:%M:%S.000'), SUM(amount)::BIGINT FROM {IN_WINDOWS} WHERE uid IS NOT NULL"
        " GROUP BY uid, e",
    ),
    "a formatted start of a window": (
        "e STRING, n BIGINT, PRIMARY KEY (e) NOT ENFORCED",
        f"SELECT DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm'), COUNT(*) FROM {TUMBLE} GROUP BY window_start,"
        " window_end",
        f"SELECT strftime(s, '%Y-%m-%d %H:%M'), COUNT(*) FROM {IN_WINDOWS} GROUP BY s",
    ),
    "first rows of a window": (
        "s TIMESTAMP(3), rn BIGINT, uid INT, n BIGINT, PRIMARY KEY (s, rn) NOT ENFORCED",
        "SELECT window_start, rn, uid, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER"
        " BY n DESC, uid) AS rn FROM (SELECT window_start, window_end, uid, COUNT(*) AS n FROM"
        f" {TUMBLE} WHERE uid IS NOT NULL GROUP BY window_start, window_end, uid) a) b WHERE rn <= 2",
        "SELECT s, rn, uid, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY s ORDER BY n DESC, uid) AS rn FROM"
        f" (SELECT s, uid, COUNT(*) AS n FROM {IN_WINDOWS} WHERE uid IS NOT NULL GROUP BY s, uid)) WHERE rn <= 2",
    ),
    "the text of a table's key": (
        "k STRING, region STRING, PRIMARY KEY (k) NOT ENFORCED",
        "SELECT CONCAT('user-', CAST(id AS STRING)), region FROM users",
        "SELECT 'user-' || id, region FROM users",
    ),
    "columns of a table from its key": (
        "k INT, n BIGINT, region STRING, PRIMARY KEY (k) NOT ENFORCED",
        "SELECT u.id, COUNT(*), u.region FROM users u JOIN views v ON v.uid = u.id GROUP BY u.id, u.region, u.age",
        "SELECT u.id, COUNT(*), u.region FROM users u JOIN views v ON v.uid = u.id GROUP BY u.id, u.region, u.age",
    ),
    "the other side's key": (
        "k INT, oid BIGINT, region STRING, PRIMARY KEY (oid) NOT ENFORCED",
        "SELECT u.id, o.oid, u.region FROM orders o JOIN users u ON o.uid = u.id",
        "SELECT u.id, o.oid, u.region FROM orders o JOIN users u ON o.uid = u.id",
    ),
    "the other side's key in a wider type": (
        "k INT, oid BIGINT, region STRING, PRIMARY KEY (oid) NOT ENFORCED",
        "SELECT u.id, o.oid, u.region FROM orders o LEFT JOIN users u ON o.amount = u.id WHERE o.kind = 'a' OR o.amount"
        " IN (SELECT secs FROM views)",
        "SELECT u.id, o.oid, u.region FROM orders o LEFT JOIN users u ON o.amount = u.id WHERE o.kind = 'a' OR o.amount"
        " IN (SELECT secs FROM views)",
    ),
    "the key of a side that asks a subquery": (
        "k INT, oid BIGINT, PRIMARY KEY (oid) NOT ENFORCED",
        "SELECT u.id, o.oid FROM orders o LEFT JOIN users u ON o.uid = u.id AND o.amount NOT IN (SELECT uid FROM views)"
        " AND o.amount > ALL (SELECT v.uid FROM views v WHERE v.uid = o.amount)",
        "SELECT u.id, o.oid FROM orders o LEFT JOIN users u ON o.uid = u.id AND o.amount NOT IN (SELECT uid FROM views)"
        " AND o.amount > ALL (SELECT v.uid FROM views v WHERE v.uid = o.amount)",
    ),
    "a constant": (
        "k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED",
        "SELECT uid, COUNT(*) FROM orders WHERE kind = 'a' AND uid IS NOT NULL GROUP BY uid, kind",
        "SELECT uid, COUNT(*) FROM orders WHERE kind = 'a' AND uid IS NOT NULL GROUP BY uid, kind",
    ),
    "keys of both sides of a full join": (
        "k INT, a INT, b INT, PRIMARY KEY (k) NOT ENFORCED",
        "SELECT COALESCE(a.id, b.id), a.age, b.age FROM (SELECT id, age FROM users WHERE age > 1) a FULL JOIN (SELECT"
        " id, age FROM users WHERE region = 'eu') b ON a.id = b.id",
        "SELECT COALESCE(a.id, b.id), a.age, b.age FROM (SELECT id, age FROM users WHERE age > 1) a FULL JOIN (SELECT"
        " id, age FROM users WHERE region = 'eu') b ON a.id = b.id",
    ),
}  # fmt: skip
APART = ("end of a window, and its text", "a formatted start of a window", "the text of a table's key",
         "keys of both sides of a full join")  # fmt: skip
"""Their expressions keep the values of a key apart; Spark computes those of the first."""


def _target(columns: str) -> str:
    return f"CREATE TABLE t ({columns}) WITH ('connector' = 'tablestore', 'table.name' = 't');"


@pytest.mark.parametrize("name", [name for name in CASES if name not in APART])
def test_results_are_told_apart_by_the_key_of_the_target(name: str, tmp_path: Path) -> None:
    columns, select, judged = CASES[name]
    for seed in range(2):
        world = World(tmp_path / str(seed), random.Random(f"{name} {seed}"))
        kept = Kept(world, query_of(f"INSERT INTO t {select}", target=_target(columns)))
        assert not isinstance(kept.query.plan, Materialize), "its key tells the rows apart"
        for _ in range(4):
            for table in kept.query.tables:
                world.change(table, world.rng.randrange(0, 25))
            kept.advance()
            assert same_rows(kept.last_rows(), world.judge(judged))


@pytest.mark.parametrize("name", APART)
def test_expressions_that_keep_values_apart_fill_a_key(name: str, spark: SparkSession, tmp_path: Path) -> None:
    columns, select, judged = CASES[name]
    world = World(tmp_path, random.Random(name))
    query = query_of(f"INSERT INTO t {select}", target=_target(columns))
    kept = Kept(world, query, runner=LocalRunner(lambda: prepared(spark)))
    assert len(query.key) == columns.partition("PRIMARY KEY (")[2].count(",") + 1
    for _ in range(2):
        for table in query.tables:
            world.change(table, 20)
        kept.advance()
        assert same_rows(kept.last_rows(), world.judge(judged))


REFUSED = {
    "SELECT id + 1, region, age FROM users": "an expression",
    "SELECT CAST(age AS BIGINT), region, id FROM users": "an expression",
    f"SELECT CAST(uid AS BIGINT), MAX(kind), 1 FROM {HOP} GROUP BY uid, window_start, window_end":
        "does not follow from the key",
    "SELECT o.oid, u.region, u.id FROM orders o RIGHT JOIN users u ON o.uid = u.id": "does not follow from the key",
    "SELECT o.oid, v.page, v.uid FROM orders o JOIN views v ON o.uid = v.uid": "nothing tells the rows of the query",
    "SELECT CAST(uid AS BIGINT), kind, COUNT(*) FROM orders WHERE amount = 5 GROUP BY uid, kind":
        "does not follow from the key",
    "SELECT COALESCE(a.uid, b.uid), a.kind, 1 FROM (SELECT uid, kind FROM orders) a FULL JOIN (SELECT uid FROM orders)"
    " b ON a.uid = b.uid": "may be the same for different rows",
}  # fmt: skip


@pytest.mark.parametrize("select", REFUSED)
def test_keys_that_do_not_follow_are_refused_with_the_reason(select: str) -> None:
    target = _target("k BIGINT, v STRING, w BIGINT, PRIMARY KEY (k) NOT ENFORCED")
    text = f"{NONE}{DDL}{target}INSERT INTO t {select};"
    _, problems = read_scripts({"test.sql": text}, Variables({}, {}, {}))
    (found,) = [item.message for item in problems if item.severity == "error"]
    assert REFUSED[select] in found


@pytest.mark.parametrize(
    ("window", "columns", "follows"),
    [
        (HOP, "s TIMESTAMP(3)", "window_start"),
        (HOP, "s TIMESTAMP(3)", "window_end"),
        (CUMULATE, "s TIMESTAMP(3)", "window_end"),
        (CUMULATE, "s TIMESTAMP(3)", None),
        (TUMBLE, "s STRING", "DATE_FORMAT(window_start, 'yyyy-MM-dd HH')"),
        (TUMBLE, "s STRING", "DATE_FORMAT(window_start, 'HH:mm')"),
    ],
)
def test_windows_are_told_by_their_edges(window: str, columns: str, follows: str | None) -> None:
    """The start of CUMULATE tells no end; a text tells no window that is shorter than its last unit."""
    shown = follows or "window_start"
    target = _target(f"{columns}, n BIGINT, PRIMARY KEY (s) NOT ENFORCED")
    text = f"{NONE}{DDL}{target}INSERT INTO t SELECT {shown}, COUNT(*) FROM {window} GROUP BY window_start, window_end;"
    scripts, problems = read_scripts({"test.sql": text}, Variables({}, {}, {}))
    refused = any(item.severity == "error" for item in problems)
    assert refused == (follows is None or follows.startswith("DATE_FORMAT"))
    assert bool(scripts.inserts) is not refused
