"""SET 'table.exec.state.ttl' and the hint STATE_TTL: whose state each lets go of, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from upsert_platform.core.plan import Aggregate, Arrivals, Join, Node, Query
from upsert_platform_tests.sql.reading import errors, read

HOUR = 3_600_000
TABLES = """
CREATE TABLE users (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
CREATE TABLE rates (cur STRING, since TIMESTAMP(3), WATERMARK FOR since AS since, PRIMARY KEY (cur) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka');
CREATE TABLE views (uid INT, page STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE t (a STRING, b BIGINT, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'tablestore');
"""
GROUPED = "INSERT INTO t SELECT page, COUNT(*) FROM views GROUP BY page;"


def query_of(text: str) -> Query:
    scripts, problems = read(TABLES + text)
    assert errors(problems) == []
    (insert,) = scripts.inserts
    assert insert.query is not None
    return insert.query


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for item in node.inputs:
        yield from nodes(item)


@pytest.mark.parametrize(
    ("setting", "ttl"),
    [
        ("", None),
        ("SET 'table.exec.state.ttl' = '36 h';", 36 * HOUR),
        ("SET 'table.exec.state.ttl' = '5000';", 5000),
        ("SET 'table.exec.state.ttl' = '0 s';", None),
        ("SET 'table.exec.state.ttl' = '1 h'; SET 'table.exec.state.ttl' = '0';", None),
    ],
)
def test_the_setting_holds_for_the_statements_behind_it(setting: str, ttl: int | None) -> None:
    assert query_of(f"{setting}{GROUPED}").state_ttl == ttl
    if setting:
        assert query_of(f"{GROUPED}{setting}").state_ttl is None


@pytest.mark.parametrize(
    ("select", "ttls"),
    [
        ("/*+ STATE_TTL('v' = '1 h', 'u' = '12 h') */ u.name, v.uid FROM views v JOIN users u ON v.uid = u.id",
         [(HOUR, 12 * HOUR)]),
        ("/*+ STATE_TTL('users' = '1 h') */ name, uid FROM views LEFT JOIN users ON uid = id", [(None, HOUR)]),
        ("/*+ STATE_TTL('u' = '1 h', 'w' = '2 h', 'v' = '0') */ u.name, v.uid FROM views v JOIN users u ON v.uid = u.id"
         " JOIN users w ON w.id = u.id", [(None, 2 * HOUR), (0, HOUR)]),
        ("/*+ STATE_TTL('views' = '1 h') */ page, COUNT(DISTINCT uid) FROM views GROUP BY page", [HOUR]),
        ("/*+ STATE_TTL('v' = '1 h'), BROADCAST(v) */ page, COUNT(*) FROM views v GROUP BY page", [HOUR]),
        ("page, n FROM (SELECT /*+ STATE_TTL('views' = '1 h') */ page, COUNT(*) AS n FROM views GROUP BY page) x",
         [HOUR]),
        ("/*+ STATE_TTL('views' = '1 h') */ page, uid FROM views GROUP BY page, uid", [None, HOUR]),
        ("/*+ STATE_TTL('v' = '1 h') */ page, COUNT(*) FROM (SELECT page, uid FROM views GROUP BY page, uid) v GROUP BY"
         " page", [HOUR, None]),
    ],
)  # fmt: skip
def test_the_hint_holds_for_sides_of_joins_and_groupings(select: str, ttls: list[object]) -> None:
    plan = query_of(f"INSERT INTO t SELECT {select};").plan
    found = [
        item.ttls if isinstance(item, Join) else item.ttl
        for item in nodes(plan)
        if isinstance(item, (Aggregate, Arrivals, Join))
    ]
    assert found == ttls


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ("SET 'table.exec.state.ttl' = 'long';", "takes a duration: '36 h'"),
        ("INSERT INTO t SELECT /*+ STATE_TTL('x' = '1 h') */ page, COUNT(*) FROM views GROUP BY page;",
         "'x' is neither a side of a join of this SELECT nor the one table that it groups"),
        ("INSERT INTO t SELECT /*+ STATE_TTL('views' = 'x') */ page, COUNT(*) FROM views GROUP BY page;",
         "takes a duration, such as '36 h', not 'x'"),
        ("INSERT INTO t SELECT /*+ STATE_TTL('views') */ page, COUNT(*) FROM views GROUP BY page;",
         "the hint STATE_TTL is not complete"),
        ("INSERT INTO t SELECT /*+ STATE_TTL('users' = '1 h') */ name, id FROM users;", "'users' is neither a side"),
        ("INSERT INTO t SELECT page, COUNT(*) FROM views /*+ STATE_TTL('views' = '1 h') */ GROUP BY page;",
         "stands behind SELECT"),
        ("INSERT INTO t SELECT /*+ STATE_TTL('u' = '1 h') */ u.name, v.uid FROM users u LEFT JOIN views v ON v.uid ="
         " u.id AND v.page > u.name;", "an outer join with other conditions than equality"),
        (f"{GROUPED}SET 'table.exec.state.ttl' = '1 h';{GROUPED}", "is not the same for all of them: SET it once"),
    ],
)  # fmt: skip
def test_what_says_nothing_is_refused(statements: str, reason: str) -> None:
    _, problems = read(TABLES + statements)
    assert any(reason in message for message in errors(problems)), problems


@pytest.mark.parametrize(
    ("statements", "part"),
    [
        ("INSERT INTO t SELECT page, v.uid FROM views v JOIN rates FOR SYSTEM_TIME AS OF v.ts AS r ON page = r.cur;",
         "temporal joins"),
        (f"{GROUPED}{GROUPED}", "several INSERT INTO one table"),
        ("INSERT INTO t SELECT page, COUNT(*) FROM TABLE(SESSION(TABLE views PARTITION BY page, DESCRIPTOR(ts),"
         " INTERVAL '1' MINUTE)) GROUP BY page, window_start, window_end;", "SESSION windows"),
        (GROUPED, ""),
    ],
)  # fmt: skip
def test_what_keeps_its_state_is_named(statements: str, part: str) -> None:
    _, problems = read(f"{TABLES}SET 'table.exec.state.ttl' = '1 h';{statements}")
    found = [item.message for item in problems if "their state stays" in item.message]
    assert [message for message in found if part in message] if part else not found
