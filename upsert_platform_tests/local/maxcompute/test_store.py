"""The store against a dictionary: any sequence of commits, at every version, through compactions and change data."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upsert_platform.local.maxcompute.__main__ import main
from upsert_platform.local.maxcompute.schema import DELETE, OPERATION, UPSERT, VALUE_COLUMNS, Partition, Table
from upsert_platform.local.maxcompute.sql.context import Context
from upsert_platform.local.maxcompute.sql.run import run_sql
from upsert_platform.local.maxcompute.storage.changes import AFTER, BEFORE, INSERT, changes_of
from upsert_platform.local.maxcompute.storage.changes import DELETE as GONE
from upsert_platform.local.maxcompute.storage.ingest import group_by_spec, stage
from upsert_platform.local.maxcompute.storage.snapshot import last_of_each
from upsert_platform.local.maxcompute.storage.store import Change, Store

Row = tuple[Any, Any]
# A row of a commit: key, both values, whether it deletes, and which value columns it sets (none means all).
ROW = st.tuples(
    st.integers(0, 5),
    st.none() | st.integers(0, 9),
    st.none() | st.text("ab", max_size=2),
    st.booleans(),
    st.sampled_from([(), (), (1,), (2,), (1, 2)]),
)
COMMIT = st.tuples(st.sampled_from(["delta", "delta", "delta", "overwrite", "compact"]), st.lists(ROW, max_size=6))


def apply(state: dict[int, Row], kind: str, rows: list[Any]) -> dict[int, Row]:
    """What a commit makes of the table, row by row."""
    after = {} if kind == "overwrite" else dict(state)
    for key, number, text, deletes, named in rows:
        if deletes:
            after.pop(key, None)
        elif not named:
            after[key] = (number, text)
        else:
            before = after.get(key, (None, None))
            after[key] = (number if 1 in named else before[0], text if 2 in named else before[1])
    return after


def commit(store: Store, table: Table, kind: str, rows: list[Any]) -> None:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    arrow = pa.table(
        {
            "k": pa.array(columns[0], pa.int64()),
            "n": pa.array(columns[1], pa.int32()),
            "v": pa.array(columns[2], pa.string()),
            OPERATION: pa.array([DELETE if gone else UPSERT for gone in columns[3]], pa.int8()),
            VALUE_COLUMNS: pa.array([list(named) for named in columns[4]], pa.list_(pa.int64())),
        }
    )
    half = len(rows) // 2
    routed = [
        item
        for part in (arrow.slice(0, half), arrow.slice(half))
        for item in stage(store.files, table, part, static={})
    ]
    store.commit(table.table_id, [Change("", group_by_spec(routed).get("", ()), resets=kind == "overwrite")], kind)


def read(store: Store, table: Table, partition: Partition, version: int | None = None) -> dict[int, Row]:
    found = store.rows(table, partition, version).live_table().to_pylist()
    assert len({row["k"] for row in found}) == len(found)
    return {row["k"]: (row["n"], row["v"]) for row in found}


def replay(state: dict[int, Row], changes: pa.Table) -> dict[int, Row]:
    """Applies change rows, each of which must fit what stands there."""
    after = dict(state)
    for row in changes.to_pylist():
        value = (row["n"], row["v"])
        match row["__meta_op_type"]:
            case 2:
                assert row["k"] not in after
                after[row["k"]] = value
            case 32:
                after[row["k"]] = value
            case operation:
                assert operation in (GONE, BEFORE)
                assert after.pop(row["k"]) == value
    assert {INSERT, AFTER} == {2, 32}
    return after


@settings(max_examples=40, deadline=None)
@given(st.lists(COMMIT, max_size=8))
@pytest.mark.soak
def test_every_version_is_what_the_commits_made_it(commits: list[tuple[str, list[Any]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        try:
            run_sql(
                Context(store, "p", "o"),
                "create table t (k bigint not null, n int, v string, primary key (k)) tblproperties"
                " ('transactional'='true', 'acid.partial.fields.update.enable'='true')",
            )
            table = store.catalogue.table("default", "t")
            partition = store.partition(table, "")
            states: dict[int, dict[int, Row]] = {1: {}}
            for kind, rows in commits:
                before = store.catalogue.table("default", "t").version
                if kind == "compact":
                    store.compact(table, partition)
                else:
                    commit(store, table, kind, rows)
                version = store.catalogue.table("default", "t").version
                assert version == before + (kind == "overwrite" or (kind == "delta" and bool(rows)))
                states[version] = apply(states[before], kind, rows) if kind != "compact" else states[before]
                assert read(store, table, partition) == states[version]
            latest = max(states)
            for version, state in states.items():
                assert read(store, table, partition, version) == state
                assert replay(state, changes_of(store, table, partition, version, latest)) == states[latest]
        finally:
            store.close()


def test_a_reader_keeps_its_rows_while_they_are_compacted_away(tmp_path: Path) -> None:
    store = Store(tmp_path)
    context = Context(store, "p", "o")
    run_sql(context, "create table t (k bigint not null, primary key (k)) tblproperties ('transactional'='true')")
    run_sql(context, "insert into t select range from range(200000)")
    table = store.catalogue.table("default", "t")
    rows = store.rows(table, store.partition(table, ""))
    run_sql(context, "alter table t compact major")
    run_sql(context, "drop table t")
    assert rows.live_table().column("k").to_pylist() == list(range(200_000))
    store.close()


def _of_numbers(store: Store, batches: int) -> tuple[Table, Partition, dict[int, int]]:
    """A table of five keys, with a segment per batch, and what it holds."""
    context = Context(store, "p", "o")
    properties = "tblproperties ('transactional'='true')"
    run_sql(context, f"create table t (k bigint not null, n int, primary key (k)) {properties}")
    held = {}
    for number in range(batches):
        run_sql(context, f"insert into t values ({number % 5}, {number})")
        held[number % 5] = number
    table = store.catalogue.table("default", "t")
    return table, store.partition(table, ""), held


def _numbers(store: Store, table: Table, partition: Partition) -> dict[int, int]:
    return {row["k"]: row["n"] for row in store.rows(table, partition).live_table().to_pylist()}


def test_a_partition_of_many_segments_is_compacted_behind_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upsert_platform.local.maxcompute.storage.compactor._PATIENCE", 0.01)
    monkeypatch.setattr("upsert_platform.local.maxcompute.storage.store._COMPACT_SEGMENTS", 6)
    store = Store(tmp_path)
    try:
        table, partition, held = _of_numbers(store, 9)
        assert len(store.segments(partition)) == 9
        assert _numbers(store, table, partition) == held
        deadline = time.monotonic() + 20
        while len(store.segments(partition)) > 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert [segment.compacted for segment in store.segments(partition)] == [True]
        assert _numbers(store, table, partition) == held
    finally:
        store.close()


def test_commits_pass_a_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    try:
        table, partition, held = _of_numbers(store, 7)
        versions = {version: store.rows(table, partition, version).live_table().to_pylist() for version in range(1, 9)}
        context = Context(store, "p", "o")
        _while_compacting(store, monkeypatch, lambda: run_sql(context, "insert into t values (3, 33)"))
        assert store.compact_unless_changed(table.table_id, partition)
        segments = store.segments(partition)
        assert [segment.compacted for segment in segments] == [True, False]
        assert _numbers(store, table, partition) == {**held, 3: 33}
        for version, rows in versions.items():
            found = store.rows(table, partition, version).live_table().to_pylist()
            assert sorted(map(str, found)) == sorted(map(str, rows)), version
        changed = changes_of(store, table, partition, 8, 9).to_pylist()
        assert {row["n"] for row in changed} == {held[3], 33}
        assert store.compact_unless_changed(table.table_id, partition)
        assert not store.compact_unless_changed(table.table_id, partition)  # there is one file already
        assert _numbers(store, table, partition) == {**held, 3: 33}
    finally:
        store.close()


@pytest.mark.parametrize("statement", ["truncate table t", "insert overwrite t values (1, 2)", "drop table t"])
def test_a_compaction_gives_way_to_what_replaces_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    store = Store(tmp_path)
    try:
        table, partition, _ = _of_numbers(store, 7)
        files: list[set[str]] = []

        def replaced() -> None:
            files.append({path.name for path in (tmp_path / "segments").iterdir()})
            run_sql(Context(store, "p", "o"), statement)

        _while_compacting(store, monkeypatch, replaced)
        assert not store.compact_unless_changed(table.table_id, partition)
        known = {path for (path,) in store.catalogue.execute("SELECT path FROM segments") if path}
        assert {path.name for path in (tmp_path / "segments").iterdir()} == known  # its own file is gone
        if not statement.startswith("drop"):
            assert _numbers(store, table, partition) == ({1: 2} if "overwrite" in statement else {})
    finally:
        store.close()


def test_a_compaction_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    try:
        table, partition, held = _of_numbers(store, 7)
        before = sorted(path.name for path in (tmp_path / "segments").iterdir())

        def full(files: Any) -> None:
            raise OSError("no space left on device")

        monkeypatch.setattr(store.files, "sync", full)
        with pytest.raises(OSError, match="no space"):
            store.compact_unless_changed(table.table_id, partition)
        assert sorted(path.name for path in (tmp_path / "segments").iterdir()) == before
        assert _numbers(store, table, partition) == held
    finally:
        store.close()


def _while_compacting(store: Store, monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Has something happen between a compaction's reading and its commit."""
    write = store.write

    def written(table: Table, rows: pa.Table) -> Any:
        found = write(table, rows)
        monkeypatch.setattr(store, "write", write)
        act()
        return found

    monkeypatch.setattr(store, "write", written)


