"""Batches of rows over many partitions that are the same whenever they are made, and a process that writes them.

Run as a process: JSON of the upsert table's options, of the insert table's, seed, seconds of a lease, last batch (0:
without end). In the environment of `attached.way_to` it uses the JVM of another process.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from upsert_platform.core.destination import BatchSpan
from upsert_platform.core.errors import LeaseHeldError
from upsert_platform.maxcompute.destination import MaxComputeDestination
from upsert_platform.maxcompute.table import MaxComputeTable, read_maxcompute_table
from upsert_platform_tests.maxcompute.declare import declare
from upsert_platform_tests.maxcompute.frames import Change, frame
from upsert_platform_tests.soak.attached import attach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"id": "BIGINT", "batch": "BIGINT", "name": "STRING", "ds": "STRING"}
PARTITIONS = 50
KEYS = 2000
ROWS = 600
CHANGELOG = "soak"
_PATIENCE_SECONDS = 40


def upserts_of(seed: int, batch: int) -> list[Change]:
    """Puts and deletes of a batch, one per key; the key tells the partition."""
    chance = random.Random(f"upserts {seed} {batch}")
    changes: list[Change] = []
    for key in sorted(chance.sample(range(KEYS), ROWS)):
        day = f"d{key % PARTITIONS:02d}"
        if chance.random() < 0.25:
            changes.append(("D", (key, None, None, day)))
        else:
            changes.append(("U", (key, batch, f"name {chance.random()}", day)))
    return changes


def inserts_of(seed: int, batch: int) -> list[Change]:
    """Rows of a batch to append; some are alike."""
    chance = random.Random(f"inserts {seed} {batch}")
    rows = [(chance.randrange(ROWS), batch, "appended", f"d{number % PARTITIONS:02d}") for number in range(ROWS)]
    return [("U", row) for row in rows]


def upserted(seed: int, upto: int) -> dict[int, tuple[Any, ...]]:
    """The upsert table after the batches up to one: key to row."""
    rows: dict[int, tuple[Any, ...]] = {}
    for batch in range(1, upto + 1):
        for operation, row in upserts_of(seed, batch):
            if operation == "U":
                rows[row[0]] = row
            else:
                rows.pop(row[0], None)
    return rows


def inserted(seed: int, upto: int) -> Counter[tuple[Any, ...]]:
    """The insert table after the batches up to one: row to how often it is there."""
    return Counter(row for batch in range(1, upto + 1) for _, row in inserts_of(seed, batch))


def table_of(options: dict[str, str]) -> MaxComputeTable:
    """The table that options declare."""
    key = ["id", "ds"] if options["sink.operation"] == "upsert" else []
    table, problems = read_maxcompute_table(declare(COLUMNS, key=key, partitioned_by=["ds"], options=options))
    assert table is not None, problems
    return table


def write_next(
    spark: SparkSession, destination: MaxComputeDestination, seed: int, lease_time: timedelta, last: int
) -> int:
    """Writes the batch after the applied one, as soon as the destination is free, unless that is the last; its number.

    Only whoever holds the lease knows: it finishes a commit that a killed writer had recorded.
    """
    destination.prepare()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            with destination.lease(owner="soak", duration=lease_time) as lease:
                print("writing", destination.name, flush=True)  # noqa: T201
                batch = destination.state().applied_batch + 1
                if last and batch > last:
                    return last
                made = upserts_of if destination.primary_key else inserts_of
                changes = frame(spark, destination.table, made(seed, batch))
                span = BatchSpan(batch - 1, batch, CHANGELOG, f"run-{batch}")
                destination.write(changes, span=span, lease=lease, keep_refused=lambda _: None)
                return batch
        except LeaseHeldError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)


def main(upsert: dict[str, str], insert: dict[str, str], seed: int, lease_time: timedelta, last: int) -> None:
    """Writes batch after batch to both tables."""
    from upsert_platform.spark.session import open_session

    destinations = [MaxComputeDestination(table_of(options)) for options in (upsert, insert)]
    shared = attach()
    spark = shared or open_session({"spark.master": "local[2]"})
    done = 0
    while not last or done < last:
        for destination in destinations:
            if last and destination.state().applied_batch >= last:
                done = last
                continue
            done = write_next(spark, destination, seed, lease_time, last)
    if shared is None:
        spark.stop()
    for destination in destinations:
        destination.close()


if __name__ == "__main__":
    lease_seconds, last_batch = float(sys.argv[4]), int(sys.argv[5])
    main(
        json.loads(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]), timedelta(seconds=lease_seconds), last_batch
    )
