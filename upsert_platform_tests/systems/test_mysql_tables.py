"""A table of a server to its changelog: a snapshot that meets its log, at every key and wherever a run ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from upsert_platform.changelog.store import ChangelogStore
from upsert_platform.core.errors import ReplicationError
from upsert_platform.mysql.connection import Connection
from upsert_platform.mysql.table_source import MySqlTableSource
from upsert_platform_tests.systems.followed import CHUNK, Followed, fill
from upsert_platform_tests.systems.test_mysql_log import TYPES

pytestmark = pytest.mark.systems


KEYS = [
    ("a INT", "a", "i - 50"),
    ("a BIGINT UNSIGNED", "a", "18446744073709551615 - i * 36893488147419103"),
    ("a VARCHAR(20) COLLATE utf8mb4_general_ci", "a", "CONCAT(CHAR(65 + i % 26 + 32 * (i % 2)), '''\\\\', i)"),
    ("a VARCHAR(20) CHARACTER SET latin1", "a", "CONCAT('é', i % 9, 'ü', i)"),
    ("a VARBINARY(9)", "a", "UNHEX(CONCAT('00FF', LPAD(HEX(i * 7919), 8, '0')))"),
    ("a DECIMAL(30,10)", "a", "(i - 40) * 12345678901234567.0123456789"),
    ("a DOUBLE", "a", "(i - 40) / 7"),
    ("a FLOAT", "a", "(i - 40) / 7"),
    ("a DATETIME(6)", "a", "'2024-01-01' + INTERVAL i * 123457 MICROSECOND"),
    ("a TIMESTAMP(3) DEFAULT '2024-01-01'", "a", "'2024-01-01' + INTERVAL i * 1234 SECOND"),
    ("a TIME(2)", "a", "SEC_TO_TIME((i - 50) * 100.25)"),
    ("a ENUM('z','b','a'), b SMALLINT", "a, b", "1 + i % 3, i"),
    ("a BIT(9), b YEAR", "a, b", "i * 5, 1960 + i % 7"),
    ("a VARCHAR(5) COLLATE utf8mb4_bin, b DATE, c TINYINT", "b, a, c",
     "'2024-01-01' + INTERVAL i % 4 DAY, CHAR(65 + i % 3), i"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "key", "values"), KEYS, ids=[item[0] for item in KEYS])
def test_chunks_of_every_key(
    columns: str, key: str, values: str, connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    connection.query(f"CREATE TABLE {schema}.t ({columns}, v INT, PRIMARY KEY ({key}))")
    connection.query(
        f"INSERT INTO {schema}.t ({key}, v) WITH RECURSIVE n AS"
        f" (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT {values}, i FROM n"
    )
    followed = follow(**CHUNK)
    run = followed.sync()
    assert run.account.rows == 100
    read = followed.rows()
    assert sorted(row[-1] for row in read) == list(range(1, 101))
    connection.query(f"UPDATE {schema}.t SET v = v + 1000 WHERE v % 3 = 0")
    connection.query(f"DELETE FROM {schema}.t WHERE v % 5 = 0")
    followed.sync()
    wanted = [v for (v,) in connection.query(f"SELECT v FROM {schema}.t ORDER BY v")]
    assert sorted(row[-1] for row in followed.rows()) == wanted
    assert {row[:-1] for row in followed.rows()} <= {row[:-1] for row in read}
    followed.sums()


def test_values_of_a_snapshot_are_those_of_the_log(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    """Every type, in one table: rows of a snapshot and the same rows told by the log are the same."""
    types = TYPES
    columns = ", ".join(f"c{number} {kind} NULL" for number, (kind, *_) in enumerate(types))
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, {columns})")
    most = max(len(values) for _, values, *_ in types)
    for row in range(most + 1):
        found = [values[row] if row < len(values) else "NULL" for _, values, *_ in types]
        connection.query(f"INSERT INTO {schema}.t VALUES ({row}, {', '.join(found)})")
    followed = follow()
    followed.sync()
    before = followed.rows()
    assert len(before) == most + 1
    connection.query(f"UPDATE {schema}.t SET id = id + 100")
    followed.sync()
    after = [(row[0] - 100, *row[1:]) for row in followed.rows()]
    assert sorted(after, key=repr) == before


def test_small_numbers_of_a_key_stay_apart(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    """TINYINT(1) is a number in a key, though it is BOOLEAN beside it."""
    connection.query(f"CREATE TABLE {schema}.t (id INT, kind TINYINT(1), v TINYINT(1), PRIMARY KEY (id, kind))")
    connection.query(f"INSERT INTO {schema}.t VALUES (5, 0, 0), (5, 1, 1), (5, 2, 7)")
    followed = follow(**CHUNK)
    followed.sync()
    assert followed.rows() == [(5, 0, False), (5, 1, True), (5, 2, True)]
    connection.query(f"UPDATE {schema}.t SET kind = 3 WHERE kind = 2")
    connection.query(f"DELETE FROM {schema}.t WHERE kind = 0")
    followed.sync()
    assert followed.rows() == [(5, 1, True), (5, 3, True)]


def test_dates_that_do_not_exist_are_the_same_in_both(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a DATE, b DATETIME(3), c TIMESTAMP(2) NULL)")
    connection.query("SET sql_mode = 'ALLOW_INVALID_DATES'")
    connection.query(f"INSERT INTO {schema}.t VALUES (1, '0000-00-00', '2024-00-10', '0000-00-00 00:00:00')")
    connection.query(f"INSERT INTO {schema}.t VALUES (2, '2024-02-31', '2024-02-31 01:02:03', '2024-01-01 00:00:00.5')")
    followed = follow()
    followed.sync()
    before = followed.rows()
    assert [(row[1], row[2], row[3] is None) for row in before] == [(None, None, True), (None, None, False)]
    connection.query(f"UPDATE {schema}.t SET id = id + 100")
    followed.sync()
    assert [(row[0] - 100, *row[1:]) for row in followed.rows()] == before
    fails = follow("t", zero_dates="fail")
    fails.lake = fails.lake / "other"
    with pytest.raises(ReplicationError, match="are dates that do not exist"):
        fails.sync()


def test_times_beyond_a_day_are_text_when_asked(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    connection.query(f"CREATE TABLE {schema}.t (id INT, a TIME(0), b TIME(3), c TIME(6) NULL, PRIMARY KEY (id, b))")
    values = ("-838:59:59.999999", "838:59:59", "-00:00:01.5", "24:00:00", "-00:00:00.000001", "12:34:56.123456")
    for number, value in enumerate(values):
        connection.query(
            f"INSERT INTO {schema}.t VALUES ({number}, '{value}', '{value}', NULLIF('{value}', '24:00:00'))"
        )
    shown = f"SELECT id, CAST(a AS CHAR), CAST(b AS CHAR), CAST(c AS CHAR) FROM {schema}.t ORDER BY id"
    followed = follow(treat_time_as_text__enabled="true", **CHUNK)
    followed.sync()
    assert followed.rows() == connection.query(shown)
    connection.query(f"UPDATE {schema}.t SET id = id + 100")
    followed.sync()
    assert sorted(followed.rows()) == connection.query(shown)


def test_columns_that_are_computed_or_not_shown(
    connection: Connection, schema: str, follow: Callable[..., Followed]
) -> None:
    connection.query(
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT, twice INT AS (v * 2) VIRTUAL, kept INT AS (v * 3) STORED,"
        " hidden INT INVISIBLE DEFAULT 7) PARTITION BY HASH (id) PARTITIONS 3"
    )
    connection.query(f"INSERT INTO {schema}.t (id, v) VALUES (1, 5), (2, NULL), (3, 6)")
    followed = follow()
    followed.sync()
    connection.query(f"UPDATE {schema}.t SET v = v + 1 WHERE id = 1")
    connection.query(f"INSERT INTO {schema}.t (id, v) VALUES (4, 9)")
    followed.sync()
    wanted = connection.query(f"SELECT id, v, twice, kept, hidden FROM {schema}.t ORDER BY id")
    assert followed.rows() == wanted


def test_a_snapshot_meets_what_is_written_while_it_is_read(
    connection: Connection, schema: str, follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunk by chunk: before each, rows before and behind it are changed, moved over it, deleted and added."""
    monkeypatch.setattr("upsert_platform.mysql.landed_batch.batch_chunks", lambda *_, **__: 1)
    fill(connection, schema)
    followed = follow(**CHUNK)
    hop = followed.hop()
    land = MySqlTableSource.land
    rounds = iter(range(1, 1000))

    def disturbed(self: MySqlTableSource, *given: Any, **more: Any) -> Any:
        number = next(rounds)
        connection.query(f"UPDATE {schema}.t SET v = v + 1 WHERE id % 4 = {number % 4}")
        connection.query(f"UPDATE {schema}.t SET id = 1000 + {number} WHERE id = {number}")
        connection.query(f"UPDATE {schema}.t SET id = -{number} WHERE id = {61 - number}")
        connection.query(f"DELETE FROM {schema}.t WHERE id IN ({20 + number}, {40 - number})")
        connection.query(f"REPLACE INTO {schema}.t VALUES ({20 + number % 3}, {number}, 'again')")
        return land(self, *given, **more)

    monkeypatch.setattr(MySqlTableSource, "land", disturbed)
    run = followed.sync(hop)
    assert run.batches >= 7
    assert followed.rows() == followed.wanted()
    followed.sums()
    monkeypatch.setattr(MySqlTableSource, "land", land)
    assert hop.plan().backlog == ()
    plan = hop.plan()
    assert plan.details["snapshot_rows"] >= 40
    assert ":" in str(plan.details["consistent_from"])


