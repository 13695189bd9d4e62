"""CURRENT_WATERMARK: the watermark that stands as a batch begins, by a reckoning with a dictionary."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from upsert_platform.changelog import rows
from upsert_platform.core.plan import Aggregate, Watermark, expressions, tells_apart
from upsert_platform.engine.explain import explain_plan
from upsert_platform.engine.runners import LocalRunner, SparkRunner
from upsert_platform.engine.window_ends import is_of_window
from upsert_platform.sql.evaluation import prepared
from upsert_platform.sql.reader import Fault
from upsert_platform_tests.engine.test_closing import MINUTE, NOON, planned
from upsert_platform_tests.engine.world import START, Kept, World, same_rows
from upsert_platform_tests.sql.planning.test_finals import nodes
from upsert_platform_tests.sql.reading import errors, read

pytestmark = pytest.mark.whole_runs


class Stands:
    """The watermark of `views`: a minute behind the least of what its partitions have given at most.

    As milliseconds, which is what Flink's watermarks count; it never goes back.
    """

    def __init__(self) -> None:
        self.lanes: dict[int, datetime] = {}
        self.now: datetime | None = None

    def see(self, batch: list[dict[str, Any]]) -> None:
        for row in batch:
            if row["ts"] is not None:
                lane = row[rows.PARTITION]
                self.lanes[lane] = max(row["ts"], self.lanes.get(lane, row["ts"]))
        if self.lanes:
            least = min(self.lanes.values()) - timedelta(minutes=1)
            found = least.replace(microsecond=least.microsecond // 1000 * 1000)
            self.now = found if self.now is None else max(found, self.now)


def views(world: World, now: datetime, lanes: list[int], count: int = 12) -> list[dict[str, Any]]:
    found = []
    for _ in range(count):
        world.offsets["views"] += 1
        moment = now - timedelta(seconds=world.rng.randrange(400), microseconds=world.rng.randrange(10**6))
        found.append({
            "uid": world.rng.randrange(3), "page": world.rng.choice(["p", "q", None]), "secs": 1,
            "ts": None if world.rng.random() < 0.1 else moment, rows.KIND: rows.KIND_INSERT, rows.TOPIC: "views",
            rows.PARTITION: world.rng.choice(lanes), rows.OFFSET: world.offsets["views"], rows.ROW: 0,
            rows.TIMESTAMP: START,
        })  # fmt: skip
    return found


@pytest.mark.parametrize("runner", ["this process", "Spark", "steps of Spark"])
def test_every_row_of_a_batch_has_the_watermark_of_those_before_it(
    runner: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Over a partition that begins late and holds the watermark where it is."""
    world, stands = World(tmp_path, random.Random(runner)), Stands()
    uid = "TRY_CAST(REPEAT(CAST(uid AS STRING), 1) AS INT)" if runner == "steps of Spark" else "uid"
    rows_of = planned(f"SELECT {uid}, ts, CURRENT_WATERMARK(ts) AS w FROM views", lateness=None)
    late = planned(
        f"SELECT {uid} AS u, COUNT(*), MAX(CURRENT_WATERMARK(v.ts)) FROM views AS v"
        f" WHERE ts <= CURRENT_WATERMARK(ts) GROUP BY {uid}",
        lateness=None,
    )
    session = prepared(spark, [item.sql for query in (rows_of, late) for item in expressions(query.plan)])
    by: Any = LocalRunner(lambda: session) if runner == "this process" else SparkRunner(lambda: session)
    kept, counted = Kept(world, rows_of, runner=by), Kept(world, late, "late", runner=by)
    expected: list[tuple[Any, ...]] = []
    of_late: Counter[int] = Counter()
    last: dict[int, datetime | None] = {}
    for turn in range(8):
        batch = views(world, NOON + turn * 2 * MINUTE, [0] if turn < 3 else [0, 1])
        world.write("views", batch)
        expected += [(row["uid"], row["ts"], stands.now) for row in batch]
        for row in batch:
            if stands.now is not None and row["ts"] is not None and row["ts"] <= stands.now:
                of_late[row["uid"]] += 1
                last[row["uid"]] = stands.now
        stands.see(batch)
        kept.advance()
        counted.advance()
        assert same_rows(kept.result(), expected)
        assert same_rows(counted.result(), [(uid, count, last[uid]) for uid, count in of_late.items()])
    assert sum(of_late.values()) > 10


