"""Flink's SQL, line by line: a statement that is planned for each, and the test that has the oracle of its result.

What is still refused stands below with its reason, so that a line that begins to work is moved up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

import upsert_platform_tests
from upsert_platform_tests.sql.reading import errors, read

TESTS: Final = Path(upsert_platform_tests.__file__).parent
_AT: Final = "'properties.bootstrap.servers' = 'b:1'"
_KAFKA: Final = f"WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json', {_AT})"
_UPSERT: Final = (
    f"WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'key.format' = 'json', 'value.format' = 'json', {_AT})"
)
TABLES: Final = f"""
CREATE TABLE users (id INT, region STRING, age INT, tags ARRAY<STRING>, PRIMARY KEY (id) NOT ENFORCED) {_UPSERT};
CREATE TABLE orders (oid BIGINT, uid INT, amount BIGINT, kind STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts,
  PRIMARY KEY (oid) NOT ENFORCED) {_UPSERT};
CREATE TABLE views (uid INT, page STRING, secs BIGINT, ts TIMESTAMP(3), proc AS PROCTIME(),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) {_KAFKA};
CREATE TABLE rates (cur STRING, rate DOUBLE, since TIMESTAMP(3), WATERMARK FOR since AS since,
  PRIMARY KEY (cur) NOT ENFORCED) {_UPSERT};
