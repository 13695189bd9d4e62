"""Statements of Flink's SQL that DuckDB writes in other words: each is recomputed after every batch."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from upsert_platform.core.errors import ChangelogError
from upsert_platform.engine import engine, reading, state, store, tasks
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.engine.upkeep import compact
from upsert_platform.sql.evaluation import prepared
from upsert_platform.sql.reader import Fault
from upsert_platform_tests.campaign import seeds
from upsert_platform_tests.engine.test_faults import DyingRunner, KilledError
from upsert_platform_tests.engine.world import Kept, World, plan_query, same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TUMBLE = "TUMBLE({}, DESCRIPTOR(ts), INTERVAL '10' MINUTES)"
WINDOWED = "time_bucket(INTERVAL 10 MINUTE, ts)"
CASES = {
    "percentiles": (
        "SELECT uid, PERCENTILE(amount, 0.5) AS m, PERCENTILE(amount, ARRAY[0.25, 0.75, 1]) AS q, PERCENTILE(DISTINCT"
        " amount, 0.5) AS d, PERCENTILE(amount, 0.5) FILTER (WHERE kind = 'a') AS f FROM orders GROUP BY uid",
        "SELECT uid, quantile_cont(amount, 0.5), quantile_cont(amount, [0.25, 0.75, 1]), quantile_cont(DISTINCT amount,"
        " 0.5), quantile_cont(amount, 0.5) FILTER (WHERE kind = 'a') FROM orders GROUP BY uid",
    ),
    "percentiles of values that count several times": (
        "SELECT kind, PERCENTILE(amount, 0.5, uid - 2) AS m, PERCENTILE(amount, ARRAY[0.5], 2) AS t FROM orders GROUP"
        " BY kind",
        "SELECT kind, list_aggr(flatten(list([amount FOR x IN range(greatest(coalesce(uid, 0) - 2, 0))])),"
        " 'quantile_cont', 0.5), list_aggr(flatten(list([amount, amount])), 'quantile_cont', [0.5]) FROM orders GROUP"
        " BY kind",
    ),
    "equal groupings by their number": (
        "SELECT kind, GROUP_ID() AS g, COUNT(*) AS n FROM orders GROUP BY GROUPING SETS ((kind), (kind), ()) HAVING"
        " COUNT(*) > 0",
        "SELECT kind, 0, COUNT(*) FROM orders GROUP BY kind UNION ALL SELECT kind, 1, COUNT(*) FROM orders GROUP BY"
        " kind UNION ALL SELECT NULL, 0, COUNT(*) FROM orders HAVING COUNT(*) > 0",
    ),
    "the number of the only grouping": (
        "SELECT uid, GROUP_ID() AS g, GROUPING(uid) AS b, COUNT(*) AS n FROM orders GROUP BY uid HAVING GROUP_ID() = 0",
        "SELECT uid, 0, 0, COUNT(*) FROM orders GROUP BY uid",
    ),
    "arrays of values": (
        "SELECT uid, ARRAY_AGG(amount) AS a, ARRAY_AGG(DISTINCT kind) AS k FROM orders GROUP BY uid",
        "SELECT uid, list(amount ORDER BY amount NULLS FIRST), list(DISTINCT kind ORDER BY kind NULLS FIRST) FROM"
        " orders GROUP BY uid",
    ),
    "aggregates of casts to several types": (
        "SELECT region, SUM(CAST(spent AS INT)) AS a, SUM(CAST(spent AS DECIMAL(10, 1))) AS b, CAST(id AS STRING) AS s,"
        " CAST(id AS BIGINT) AS n FROM users GROUP BY region, CAST(id AS STRING), CAST(id AS BIGINT)",
        "SELECT region, SUM(trunc(spent)::INT), SUM(spent::DECIMAL(10, 1)), id::VARCHAR, id::BIGINT FROM users GROUP BY"
        " region, id",
    ),
    "values of json by several clauses": (
        "SELECT oid, JSON_VALUE(j, 'lax $.a' DEFAULT 'p' ON EMPTY) AS a, JSON_VALUE(j, 'lax $.a' DEFAULT 'P' ON EMPTY)"
        " AS b, COUNT(*) AS n, MAX(JSON_VALUE(j, 'lax $.a' DEFAULT 'q' ON EMPTY)) AS c, MAX(JSON_VALUE(j, 'lax $.a'))"
        " AS d FROM (SELECT oid, '{\"' || COALESCE(kind, 'n') || '\":\"x\"}' AS j FROM orders) t GROUP BY oid,"
        " JSON_VALUE(j, 'lax $.a' DEFAULT 'p' ON EMPTY), JSON_VALUE(j, 'lax $.a' DEFAULT 'P' ON EMPTY)",
        "SELECT oid, if(kind IS NOT DISTINCT FROM 'a', 'x', 'p'), if(kind IS NOT DISTINCT FROM 'a', 'x', 'P'), 1,"
        " if(kind IS NOT DISTINCT FROM 'a', 'x', 'q'), if(kind = 'a', 'x', NULL) FROM orders",
    ),
    "defaults of json from columns": (
        "SELECT t.o, MAX(JSON_VALUE(t.j, 'lax $.a' DEFAULT k ON EMPTY)) AS a, MAX(JSON_VALUE(t.j, 'lax $.a' DEFAULT"
        " COALESCE(t.k, 'z') ON EMPTY)) AS b FROM (SELECT uid, '{}', kind FROM orders) AS t (o, j, k) GROUP BY t.o",
        "SELECT uid, MAX(kind), MAX(coalesce(kind, 'z')) FROM orders GROUP BY uid",
    ),
    "limits beside a column of the query around": (
        "SELECT oid FROM orders o WHERE EXISTS (SELECT 1 FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY region ORDER"
        " BY id) AS amount FROM users) t WHERE t.amount <= 2 AND o.amount <= 3 AND t.id = o.uid)",
        "SELECT oid FROM orders WHERE amount <= 3 AND uid IN (SELECT id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY"
        " region ORDER BY id) AS n FROM users) WHERE n <= 2)",
    ),
    "a field of a row that has the name of the row number": (
        "SELECT oid, n FROM (SELECT oid, CAST(ROW(amount, uid) AS ROW<n BIGINT, m INT>) AS r, ROW_NUMBER() OVER"
        " (PARTITION BY uid ORDER BY oid) AS n FROM orders) t WHERE n <= 3 AND r.n <= 4 AND t.n <= 2",
        "SELECT oid, n FROM (SELECT oid, amount, ROW_NUMBER() OVER (PARTITION BY uid ORDER BY oid) AS n FROM orders)"
        " WHERE n <= 2 AND amount <= 4",
    ),
    "arrays without nulls": (
        "SELECT kind, ARRAY_AGG(amount IGNORE NULLS) AS a, ARRAY_AGG(ts RESPECT NULLS) FILTER (WHERE uid > 3) AS t FROM"
        " orders GROUP BY kind",
        "SELECT kind, list(amount ORDER BY amount) FILTER (WHERE amount IS NOT NULL), list(ts ORDER BY ts NULLS FIRST)"
        " FILTER (WHERE uid > 3) FROM orders GROUP BY kind",
    ),
    "an array of all rows": (
        "SELECT ARRAY_AGG(DISTINCT secs IGNORE NULLS) AS a, COUNT(*) AS n FROM views",
        "SELECT list(DISTINCT secs ORDER BY secs) FILTER (WHERE secs IS NOT NULL), COUNT(*) FROM views",
    ),
    "multisets": (
        "SELECT uid, COLLECT(amount) AS a, COLLECT(DISTINCT kind) AS k FROM orders GROUP BY uid",
        "SELECT uid, coalesce(histogram(amount), MAP {}), coalesce(histogram(DISTINCT kind), MAP {}) FROM orders GROUP"
        " BY uid",
    ),
    "elements of an array of values": (
        "SELECT g.uid, t.x FROM (SELECT uid, ARRAY_AGG(amount IGNORE NULLS) AS a FROM orders GROUP BY uid) g CROSS JOIN"
        " UNNEST(g.a) AS t (x)",
        "SELECT uid, amount FROM orders WHERE amount IS NOT NULL",
    ),
    "json arrays": (
        "SELECT uid, JSON_ARRAYAGG(kind) AS a, JSON_ARRAYAGG(kind NULL ON NULL) AS n FROM orders GROUP BY uid",
        "SELECT uid, '[' || coalesce(string_agg('\"' || kind || '\"', ',' ORDER BY kind), '') || ']', '[' ||"
        " string_agg(coalesce('\"' || kind || '\"', 'null'), ',' ORDER BY coalesce('\"' || kind || '\"',"
        " 'null')) || ']'"
        " FROM orders GROUP BY uid",
    ),
    "json objects": (
        "SELECT uid, JSON_OBJECTAGG(KEY COALESCE(CAST(oid AS STRING), '') VALUE amount) AS a,"
        " JSON_OBJECTAGG(COALESCE(CAST(oid AS STRING), '') : kind ABSENT ON NULL) AS k FROM orders GROUP BY uid",
        "SELECT uid, '{' || string_agg('\"' || oid || '\":' || coalesce(amount::VARCHAR, 'null'), ',' ORDER BY '\"' ||"
        " oid || '\":' || coalesce(amount::VARCHAR, 'null')) || '}', '{' || coalesce(string_agg('\"' || oid || '\":\"'"
        " || kind || '\"', ',' ORDER BY '\"' || oid || '\":\"' || kind || '\"'), '') || '}' FROM orders GROUP BY uid",
    ),
    "joined by an interval of several fields": (
        "SELECT o.oid, v.page FROM orders o JOIN views v ON o.uid = v.uid AND v.ts BETWEEN o.ts - INTERVAL '10:30.5'"
        " MINUTE TO SECOND AND o.ts + INTERVAL '0 00:05' DAY TO MINUTE",
        "SELECT o.oid, v.page FROM orders o JOIN views v ON o.uid = v.uid AND v.ts BETWEEN o.ts - INTERVAL 630500"
        " MILLISECONDS AND o.ts + INTERVAL 5 MINUTES",
    ),
    "windows of an interval of several fields": (
        "SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '0:10' HOUR TO"
        " MINUTE)) GROUP BY window_start, window_end",
        f"SELECT {WINDOWED}, COUNT(*) FROM orders WHERE ts IS NOT NULL GROUP BY 1",
    ),
    "months later": (
        "SELECT oid, ts + INTERVAL '0-10' YEAR TO MONTH AS a, DATE '2024-01-31' - INTERVAL '11' MONTH AS b, ts -"
        " INTERVAL oid DAY AS c FROM orders WHERE uid IN (SELECT uid FROM views)",
        "SELECT oid, ts + INTERVAL 10 MONTHS, DATE '2023-02-28', ts - INTERVAL 1 DAY * oid FROM orders WHERE uid IN"
        " (SELECT uid FROM views)",
    ),
    "quotients of aggregates": (
        "SELECT uid, SUM(amount) / COUNT(amount) AS a, CAST(SUM(amount) AS DOUBLE) / COUNT(DISTINCT amount) AS b FROM"
        " orders GROUP BY uid",
        "SELECT uid, trunc(SUM(amount) / COUNT(amount))::BIGINT, SUM(amount)::DOUBLE / COUNT(DISTINCT amount)"
        " FROM orders"
        " GROUP BY uid",
    ),
    "a window over a subquery": (
        "SELECT uid, window_start, COUNT(*) AS n FROM TABLE("
        + TUMBLE.format("TABLE (SELECT * FROM orders WHERE amount > 4)")
        + ") GROUP BY uid, window_start, window_end",
        f"SELECT uid, {WINDOWED}, COUNT(*) FROM orders WHERE amount > 4 AND ts IS NOT NULL GROUP BY 1, 2",
    ),
    "a window over a join in parentheses": (
        "SELECT region, window_start, SUM(amount) AS n FROM TABLE("
        + TUMBLE.format("(SELECT o.ts, o.amount, u.region FROM orders o JOIN users u ON o.uid = u.id)")
        + ") GROUP BY region, window_start, window_end",
        f"SELECT region, {WINDOWED}, SUM(amount)::BIGINT FROM orders o JOIN users u ON o.uid = u.id WHERE ts IS"
        f" NOT NULL"
        " GROUP BY 1, 2",
    ),
    "first rows of each by LATERAL": (
        "SELECT u.id, o.oid, o.amount FROM users u, LATERAL (SELECT oid, amount FROM orders WHERE orders.uid = u.id"
        " ORDER BY amount DESC NULLS LAST, oid LIMIT 2) AS o",
        "SELECT u.id, o.oid, o.amount FROM users u, LATERAL (SELECT oid, amount FROM orders WHERE orders.uid = u.id"
        " ORDER BY amount DESC NULLS LAST, oid LIMIT 2) AS o",
    ),
    "first rows of each, or nulls, by LATERAL": (
        "SELECT u.id, o.x FROM users u LEFT JOIN LATERAL (SELECT oid AS x FROM orders AS o WHERE o.uid = u.id"
        " AND o.kind"
        " = 'a' ORDER BY o.ts NULLS FIRST, x LIMIT 1) AS o ON TRUE",
        "SELECT u.id, o.x FROM users u LEFT JOIN LATERAL (SELECT oid AS x FROM orders AS o WHERE o.uid = u.id"
        " AND o.kind"
        " = 'a' ORDER BY o.ts NULLS FIRST, x LIMIT 1) AS o ON TRUE",
    ),
    "all rows of each by LATERAL": (
        "SELECT g.uid, t.page FROM (SELECT DISTINCT uid FROM orders) g CROSS JOIN LATERAL (SELECT page FROM views WHERE"
        " views.uid = g.uid AND secs > 9) AS t",
        "SELECT g.uid, t.page FROM (SELECT DISTINCT uid FROM orders) g JOIN views t ON t.uid = g.uid AND secs > 9",
    ),
    "joined with values": (
        "SELECT o.oid, n.name FROM orders o JOIN (VALUES ('a', 'first'), ('b', 'second'), ('c', NULL)) AS n (k, name)"
        " ON o.kind = n.k",
        "SELECT o.oid, n.name FROM orders o JOIN (VALUES ('a', 'first'), ('b', 'second'), ('c', NULL)) AS n (k, name)"
        " ON o.kind = n.k",
    ),
    "values and what joins them": (
        "SELECT n.k, COUNT(o.oid) AS c FROM (VALUES (1), (2), (-7)) AS n (k) LEFT JOIN orders o ON o.uid = n.k GROUP BY"
        " n.k",
        "SELECT n.k, COUNT(o.oid) AS c FROM (VALUES (1), (2), (-7)) AS n (k) LEFT JOIN orders o ON o.uid = n.k GROUP BY"
        " n.k",
    ),
    "values of a union": (
        "SELECT id, region FROM users UNION ALL (VALUES (100, 'x'), (101, 'y'))",
        "SELECT id, region FROM users UNION ALL (VALUES (100, 'x'), (101, 'y'))",
    ),
    "constants that are computed": (
        "SELECT o.oid, n.x, n.w FROM orders o JOIN (VALUES (1.5, LOWER('A'), 1), (2.25, UPPER('b'), 2), (3, 'b', 2)) AS"
        " n (x, k, w) ON o.kind = n.k",
        "SELECT o.oid, n.x, n.w FROM orders o JOIN (VALUES (1.5, 'a', 1), (2.25, 'B', 2), (3, 'b', 2)) AS n (x, k, w)"
        " ON o.kind = n.k",
    ),
    "computed constants without a row": (
        "SELECT n.k, COUNT(o.oid) AS c FROM (VALUES (LOWER('A')), (LOWER('Z')), ('b')) AS n (k) LEFT JOIN orders o ON"
        " o.kind = n.k GROUP BY n.k",
        "SELECT n.k, COUNT(o.oid) AS c FROM (VALUES ('a'), ('z'), ('b')) AS n (k) LEFT JOIN orders o ON o.kind = n.k"
        " GROUP BY n.k",
    ),
    "in below or": (
        "SELECT oid, kind FROM orders WHERE kind = 'a' OR uid IN (SELECT age FROM users WHERE region = 'eu')",
        "SELECT oid, kind FROM orders WHERE kind = 'a' OR uid IN (SELECT age FROM users WHERE region = 'eu')",
    ),
    "exists below or and not": (
        "SELECT oid, kind FROM orders o WHERE (kind = 'a' AND NOT EXISTS (SELECT 1 FROM users u WHERE u.id = o.uid)) OR"
        " EXISTS (SELECT 1 FROM views v WHERE v.uid = o.uid AND v.secs > 40) OR amount = 0",
        "SELECT oid, kind FROM orders o WHERE (kind = 'a' AND NOT EXISTS (SELECT 1 FROM users u WHERE u.id = o.uid)) OR"
        " EXISTS (SELECT 1 FROM views v WHERE v.uid = o.uid AND v.secs > 40) OR amount = 0",
    ),
    "not in below or": (
        "SELECT uid, n FROM (SELECT uid, COUNT(*) AS n FROM orders GROUP BY uid) g WHERE uid = 1 OR n NOT IN (SELECT"
        " COUNT(*) FROM views GROUP BY uid)",
        "SELECT uid, n FROM (SELECT uid, COUNT(*) AS n FROM orders GROUP BY uid) g WHERE uid = 1 OR n NOT IN (SELECT"
        " COUNT(*) FROM views GROUP BY uid)",
    ),
    "values of each row": (
        "SELECT id, (SELECT MAX(amount) FROM orders o WHERE o.uid = u.id) AS m, (SELECT COUNT(*) FROM orders o WHERE"
        " o.uid = u.id AND o.kind = 'a') AS n FROM users u",
        "SELECT id, (SELECT MAX(amount) FROM orders o WHERE o.uid = u.id) AS m, (SELECT COUNT(*) FROM orders o WHERE"
        " o.uid = u.id AND o.kind = 'a') AS n FROM users u",
    ),
    "compared with a value of each row": (
        "SELECT oid, amount FROM orders o WHERE amount > (SELECT MIN(p.amount) + COUNT(*) FROM orders p WHERE p.uid ="
        " o.uid)",
        "SELECT oid, amount FROM orders o WHERE amount > (SELECT MIN(p.amount) + COUNT(*) FROM orders p WHERE p.uid ="
        " o.uid)",
    ),
    "counts of elements that are missing": (
        "SELECT n, COUNT(x) AS c, COUNT(*) AS r FROM (SELECT uid, COUNT(*) AS n, ARRAY_AGG(oid)[2] AS x FROM orders"
        " GROUP BY uid) g GROUP BY n",
        "SELECT n, COUNT(x) AS c, COUNT(*) AS r FROM (SELECT uid, COUNT(*) AS n, list(oid ORDER BY oid)[2] AS x FROM"
        " orders GROUP BY uid) g GROUP BY n",
    ),
    "totals beside elements that are missing": (
        "SELECT x, COUNT(*) AS c FROM (SELECT ARRAY_AGG(oid)[2] AS x FROM orders GROUP BY uid) g GROUP BY ROLLUP (x)",
        "SELECT x, COUNT(*) AS c FROM (SELECT list(oid ORDER BY oid)[2] AS x FROM orders GROUP BY uid) g GROUP BY"
        " ROLLUP (x)",
    ),
    "not in a list of elements that are missing": (
        "SELECT id, age FROM users WHERE id NOT IN (SELECT ARRAY_AGG(oid)[2] FROM orders GROUP BY uid)",
        "SELECT id, age FROM users WHERE id NOT IN (SELECT list(oid ORDER BY oid)[2] FROM orders GROUP BY uid)",
    ),
    "full joins by elements that are missing": (
        "SELECT a.x, b.id FROM (SELECT ARRAY_AGG(oid)[3] AS x FROM orders GROUP BY uid) a FULL JOIN users b ON a.x ="
        " b.id",
        "SELECT a.x, b.id FROM (SELECT list(oid ORDER BY oid)[3] AS x FROM orders GROUP BY uid) a FULL JOIN users b ON"
        " a.x = b.id",
    ),
    "counts of fields of rows that are missing": (
        "SELECT id, COUNT(r.`EXPR$0`) AS n, COUNT(*) AS m FROM (SELECT u.id, o.r FROM users u LEFT JOIN (SELECT uid,"
        " ROW(oid) AS r FROM orders) o ON o.uid = u.id) t GROUP BY id",
        "SELECT u.id, COUNT(o.oid) AS n, COUNT(*) AS m FROM users u LEFT JOIN orders o ON o.uid = u.id GROUP BY u.id",
    ),
}  # fmt: skip

BY_SPARK = (
    "percentiles of values that count several times",
    "constants that are computed",
    "computed constants without a row",
    "values of json by several clauses",
    "defaults of json from columns",
    "a field of a row that has the name of the row number",
    "counts of elements that are missing",
    "totals beside elements that are missing",
    "not in a list of elements that are missing",
    "full joins by elements that are missing",
    "counts of fields of rows that are missing",
    "json arrays",
    "json objects",
    "months later",
    "quotients of aggregates",
)
"""Their expressions are computed by Spark."""


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUCKETS", 2)
    monkeypatch.setattr(state, "MOST_FILES", 3)
    monkeypatch.setattr(reading, "_CHUNK", 4)
    monkeypatch.setattr(tasks, "_WAITING", 7)
    monkeypatch.setattr(engine, "_FEW_ROWS", 1)


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("name", CASES)
def test_result_equals_recomputation_after_every_batch(
    name: str, seed: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Also where a batch was killed before its end, and after state was compacted."""
    sql, judged = CASES[name]
    spark: SparkSession | None = request.getfixturevalue("spark") if name in BY_SPARK else None
    world = World(tmp_path, random.Random(f"{name} {seed}"))
    kept = Kept(world, plan_query(sql))
    for turn in range(4):
        for table in kept.query.tables:
            if turn == 0 or world.rng.random() < 0.8:
                world.change(table, world.rng.randrange(0, 25))
        if turn % 2:
            kept.runner = DyingRunner(turn)
            with suppress(KilledError, AssertionError):
                kept.advance()
        kept.runner = LocalRunner(lambda: prepared(spark)) if spark is not None else LocalRunner()
        kept.advance()
        found = kept.result() if turn < 3 or not kept.query.key else kept.last_rows()
        assert same_rows(_plain(found), _plain(world.judge(judged))), turn
        if turn == 2:
            head = kept.store.head()
            assert head is not None
            compact(kept.store, applied_everywhere=head.batch)


