"""Refused rows are kept once, however often a span is tried."""

from __future__ import annotations

import pickle
from pathlib import Path

from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.destination import BatchSpan, KeepsFiles, RefusedRow


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
    store.settle([], [row(2, "still too long")], batch=5)
    store.settle([row(1).key])
    found = store.read().select(["batch", "key", "reason"]).to_pylist()
    assert [tuple(item.values()) for item in found] == [(2, row(3).key, "too long"), (5, row(2).key, "still too long")]
    store.settle([row(2).key, row(3).key])
    assert store.read().num_rows == 0
    store.append([row(4)], BatchSpan(5, 6, "c", "run"))
    assert store.read()["key"].to_pylist() == [row(4).key]