def test_a_statement_of_one_table_is_a_query_and_one_watermark_is_computed_once() -> None:
    query = planned(
        "SELECT uid, CURRENT_WATERMARK(ts) FROM views AS v WHERE ts > CURRENT_WATERMARK(v.ts)"
        " OR CURRENT_WATERMARK(ts) IS NULL",
        lateness=None,
    )
    shown = [line.strip() for line in explain_plan(query.plan)]
    assert sum(line.startswith("the watermark of views.ts as a batch begins, 60 s behind") for line in shown) == 1


TABLES = """
CREATE TABLE views (uid INT, page STRING, ts TIMESTAMP_LTZ(3), at TIMESTAMP(3), since AS ts,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
  WITH ('connector' = 'kafka', 'topic' = 'v', 'properties.bootstrap.servers' = 'b:1', 'format' = 'json');
CREATE TABLE plain (id INT, at TIMESTAMP_LTZ(3)) WITH (
  'connector' = 'kafka', 'topic' = 'v', 'properties.bootstrap.servers' = 'b:1', 'format' = 'json');
CREATE TABLE users (id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'u', 'properties.bootstrap.servers' = 'b:1', 'key.format' = 'json',
  'value.format' = 'json');
CREATE TABLE t (id INT, n TIMESTAMP_LTZ(3), PRIMARY KEY (id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'key.format' = 'json',
  'value.format' = 'json');
"""


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SELECT uid, CURRENT_WATERMARK(ts) FROM views", None),
        ("SELECT uid, ts FROM views WHERE ts > CURRENT_WATERMARK(ts) OR current_watermark(ts) IS NULL", None),
        ("SELECT uid, ts FROM (SELECT uid, ts FROM views) AS v WHERE ts > CURRENT_WATERMARK(ts)", None),
        ("SELECT uid, CURRENT_WATERMARK(at) FROM views", "does not tell the event time of column 'at'"),
        ("SELECT uid, CURRENT_WATERMARK(page) FROM views", "does not tell the event time of column 'page'"),
        ("SELECT id, CURRENT_WATERMARK(at) FROM plain", "takes the column of a WATERMARK: declare WATERMARK FOR at"),
        ("SELECT uid, CURRENT_WATERMARK(since) FROM views", "takes the WATERMARK column of one table, as it is"),
        ("SELECT uid, CURRENT_WATERMARK() FROM views", "takes one column"),
        ("SELECT uid, CURRENT_WATERMARK(ts, at) FROM views", "takes one column"),
        ("SELECT uid, MAX(ts), CURRENT_WATERMARK(ts) FROM views GROUP BY uid", "'CURRENT_WATERMARK.ts'"),
        ("SELECT uid, CURRENT_WATERMARK(ts + INTERVAL '1' DAY) FROM views", "takes one column"),
        ("SELECT id, CURRENT_WATERMARK(ts) FROM users", "queries whose rows are only added"),
        (
            "SELECT v.uid, v.ts FROM views AS v JOIN users AS u ON v.uid = u.id AND v.ts > CURRENT_WATERMARK(v.ts)",
            "stands in the select list, WHERE or GROUP BY",
        ),
        (
            "SELECT v.uid, v.ts FROM views AS v JOIN views AS u ON v.uid = u.uid WHERE v.ts > CURRENT_WATERMARK(v.ts)",
            "call it in a subquery of that table alone",
        ),
        ("SELECT uid, ts FROM views ORDER BY CURRENT_WATERMARK(ts), uid LIMIT 3", None),
    ],
)
def test_where_it_stands(statement: str, reason: str | None) -> None:
    scripts, problems = read(f"{TABLES} INSERT INTO t {statement};")
    found = errors(problems)
    if reason is None:
        assert found == []
        assert scripts.inserts[0].query is not None
    else:
        assert any(reason in message for message in found), found