def _plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Maps, which Arrow gives as lists of pairs and DuckDB as dictionaries, as sorted pairs."""

    def value(item: Any) -> Any:
        if isinstance(item, dict):
            return sorted(item.items())
        if isinstance(item, list) and item and isinstance(item[0], tuple):
            return sorted(item)
        return item

    return [tuple(value(item) for item in row) for row in rows]


def test_a_key_that_is_twice_in_a_json_object_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, random.Random(1))
    sql = "SELECT uid, JSON_OBJECTAGG(KEY COALESCE(page, '') VALUE secs) AS a FROM views GROUP BY uid"
    kept = Kept(world, plan_query(sql), runner=LocalRunner(lambda: prepared(spark)))
    world.change("views", 60)
    with pytest.raises(ChangelogError, match="several values of one key"):
        kept.advance()


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT uid, JSON_OBJECTAGG(KEY kind VALUE amount) AS a FROM orders GROUP BY uid", "never null"),
        ("SELECT uid, JSON_ARRAYAGG(ts) AS a FROM orders GROUP BY uid", "not TIMESTAMP"),
        ("SELECT ARRAY_AGG(a) AS b FROM (SELECT ARRAY_AGG(uid) AS a FROM orders GROUP BY kind) t", "does not take"),
        ("SELECT oid, uid IN (SELECT id FROM users) AS b FROM orders", "stands in WHERE and HAVING"),
        (
            "SELECT oid FROM orders o WHERE kind = 'a' OR EXISTS (SELECT 1 FROM users u WHERE u.age < o.uid)",
            "by = alone",
        ),
        ("SELECT id, (SELECT amount FROM orders o WHERE o.uid = u.id) AS a FROM users u", "one aggregate"),
        ("SELECT id, (SELECT MAX(amount) FROM orders o WHERE o.uid < u.id) AS a FROM users u", "one aggregate"),
        ("SELECT * FROM (VALUES (1, 'a')) AS n (k, v)", "reads no table"),
        ("SELECT o.oid FROM orders o JOIN (VALUES (1), ('a')) AS n (k) ON o.uid = n.k", "CAST one of them"),
        (
            "SELECT u.id FROM users u, LATERAL (SELECT MAX(amount) AS m FROM orders o WHERE o.uid = u.id) t",
            "aggregates",
        ),
        ("SELECT u.id FROM users u, LATERAL (SELECT oid FROM orders o WHERE o.uid < u.id) t", "by = alone"),
        ("SELECT u.id FROM users u, LATERAL (SELECT oid FROM orders o WHERE o.uid = u.id LIMIT 2) t", "together"),
        (
            "SELECT * FROM views MATCH_RECOGNIZE (PARTITION BY uid ORDER BY ts MEASURES A.secs AS a PATTERN (A)"
            " DEFINE A"
            " AS A.secs > 1) AS m",
            "MATCH_RECOGNIZE is not supported",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name(sql: str, reason: str) -> None:
    with pytest.raises(Fault, match=reason):
        plan_query(sql)
