"""Copies of large files of state: they change no result, are shared, and make room for others."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from upsert_platform.engine import cache, state
from upsert_platform_tests.engine.statements import STATEMENTS
from upsert_platform_tests.engine.world import Kept, World, plan_query, same_rows


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(state, "WORTHWHILE_ROWS", 1)


@pytest.mark.parametrize("name", ["groups of a left join", "distinct sums", "first rows"])
def test_results_are_the_same_by_copies(name: str, tmp_path: Path) -> None:
    world = World(tmp_path / "world", random.Random(name))
    kept = Kept(world, plan_query(STATEMENTS[name]))
    for _ in range(4):
        for table in kept.query.tables:
            world.change(table, 15)
        kept.advance()
        assert same_rows(kept.result(), world.judge(STATEMENTS[name]))
    where = cache.folder()
    assert where is not None
    assert list(where.glob("*.arrow"))


def test_copy_is_read_once_and_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": list(range(1000))})
    reads: list[str] = []

    def get(name: str) -> pa.Table:
        def read() -> pa.Table:
            reads.append(name)
            return table

        return cache.unpacked(name, read)

    assert [get("one"), get("one"), get("two")] == [table] * 3
    assert reads == ["one", "two"]
    where = cache.folder()
    assert where is not None
    size = (where / "one.arrow").stat().st_size
    monkeypatch.setattr(cache, "MOST_BYTES", 2 * size)
    os.utime(where / "one.arrow", (1, 1))
    held = get("two")
    get("three")
    assert {path.name for path in where.iterdir()} == {"two.arrow", "three.arrow"}
    assert held == get("two") == table
    assert reads == ["one", "two", "three"]


def test_folder_is_looked_through_once_and_then_for_a_share_of_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look costs as much as there are copies."""
    looks: list[Path] = []
    make_room = cache._make_room

    def look(where: Path) -> None:
        looks.append(where)
        make_room(where)

    table = pa.table({"a": list(range(1000))})
    monkeypatch.setattr(cache, "_make_room", look)
    monkeypatch.setattr(cache, "_unseen", cache.MOST_BYTES)
    for number in range(5):
        cache.unpacked(f"small{number}", lambda: table)
    assert len(looks) == 1
    monkeypatch.setattr(cache, "MOST_BYTES", 64 * 2 * table.nbytes)
    monkeypatch.setattr(cache, "_unseen", 0)
    for number in range(6):
        cache.unpacked(f"share{number}", lambda: table)
    assert len(looks) == 4
