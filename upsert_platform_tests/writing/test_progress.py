"""Lines about a write that takes long, told while its tasks run."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from upsert_platform.changelog import progress
from upsert_platform.changelog.progress import TaskCounter, WriteProgress, progress_line, rows_counted
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.changelog.tables import TableLocation
from upsert_platform.core.destination import BatchSpan
from upsert_platform.writing import outcomes
from upsert_platform_tests.task_rows import task_rows
from upsert_platform_tests.writing import in_memory
from upsert_platform_tests.writing.in_memory import send
from upsert_platform_tests.writing.test_destinations import frame, write

ROWS = 40
BLOCK = 2


def slow_send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A system that takes a while for every block."""
    for batch in batches:
        time.sleep(0.1)
        yield from send(iter([batch]))


def slow_write(changes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of a slow write of ROWS rows, which are checked."""
    monkeypatch.setattr(in_memory, "send", slow_send)
    lines: list[str] = []
    store = RefusedStore(str(tmp_path / "refused"))
    watch = WriteProgress(store.location, what="table 'users'", tell=lines.append, most=ROWS, every=0.25)
    keep = store.of(BatchSpan(0, 1, "changelog-1", "run"), progress=watch)
    report = write(in_memory.MemoryDestination(in_memory.Place()), changes, 1, keep_refused=keep)
    assert report.upserts == ROWS
    form = re.compile(r"table 'users': (\d+) of at most 40 rows in \d+ s, \d+ rows/s(, at most .* left)?")
    told = [form.fullmatch(line) for line in lines]
    assert all(told), lines
    counts = [int(found[1]) for found in told if found]
    assert counts == sorted(counts)
    assert any(0 < count < ROWS for count in counts), lines  # while tasks were running
    assert any("left" in line for line in lines)
    assert not list((tmp_path / "refused").rglob("*-*")), "counts are removed"
    return lines


def test_a_slow_write_tells_rows_rate_and_time_left(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = frame(spark, [(key, "a", "U", 1) for key in range(ROWS)]).coalesce(2)
    size = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(size)
    spark.conf.set(size, str(BLOCK))
    try:
        slow_write(changes, tmp_path, monkeypatch)
    finally:
        spark.conf.set(size, str(before))


def test_a_process_that_writes_by_itself_tells_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "_BATCH_ROWS", BLOCK)
    columns = {"id": list(range(ROWS)), "name": ["a"] * ROWS, "_op": ["U"] * ROWS, "_seq": [1] * ROWS}
    slow_write(task_rows(pa.table(columns)), tmp_path, monkeypatch)


def test_counts_of_tasks_are_summed_and_a_task_tried_again_counts_once(tmp_path: Path) -> None:
    folder = TableLocation(str(tmp_path / "counts"))
    assert rows_counted(folder) == 0
    loud, quiet = time.time() - 1, time.time() + 60
    first, again, other = (TaskCounter(folder, 0.0, loud, task) for task in (0, 0, 1))
    first(10)
    first(30)
    again(20)
    other(5, ended=True)
    assert rows_counted(folder) == 35
    TaskCounter(folder, 60.0, quiet, 2)(100, ended=True)  # of a write that is over in a moment
    assert rows_counted(folder) == 35
    assert len(list(Path(folder.uri).iterdir())) == 3


def test_a_folder_that_cannot_be_written_stops_no_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    location = TableLocation(str(tmp_path / "file"))
    lines: list[str] = []
    watch = WriteProgress(location, what="t", tell=lines.append, every=0.01)
    with watch.watched():
        count = watch.counter(0)
        time.sleep(0.05)
        count(5)
        count(6, ended=True)
    assert all(" 0 rows " in line for line in lines)


def test_lines() -> None:
    line = progress_line("table 'users'", rows=120_000, most=1_000_000, seconds=25.4, rate=4_800.0)
    assert line == "table 'users': 120,000 of at most 1,000,000 rows in 25 s, 4,800 rows/s, at most 3 min 3 s left"
    assert (
        progress_line("t", rows=0, most=10, seconds=3700, rate=0.0) == "t: 0 of at most 10 rows in 1 h 1 min, 0 rows/s"
    )
    assert progress_line("t", rows=7, most=None, seconds=3, rate=2.2) == "t: 7 rows in 3 s, 2 rows/s"
    assert progress.EVERY <= 10
