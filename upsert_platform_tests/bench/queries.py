"""Kept-up queries: speed per class, evenness under skew, and what a batch costs with more history behind it."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from upsert_platform.queries.runners import Runner, SparkRunner
from upsert_platform_tests.bench.measure import row, watch_memory
from upsert_platform_tests.bench.query_load import Load

ROWS = 4_000_000
USERS = 100_000
REGIONS = 12
BATCH = 10_000
_KAFKA = "WITH ('connector' = 'kafka', 'format' = 'json')"
_UPSERT = "WITH ('connector' = 'upsert-kafka')"
VIEWS = f"CREATE TABLE views (user_id BIGINT, page_id BIGINT, region STRING) {_KAFKA};"
ACCOUNTS = f"""CREATE TABLE accounts (id BIGINT, grp INT, amount BIGINT, PRIMARY KEY (id) NOT ENFORCED) {_UPSERT};
CREATE TABLE owners (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) {_UPSERT};"""
PV_UV = f"""{VIEWS}
CREATE TABLE t (region STRING, pv BIGINT, uv BIGINT, PRIMARY KEY (region) NOT ENFORCED) {_UPSERT};
INSERT INTO t SELECT region, COUNT(*), COUNT(DISTINCT user_id) FROM views GROUP BY region;"""
ROLLUP = f"""{ACCOUNTS}
CREATE TABLE t (grp INT, n BIGINT, total BIGINT, PRIMARY KEY (grp) NOT ENFORCED) {_UPSERT};
INSERT INTO t SELECT grp, COUNT(*), SUM(amount) FROM accounts GROUP BY grp;"""
JOIN = f"""{ACCOUNTS}
CREATE TABLE t (id BIGINT, amount BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) {_UPSERT};
INSERT INTO t SELECT a.id, a.amount, o.name FROM accounts a JOIN owners o ON a.id = o.id;"""
TOP = f"""{ACCOUNTS}
CREATE TABLE t (grp INT, rn BIGINT, id BIGINT, amount BIGINT, PRIMARY KEY (grp, rn) NOT ENFORCED) {_UPSERT};
INSERT INTO t SELECT grp, rn, id, amount FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY grp ORDER BY amount DESC) AS rn
  FROM accounts) AS x WHERE rn <= 10;"""


class Rows:
    """Random rows, the same in every run."""

    def __init__(self) -> None:
        self.numbers = np.random.default_rng(7)

    def views(self, count: int, *, users: int = USERS, skewed: bool = False) -> dict[str, Any]:
        """Pageviews; skewed, nine of ten are of one region."""
        names = pa.array([f"region-{at}" for at in range(REGIONS)])
        chosen = self.numbers.integers(REGIONS, size=count)
        if skewed:
            chosen = np.where(self.numbers.random(count) < 0.9, 0, chosen)
        return {
            "user_id": self.numbers.integers(users, size=count),
            "page_id": self.numbers.integers(1000, size=count),
            "region": names.take(pa.array(chosen)),
        }

    def accounts(self, count: int, *, keys: int, groups: int = 1000, skewed: bool = False) -> dict[str, Any]:
        """Upserts of accounts."""
        chosen = self.numbers.integers(groups, size=count)
        if skewed:
            chosen = np.where(self.numbers.random(count) < 0.9, 0, chosen)
        return {
            "id": self.numbers.integers(keys, size=count),
            "grp": chosen.astype(np.int32),
            "amount": self.numbers.integers(1_000_000, size=count),
        }

    def deletes(self, count: int) -> np.ndarray:
        """One of twenty."""
        return self.numbers.random(count) < 0.05


def run(*, rows: int = ROWS) -> Iterator[dict[str, Any]]:
    """Measures each class from committed changelogs to the committed result, in a warm session."""
    from upsert_platform.jvm.session import open_session

    with tempfile.TemporaryDirectory() as folder:
        spark = open_session()
        try:
            runner = SparkRunner(lambda: spark)
            _throughput(Path(folder), runner, rows=200_000, name="warm")
            yield from _throughput(Path(folder), runner, rows=rows, name="").values()
            yield _growth(Path(folder), runner)
            yield _growth_of_joins(Path(folder), runner)
            yield _growth_of_distinct(Path(folder), runner)
        finally:
            spark.stop()


def _throughput(folder: Path, runner: Runner, *, rows: int, name: str) -> dict[str, dict[str, Any]]:
    some = Rows()
    found: dict[str, dict[str, Any]] = {}

    def measure(measure_name: str, sql: str, fill: Callable[[Load], None]) -> float:
        load = Load(folder, sql, runner)
        fill(load)
        with watch_memory() as peak:
            started = time.monotonic()
            done = load.advance()
            seconds = time.monotonic() - started
        found[measure_name] = row(
            measure_name, rows=sum(item.read for item in done), seconds=seconds, memory=peak,
            stages=[round(value, 2) for value in done[0].stages],
        )  # fmt: skip
        return seconds

    del name
    plain = measure("query_pv_uv", PV_UV, lambda load: load.append("views", some.views(rows)))
    skewed = measure("query_pv_uv_skewed", PV_UV, lambda load: load.append("views", some.views(rows, skewed=True)))
    found["query_pv_uv_skewed"]["times_slower"] = round(skewed / plain, 2)

    def upserts(load: Load, *, keys: int = USERS, skewed: bool = False) -> None:
        for _ in range(4):
            count = rows // 8
            load.append("accounts", some.accounts(count, keys=keys, skewed=skewed), deletes=some.deletes(count))

    plain = measure("rollup_over_upserts", ROLLUP, upserts)
    skewed = measure("rollup_over_upserts_skewed", ROLLUP, lambda load: upserts(load, skewed=True))
    found["rollup_over_upserts_skewed"]["times_slower"] = round(skewed / plain, 2)

    def sides(load: Load) -> None:
        count = rows // 4
        names = pa.array([f"owner {at}" for at in range(1000)])
        load.append("accounts", some.accounts(count, keys=count))
        chosen = pa.array(some.numbers.integers(1000, size=count))
        load.append("owners", {"id": some.numbers.integers(count, size=count), "name": names.take(chosen)})

    measure("join_two_changelogs", JOIN, sides)
    measure("top_n", TOP, upserts)
    return found


def _batches(load: Load, fill: Callable[[], None], *, times: int = 9) -> float:
    """The median seconds of batches one after the other."""
    taken: list[float] = []
    for _ in range(times):
        fill()
        started = time.monotonic()
        load.advance()
        taken.append(time.monotonic() - started)
    return statistics.median(taken)


def _grown(name: str, small: float, large: float, **more: Any) -> dict[str, Any]:
    return row(name, rows=BATCH, seconds=large, seconds_small=round(small, 3), growth=round(large / small, 2), **more)


def _growth(folder: Path, runner: Runner) -> dict[str, Any]:
    """A batch over 1,000 groups, behind 500,000 rows and behind 5,000,000."""
    some = Rows()
    seconds = []
    for history in (500_000, 5_000_000):
        load = Load(folder, ROLLUP, runner)
        for _ in range(5):
            load.append("accounts", some.accounts(history // 5, keys=USERS))
        load.advance()
        seconds.append(_batches(load, lambda load=load: load.append("accounts", some.accounts(BATCH, keys=USERS))))
    return _grown("query_batch_growth", *seconds)


def _growth_of_joins(folder: Path, runner: Runner) -> dict[str, Any]:
    """A batch of a join, against 500,000 keys and against 5,000,000."""
    some = Rows()
    seconds = []
    for keys in (500_000, 5_000_000):
        load = Load(folder, JOIN, runner)
        for side in ("accounts", "owners"):
            ids = some.numbers.permutation(keys)
            columns = {"id": ids, "grp": np.zeros(keys, np.int32), "amount": ids}
            name = {"id": ids, "name": pa.array([f"owner {at}" for at in range(1000)]).take(pa.array(ids % 1000))}
            load.append(side, columns if side == "accounts" else name)
        load.advance()
        seconds.append(
            _batches(load, lambda load=load, keys=keys: load.append("accounts", some.accounts(BATCH, keys=keys)))
        )
    return _grown("join_batch_growth", *seconds)


def _growth_of_distinct(folder: Path, runner: Runner) -> dict[str, Any]:
    """A batch of COUNT(DISTINCT), over 100,000 values and over 1,000,000."""
    some = Rows()
    seconds = []
    for users in (100_000, 1_000_000):
        load = Load(folder, PV_UV, runner)
        load.append("views", {**some.views(users), "user_id": some.numbers.permutation(users)})
        load.advance()
        seconds.append(
            _batches(load, lambda load=load, users=users: load.append("views", some.views(BATCH, users=users)))
        )
    return _grown("distinct_batch_growth", *seconds)
