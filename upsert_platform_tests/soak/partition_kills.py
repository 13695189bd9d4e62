"""Kills writers of many partitions at random moments, lets a last one finish, compares the tables with the model."""

from __future__ import annotations

import json
import random
import re
import sqlite3
import urllib.request
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform_tests.local.maxcompute.server import ServerHandle
from upsert_platform_tests.maxcompute.conftest import options_for
from upsert_platform_tests.maxcompute.frames import stored
from upsert_platform_tests.soak.partition_batches import inserted, table_of, upserted
from upsert_platform_tests.soak.writers import Writer

_MODULE = "upsert_platform_tests.soak.partition_batches"


@dataclass(frozen=True)
class Kills:
    """How writers die.

    Attributes:
        lines: a writer dies in one of its first so many writes, or soon after it,
        seconds: within so many seconds after it began.
        lease: of every write; the next writer waits until a dead one's has ended.
        environment: of the writers, or the test's.
    """

    count: int
    lines: int
    seconds: float
    lease: timedelta
    environment: Mapping[str, str] | None = None


def kill_and_compare(server: ServerHandle, folder: Path, seed: int, kills: Kills) -> str:
    """Writes to an upsert and to an insert table with kills between; what was done, in words.

    Raises:
        AssertionError: a row is missing, too many or wrong, or a session was left open.
    """
    chance = random.Random(seed)
    options = [_options(server, mode) for mode in ("upsert", "insert")]
    arguments = [*map(json.dumps, options), str(seed), str(kills.lease.total_seconds())]
    for number in range(kills.count):
        log = folder / f"{number}.log"
        writer = Writer(_MODULE, *arguments, "0", log=log, environment=kills.environment)
        writer.kill_after(chance, lines=kills.lines, seconds=kills.seconds)
    destinations = [MaxComputeDestination(table_of(values)) for values in options]
    last = max(destination.state().applied_batch for destination in destinations) + 1
    Writer(_MODULE, *arguments, str(last), log=folder / "last.log", environment=kills.environment).finish()
    upserts, inserts = (destination.table for destination in destinations)
    assert {row[0]: row for row in stored(server, upserts)} == upserted(seed, last)
    assert Counter(stored(server, inserts)) == inserted(seed, last)
    assert [destination.state().applied_batch for destination in destinations] == [last, last]
    for destination in destinations:
        destination.close()
    return f"{kills.count} kills, {last} batches, {len(upserted(seed, last))} keys"


def open_sessions(server: ServerHandle) -> int:
    """Write sessions of the server that are neither committed nor aborted."""
    with urllib.request.urlopen(f"{server.endpoint}/metrics", timeout=30) as response:
        metrics = response.read().decode()
    found = re.findall(r'^maxcompute_sessions\{kind="([^"]*)",status="normal"\} (\d+)', metrics, re.M)
    return sum(int(count) for kind, count in found if "read" not in kind)


def written_sessions(server: ServerHandle) -> int:
    """Open write sessions that a task has begun to write into.

    A writer that dies between the answer that opened a session and the record of its id leaves one that nobody knows
    of: it holds nothing, and ends by itself.
    """
    with closing(sqlite3.connect(f"file:{server.data / 'catalogue.sqlite'}?mode=ro", uri=True)) as catalogue:
        begun = "SELECT session_id FROM staged UNION SELECT session_id FROM streams"
        query = f"SELECT count(*) FROM sessions WHERE status IN ('normal', 'committing') AND session_id IN ({begun})"
        return int(catalogue.execute(query).fetchone()[0])


def _options(server: ServerHandle, mode: str) -> dict[str, str]:
    more = {"sink.operation": mode, "auto.create": "true"}
    if mode == "upsert":
        more["upsert.write.bucket.num"] = "2"
    return options_for(server, f"{mode}s_{uuid.uuid4().hex[:8]}") | more