"""
WINDOWED: Final = "FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' MINUTES))"
KEYED: Final = "uid INT, s TIMESTAMP(3), n BIGINT"
LINES: Final = {
    "very high: the hint OPTIONS": (
        "kind STRING, n BIGINT", "kind", "SELECT kind, COUNT(*) FROM orders /*+ OPTIONS('properties.group.id' = 'b') */"
        " GROUP BY kind",
        "sql/test_hints.py", "another_one",
    ),
    "very high: the hint STATE_TTL": (
        "kind STRING, n BIGINT", "kind", "SELECT /*+ STATE_TTL('orders' = '1d') */ kind, COUNT(*) FROM orders GROUP BY"
        " kind",
        "engine/test_state_ttl.py", "COUNT(DISTINCT kind) AS k",
    ),
    "very high: the start of a window as key": (
        KEYED, "uid, s", f"SELECT uid, window_start, COUNT(*) {WINDOWED} GROUP BY uid, window_start, window_end",
        "engine/test_following_keys.py", "start of a window",
    ),
    "very high: the end of HOP as key": (
        KEYED, "uid, s", "SELECT uid, window_end, COUNT(*) FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), INTERVAL '5'"
        " MINUTES, INTERVAL '10' MINUTES)) GROUP BY uid, window_start, window_end",
        "engine/test_following_keys.py", "end of a window",
    ),
    "very high: window Top-N by start and number": (
        "s TIMESTAMP(3), rn BIGINT, uid INT", "s, rn", "SELECT window_start, rn, uid FROM (SELECT *, ROW_NUMBER() OVER"
        " (PARTITION BY window_start, window_end ORDER BY n DESC) AS rn FROM (SELECT uid, window_start, window_end,"
        f" COUNT(*) AS n {WINDOWED} GROUP BY uid, window_start, window_end) a) b WHERE rn <= 3",
        "engine/test_following_keys.py", "first rows of a window",
    ),
    "very high: a key that is cast": (
        "k STRING, r STRING", "k", "SELECT CAST(id AS STRING), region FROM users",
        "engine/test_following_keys.py", "the text of a table's key",
    ),
    "very high: a key that is put together": (
        "k STRING, r STRING", "k", "SELECT CONCAT('user-', CAST(id AS STRING)), region FROM users",
        "engine/test_following_keys.py", "CONCAT('user-'",
    ),
    "very high: a key that is formatted": (
        "k STRING, n BIGINT", "k", f"SELECT DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm'), COUNT(*) {WINDOWED} GROUP BY"
        " window_start, window_end",
        "engine/test_following_keys.py", "a formatted start of a window",
    ),
    "very high: a key other than the query's": (
        "region STRING, id INT", "region", "SELECT region, id FROM users",
        "engine/test_materialize.py", "the row that arrived last is shown",
    ),
    "very high: hints about execution": (
        "oid BIGINT, r STRING", "oid", "SELECT /*+ BROADCAST(u) */ o.oid, u.region FROM orders o JOIN users u ON"
        " o.uid = u.id",
        "sql/test_hints.py", "have_no_effect",
    ),
    "high: temporal join by event time": (
        "oid BIGINT, r DOUBLE", "oid", "SELECT o.oid, o.amount * r.rate FROM orders o JOIN rates FOR SYSTEM_TIME AS OF"
        " o.ts AS r ON o.kind = r.cur",
        "engine/test_temporal.py", "FOR SYSTEM_TIME AS OF",
    ),
    "high: UNNEST": (
        "id INT, tag STRING", "id, tag", "SELECT id, t.tag FROM users CROSS JOIN UNNEST(tags) AS t (tag)",
        "engine/test_unnest.py", "UNNEST",
    ),
    "high: OVER": (
        "oid BIGINT, s BIGINT", "oid", "SELECT oid, SUM(amount) OVER (PARTITION BY uid ORDER BY ts RANGE BETWEEN"
        " INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) FROM orders",
        "engine/test_over.py", "an interval",
    ),
    "high: windows of the older syntax": (
        KEYED, "uid, s", "SELECT uid, TUMBLE_START(ts, INTERVAL '10' MINUTE), COUNT(*) FROM orders GROUP BY uid,"
        " TUMBLE(ts, INTERVAL '10' MINUTE)",
        "engine/test_group_windows.py", "TUMBLE_START",
    ),
    "high: SESSION": (
        KEYED, "uid, s", "SELECT uid, window_start, COUNT(*) FROM TABLE(SESSION(TABLE orders PARTITION BY uid,"
        " DESCRIPTOR(ts), INTERVAL '10' MINUTES)) GROUP BY uid, window_start, window_end",
        "engine/test_sessions.py", "SESSION",
    ),
    "high: arithmetic of aggregates": (
        "uid INT, a BIGINT", "uid", "SELECT uid, SUM(amount) / COUNT(amount) FROM orders GROUP BY uid",
        "engine/test_flink_statements.py", "quotients of aggregates",
    ),
    "medium: groups of windows without a key": (
        KEYED, "", f"SELECT uid, window_start, COUNT(*) {WINDOWED} GROUP BY uid, window_start, window_end",
        "engine/test_finals.py", "test_rows_are_given_once_when_their_window_closes",
    ),
    "medium: groups of sessions without a key": (
        KEYED, "", "SELECT uid, window_start, COUNT(*) FROM TABLE(SESSION(TABLE views PARTITION BY uid,"
        " DESCRIPTOR(ts), INTERVAL '10' MINUTES)) GROUP BY uid, window_start, window_end",
        "engine/test_finals.py", "test_sessions_are_given_once_when_they_close",
    ),
    "medium: LEFT JOIN with a condition on the left": (
        "oid BIGINT, r STRING", "oid", "SELECT o.oid, u.region FROM orders o LEFT JOIN users u ON o.uid = u.id AND"
        " o.kind = 'a'",
        "engine/statements.py", "left join with a condition on the left",
    ),
    "medium: scalar subqueries": (
        "oid BIGINT, m INT", "oid", "SELECT oid, (SELECT MAX(age) FROM users) FROM orders",
        "engine/statements.py", "values of subqueries",
    ),
    "medium: scalar subqueries that read the row": (
        "id INT, m BIGINT", "id", "SELECT id, (SELECT COUNT(*) FROM orders o WHERE o.uid = u.id) FROM users u",
        "engine/test_flink_statements.py", "values of each row",
    ),
    "medium: IN below OR": (
        "oid BIGINT, kind STRING", "oid", "SELECT oid, kind FROM orders WHERE kind = 'a' OR uid IN (SELECT id FROM"
        " users)",
        "engine/test_flink_statements.py", "in below or",
    ),
    "medium: nullable NOT IN below OR": (
        "oid BIGINT, uid INT", "oid", "SELECT oid, uid FROM orders WHERE kind = 'a' OR uid NOT IN (SELECT age FROM"
        " users)",
        "engine/statements.py", "not in with nulls below or",
    ),
    "medium: nullable NOT IN": (
        "oid BIGINT, uid INT", "oid", "SELECT oid, uid FROM orders WHERE uid NOT IN (SELECT age FROM users)",
        "engine/statements.py", "not in with nulls",
    ),
    "medium: EXISTS with other conditions": (
        "id INT, age INT", "id", "SELECT id, age FROM users AS u WHERE EXISTS (SELECT 1 FROM orders o WHERE o.amount <"
        " u.age)",
        "engine/statements.py", "not exists by an inequality",
    ),
    "medium: theta joins": (
        "oid BIGINT, id INT", "oid, id", "SELECT o.oid, u.id FROM orders o JOIN users u ON o.amount < u.age",
        "engine/statements.py", "join by an inequality",
    ),
    "medium: UNION ALL into a table with a key": (
        "id INT, region STRING", "id", "SELECT uid, page FROM views UNION ALL SELECT uid, page FROM views",
        "engine/test_merge.py", "UNION ALL",
    ),
    "medium: a window over a subquery": (
        KEYED, "uid, s", "SELECT uid, window_start, COUNT(*) FROM TABLE(TUMBLE((SELECT * FROM views WHERE secs > 1),"
        " DESCRIPTOR(ts), INTERVAL '10' MINUTES)) GROUP BY uid, window_start, window_end",
        "engine/test_flink_statements.py", "a window over a subquery",
    ),
    "medium: ARRAY_AGG": (
        "uid INT, a ARRAY<BIGINT>", "uid", "SELECT uid, ARRAY_AGG(amount) FROM orders GROUP BY uid",
        "engine/test_flink_statements.py", "arrays of values",
    ),
    "medium: COLLECT": (
        "uid INT, a MULTISET<STRING>", "uid", "SELECT uid, COLLECT(kind) FROM orders GROUP BY uid",
        "engine/test_flink_statements.py", "multisets",
    ),
    "medium: JSON_ARRAYAGG": (
        "uid INT, a STRING", "uid", "SELECT uid, JSON_ARRAYAGG(amount NULL ON NULL) FROM orders GROUP BY uid",
        "engine/test_flink_statements.py", "json arrays",
    ),
    "medium: JSON_OBJECTAGG": (
        "uid INT, a STRING", "uid", "SELECT uid, JSON_OBJECTAGG(KEY COALESCE(kind, '') VALUE amount) FROM orders GROUP"
        " BY uid",
        "engine/test_flink_statements.py", "json objects",
    ),
    "low: ORDER BY an expression with LIMIT": (
        "oid BIGINT, amount BIGINT", "oid", "SELECT oid, amount FROM orders ORDER BY -amount LIMIT 3",
        "engine/statements.py", "groups ordered by a count",
    ),
    "low: LATERAL Top-N": (
        "uid INT, oid BIGINT", "uid, oid", "SELECT u.id, o.oid FROM users u, LATERAL (SELECT oid FROM orders WHERE"
        " orders.uid = u.id ORDER BY amount DESC LIMIT 2) AS o",
        "engine/test_flink_statements.py", "first rows of each by LATERAL",
    ),
    "low: inline VALUES": (
        "oid BIGINT, name STRING", "oid", "SELECT o.oid, n.name FROM orders o JOIN (VALUES ('a', 'first'), ('b',"
        " 'second')) AS n (k, name) ON o.kind = n.k",
        "engine/test_flink_statements.py", "joined with values",
    ),
    "low: INTERSECT ALL": (
        "n BIGINT, k INT", "k", "SELECT COUNT(*), uid FROM (SELECT uid, kind FROM orders INTERSECT ALL SELECT uid, page"
        " FROM views) t GROUP BY uid",
        "engine/statements.py", "intersect all",
    ),
    "low: EXCEPT ALL": (
        "n BIGINT, k INT", "k", "SELECT COUNT(*), uid FROM (SELECT uid, kind FROM orders EXCEPT ALL SELECT uid, page"
        " FROM views) t GROUP BY uid",
        "engine/statements.py", "groups of an except all",
    ),
    "low: CURRENT_WATERMARK": (
        "uid INT, page STRING", "uid", "SELECT uid, page FROM views WHERE ts > CURRENT_WATERMARK(ts) OR"
        " CURRENT_WATERMARK(ts) IS NULL",
        "engine/test_watermark.py", "class Stands",
    ),
}  # fmt: skip
"""Columns and key of a target (empty for none), the statement, and the file of its oracle with words there."""
REFUSED: Final = {
    "low: sessions of rows that change without a key": (
        "INSERT INTO log SELECT uid, window_start, COUNT(*) FROM TABLE(SESSION(TABLE orders PARTITION BY uid,"
        " DESCRIPTOR(ts), INTERVAL '10' MINUTES)) GROUP BY uid, window_start, window_end",
        "rows of SESSION windows are written once these are closed where the rows of the table are only added",
    ),
    "low: MATCH_RECOGNIZE": (
        "INSERT INTO target SELECT * FROM views MATCH_RECOGNIZE (PARTITION BY uid ORDER BY ts MEASURES A.secs AS a"
        " PATTERN (A) DEFINE A AS A.secs > 1) AS m",
        "MATCH_RECOGNIZE is not supported",
    ),
}  # fmt: skip
TARGETS: Final = f"""CREATE TABLE target (oid BIGINT, kind STRING, PRIMARY KEY (oid) NOT ENFORCED) {_UPSERT};
CREATE TABLE log ({KEYED}) {_KAFKA};
"""


@pytest.mark.parametrize("line", LINES)
def test_a_statement_is_planned_and_its_result_has_an_oracle(line: str) -> None:
    columns, key, sql, file, words = LINES[line]
    with_key = f"({columns}, PRIMARY KEY ({key}) NOT ENFORCED) {_UPSERT}" if key else f"({columns}) {_KAFKA}"
    target = f"CREATE TABLE target {with_key};"
    scripts, problems = read(f"{TABLES}{target}INSERT INTO target {sql};")
    assert errors(problems) == []
    assert scripts.inserts[0].query is not None
    assert words in (TESTS / file).read_text("utf-8")


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_not_there_is_refused_with_its_reason(line: str) -> None:
    sql, reason = REFUSED[line]
    scripts, problems = read(f"{TABLES}{TARGETS}{sql};")
    assert any(reason in message for message in errors(problems))
    assert not scripts.inserts
