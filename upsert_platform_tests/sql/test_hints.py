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
        (
            "/*+ OPTIONS('scan.startup.mode' = 'latest-offset') */",
            "CREATE TABLE users_2 WITH ('scan.startup.mode' = 'latest-offset') LIKE users",
        ),
        ("/*+ BROADCAST(users), OPTIONS('a' = 'b', 'scan.parallelism' = '2') */", "the hint OPTIONS('a' = 'b') is not"),
        ("/*+ OPTIONS(a) */", "the hint OPTIONS takes options"),
        ("/*+ AGG_STRATEGY('ONE_PHASE') */", "the hint AGG_STRATEGY is not one of STATE_TTL, OPTIONS, BROADCAST"),
        ("/*+ */", "a hint is written /*+ NAME(...) */"),
    ],
)
def test_other_hints_are_refused(hint: str, reason: str) -> None:
    _, problems = read(f"{TABLES}INSERT INTO t SELECT id, name FROM users {hint};")
    assert any(reason in message for message in errors(problems))


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