def test_a_batch_that_was_not_committed_is_read_again(
    connection: Connection, schema: str, follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends before every commit in turn, and the table goes on."""
    monkeypatch.setattr("upsert_platform.mysql.landed_batch.batch_chunks", lambda *_, **__: 2)
    fill(connection, schema)
    followed = follow(**CHUNK)
    append = ChangelogStore.append
    for number in range(12):
        left = iter(range(number % 3))

        def dies(self: ChangelogStore, *given: Any, left: Iterator[int] = left, **more: Any) -> Any:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return append(self, *given, **more)

        monkeypatch.setattr(ChangelogStore, "append", dies)
        connection.query(f"UPDATE {schema}.t SET v = v + 1 WHERE id % 3 = {number % 3}")
        connection.query(f"DELETE FROM {schema}.t WHERE id = {number * 5}")
        with suppress(KeyboardInterrupt):
            followed.sync()
    monkeypatch.setattr(ChangelogStore, "append", append)
    followed.sync()
    assert followed.rows() == followed.wanted()
    followed.sums()


def test_a_large_transaction_is_not_divided(
    connection: Connection, schema: str, follow: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upsert_platform.mysql.log_batch._BATCH_BYTES", 1000)
    fill(connection, schema)
    followed = follow()
    followed.sync()
    connection.query("BEGIN")
    for number in range(5):
        connection.query(f"UPDATE {schema}.t SET v = v + 1, name = 'b{number}'")
    connection.query("COMMIT")
    for number in range(5):
        connection.query(f"UPDATE {schema}.t SET v = v + 1, name = 's{number}'")
    run = followed.sync()
    assert run.batches == 6
    accounts = [account for account in run.ranges if account.rows]
    assert [account.rows for account in accounts] == [300, 60, 60, 60, 60, 60]
    assert followed.rows() == followed.wanted()
