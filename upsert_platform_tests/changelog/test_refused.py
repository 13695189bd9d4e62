"""Refused rows are kept once, however often a span is tried."""

from __future__ import annotations

from pathlib import Path

from upsert_platform.changelog.refused import RefusedStore
from upsert_platform.destination import BatchSpan, RefusedRow


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
