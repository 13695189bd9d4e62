"""PostgreSQL under kill -9: a million keys, every batch whole or not there at all, whenever the writer dies.

`postgres/test_leases.py` has the short form of this test.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from upsert_platform.core.destination import BatchSpan
from upsert_platform.core.errors import LeaseHeldError
from upsert_platform.postgres.destination import PostgresDestination
from upsert_platform.postgres.table import PostgresTable
from upsert_platform_tests.postgres.declared import changes, table_on
from upsert_platform_tests.systems.postgres import postgres
from upsert_platform_tests.task_rows import task_rows

COLUMNS = {"id": "BIGINT", "n": "BIGINT"}
ROWS = 10_000
"""Of a batch; each batch has keys of its own, and one in ten of the batch before is deleted."""
BATCHES = 100
KILLS = 50


def _write_batches(table: PostgresTable, began: Any) -> None:
    """Writes what is left; tells when it has the lease for the first time."""
    destination = PostgresDestination(table)
    destination.prepare()
    while (applied := destination.state().applied_batch) < BATCHES:
        upto = applied + 1
        puts = [(number, upto, "U") for number in range(applied * ROWS, upto * ROWS)]
        deletes = [(number, None, "D") for number in range(max(applied - 1, 0) * ROWS, applied * ROWS, 10)]
        frame = changes(COLUMNS, *puts, *deletes)
        try:
            with destination.lease(owner=f"batch-{upto}", duration=timedelta(seconds=1)) as lease:
                began.set()
                destination.write(task_rows(frame), span=BatchSpan(applied, upto, "changelog", "run"), lease=lease)
        except LeaseHeldError:
            time.sleep(0.1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_fifty_kills_over_a_million_rows_leave_whole_batches(seed: int) -> None:
    choice, context = random.Random(seed), multiprocessing.get_context("spawn")
    with postgres() as server, psycopg.connect(server, autocommit=True) as connection:
        table = table_on(server, COLUMNS)
        destination = PostgresDestination(table)
        destination.prepare()
        sums = f"SELECT count(*), coalesce(sum(id), 0), coalesce(sum(n), 0) FROM {table.place.sql}".encode()
        interrupted = 0
        for _ in range(KILLS):
            began = context.Event()
            process = context.Process(target=_write_batches, args=(table, began), daemon=True)
            process.start()
            assert began.wait(60)
            time.sleep(choice.uniform(0.0, 0.4))
            interrupted += process.is_alive()
            process.kill()
            process.join()
            time.sleep(0.2)  # the server ends the session of a client that is gone
            assert connection.execute(sums).fetchone() == _expected(destination.state().applied_batch), seed
        applied = destination.state().applied_batch
        assert interrupted == KILLS, f"all is written after {applied} batches; kill sooner"
        _write_batches(table, context.Event())
        assert connection.execute(sums).fetchone() == _expected(BATCHES)
        left = connection.execute(b"SELECT count(*) FROM pg_class WHERE relname LIKE '\\_upsert\\_%'").fetchone()
        assert left == (0,)
        destination.close()
    print({"kills": interrupted, "rows": BATCHES * ROWS})  # noqa: T201


def _expected(applied: int) -> tuple[int, int, int]:
    """Count and sums of the rows of whole batches, of which all but the last lost one key in ten."""
    count = ids = values = 0
    for batch in range(applied):
        keys = range(batch * ROWS, (batch + 1) * ROWS)
        gone = keys[::10] if batch < applied - 1 else range(0)
        count += len(keys) - len(gone)
        ids += sum(keys) - sum(gone)
        values += (len(keys) - len(gone)) * (batch + 1)
    return count, ids, values
