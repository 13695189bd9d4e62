"""Statements that give values to rows that are there: no log tells them, so they are named, or read by a snapshot."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from upsert_platform.core.errors import ReplicationError
from upsert_platform.core.model import Project
from upsert_platform.mysql import landed_batch
from upsert_platform.mysql.connection import Connection
from upsert_platform.mysql.progress import Progress
from upsert_platform.mysql.table_source import MySqlTableSource
from upsert_platform.sync.binding import Binding
from upsert_platform.sync.checkups.databases import database_checks
from upsert_platform.sync.checkups.finding import State
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.status import status_of
from upsert_platform.sync.streaming.steps import ChangelogStep
from upsert_platform.sync.streaming.worker import Worker
from upsert_platform_tests.systems.followed import CHUNK, Followed, disturbed_landings, fill
from upsert_platform_tests.systems.servers import ONLY_MARIADB, ONLY_MYSQL

pytestmark = pytest.mark.systems


def test_a_default_of_a_new_column_is_named_until_a_new_snapshot(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema)
    followed = follow(new_columns="fail")
    followed.sync()
    connection.query(f"ALTER TABLE {schema}.t ADD COLUMN more INT NOT NULL DEFAULT 7")
    connection.query(f"UPDATE {schema}.t SET v = 1 WHERE id < 10")
    followed.sync()
    assert {row[3] for row in followed.rows() if row[0] < 10} == {7}
    assert {row[3] for row in followed.rows() if row[0] >= 10} == {None}, "the log has no row of them"
    for _ in range(2):
        plan = followed.hop().plan()
        (told,) = plan.warnings
        assert f"table {schema}.t: a statement gave, or may have given, other values" in told
        assert "more (since log." in told
        assert "'rebuild'" in told
        assert str(plan.details["values_not_followed"]).startswith("more (since log.")
        assert elsewhere(followed) == [told] * 3
        connection.query(f"DELETE FROM {schema}.t WHERE id = 11")
        followed.sync()
    assert followed.hop().begin_anew() is not None
    assert followed.hop().plan().warnings == ()
    followed.sync()
    assert followed.rows() == followed.wanted()
    assert followed.hop().plan().warnings == ()


def elsewhere(followed: Followed) -> list[str]:
    """What `status`, `doctor` and a turn of `stream` say of it."""
    source, lake = followed.source(), followed.place()
    binding = Binding(Project("project"), {"t": source}, {})
    (status,) = status_of(binding, lake).changelogs
    (check,) = database_checks(binding, lake)
    found = [item.told for item in check.found() if item.state is State.WARNING]
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    worker = Worker(ChangelogStep(followed.hop(), OnDemand(lambda: followed.spark)), poll=None, tell=lines.put)
    worker.start()
    line = lines.get(timeout=60)
    worker.drain()
    worker.join(60)
    assert lines.empty()
    return [*status.warnings, *found, line.partition(": ")[2]]


STATEMENTS = [
    ("ADD COLUMN more INT DEFAULT 7", "more"),
    ("CHANGE v w INT", "w"),
    ("ADD COLUMN more INT AS (v + 1) STORED", "more"),
    ("MODIFY name CHAR(2)", "name"),
    ("DROP COLUMN v, ADD COLUMN v INT DEFAULT 3", "v"),
    ("DROP COLUMN v, ADD COLUMN v INT", "v"),
]


@pytest.mark.parametrize(("change", "column"), STATEMENTS)
def test_a_snapshot_reads_what_no_log_tells(
    change: str, column: str, connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema)
    connection.query(f"UPDATE {schema}.t SET v = id")
    warns = follow()
    warns.sync()
    connection.query(f"UPDATE {schema}.t SET v = 1000 WHERE id = 3")
    connection.query(f"ALTER TABLE {schema}.t {change}")
    connection.query(f"DELETE FROM {schema}.t WHERE id = 5")
    connection.query(f"UPDATE {schema}.t SET id = 500 WHERE id = 6")
    with pytest.raises(ReplicationError, match=rf"of which its log has no row: {column} \(since log\.\d+:\d+\)"):
        follow(on_unlogged_values="fail").sync()
    reads = follow(on_unlogged_values="snapshot", **CHUNK)
    run = reads.sync()
    assert run.batches > 1
    assert reads.rows() == reads.wanted()
    reads.sums()
    plan = reads.hop().plan()
    assert (plan.backlog, plan.warnings) == ((), ())


def test_a_column_that_is_dropped_and_added_later_is_named(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema)
    connection.query(f"UPDATE {schema}.t SET v = id")
    followed = follow()
    hop = followed.hop()
    followed.sync(hop)
    connection.query(f"ALTER TABLE {schema}.t ADD COLUMN more INT, ADD COLUMN other INT")
    connection.query(f"ALTER TABLE {schema}.t DROP COLUMN v")
    connection.query(f"ALTER TABLE {schema}.t DROP COLUMN other")
    followed.sync(hop)
    assert hop.plan().warnings == ()
    connection.query(f"ALTER TABLE {schema}.t ADD COLUMN v INT, ADD COLUMN other INT")
    followed.sync(hop)
    assert str(hop.plan().details["values_not_followed"]).startswith("v (since log.")


def test_rows_that_a_copy_lacks_are_deleted_by_a_snapshot(
    connection: Connection, schema: str, follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tools fill copies by INSERT IGNORE: of rows of one value a unique index keeps one, and numbers are cut."""
    fill(connection, schema)
    connection.query(f"UPDATE {schema}.t SET v = IF(id % 10 = 0, 7, id * 1000)")
    followed = follow(on_unlogged_values="snapshot", **CHUNK)
    hop, failing = followed.hop(), follow(on_unlogged_values="fail").hop()
    followed.sync(hop)
    connection.query(f"CREATE TABLE {schema}._t_gho (id INT PRIMARY KEY, v SMALLINT UNIQUE, name VARCHAR(20))")
    connection.query(f"INSERT IGNORE INTO {schema}._t_gho SELECT * FROM {schema}.t")
    connection.query(f"RENAME TABLE {schema}.t TO {schema}._t_del, {schema}._t_gho TO {schema}.t")
    assert len(followed.wanted()) < 55
    told = r"other values to rows .*: v, rows that share a value of the unique index \(v\) \(since log"
    with pytest.raises(ReplicationError, match=told):
        followed.sync(failing)
    followed.sync(hop)
    monkeypatch.setattr(Followed, "source", lambda _: hop.source)
    assert followed.rows() == followed.wanted()
    followed.sums()


