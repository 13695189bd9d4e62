"""State of queries that an earlier version wrote goes on as it is: nothing is built anew, and results stay right.

``queries_2026_11_22.tar.gz`` holds the changelogs after FIRST and SECOND, and each of QUERIES after both, as the
version of that day wrote them.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from upsert_platform.changelog import rows
from upsert_platform.engine.store import fingerprint
from upsert_platform_tests.engine.statements import STATEMENTS
from upsert_platform_tests.engine.world import KEYS, Kept, World, plan_query, same_rows

ARCHIVE = Path(__file__).parent / "queries_2026_11_22.tar.gz"
QUERIES = {
    "groups": "SELECT region, COUNT(*) AS n, COUNT(DISTINCT age) AS ages, SUM(age) AS total, MIN(age) AS least,"
    " MAX(age) AS greatest FROM users GROUP BY region",
    "best": "SELECT oid, uid, amount FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY uid ORDER BY amount DESC, oid)"
    " AS r FROM orders) WHERE r <= 2",
    "joined": "SELECT o.oid, u.id, u.region, o.amount FROM orders o LEFT JOIN users u ON o.uid = u.id",
    "without": "SELECT id, region FROM users WHERE NOT EXISTS (SELECT 1 FROM orders WHERE orders.uid = users.id)",
    "groups_of_joined": "SELECT u.region, SUM(o.amount) AS s FROM orders o JOIN users u ON o.uid = u.id"
    " GROUP BY u.region",
    "appended": "SELECT page, COUNT(*) AS n, SUM(secs) AS s FROM views GROUP BY page",
}
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
Rows = Sequence[tuple[Any, ...]]
FIRST: Mapping[str, Rows] = {
    "users": [(1, "eu", 30), (2, "us", 41), (3, "eu", None), (4, None, 7), (5, "asia", 41)],
    "orders": [(10, 1, 5), (11, 1, 9), (12, 2, -3), (13, None, 4), (14, 7, 1), (15, 1, 9)],
    "views": [(1, "p", 3), (2, "q", None), (1, "p", 4)],
}
SECOND: Mapping[str, Rows] = {
    "users": [(2, "eu", 42), (5,), (6, "us", 30)],
    "orders": [(11,), (16, 2, 100), (12, 6, -3)],
    "views": [(9, None, 1), (2, "q", 8)],
}
THIRD: Mapping[str, Rows] = {
    "users": [(1, "us", 31), (4,), (7, "asia", 1), (5, "asia", 2)],
    "orders": [(15,), (17, 1, 6), (10, 7, 5), (14, 5, 2)],
    "views": [(3, "p", 5)],
}
COLUMNS = {
    "users": ("id", "region", "age", "score", "spent"),
    "orders": ("oid", "uid", "amount", "kind", "ts"),
    "views": ("uid", "page", "secs", "ts"),
}


def put(world: World, changes: Mapping[str, Rows], *, writes: bool = True) -> None:
    """Records of each table: a row of its first columns, or a key alone, which is deleted."""
    for name, given in changes.items():
        batch = []
        for values in given:
            row = dict.fromkeys(COLUMNS[name]) | dict(zip(COLUMNS[name], values, strict=False))
            kind = rows.KIND_INSERT
            if name in KEYS:
                key, _ = KEYS[name]
                world.rows[name] = [item for item in world.rows[name] if item[key] != row[key]]
                kind = rows.KIND_UPDATE_AFTER if len(values) > 1 else rows.KIND_DELETE
            else:
                row["ts"] = NOON.replace(tzinfo=None) + timedelta(seconds=world.offsets[name])
            if kind != rows.KIND_DELETE:
                world.rows[name].append(row)
            system = {
                rows.KIND: kind,
                rows.TOPIC: name,
                rows.PARTITION: 0,
                rows.OFFSET: world.offsets[name],
                rows.ROW: 0,
            }
            world.offsets[name] += 1
            batch.append({**row, **system})
        if writes:
            world.write(name, batch)


@pytest.fixture
def older(tmp_path: Path) -> World:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    world = World(tmp_path, random.Random(1))
    put(world, FIRST, writes=False)
    put(world, SECOND, writes=False)
    return world


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_goes_on(name: str, older: World) -> None:
    kept = Kept(older, plan_query(QUERIES[name]), name)
    head = kept.store.head()
    assert head is not None
    assert kept.advance() is None  # nothing is new, and nothing is built anew
    assert same_rows(kept.result(), older.judge(QUERIES[name]))
    put(older, THIRD)
    done = kept.advance()
    assert done is not None
    after = kept.store.head()
    assert after is not None
    assert after.batch == head.batch + 1
    assert after.changelog_id == head.changelog_id
    assert same_rows(kept.result(), older.judge(QUERIES[name]))


def prints() -> str:
    """The identity of each statement's plan, a line for each."""
    texts = (
        *STATEMENTS.values(),
        *QUERIES.values(),
        "SELECT n.* FROM (VALUES (1, 'a'), (1, 'b')) AS n (k, w), users u",
    )
    return "\n".join(fingerprint(plan_query(sql)) for sql in texts)


def test_a_plan_has_one_identity_in_every_process() -> None:
    """Sets of strings are in another order in each; a query whose identity changes is refused until it is rebuilt."""
    code = "from upsert_platform_tests.engine.test_older_state import prints; print(prints())"
    for seed in ("1", "2"):
        settings = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        found = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=True)
        assert found.stdout.split() == prints().split()
