"""Refused rows are kept once, however often a span is tried."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

from upsert_platform.changelog.progress import FOLDER
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.destination import BatchSpan, KeepsFiles, RefusedRow


def row(key: int, reason: str = "too long") -> RefusedRow:
    return RefusedRow(key=f'{{"id":{key}}}', row=f'{{"id":{key},"v":"x"}}', reason=reason)


def test_rows_are_kept_by_batch(tmp_path: Path) -> None:
    store = RefusedStore(str(tmp_path / "refused"))
    assert store.read().num_rows == 0
    store.append([row(1), row(2)], BatchSpan(0, 3, "c", "run"))
    store.append([], BatchSpan(3, 4, "c", "run"))
    store.append([row(3)], BatchSpan(4, 5, "c", "run"))
    found = store.read()
    assert found.column("batch").to_pylist() == [3, 3, 5]
    assert found.column("reason").to_pylist() == ["too long"] * 3


def test_span_tried_again_replaces_what_it_kept(tmp_path: Path) -> None:
    store = RefusedStore(str(tmp_path / "refused"))
    store.append([row(1)], BatchSpan(0, 2, "c", "run"))
    store.append([row(2), row(3)], BatchSpan(2, 4, "c", "killed"))
    store.append([row(2), row(3), row(4)], BatchSpan(2, 5, "c", "again"))
    assert store.read().column("key").to_pylist() == ['{"id":1}', '{"id":2}', '{"id":3}', '{"id":4}']


def test_span_tried_again_that_refuses_nothing_keeps_nothing_of_its_first_try(tmp_path: Path) -> None:
    store = RefusedStore(str(tmp_path / "refused"))
    store.append([row(1)], BatchSpan(0, 2, "c", "run"))
    for again in (lambda keep: keep([]), lambda keep: keep.keep_files([])):
        store.append([row(2)], BatchSpan(2, 4, "c", "killed"))
        again(store.of(BatchSpan(2, 5, "c", "again")))
        assert store.read()["key"].to_pylist() == [row(1).key]


def test_files_of_tasks_are_kept_like_rows(tmp_path: Path) -> None:
    store = RefusedStore(str(tmp_path / "refused"))
    store.append([row(1)], BatchSpan(0, 2, "c", "run"))
    store.append([row(9)], BatchSpan(2, 4, "c", "killed"))
    keep = store.of(BatchSpan(2, 5, "c", "again"))
    assert isinstance(keep, KeepsFiles)
    # As a task has it: opened in another process.
    opened = [pickle.loads(pickle.dumps(keep.open_file))() for _ in range(4)]
    opened[0].write([row(2), row(3)])
    opened[0].write([row(4, "another")])
    opened[1].write([RefusedRow(str(n), "x" * 1_000_000, "large") for n in range(9)])
    opened[3].write([row(7)])
    files = [name for file in opened[:3] if (name := file.close()) is not None]
    opened[0].discard()
    opened[3].discard()
    assert len(files) == 2  # the third has no rows
    groups = list(keep.rows_of(files))
    assert [len(group) for group in groups] == [3, 5, 4]
    assert groups[0] == [row(2), row(3), row(4, "another")]
    keep.keep_files(files)
    found = store.read()
    assert found["batch"].to_pylist() == [2] + [5] * 12
    assert found["key"].to_pylist()[:4] == [row(n).key for n in range(1, 5)]
    store.append([row(8)], BatchSpan(2, 6, "c", "and again"))
    assert store.read()["key"].to_pylist() == [row(1).key, row(8).key]
    keep.discard_files(files)
    new = RefusedStore(str(tmp_path / "another"))
    keep = new.of(BatchSpan(0, 1, "c", "run"))
    file = keep.open_file()
    file.write([row(1)])
    name = file.close()
    assert name is not None
    keep.keep_files([name])
    assert new.read().select(["batch", "key", "row", "reason"]).to_pylist() == [
        {"batch": 1, "key": row(1).key, "row": row(1).row, "reason": "too long"}
    ]
    new.settle([row(1).key])
    assert new.read().num_rows == 0


def test_a_transaction_that_is_tried_again_keeps_its_files_once(tmp_path: Path) -> None:
    store, span = RefusedStore(str(tmp_path / "refused")), BatchSpan(0, 1, "c", "run")
    failed, own, other = (store.write_file([row(number)], span.upto) for number in (1, 2, 3))
    keep = store.of(span, failed=[failed])
    for files in ([own], [own], [own, other], [own]):
        keep.keep_files(files)
        assert sorted(store.read()["key"].to_pylist()) == [
            row(1).key,
            row(2).key,
            *([row(3).key] if other in files else []),
        ]
    keep.give_up()
    assert sorted(store.read()["key"].to_pylist()) == [row(1).key, row(2).key]


def test_a_file_that_is_given_up_is_removed(tmp_path: Path) -> None:
    keep = RefusedStore(str(tmp_path / "refused")).of(BatchSpan(0, 1, "c", "run"))
    file = keep.open_file()
    file.write([RefusedRow("k", "x" * 5_000_000, "large")])
    assert len(list((tmp_path / "refused").iterdir())) == 1
    file.discard()
    assert list((tmp_path / "refused").iterdir()) == []


def test_settled_keys_are_gone_and_rows_refused_again_take_the_place_of_what_was_kept(tmp_path: Path) -> None:
    store = RefusedStore(str(tmp_path / "refused"))
    store.settle(["x"])
    store.append([row(1), row(2), row(3)], BatchSpan(0, 2, "c", "run"))
    store.append([row(2)], BatchSpan(2, 4, "c", "run"))
    store.again(5)([row(2, "still too long")])
    store.settle([row(1).key])
    found = store.read().select(["batch", "key", "reason"]).to_pylist()
    assert [tuple(item.values()) for item in found] == [(2, row(3).key, "too long"), (5, row(2).key, "still too long")]
    store.settle([row(2).key, row(3).key])
    assert store.read().num_rows == 0
    store.append([row(4)], BatchSpan(5, 6, "c", "run"))
    assert store.read()["key"].to_pylist() == [row(4).key]


SETTLING = """
import json, random, resource, sys
from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.core.destination import BatchSpan, RefusedRow

