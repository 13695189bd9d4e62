"""A million rows of a database into a topic and tables: written meanwhile, the server restarted, runs killed."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from upsert_platform.mysql.connection import Connection
from upsert_platform_tests.graph.conftest import make_stack, stack, variables
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.systems.ingesting import (
    FILL,
    TABLE,
    Writer,
    declare,
    held,
    killed,
    records,
    serving,
    wanted,
)
from upsert_platform_tests.systems.servers import KINDS, Kind, numbers, server_of

__all__ = ["make_stack", "stack", "variables"]

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2700)]

ROWS = int(1_000_000 * float(os.environ.get("SOAK_SCALE", "1")))
KILLS = 10


@pytest.mark.parametrize("kind", KINDS.values(), ids=str)
def test_a_million_rows_and_ten_kills(kind: Kind, stack: Stack, tmp_path: Path) -> None:
    chosen = random.Random(os.environ.get("SOAK_SEED", "7"))
    data = tmp_path / "server"
    running = kind.start(data, die_with_parent=True)
    try:
        server = server_of(running)
        with Connection(server) as database:
            database.query("CREATE DATABASE shop CHARACTER SET utf8mb4")
            database.query(f"CREATE TABLE shop.users ({TABLE})")
            database.query(FILL.format(table="shop.users", numbers=numbers(ROWS)))
            declare(stack, database, "shop.users", chunk=250)
        writer = Writer(server, "shop.users", pause=0.001, keys=ROWS + ROWS // 10)
        writer.start()
        kills = 0
        while kills < KILLS // 2:
            kills += killed(stack, chosen.uniform(8, 60))
        running.stop()
        running = kind.start(data, port=server.port, password=server.password, die_with_parent=True)
        done = stack.execute()
        assert done.returncode == 0, done.stderr[-3000:]
        before = Counter((key, value) for key, value, _ in records(stack))
        while kills < KILLS:
            kills += killed(stack, chosen.uniform(8, 20))
        writer.ended.set()
        writer.join(60)
        done = stack.execute()
        assert done.returncode == 0, done.stderr[-3000:]
        with Connection(server) as database:
            assert held(stack) == wanted(database, "shop.users")
            assert serving(stack) == dict(database.query("SELECT user_id, name FROM shop.users"))
        late = Counter((key, value) for key, value, _ in records(stack)) - before
        assert [pair for pair, count in late.items() if count > 1 and b'"w' in (pair[1] or b"")] == []
        assert stack.execute("verify").returncode == 0
        print(f"{kind}: {ROWS} rows, {writer.written} writes, {kills} kills: equal")  # noqa: T201
    finally:
        running.stop()
