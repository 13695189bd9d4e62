"""A changelog that is committed to every second: its log and its files stay few, and nothing that counts is lost."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa

from upsert_platform.changelog import rows
from upsert_platform.changelog.data_files import write_here
from upsert_platform.changelog.head import Positions
from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.changelog.upkeep import applied_before, note_applied, prune_log
from upsert_platform_tests.kafka.tables import declare


def test_old_log_entries_go_and_the_position_stays(tmp_path: Path) -> None:
    store = ChangelogStore(str(tmp_path / "users"), declare())
    schema = rows.arrow_schema(store.table)

    def commit(batch: int) -> None:
        row = {
            rows.KIND: rows.KIND_UPDATE_AFTER,
            rows.TOPIC: "users",
            rows.PARTITION: 0,
            rows.OFFSET: batch,
            "id": batch,
        }
        found = [pa.RecordBatch.from_pylist([row], schema=schema)]
        head = store.create()
        files = write_here(found, location=store.location, schema=schema, batch=batch)
        after = store.append(files, head=head, positions=Positions({"users": {0: batch + 1}}, {}), run="run")
        assert after is not None
        note_applied(store, "table", batch)

    for batch in range(1, 26):
        commit(batch)
    log = tmp_path / "users" / "_delta_log"
    long_ago = time.time() - 5 * 3600
    for file in log.iterdir():
        os.utime(file, (long_ago, long_ago))
    before = len(list(log.glob("*.json")))
    prune_log(store, hours=2)
    commit(26)
    assert before > 50
    assert len(list(log.glob("*.json"))) < 10
    head = store.head()
    assert head is not None
    assert (head.batch, head.positions.offsets, applied_before(store, "table")) == (26, {"users": {0: 27}}, 26)
    assert len(store.files()) == 26
    prune_log(store, hours=2)  # young entries stay: a process that began a while ago still reads them
    assert len(list(log.glob("*.json"))) > 2