def used():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

store = RefusedStore(sys.argv[1])
noise = random.Random(1).randbytes(200_000).hex()
span = BatchSpan(0, 1, "c", "run")
file = store.of(span).open_file()
for n in range(36_000):
    start = n * 7919 % 390_000
    file.write([RefusedRow(str(n), noise[start:start + 4_096], "too long")])
store.append_files([file.close()], span)
before = used()
store.settle({str(n) for n in range(0, 36_000, 2)})
store.forget(BatchSpan(1, 2, "c", "run"))
store.again(2)([RefusedRow("1", "x", "still")])
shown = [row["key"] for row in store.read(limit=2).to_pylist()]
after = used()
print(json.dumps([after - before, store.count(), shown, store.read(key="1").to_pylist()[0]["reason"]]))
"""


def test_what_is_settled_of_many_rows_is_read_a_few_megabytes_at_a_time(tmp_path: Path) -> None:
    """36,000 rows of 4 KB in one file, of which half are settled."""
    command = [sys.executable, "-c", SETTLING, str(tmp_path / "refused")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown, count, shown, reason = json.loads(done.stdout)
    assert (count, shown, reason) == (18_000, ["3", "5"], "still")
    assert grown < 80_000, f"{grown // 1024} MB more, for 147 MB of rows"


def test_what_an_interrupted_write_set_aside_is_removed_and_what_it_kept_stays(tmp_path: Path) -> None:
    store = RefusedStore(str(tmp_path / "refused"))
    span = BatchSpan(0, 1, "c", "run")
    for kept in (False, True):
        keep = store.of(span, failed=[store.write_file([row(1)], 1)])
        if kept:
            keep([row(2)])
        keep.give_up()
        assert sorted(store.keys()["key"].to_pylist()) == ([row(1).key, row(2).key] if kept else [])
        assert len(list((tmp_path / "refused").glob("*.parquet"))) == (2 if kept else 0)


def test_files_that_no_write_kept_are_removed_after_a_while(tmp_path: Path) -> None:
    """Of a write that died, before there was a table and beside one; what the table has stays, however old."""
    store = RefusedStore(str(tmp_path / "refused"))
    assert store.remove_unused(hours=1) == 0

    def left(*names: str, hours: float) -> None:
        for name in names:
            moment = time.time() - hours * 3600
            os.utime(tmp_path / "refused" / name, (moment, moment))

    def died() -> str:
        return str(json.loads(store.write_file([row(1)], 1))["path"])

    left(died(), hours=3)
    young = died()
    assert store.remove_unused(hours=2) == 1
    assert [path.name for path in (tmp_path / "refused").iterdir()] == [young]
    store.append([row(2)], BatchSpan(0, 2, "c", "run"))
    live = {path.name for path in (tmp_path / "refused").glob("*.parquet")} - {young}
    counts = tmp_path / "refused" / FOLDER / "killed"
    counts.mkdir(parents=True)
    (counts / "0-5").write_text("")
    left(young, *live, f"{FOLDER}/killed/0-5", hours=3)
    assert store.remove_unused(hours=2) == 2
    assert {path.name for path in (tmp_path / "refused").glob("*.parquet")} == live
    assert not list(counts.iterdir())
    assert store.read()["key"].to_pylist() == [row(2).key]
