"""What an erasure finds of a key in the folders of proofs and plans, until these are removed."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import write_rows
from upsert_platform.changelog.erasure import KeyRows, held_rows, still_held
from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.old_proofs import RESUMED, remove_old_proofs
from upsert_platform.changelog.set_aside import set_aside
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.sync.erased_elsewhere import in_proofs, in_replays, in_set_aside, texts_of
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


def test_the_changelog_that_a_reset_set_aside_is_named(lake: Lake) -> None:
    schema = rows.arrow_schema(declare())
    for name, key, text in (("users", 1, False), ("users", 2, False), ("users", 2, True), ("orders", 1, False)):
        store = ChangelogStore(lake.changelog(name), declare())
        head = store.create()
        row = {rows.KIND: rows.KIND_UPDATE_AFTER, "id": key, "name": "person"}
        found = pa.Table.from_pylist([row], schema=schema.remove(0))
        fields = schema
        if text:  # as it was declared before
            at = schema.get_field_index("id")
            fields = schema.set(at, schema.field(at).with_type(pa.string()))
            found = found.set_column(at - 1, "id", pa.array(["two"]))
        files = write_rows(found.to_batches(), location=store.location, schema=fields, batch=1)
        assert text or store.append(files, head=head, positions=head.positions, run="sync") is not None
        moment = datetime(2026, 1, key + 2 * text, tzinfo=UTC)
        assert set_aside(lake, lake.changelog(name), moment=moment) is not None
    kept = {"batch": 1, "key": '{"id": 1}', "row": "{}", "reason": "no", "at": datetime(2026, 1, 1, tzinfo=UTC)}
    write_deltalake(lake.refused("written").uri, pa.Table.from_pylist([kept]))
    assert set_aside(lake, lake.refused("written"), moment=datetime(2026, 2, 1, tzinfo=UTC)) is not None
    told = sorted(in_set_aside(lake, KEY, "users", ["written", "others"], texts_of(pa.table({"id": [1]}))))
    first, third, fourth = told
    assert f"rows of the key (1), which a reset set aside: delete the folder {lake.root}/reset/2026-01-01T" in first
    assert "rows of another declaration, which may hold the key" in third
    assert "refused rows of the key (1)" in fourth
    assert fourth.endswith("/refused/written")


def test_records_that_nobody_can_decode_are_named_of_what_a_reset_set_aside(lake: Lake) -> None:
    """A changelog that was declared wrong holds them: that is why it was reset."""
    schema, store = rows.arrow_schema(declare()), ChangelogStore(lake.changelog("users"), declare())
    head = store.create()
    row = {rows.KIND: rows.KIND_QUARANTINED, rows.RAW_KEY: b"?"}
    found = pa.Table.from_pylist([row], schema=schema.remove(0)).to_batches()
    files = write_rows(found, location=store.location, schema=schema, batch=1)
    assert store.append(files, head=head, positions=head.positions, run="sync") is not None
    assert set_aside(lake, lake.changelog("users")) is not None
    (told,) = in_set_aside(lake, KEY, "users", (), ())
    assert "records in quarantine whose keys cannot be decoded (1), which may be of it, which a reset set aside" in told


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
