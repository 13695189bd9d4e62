"""Groups of windows into a table without a key: which are planned, and what the refusal of each other one names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from upsert_platform.core.plan import Closing, Finals, Node, Session, Window
from upsert_platform_tests.sql.reading import errors, read

TABLES = """
CREATE TABLE views (uid INT, page STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
  WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE bare (uid INT, page STRING, ts TIMESTAMP(3)) WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE other (uid INT, at STRING, ts AS TO_TIMESTAMP(at), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE odd (uid INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MONTH)
  WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE orders (oid INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (oid) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka');
CREATE TABLE users (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
CREATE TABLE log (e TIMESTAMP(3), n BIGINT) WITH ('connector' = 'kafka', 'format' = 'json');
CREATE TABLE kept (e TIMESTAMP(3), n BIGINT, PRIMARY KEY (e) NOT ENFORCED) WITH ('connector' = 'upsert-kafka');
"""
EDGES = "window_start, window_end"


def tumble(table: str, kind: str = "TUMBLE") -> str:
    return f"TABLE({kind}(TABLE {table}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"


def counted(table: str) -> str:
    return f"SELECT window_end, COUNT(*) FROM {tumble(table)} GROUP BY {EDGES}"


def plans(sql: str) -> list[Node]:
    scripts, problems = read(TABLES + sql)
    assert errors(problems) == []
    return [insert.query.plan for insert in scripts.inserts if insert.query is not None]


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for item in node.inputs:
        yield from nodes(item)


@pytest.mark.parametrize(("setting", "after"), [("", 5_000_000), ("'10 s'", 15_000_000), ("'0'", 5_000_000)])
def test_windows_close_at_their_end_unless_the_setting_says_later(setting: str, after: int) -> None:
    text = f"SET 'table.exec.emit.allow-lateness' = {setting};" if setting else ""
    (plan,) = plans(f"{text}INSERT INTO log {counted('views')};")
    assert [type(item) for item in nodes(plan)].count(Finals) == 1
    (window,) = [item for item in nodes(plan) if isinstance(item, Window)]
    assert window.closing == Closing("views", "ts", after)
    assert plan.appends


@pytest.mark.parametrize(
    "select",
    [
        f"SELECT window_end, COUNT(*) FROM {tumble('views', 'SESSION')} GROUP BY {EDGES}",
        "SELECT SESSION_END(ts, INTERVAL '5' SECOND), COUNT(*) FROM views GROUP BY SESSION(ts, INTERVAL '5' SECOND)",
        "SELECT HOP_END(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND), COUNT(*) FROM views GROUP BY"
        " HOP(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
    ],
)
def test_sessions_and_windows_of_the_older_syntax_close_too(select: str) -> None:
    (plan,) = plans(f"INSERT INTO log {select};")
    found = [item.closing for item in nodes(plan) if isinstance(item, (Session, Window))]
    assert found == [Closing("views", "ts", 5_000_000)]


def test_it_is_the_target_that_decides() -> None:
    """A warning says so of the one without a key; the other's windows stay open."""
    sql = f"INSERT INTO log {counted('views')}; INSERT INTO kept {counted('views')};"
    log, kept = plans(sql)
    assert [any(isinstance(item, Finals) for item in nodes(plan)) for plan in (log, kept)] == [True, False]
    assert all(item.closing is None for item in nodes(kept) if isinstance(item, Window))
    warnings = [item.message for item in read(TABLES + sql)[1] if item.severity == "warning"]
    assert sum("rows of a window are written once, when the watermark has passed its end" in item
               for item in warnings) == 1  # fmt: skip


def test_windows_of_several_statements_have_clocks_of_their_own() -> None:
    (plan,) = plans(f"INSERT INTO log {counted('views')}; INSERT INTO log {counted('views')};")
    ends = [item.names[1] for item in nodes(plan) if isinstance(item, Window)]
    assert len(ends) == len(set(ends)) == 2
    assert [item.windows for item in nodes(plan) if isinstance(item, Finals)] == [(end,) for end in ends]


CHANGE = "the rows of the query change, and a table without a PRIMARY KEY cannot take a row back"
PROBLEMS = {
    "no watermark": (counted("bare"), "declare WATERMARK FOR ts AS ts - INTERVAL '5' SECOND in table 'bare'"),
    "a computed time": (counted("other"), "its WATERMARK column has to reach the window as it is"),
    "a watermark of another kind": (counted("odd"), "does not tell the event time of column 'ts'"),
    "no window": ("SELECT ts, COUNT(*) FROM views GROUP BY ts", "declare one, or group by window_start and window_end"),
    "no end of the window": (
        f"SELECT window_start, COUNT(*) FROM {tumble('views')} GROUP BY window_start",
        "they are not the groups of one window",
    ),
    "groups of the groups": (
        f"SELECT CAST(NULL AS TIMESTAMP(3)), MAX(n) FROM (SELECT COUNT(*) AS n FROM {tumble('views')} GROUP BY"
        f" {EDGES}, page)",
        "they are not the groups of one window",
    ),
    "sessions of rows that change": (
        f"SELECT window_end, COUNT(*) FROM {tumble('orders', 'SESSION')} GROUP BY {EDGES}",
        "rows of SESSION windows are written once these are closed where the rows of the table are only added",
    ),
    "rows of a join": (
        f"SELECT window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE both, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY"
        f" {EDGES}",
        "not out of a join, a union or a grouping",
    ),
    "a join with what changes": (
        f"SELECT w.e, w.n FROM ({counted('views').replace('window_end, COUNT(*)', 'window_end AS e, COUNT(*) AS n')})"
        " AS w JOIN users AS u ON w.n = u.id",
        "they are not the groups of one window",
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_missing_is_named_with_the_ways_out(name: str) -> None:
    sql, reason = PROBLEMS[name]
    view = "CREATE VIEW both AS SELECT v.ts FROM views AS v JOIN users AS u ON v.uid = u.id;"
    scripts, problems = read(f"{TABLES}{view}INSERT INTO log {sql};")
    (message,) = errors(problems)
    assert CHANGE in message
    assert reason in message
    assert "declare a PRIMARY KEY for the target" in message or "declare one" in message
    assert not scripts.inserts
