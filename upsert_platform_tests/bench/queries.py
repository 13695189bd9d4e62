"""Kept-up queries from committed changelogs to the committed result: speed, evenness under skew, growth, memory.

Every result is compared with DuckDB's answer over the rows that were written.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from upsert_platform.engine.runners import SparkRunner
from upsert_platform_tests.bench.changelog import restart_workers
from upsert_platform_tests.bench.measure import row, watch_memory
from upsert_platform_tests.bench.query_load import Load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 4_000_000
USERS = 100_000
REGIONS = 12
GROUPS = 1_000
BATCH = 10_000
TURNS = 9
REPEATS = 3
_KAFKA = "WITH ('connector' = 'kafka', 'format' = 'json')"
_UPSERT = "WITH ('connector' = 'upsert-kafka')"
TABLES = f"""CREATE TABLE views (user_id BIGINT, page_id BIGINT, region STRING) {_KAFKA};
CREATE TABLE accounts (id BIGINT, grp INT, amount BIGINT, PRIMARY KEY (id) NOT ENFORCED) {_UPSERT};
CREATE TABLE owners (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) {_UPSERT};"""
PV_UV = "SELECT region, COUNT(*) AS pv, COUNT(DISTINCT user_id) AS uv FROM views GROUP BY region"
ROLLUP = "SELECT grp, COUNT(*) AS n, SUM(amount) AS total FROM accounts GROUP BY grp"
JOIN = "SELECT a.id, a.amount, o.name FROM accounts a JOIN owners o ON a.id = o.id"
TOP = """SELECT grp, rn, id, amount FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY grp ORDER BY amount DESC, id) AS rn FROM accounts) AS x WHERE rn <= 10"""
TARGETS = {
    PV_UV: "region STRING, pv BIGINT, uv BIGINT, PRIMARY KEY (region) NOT ENFORCED",
    ROLLUP: "grp INT, n BIGINT, total BIGINT, PRIMARY KEY (grp) NOT ENFORCED",
    JOIN: "id BIGINT, amount BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED",
    TOP: "grp INT, rn BIGINT, id BIGINT, amount BIGINT, PRIMARY KEY (grp, rn) NOT ENFORCED",
}
Fill = Callable[[Load], None]


class Rows:
    """Random rows, the same in every run."""

    def __init__(self) -> None:
        self.numbers = np.random.default_rng(7)

    def _chosen(self, count: int, among: int, *, skewed: bool) -> np.ndarray:
        chosen = self.numbers.integers(among, size=count)
        return np.where(self.numbers.random(count) < 0.9, 0, chosen) if skewed else chosen

    def views(self, count: int, *, users: int = USERS, skewed: bool = False) -> dict[str, Any]:
        """Pageviews; skewed, nine of ten are of one region."""
        names = pa.array([f"region-{at}" for at in range(REGIONS)])
        return {
            "user_id": self.numbers.integers(users, size=count),
            "page_id": self.numbers.integers(1000, size=count),
            "region": names.take(pa.array(self._chosen(count, REGIONS, skewed=skewed))),
        }

    def accounts(self, count: int, *, keys: int = USERS, skewed: bool = False) -> dict[str, Any]:
        """Upserts of accounts."""
        return {
            "id": self.numbers.integers(keys, size=count),
            "grp": self._chosen(count, GROUPS, skewed=skewed).astype(np.int32),
            "amount": self.numbers.integers(1_000_000, size=count),
        }

    def owners(self, ids: np.ndarray) -> dict[str, Any]:
        """Upserts of owners."""
        names = pa.array([f"owner {at}" for at in range(1000)])
        return {"id": ids, "name": names.take(pa.array(self.numbers.integers(1000, size=len(ids))))}

    def fill_views(self, load: Load, rows: int, *, skewed: bool = False) -> None:
        """Commits views in four batches, as a topic's changelog has them."""
        for _ in range(4):
            load.append("views", self.views(rows // 4, skewed=skewed))

    def fill_accounts(self, load: Load, rows: int, *, keys: int = USERS, skewed: bool = False) -> None:
        """Commits upserts of accounts in four batches, one of twenty a delete."""
        for _ in range(4):
            deletes = self.numbers.random(rows // 4) < 0.05
            load.append("accounts", self.accounts(rows // 4, keys=keys, skewed=skewed), deletes=deletes)


class _Bench:
    """Loads below a folder, and their measures."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder = folder
        self.spark = spark
        self.runner = SparkRunner(lambda: spark)
        self.rows = Rows()

    def load(self, sql: str) -> Load:
        """Empty changelogs, and a query over them."""
        target = f"CREATE TABLE t ({TARGETS[sql]}) {_UPSERT};"
        return Load(self.folder, f"{TABLES}\n{target}\nINSERT INTO t {sql};", self.runner)

    def once(self, sql: str, fill: Fill) -> tuple[float, float, int]:
        """Seconds of one run from nothing, DuckDB's for the same result, and the rows that were read."""
        load = self.load(sql)
        fill(load)
        started = time.monotonic()
        done = load.advance()
        seconds = time.monotonic() - started
        return seconds, load.judge(sql), sum(item.read for item in done)

    def told(self, name: str, sql: str, fill: Fill, *, goal: str = "") -> dict[str, Any]:
        """A line of a query's speed, beside one that computes the result once and keeps nothing."""
        with watch_memory() as peak:
            runs = [self.once(sql, fill) for _ in range(REPEATS)]
        seconds, bound = min(run[0] for run in runs), min(run[1] for run in runs)
        return row(
            name, rows=runs[0][2], seconds=seconds, memory=peak, ratio=bound / seconds,
            ratio_to="DuckDB over the same rows in memory, computed once, without state and files", goal=goal,
        )  # fmt: skip

    def skew(self, name: str, sql: str, fill: Callable[..., None]) -> dict[str, Any]:
        """Nine of ten rows in one group against rows spread evenly, in turn."""
        even, skewed, read = [], [], 0
        for _ in range(REPEATS):
            even.append(self.once(sql, lambda load: fill(load, ROWS))[0])
            seconds, _, read = self.once(sql, lambda load: fill(load, ROWS, skewed=True))
            skewed.append(seconds)
        return row(
            name, rows=read, seconds=min(skewed), ratio=min(skewed) / min(even),
            ratio_to="seconds over rows spread evenly", goal="<= 1.3",
        )  # fmt: skip

    def growth(
        self, name: str, sql: str, histories: tuple[Fill, Fill], fill: Fill, *, goal: str, of: str
    ) -> dict[str, Any]:
        """What a batch costs behind a small history and behind a large one: the medians of batches in turn."""
        loads = [self.load(sql) for _ in histories]
        for load, history in zip(loads, histories, strict=True):
            history(load)
            load.advance()
        taken: list[list[float]] = [[], []]
        for _ in range(TURNS):
            for load, mine in zip(loads, taken, strict=True):
                fill(load)
                gc.collect()
                started = time.monotonic()
                load.advance()
                mine.append(time.monotonic() - started)
        for load in loads:
            load.judge(sql)
        small, large = (statistics.median(mine) for mine in taken)
        return row(
            name, rows=BATCH, seconds=large, ratio=large / small, ratio_to=f"the same batch behind {of}", goal=goal
        )

    def memory(self, sql: str, fill: Callable[[Load, int], None]) -> dict[str, Any]:
        """The most that one worker holds over a million rows, and over ten times as many."""
        peaks: list[float] = []
        for rows in (1_000_000, 10_000_000):
            load = self.load(sql)
            fill(load, rows)
            restart_workers(self.spark)
            with watch_memory() as peak:
                load.advance()
            load.judge(sql)
            peaks.append(peak.worker)
        return row(
            "query_memory", rows=10_000_000, seconds=0, memory=peaks[1], ratio=peaks[1] / peaks[0],
            ratio_to="the largest Python worker over 1000000 rows", goal="<= 1.2", small_memory_mb=round(peaks[0]),
        )  # fmt: skip


def run() -> Iterator[dict[str, Any]]:
    """Measures each class in a warm session."""
    from upsert_platform.spark.session import open_session

    with tempfile.TemporaryDirectory() as folder:
        spark = open_session()
        try:
            bench = _Bench(Path(folder), spark)
            rows = bench.rows
            warm = bench.load(PV_UV)
            rows.fill_views(warm, 400_000)
            warm.advance()
            yield bench.told("query_pv_uv", PV_UV, lambda load: rows.fill_views(load, ROWS))
            yield bench.told("query_rollup", ROLLUP, lambda load: rows.fill_accounts(load, ROWS))
            yield bench.told(
                "join_two_changelogs", JOIN, lambda load: _fill_join(rows, load, ROWS // 2), goal=">= 0.15"
            )
            yield bench.told("top_n", TOP, lambda load: rows.fill_accounts(load, ROWS), goal=">= 0.2")
            yield bench.skew("query_skew", PV_UV, rows.fill_views)
            yield bench.skew("query_skew_over_upserts", ROLLUP, rows.fill_accounts)
            yield bench.memory(PV_UV, rows.fill_views)
            yield from _growths(bench)
        finally:
            spark.stop()


def _fill_join(rows: Rows, load: Load, count: int) -> None:
    """Two sides of half the keys that they have rows, one of twenty a delete."""
    for _ in range(2):
        deletes = rows.numbers.random(count // 4) < 0.05
        load.append("accounts", rows.accounts(count // 4, keys=count // 4), deletes=deletes)
        load.append("owners", rows.owners(rows.numbers.integers(count // 4, size=count // 4)), deletes=deletes)


def _growths(bench: _Bench) -> Iterator[dict[str, Any]]:
    some = bench.rows

    def accounts(keys: int) -> Fill:
        return lambda load: load.append("accounts", some.accounts(BATCH, keys=keys))

    def views(users: int) -> Fill:
        ids = some.numbers.permutation(users)
        return lambda load: load.append("views", {**some.views(users), "user_id": ids})

    def sides(keys: int) -> Fill:
        def fill(load: Load) -> None:
            ids = some.numbers.permutation(keys)
            load.append("accounts", {"id": ids, "grp": np.zeros(keys, np.int32), "amount": ids})
            load.append("owners", some.owners(ids))

        return fill

    yield bench.growth(
        "query_growth", ROLLUP,
        (lambda load: some.fill_accounts(load, 500_000), lambda load: some.fill_accounts(load, 5_000_000)),
        accounts(USERS), goal="<= 1.3", of="500000 rows, not 5000000",
    )  # fmt: skip
    yield bench.growth(
        "query_growth_distinct", PV_UV, (views(100_000), views(1_000_000)),
        lambda load: load.append("views", some.views(BATCH, users=1_000_000)), goal="<= 2",
        of="100000 values, not 1000000",
    )  # fmt: skip
    yield bench.growth(
        "query_growth_join", JOIN, (sides(500_000), sides(5_000_000)), accounts(500_000), goal="<= 2",
        of="500000 keys, not 5000000",
    )  # fmt: skip