def swap(connection: Connection, schema: str, index: str) -> None:
    """Puts a copy in the table's place, as gh-ost does; rows that do not fit its index are left out."""
    connection.query(f"CREATE TABLE {schema}._t_gho (id INT PRIMARY KEY, v INT, name VARCHAR(20), {index})")
    connection.query(f"INSERT IGNORE INTO {schema}._t_gho SELECT * FROM {schema}.t")
    connection.query(f"RENAME TABLE {schema}.t TO {schema}._t_del, {schema}._t_gho TO {schema}.t")


BEFORE_SWAPS = [
    ("CREATE UNIQUE INDEX u ON t (v)", "UNIQUE u (v)", False),
    ("CREATE INDEX i ON t (v)", "UNIQUE u (v)", True),
    ("ALTER TABLE t ADD UNIQUE u (v); DROP INDEX u ON t", "UNIQUE u (v)", True),
    ("CREATE UNIQUE INDEX u ON t (v); CREATE INDEX i ON t (v); DROP INDEX i ON t", "UNIQUE u (v)", False),
]


@pytest.mark.parametrize("at_once", [False, True], ids=["read before the swap", "read behind the swap"])
@pytest.mark.parametrize(("statements", "index", "named"), BEFORE_SWAPS)
def test_indexes_before_a_swap_are_those_that_statements_made_and_left(
    statements: str,
    index: str,
    named: bool,
    at_once: bool,
    connection: Connection,
    schema: str,
    follow: Callable[..., Followed],
) -> None:
    fill(connection, schema)
    connection.query(f"UPDATE {schema}.t SET v = id")
    *before, last = (part.replace(" t", f" {schema}.t") for part in statements.split(";"))
    for statement in before:
        connection.query(statement)
    followed = follow()
    hop = followed.hop()
    followed.sync(hop)
    connection.query(last)
    if named:
        connection.query(f"UPDATE {schema}.t SET v = 7 WHERE id < 20")
    if not at_once:
        followed.sync(hop)
    swap(connection, schema, index)
    followed.sync(hop)
    told = hop.plan().details.get("values_not_followed", "")
    assert ("rows that share a value of the unique index (v) (since log." in str(told)) is named
    assert (followed.rows() != followed.wanted()) is named