@pytest.mark.parametrize("spread", [1, 10**12])
def test_of_each_number_the_last_place_is_found(spread: int) -> None:
    chance = np.random.default_rng(5)
    for count in (0, 1, 2, 500):
        values = (chance.integers(-40, 200, count) * spread).astype(np.int64)
        wanted = {int(value): place for place, value in enumerate(values)}
        assert sorted(last_of_each(values).tolist()) == sorted(wanted.values())
    assert last_of_each(np.array([100, -100, 100], np.int8)).tolist() in ([1, 2], [2, 1])


def test_files_without_a_commit_are_removed_at_the_next_start(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run_sql(Context(store, "p", "o"), "create table t as select 1 as a")
    store.files.write_table(pa.table({"a": [2]}), columns=[0])
    assert len(list((tmp_path / "segments").iterdir())) == 2
    store.close()
    store = Store(tmp_path)
    assert len(list((tmp_path / "segments").iterdir())) == 1
    store.close()


def test_a_second_server_leaves_the_files_of_the_first_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    run_sql(Context(store, "p", "o"), "create table t as select 1 as a")
    store.files.write_table(pa.table({"a": [2]}), columns=[0])  # which the first is about to commit
    with pytest.raises(OSError, match="another server uses the data in"):
        Store(tmp_path)
    monkeypatch.setenv("UPSERT_MAXCOMPUTE_ACCESS_KEY", "secret")
    assert main(["--data", str(tmp_path), "--project", "p", "--access-id", "id"]) == 2
    assert len(list((tmp_path / "segments").iterdir())) == 2
    store.close()
    Store(tmp_path).close()


def test_masks_are_kept_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upsert_platform.local.maxcompute.storage.snapshot._REMEMBERED_BYTES", 200_000)
    store = Store(tmp_path)
    context = Context(store, "p", "o")
    run_sql(context, "create table t (k bigint not null, primary key (k)) tblproperties ('transactional'='true')")
    run_sql(context, "insert into t select range from range(50000)")
    table = store.catalogue.table("default", "t")
    partition = store.partition(table, "")
    for number in range(12):
        run_sql(context, f"insert into t values ({number}), ({50_000 + number})")
        assert store.rows(table, partition).count == 50_001 + number
        assert sum(mask.nbytes for mask in store.snapshots._masks.values()) <= 200_000
    assert store.rows(table, partition, 3).count == 50_001
    store.close()
