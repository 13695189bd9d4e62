"""What an erasure finds of a key in the folders of proofs and plans, until these are removed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.erasure import KeyRows, held_rows, still_held
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.old_proofs import RESUMED, remove_old_proofs
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.sync.erased_elsewhere import in_proofs, in_replays
from upsert_platform_tests.kafka.tables import declare

KEY = KeyRows(pa.RecordBatch.from_pydict({"id": pa.array([1], pa.int32())}), lambda raw: pa.nulls(len(raw), pa.bool_()))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def killed(lake: Lake, table: str, run: str, *, source: str = "users", key: int = 1) -> Path:
    """A file of the changelog that a proof of a table has read, and that nobody removed."""
    declared = declare()
    store = ChangelogStore(lake.proof(table, run).changelog(source), declared)
    head = store.create()
    schema = rows.arrow_schema(declared)
    row = {rows.KIND: rows.KIND_UPDATE_AFTER, "id": key, "name": "person"}
    found = pa.Table.from_pylist([row], schema=schema.remove(0)).to_batches()
    files = write_rows(found, location=store.location, schema=schema, batch=1)
    assert store.append(files, head=head, positions=head.positions, run="proof") is not None
    return Path(store.uri, files[0].path)


def test_the_folder_of_a_killed_proof_is_named(lake: Lake) -> None:
    file = killed(lake, "users_serving", "proof-1")
    killed(lake, "users_serving", "proof-2", key=2)
    killed(lake, "orders_serving", "proof-3", source="orders")
    cut = killed(lake, "(plan)", "plan-1", key=2)
    cut.write_bytes(cut.read_bytes()[:-2])
    told = sorted(in_proofs(lake, KEY, "users"))
    assert [str(file) in told[1], str(cut) in told[0], len(told)] == [True, True, 2]
    assert "rows of the key (1), of a proof or a plan" in told[1]
    assert f"delete the folder {lake.root}/proofs/users_serving/proof-1," in told[1]
    assert "a file without an end, which may hold it" in told[0]
    assert in_replays(lake, KEY, set()) == []


def test_a_file_that_was_never_ended_is_named_and_one_that_goes_meanwhile_is_passed_over(lake: Lake) -> None:
    """A run that writes the changelog was killed; it may have written the key."""
    cut = killed(lake, "users_serving", "proof-1", key=2)
    cut.write_bytes(cut.read_bytes()[:-2])
    location = lake.proof("users_serving", "proof-1").changelog("users")
    (told,) = still_held(location, KEY, upto=1)
    assert told.startswith(f"{cut}: a file without an end, which may hold it")
    assert held_rows(location, "gone.parquet", KEY, upto=1).rows == 0


def test_folders_of_killed_proofs_go_when_they_are_old(lake: Lake) -> None:
    assert remove_old_proofs(lake, hours=1) == 0
    old, young, state = (killed(lake, "users_serving", name) for name in ("proof-1", "proof-2", RESUMED))
    Path(lake.proof("users_serving", "proof-3").root).mkdir()
    before = time.time() - 3700
    for place in (old, state):
        run = place.parents[2]
        for path in [run, *run.rglob("*")]:
            os.utime(path, (before, before))
    assert remove_old_proofs(lake, hours=2) == 0
    files = sum(path.is_file() for path in old.parents[2].rglob("*"))
    assert remove_old_proofs(lake, hours=1) == files > 1, "the data and the log"
    assert not old.parents[2].exists()
    assert (young.exists(), state.exists()) == (True, True)
    assert in_proofs(lake, KEY, "users") != []
