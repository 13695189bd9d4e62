"""Batches and rebuilds of queries in processes of their own, which are ended by SIGKILL wherever they are."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

from upsert_platform.core.errors import ChangelogError
from upsert_platform.engine.rebuild import rebuild
from upsert_platform.engine.runners import LocalRunner
from upsert_platform.engine.store import QueryStore
from upsert_platform_tests.engine.world import Kept, World, plan_query, same_rows

CHANGES = {
    "SELECT region, COUNT(*) AS n, SUM(age) AS s FROM users GROUP BY region": ("SUM(age)", "MAX(age)"),
    "SELECT u.region, COUNT(*) AS n, SUM(o.amount) AS s FROM orders o LEFT JOIN users u ON o.uid = u.id GROUP BY"
    " u.region": ("SUM(o.amount)", "COUNT(DISTINCT o.kind)"),
    "SELECT kind, oid, amount, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY amount DESC NULLS LAST,"
    " oid) AS rn FROM orders) AS t WHERE rn <= 2": ("rn <= 2", "rn <= 3"),
}
"""Statements, and what is replaced by what when they change."""
ON_ITS_WAY = "killed on its way"


def context() -> multiprocessing.context.ForkServerContext:
    """Starts processes from one that has the modules, and no thread of delta-rs."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([__name__, "upsert_platform.engine.engine", "deltalake", "pyarrow.parquet"])
    return found


def _work(folder: Path, sql: str, anew: bool, told: Connection) -> None:
    """Everything that is new, or a rebuild."""
    kept = Kept(World(folder, random.Random()), plan_query(sql))
    told.send("begun")
    if anew:
        _rebuild(kept)
    else:
        kept.advance(most_rows=12)
    told.send("done")


def _rebuild(kept: Kept) -> None:
    inputs = {name: kept.world.stores[name] for name in kept.query.tables}
    rebuild(QueryStore(kept.store.uri, kept.query, any_plan=True), inputs, runner=LocalRunner(), run="test")


def _kill(folder: Path, sql: str, *, anew: bool, after: float) -> str:
    """Starts it and kills it: where it was by then."""
    here, there = (processes := context()).Pipe()
    process = processes.Process(target=_work, args=(folder, sql, anew, there))
    process.start()
    assert here.recv() == "begun"
    time.sleep(after)
    process.kill()
    process.join()
    return "killed after the end" if here.poll() else ON_ITS_WAY


def play_kills(folder: Path, sql: str, rng: random.Random, *, turns: int, kills: int) -> Counter[str]:
    """Batches with kills between them, then a changed statement whose rebuilds are killed; all ends equal.

    Returns:
        How often what happened.
    """
    counts: Counter[str] = Counter()

    def kill(statement: str, *, anew: bool) -> None:
        nonlocal took
        found = _kill(folder, statement, anew=anew, after=rng.uniform(0, took))
        counts[found] += 1
        # So that kills fall anywhere between the beginning and the end, on a machine that has more to do as well.
        took *= 1.5 if found == ON_ITS_WAY else 0.6

    world = World(folder, rng)
    kept = Kept(world, plan_query(sql))
    took = 0.3
    for turn in range(turns):
        for name in kept.query.tables:
            world.change(name, 20)
        for _ in range(kills if turn else 0):
            kill(sql, anew=False)
        started = time.monotonic()
        kept.advance(most_rows=12)
        took = max(0.1, time.monotonic() - started) if not turn else took
        assert same_rows(kept.result(), world.judge(sql))
    changed = sql.replace(*CHANGES[sql])
    assert changed != sql
    anew = Kept(world, plan_query(changed))
    for _ in range(kills):
        kill(changed, anew=True)
        try:
            kept.store.head()
        except ChangelogError:  # it had swapped before it died
            break
        assert same_rows(kept.result(), world.judge(sql))
    _rebuild(anew)
    assert same_rows(anew.last_rows(), world.judge(changed))
    world.change(anew.query.tables[0], 20)
    anew.advance()
    assert same_rows(anew.last_rows(), world.judge(changed))
    return counts
