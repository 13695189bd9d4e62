"""A plan of an edited insert over many rows, by an estimate: the whole command, in a process of its own."""

from __future__ import annotations

import json
import math
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from upsert_platform.local.kafka import start_broker
from upsert_platform_tests.bench.command import timed_command
from upsert_platform_tests.bench.jobs import _COPY, _USERS, PARTITIONS, _declare, _job
from upsert_platform_tests.bench.kafka import create_topic, produce_json_users
from upsert_platform_tests.bench.measure import row, watch_memory

RECORDS = 16_000_000
KEYS = 15_500_000
"""Of which so many records name some 10 million."""
_EDITED = (
    "SELECT id, CASE WHEN MOD(id, 4) = 0 THEN UPPER(name) ELSE name END, email, score, updated FROM users"
    " WHERE MOD(id, 10) < 9"
)


def run(*, records: int = RECORDS, keys: int = KEYS) -> Iterator[dict[str, Any]]:
    """Measures `plan_estimate`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker(Path(folder) / "kafka", die_with_parent=True) as broker,
    ):
        create_topic(broker.bootstrap_servers, "users", partitions=PARTITIONS)
        produce_json_users(broker.bootstrap_servers, "users", records=records, keys=keys)
        text = _COPY.format(columns=_USERS, servers=broker.bootstrap_servers, partitions=PARTITIONS)
        _declare(Path(folder), text)
        synced = _job(Path(folder))[0]
        shutil.copytree(Path(folder) / "project", Path(folder) / "deployed")
        edited = text.replace("SELECT * FROM users", _EDITED)
        (Path(folder) / "project" / "tables.sql").write_text(edited, "utf-8")
        with watch_memory() as peak:
            seconds, told = _planned(Path(folder))
        # The same load as that of the producer, so the rows that differ are known.
        sent = set(random.Random(7).choices(range(keys), k=records))
        left_out = sum(key % 10 == 9 for key in sent)
        changed = sum(key % 4 == 0 and key % 10 < 9 for key in sent)
        for name, count in {"removed": left_out, "changed": changed}.items():
            # A key in `one_in` is looked at: four standard deviations of the estimate.
            assert abs(told[name] - count) <= 4 * math.sqrt(told["one_in"] * count), (name, told[name], count)
        assert told["one_in"] <= max(32, records // 100_000), "the sample is too small to tell anything"
        assert (told["estimated"], told["kind"]) == (True, "changed")
        yield row(
            "plan_estimate",
            rows=len(sent),
            seconds=seconds,
            memory=peak,
            goal="<= 30 s",
            sync_seconds=round(synced, 1),
            changed=changed,
            estimated_changed=told["changed"],
            removed=left_out,
            estimated_removed=told["removed"],
        )


def _planned(folder: Path) -> tuple[float, dict[str, Any]]:
    """Seconds of `plan --estimate`, and what it says of the table."""
    seconds, done = timed_command(
        folder, "plan", "--estimate", "--deployed", str(folder / "deployed"), "--json", codes=[2]
    )
    (told,) = json.loads(done.stdout)["tables"]
    return seconds, told