def test_an_index_between_rows_and_a_change_of_columns_is_no_change_of_columns(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    """How rows looked before a statement about an index is known, also when the catalogue is of a later time."""
    fill(connection, schema)
    followed = follow(on_unlogged_values="fail")
    followed.sync()
    connection.query(f"CREATE INDEX i ON {schema}.t (v)")
    connection.query(f"UPDATE {schema}.t SET v = 1 WHERE id = 1")
    connection.query(f"ALTER TABLE {schema}.t ADD COLUMN more INT")
    connection.query(f"UPDATE {schema}.t SET v = 2, more = 2 WHERE id = 2")
    connection.query(f"DROP INDEX i ON {schema}.t")
    followed = follow(on_unlogged_values="fail")
    followed.sync()
    assert followed.rows() == followed.wanted()


FOLLOWED_BY_A_SWAP = ["ALTER TABLE t ADD COLUMN more INT", "ALTER TABLE t MODIFY name VARCHAR(30)"]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("statement", FOLLOWED_BY_A_SWAP)
def test_each_of_two_statements_between_reads_is_judged_by_the_table_from_before_both(
    statement: str, named: bool, connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    """The catalogue is of behind the swap when the statement before it is read."""
    fill(connection, schema)
    connection.query(f"UPDATE {schema}.t SET v = {'id % 50' if named else 'id'}")
    if not named:
        connection.query(f"CREATE UNIQUE INDEX u ON {schema}.t (v)")
    followed = follow(new_columns="ignore")
    hop = followed.hop()
    followed.sync(hop)
    connection.query(statement.replace(" t ", f" {schema}.t "))
    connection.query(f"CREATE TABLE {schema}._t_gho LIKE {schema}.t")
    if named:
        connection.query(f"CREATE UNIQUE INDEX u ON {schema}._t_gho (v)")
    connection.query(f"INSERT IGNORE INTO {schema}._t_gho SELECT * FROM {schema}.t")
    connection.query(f"RENAME TABLE {schema}.t TO {schema}._t_del, {schema}._t_gho TO {schema}.t")
    followed.sync(hop)
    told = str(hop.plan().details.get("values_not_followed", ""))
    assert ("rows that share a value of the unique index (v) (since log." in told) is named
    assert (told == "") is not named
    assert len(followed.wanted()) == (50 if named else 60)
    connection.query(f"UPDATE {schema}.t SET name = 'z' WHERE id = 1")
    followed.sync(hop)
    assert (1, "z") in [(row[0], row[2]) for row in followed.rows()]
    assert str(hop.plan().details.get("values_not_followed", "")) == told


def test_a_type_that_one_statement_gave_and_the_next_took_back_is_named(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema)
    connection.query(f"UPDATE {schema}.t SET v = id * 1000")
    followed = follow()
    followed.sync()
    connection.query("SET SESSION sql_mode = ''")
    connection.query(f"ALTER TABLE {schema}.t MODIFY v SMALLINT")
    connection.query(f"ALTER TABLE {schema}.t MODIFY v INT")
    followed.sync()
    assert str(followed.hop().plan().details["values_not_followed"]).startswith("v (since log.")
    assert followed.rows() != followed.wanted()


@pytest.mark.parametrize("dropped", [False, True])
def test_columns_that_an_earlier_version_did_not_note_are_those_that_are_stored(
    dropped: bool, connection: Connection, schema: str, follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(connection, schema)
    connection.query(f"UPDATE {schema}.t SET v = id")
    followed = follow()
    followed.sync()
    if dropped:
        connection.query(f"ALTER TABLE {schema}.t DROP COLUMN v")
        followed.sync()
    read = Progress.from_json
    monkeypatch.setattr(Progress, "from_json", lambda text: replace(read(text), columns=None))
    connection.query(f"ALTER TABLE {schema}.t ADD COLUMN {'v' if dropped else 'more'} INT")
    connection.query(f"UPDATE {schema}.t SET name = 'z' WHERE id = 1")
    followed.sync()
    told = str(followed.hop().plan().details.get("values_not_followed", ""))
    assert told.startswith("v (since log.") if dropped else told == ""


@ONLY_MYSQL
def test_a_statement_about_a_table_of_another_case_changes_nothing(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema)
    connection.query(f"CREATE TABLE {schema}.T (id INT PRIMARY KEY)")
    followed = follow(on_unlogged_values="fail")
    followed.sync()
    connection.query(f"ALTER TABLE {schema}.t ADD COLUMN more INT")
    connection.query(f"UPDATE {schema}.t SET more = 2 WHERE id = 2")
    connection.query(f"ALTER TABLE {schema}.T ADD COLUMN other INT")
    followed.sync()
    followed.sync()
    assert followed.rows() == followed.wanted()


def test_a_key_that_drop_index_drops_stops(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema)
    followed = follow()
    hop = followed.hop()
    followed.sync(hop)
    connection.query(f"DROP INDEX `PRIMARY` ON {schema}.t")
    with pytest.raises(ReplicationError, match=r"the primary key was changed to \(\)"):
        followed.sync(hop)


V_ANEW = "DROP COLUMN v, ADD COLUMN v INT AFTER id, ADD COLUMN more INT"
AMONG_CHUNKS = [
    ("await_visible", 1, V_ANEW, None),
    ("await_visible", 1, "ADD COLUMN more INT DEFAULT 7", None),
    ("await_visible", 2, "ADD COLUMN more INT", None),
    ("await_visible", 2, V_ANEW, "v"),
    ("read_chunks", 1, V_ANEW, "v"),
    ("read_chunks", 1, "ADD COLUMN more INT", None),
    ("read_chunks", 2, "ADD COLUMN more INT DEFAULT 7", "more"),
]


@pytest.mark.parametrize("mode", ["warn", "snapshot"])
@pytest.mark.parametrize("change", [V_ANEW, "ADD COLUMN more INT DEFAULT 8"])
def test_rows_that_the_log_tells_before_a_statement_count_more_than_chunks_behind_it(
    change: str, mode: str, connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema)
    connection.query(f"ALTER TABLE {schema}.t ADD COLUMN more INT")
    followed = follow(on_unlogged_values=mode)
    hop = followed.hop()
    connection.query(f"ALTER TABLE {schema}.t DROP COLUMN more")
    followed.sync(hop)
    assert hop.begin_anew() is not None
    connection.query(f"UPDATE {schema}.t SET v = 5 WHERE id = 3")
    connection.query(f"ALTER TABLE {schema}.t {change}")
    followed.sync(hop)
    followed.sync(hop)
    assert (followed.rows() != followed.wanted()) is (mode == "warn")
    assert ("values_not_followed" in hop.plan().details) is (mode == "warn")


@pytest.mark.parametrize(("step", "batch", "change", "column"), AMONG_CHUNKS)
def test_a_statement_counts_for_the_rows_of_chunks_that_were_read_before_it(
    step: str,
    batch: int,
    change: str,
    column: str | None,
    connection: Connection,
    schema: str,
    follow: Callable[..., Followed],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before chunks of a batch are read, and between them and the log that the batch reads behind them."""
    fill(connection, schema)
    connection.query(f"UPDATE {schema}.t SET v = id")
    connection.query(f"ALTER TABLE {schema}.t ADD COLUMN more INT")
    followed = follow(**CHUNK)
    hop = followed.hop()
    connection.query(f"ALTER TABLE {schema}.t DROP COLUMN more")
    called, done = getattr(landed_batch, step), 0

    def then_altered(*given: Any, **more: Any) -> Any:
        nonlocal done
        found = called(*given, **more)
        done += 1
        if done == batch:
            connection.query(f"ALTER TABLE {schema}.t {change}")
        return found

    monkeypatch.setattr(landed_batch, "batch_chunks", lambda *_, **__: 1)
    monkeypatch.setattr(landed_batch, step, then_altered)
    followed.sync(hop)
    followed.sync(hop)
    assert done > 5
    named = hop.plan().details.get("values_not_followed")
    assert (str(named).partition(" ")[0] if named else None) == column
    assert (followed.rows() != followed.wanted()) is (column is not None)


def test_a_snapshot_that_is_being_read_begins_again(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    """Chunks before the statement have the old values; those behind it, and a log that goes on, the new ones."""
    fill(connection, schema)
    followed = follow(on_unlogged_values="snapshot", **CHUNK)
    hop = followed.hop()

    def disturb(number: int) -> None:
        connection.query(f"UPDATE {schema}.t SET name = 'r{number}' WHERE id % 5 = {number % 5}")
        if number == 3:
            connection.query(f"ALTER TABLE {schema}.t DROP COLUMN v, ADD COLUMN v INT DEFAULT 8 AFTER id")
        connection.query(f"DELETE FROM {schema}.t WHERE id = {number * 3 + 1}")

    with disturbed_landings(disturb) as landed:
        followed.sync(hop)
    followed.sync(hop)
    assert landed() > 11, "the chunks that there are, and those before the statement"
    assert followed.rows() == followed.wanted()
    assert {row[1] for row in followed.rows()} == {8}
    followed.sums()


def test_a_statement_before_the_first_chunk_changes_nothing_that_was_read(
    connection: Connection, schema: str, follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(connection, schema)
    followed = follow()
    hop = followed.hop()
    begin = MySqlTableSource.progress
    done: list[bool] = []

    def late(self: MySqlTableSource, *given: Any) -> Any:
        found = begin(self, *given)
        if not done:
            done.append(True)
            connection.query(f"ALTER TABLE {schema}.t DROP COLUMN v, ADD COLUMN v INT DEFAULT 8 AFTER id")
        return found

    followed.sync(hop)
    monkeypatch.setattr("upsert_platform.mysql.landed_batch.batch_chunks", lambda *_, **__: 1)
    assert hop.begin_anew() is not None
    plan = hop.plan()
    monkeypatch.setattr(MySqlTableSource, "progress", late)
    hop.execute(OnDemand.dividing(followed.spark), plan)
    monkeypatch.setattr(MySqlTableSource, "progress", begin)
    followed.sync(hop)
    assert followed.rows() == followed.wanted()
    assert followed.hop().plan().warnings == ()


HARMLESS = [
    "ADD COLUMN more INT",
    "ADD INDEX i (v)",
    "MODIFY name VARCHAR(200) NOT NULL",
    "DROP COLUMN v",
    "ALTER COLUMN v SET DEFAULT 9",
]


@pytest.mark.parametrize("change", HARMLESS)
def test_statements_that_leave_rows_alone_are_not_named(
    change: str, connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema, 5)
    followed = follow(on_unlogged_values="fail")
    followed.sync()
    connection.query("SET SESSION sql_mode = 'STRICT_TRANS_TABLES'")
    connection.query(f"ALTER TABLE {schema}.t {change}")
    followed.sync()
    assert followed.hop().plan().warnings == ()
    assert followed.rows() == followed.wanted()


@ONLY_MARIADB
def test_rows_that_alter_ignore_deletes_stop(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    fill(connection, schema)
    followed = follow()
    followed.sync()
    connection.query(f"UPDATE {schema}.t SET v = id % 7")
    connection.query(f"ALTER IGNORE TABLE {schema}.t ADD UNIQUE INDEX u (v)")
    assert len(followed.wanted()) == 7
    with pytest.raises(ReplicationError, match=r"moved rows in or out that are not in the log \(ALTER IGNORE TABLE\)"):
        followed.sync()
    assert followed.hop().begin_anew() is not None
    followed.sync()
    assert followed.rows() == followed.wanted()
