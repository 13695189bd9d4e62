"""Position, lease and rows are one transaction: killed and frozen writers leave nothing behind."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from upsert_platform.core.destination import BatchSpan, drop_nothing
from upsert_platform.core.errors import LeaseHeldError, UpsertPlatformError
from upsert_platform.postgres.destination import PostgresDestination
from upsert_platform.postgres.table import PostgresTable
from upsert_platform_tests.postgres.conftest import Tables
from upsert_platform_tests.postgres.declared import changes, write
from upsert_platform_tests.task_rows import task_rows

pytestmark = pytest.mark.systems
Ask = Callable[..., list[tuple[Any, ...]]]
COLUMNS = {"id": "BIGINT", "n": "BIGINT"}


def _write_frozen(table: PostgresTable, merged: Any, wake: Any, told: Any) -> None:
    """Writes with a lease of two seconds, and stands still between its rows and its position."""

    def freeze(refused: object) -> None:
        merged.set()
        os.kill(os.getpid(), signal.SIGSTOP)
        wake.wait()

    destination = PostgresDestination(table)
    try:
        with destination.lease(owner="frozen", duration=timedelta(seconds=2)) as lease:
            destination.write(
                task_rows(changes(COLUMNS, *[(n, 1, "U") for n in range(50)])),
                span=BatchSpan(0, 1, "changelog", "frozen"),
                lease=lease,
                keep_refused=freeze,
            )
        told.put("written")
    except UpsertPlatformError as error:
        told.put(f"{type(error).__name__}: {error}")


def test_a_writer_that_was_frozen_behind_its_lease_writes_nothing(postgres_tables: Tables, ask: Ask) -> None:
    """Its rows lie in an open transaction while another takes the lease and writes the same keys."""
    table = postgres_tables(COLUMNS)
    destination = PostgresDestination(table)
    destination.prepare()
    context = multiprocessing.get_context("spawn")
    merged, wake, told = context.Event(), context.Event(), context.Queue()
    process = context.Process(target=_write_frozen, args=(table, merged, wake, told), daemon=True)
    process.start()
    try:
        assert process.pid is not None
        assert merged.wait(60)
        deadline = time.monotonic() + 30
        while True:
            try:
                report = write(table, changes(COLUMNS, *[(n, 2, "U") for n in range(50)]))
                break
            except LeaseHeldError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        assert report.upserts == 50
        os.kill(process.pid, signal.SIGCONT)
        wake.set()
        end = told.get(timeout=60)
        assert end.startswith("LeaseHeldError: ") or "idle-in-transaction timeout" in end, end
    finally:
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGCONT)
        process.kill()
        process.join()
    assert ask(f"SELECT n, count(*) FROM {table.place.sql} GROUP BY n") == [(2, 50)]
    assert destination.state().applied_batch == 1
    destination.close()


def _write_batches(table: PostgresTable, batches: int, rows: int) -> None:
    destination = PostgresDestination(table)
    destination.prepare()
    while (applied := destination.state().applied_batch) < batches:
        upto = applied + 1
        frame = changes(COLUMNS, *[(n, upto, "D" if n % 10 == upto % 10 else "U") for n in range(rows)])
        try:
            with destination.lease(owner=f"batch-{upto}", duration=timedelta(seconds=1)) as lease:
                destination.write(
                    task_rows(frame),
                    span=BatchSpan(applied, upto, "changelog", "run"),
                    lease=lease,
                    keep_refused=drop_nothing,
                )
        except LeaseHeldError:
            time.sleep(0.1)


def test_kills_leave_whole_batches(postgres_tables: Tables, ask: Ask) -> None:
    """Whenever a writer dies, the table is what its position says: every row of one batch, none of another."""
    table = postgres_tables(COLUMNS)
    PostgresDestination(table).prepare()
    context, rows, batches, seed = multiprocessing.get_context("spawn"), 500, 12, random.randrange(10**6)
    choice, kills = random.Random(seed), 0
    while kills < 6:
        process = context.Process(target=_write_batches, args=(table, batches, rows), daemon=True)
        process.start()
        time.sleep(choice.uniform(0.8, 2.0))
        process.kill()
        process.join()
        kills += 1
        applied = _applied(table)
        found = dict(ask(f"SELECT n, count(*) FROM {table.place.sql} GROUP BY n"))
        assert set(found) <= {applied, applied - 1}, (seed, applied, found)  # a delete of the next batch is not there
        assert sum(found.values()) == (rows - rows // 10 if applied else 0), (seed, applied, found)
    _write_batches(table, batches, rows)
    assert ask(f"SELECT n, count(*) FROM {table.place.sql} GROUP BY n") == [(batches, rows - rows // 10)]
    assert ask("SELECT count(*) FROM pg_class WHERE relname LIKE '\\_upsert\\_%'") == [(0,)]


def _applied(table: PostgresTable) -> int:
    destination = PostgresDestination(table)
    try:
        return destination.state().applied_batch
    finally:
        destination.close()


def test_a_deadlock_is_tried_again(postgres_tables: Tables, postgres_server: str, ask: Ask) -> None:
    """Another client holds row 2 and wants row 1, which the write has by then."""
    table = postgres_tables(COLUMNS)
    write(table, changes(COLUMNS, (1, 1, "U"), (2, 1, "U")))
    other = psycopg.connect(postgres_server)
    name = table.place.sql
    other.execute(f"SET LOCAL deadlock_timeout = '20s'; UPDATE {name} SET n = 9 WHERE id = 2".encode())

    def cross() -> None:
        time.sleep(0.5)
        other.execute(f"UPDATE {name} SET n = 9 WHERE id = 1".encode())
        other.commit()

    thread = threading.Thread(target=cross)
    thread.start()
    assert write(table, changes(COLUMNS, (1, 2, "U"), (2, 2, "U")), 2).upserts == 2
    thread.join()
    other.close()
    assert ask(f"SELECT id, n FROM {name} ORDER BY id") == [(1, 2), (2, 2)]


def test_renewals_go_on_while_the_table_is_locked(postgres_tables: Tables, postgres_server: str, ask: Ask) -> None:
    """A merge that waits longer than a lease lasts keeps it: the control row is locked at the end alone."""
    table = postgres_tables(COLUMNS)
    write(table, changes(COLUMNS, (1, 1, "U")))
    other = psycopg.connect(postgres_server)
    other.execute(f"LOCK TABLE {table.place.sql} IN SHARE MODE".encode())
    threading.Timer(4, other.rollback).start()
    destination = PostgresDestination(table)
    with destination.lease(owner="patient", duration=timedelta(seconds=2)) as lease:
        began = time.monotonic()
        destination.write(
            task_rows(changes(COLUMNS, (1, 2, "U"))), span=BatchSpan(1, 2, "changelog", "run"), lease=lease
        )
        assert time.monotonic() - began > 3
    other.close()
    assert destination.state().applied_batch == 2
    destination.close()