KEYLESS = """
CREATE TABLE n (s TIMESTAMP(3), e TIMESTAMP(3), n BIGINT) WITH (
  'connector' = 'kafka', 'topic' = 'n', 'properties.bootstrap.servers' = 'b:1', 'format' = 'json');
CREATE VIEW in_time AS SELECT * FROM views WHERE ts > CURRENT_WATERMARK(ts) OR CURRENT_WATERMARK(ts) IS NULL;
"""


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT window_start, window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
        " WHERE ts > CURRENT_WATERMARK(ts) GROUP BY window_start, window_end",
        "SELECT window_start, window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE in_time, DESCRIPTOR(ts), INTERVAL '1'"
        " MINUTE)) GROUP BY window_start, window_end",
        "SELECT window_start, window_end, COUNT(*) FROM TABLE(SESSION(TABLE in_time, DESCRIPTOR(ts), INTERVAL '1'"
        " MINUTE)) GROUP BY window_start, window_end",
        "SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE), TUMBLE_END(ts, INTERVAL '1' MINUTE), COUNT(*) FROM views WHERE"
        " ts > CURRENT_WATERMARK(ts) GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        "SELECT ts, CURRENT_WATERMARK(ts), 1 FROM in_time",
        "SELECT ts, CURRENT_WATERMARK(ts), CHAR_LENGTH(p) FROM views CROSS JOIN UNNEST(SPLIT(page, 'x')) AS t (p)",
    ],
)
def test_it_stands_beside_windows_that_close(statement: str) -> None:
    tables = TABLES.replace("TIMESTAMP_LTZ(3), at", "TIMESTAMP(3), at")
    _, problems = read(f"{tables}{KEYLESS} INSERT INTO n {statement};")
    assert errors(problems) == []


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (uid) NOT ENFORCED"])
def test_statements_of_one_table_have_the_watermarks_of_their_own(key: str) -> None:
    """They are one query; each reads another table, or behind another delay."""
    source = (
        "CREATE TABLE {name} (uid INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECOND) WITH"
        " ('connector' = 'kafka', 'topic' = '{name}', 'properties.bootstrap.servers' = 'b:1', 'format' = 'json');"
    )
    connector = (
        "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'"
        if key
        else "'connector' = 'kafka', 'format' = 'json'"
    )
    target = (
        f"CREATE TABLE t (uid INT, w TIMESTAMP(3){key}) WITH ({connector}, 'topic' = 't',"
        " 'properties.bootstrap.servers' = 'b:1');"
    )
    inserts = "".join(f"INSERT INTO t SELECT uid, CURRENT_WATERMARK(ts) FROM {name};" for name in "ab")
    sources = source.format(name="a", delay=5) + source.format(name="b", delay=7)
    scripts, problems = read(sources + target + inserts)
    assert errors(problems) == []
    (insert,) = scripts.inserts
    assert insert.query is not None
    names = [item.names[1] for item in nodes(insert.query.plan) if isinstance(item, Watermark)]
    assert len(names) == len(set(names)) == 2


def test_a_watermark_is_no_edge_of_a_window() -> None:
    """Its groups are let go of as others are, and it is no whole number of any unit."""
    query = planned(
        "SELECT w, COUNT(*) FROM (SELECT CURRENT_WATERMARK(ts) AS w FROM views) AS v GROUP BY w", lateness=None
    )
    (grouped,) = [item for item in nodes(query.plan) if isinstance(item, Aggregate)]
    assert not is_of_window(grouped.input, grouped.group)
    minutes = "SELECT DATE_FORMAT(w, 'yyyy-MM-dd HH:mm') AS m, n FROM (SELECT w, COUNT(*) AS n FROM (SELECT"
    found = planned(f"{minutes} CURRENT_WATERMARK(ts) AS w FROM views) AS v GROUP BY w) AS g", lateness=None)
    assert not tells_apart(found.plan, [found.plan.fields[0].name])


def test_a_column_of_that_name_is_a_column() -> None:
    table = "CREATE TABLE s (id INT, current_watermark TIMESTAMP_LTZ(3), PRIMARY KEY (id) NOT ENFORCED) WITH ("
    options = TABLES[TABLES.index("'connector' = 'upsert-kafka'") :].partition(");")[0]
    scripts, problems = read(f"{TABLES}{table}{options}); INSERT INTO t SELECT id, current_watermark FROM s;")
    assert errors(problems) == []
    assert scripts.inserts[0].query is None


def test_rows_that_change_have_no_watermark() -> None:
    with pytest.raises(Fault, match="another watermark than it met when it came"):
        planned("SELECT oid, CURRENT_WATERMARK(ts) FROM orders", lateness=None)
