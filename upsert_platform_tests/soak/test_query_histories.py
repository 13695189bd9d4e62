"""Random histories of kept-up queries of every class: after every batch they equal a computation from nothing.

DuckDB judges over what a list says the topics hold; sums of doubles are judged by exact fractions, lookup joins and
windows that close by models (`query_models.py`). Kills, compaction, rebuilds and odd ends of batches come in between
(`query_histories.py`).
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

import pytest

from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.soak.query_histories import QUERIES, play

pytestmark = [pytest.mark.soak, pytest.mark.timeout(10_000)]

HISTORIES = 20_000
PROCESSES = 2
SHOWN = 20
TOLD_EVERY = 50
MEMORY, LEAST_ROOM = Path("/dev/shm"), 2 << 30


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where worlds are, for a moment each: in memory where there is room for them."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > LEAST_ROOM:
        with tempfile.TemporaryDirectory(dir=MEMORY) as found:
            yield Path(found)
    else:
        yield tmp_path


def test_random_histories_of_queries_equal_recomputation(
    folder: Path, tablestore: ServerHandle, seed: int, scale: float
) -> None:
    worlds = max(1, round(HISTORIES * scale / QUERIES))
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    started, server = time.monotonic(), replace(tablestore, process=None)
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(play, folder, seed, number, server) for number in range(worlds)]
        for done, future in enumerate(as_completed(waiting), start=1):
            played = future.result()
            counts += played.counts
            wrong += played.wrong
            print(*played.wrong, sep="\n", end="\n" * bool(played.wrong))  # noqa: T201
            if done % TOLD_EVERY == 0 or done == worlds:
                seconds = time.monotonic() - started
                print(f"{done} of {worlds} worlds, {seconds:.0f} s, {len(wrong)} histories wrong", flush=True)  # noqa: T201
    for name, count in sorted(counts.items()):
        print(f"{count:>9} {name}")  # noqa: T201
    assert wrong[:SHOWN] == []
    assert counts["histories"] == worlds * QUERIES
