"""Change data, time travel, incremental queries and compaction: catalogue 43 to 48, spec 2.7."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from odps.errors import ODPSError
from odps.maxstorage import IncrementalReadOptions, MaxStorageClient

Rows = Callable[..., list[tuple[Any, ...]]]
PROPERTIES = "tblproperties ('transactional'='true', 'acid.cdc.mode.enable'='true', 'write.bucket.num'='4')"


@pytest.fixture
def run(odps: Any, name: str) -> Callable[[str], Any]:
    return lambda statement: odps.execute_sql(statement.format(t=name))


def changes(odps: Any, name: str, after: int, to: int | None = None, **options: Any) -> tuple[Any, list[list[Any]]]:
    """The session, and its change rows with their operation last, split by split."""
    session = MaxStorageClient(odps).create_table_read_session(
        name,
        incremental_read_enabled=True,
        incremental_read_options=IncrementalReadOptions(version="CDC", from_=after, to=to),
        **options,
    )
    found = []
    for split in session.splits:
        with session.open_arrow_reader(split) as reader:
            rows = pa.Table.from_batches(list(reader)).drop_columns(["__meta_timestamp"])
        found += [list(row.values()) for row in rows.to_pylist()]
    return session, found


def test_43_to_47_change_data(odps: Any, run: Any, name: str) -> None:
    run("create table {t} (id bigint not null, v string, primary key (id)) " + PROPERTIES)
    session, found = changes(odps, name, 0)
    assert (session.splits, session.latest_version, found) == ([], 1, [])
    steps = [
        ("insert into {t} values (1, '1')", 1, [[1, "1", 2]]),
        ("insert into {t} values (2, '2')", 2, [[2, "2", 2]]),
        ("delete from {t} where id = 2", 3, [[2, "2", 4]]),
        ("update {t} set v = '3' where id = 1", 4, [[1, "1", 16], [1, "3", 32]]),
    ]
    for statement, version, expected in steps:
        run(statement)
        session, found = changes(odps, name, version)
        assert (session.latest_version, found) == (version + 1, expected)
    session, found = changes(odps, name, 0)
    assert len(session.splits) == 2
    assert sorted(found) == [[1, "1", 2], [1, "1", 16], [1, "3", 32], [2, "2", 2], [2, "2", 4]]
    assert [row for row in found if row[0] == 1] == [[1, "1", 2], [1, "1", 16], [1, "3", 32]]
    assert sorted(changes(odps, name, 1, 3)[1]) == [[1, "1", 2], [2, "2", 2]]


def test_48_change_data_of_partitions(odps: Any, run: Any, name: str) -> None:
    run("create table {t} (id bigint not null, primary key (id)) partitioned by (pt string) " + PROPERTIES)
    for number, partition in enumerate(("pt1", "pt2")):
        run(f"insert into {{t}} partition (pt='{partition}') values ({number})")
        assert changes(odps, name, number + 1)[1] == [[number, partition, 2]]
        session, found = changes(odps, name, 0, partitions=[f"pt={partition}"])
        assert (session.latest_version, found) == (number + 2, [[number, partition, 2]])


def test_change_data_of_an_overwrite(odps: Any, run: Any, name: str) -> None:
    run("create table {t} (id bigint not null, v string, primary key (id)) " + PROPERTIES)
    run("insert into {t} values (1, 'a'), (2, 'b')")
    run("insert overwrite table {t} values (2, 'c'), (3, 'd')")
    assert sorted(changes(odps, name, 2)[1]) == [[1, "a", 4], [2, "b", 16], [2, "c", 32], [3, "d", 2]]
    run("truncate table {t}")
    assert sorted(changes(odps, name, 3)[1]) == [[2, "c", 4], [3, "d", 4]]


def test_change_data_from_outside_of_the_history_is_an_error(odps: Any, run: Any, name: str) -> None:
    run("create table {t} (id bigint not null, v string, primary key (id)) " + PROPERTIES)
    for number in range(3):
        run(f"insert into {{t}} values ({number}, 'a')")
    run("alter table {t} compact major")
    run("insert into {t} values (7, 'b')")
    for version in (0, 4, 7):
        with pytest.raises(ODPSError, match="version"):
            changes(odps, name, version)
    assert changes(odps, name, 5)[1] == [[7, "b", 2]]


def test_change_data_needs_its_property(odps: Any, run: Any, name: str) -> None:
    run("create table {t} (id bigint not null, primary key (id)) tblproperties ('transactional'='true')")
    with pytest.raises(ODPSError, match=r"acid\.cdc\.mode\.enable"):
        changes(odps, name, 0)


@pytest.fixture
def travelled(odps: Any, run: Any, name: str) -> list[datetime]:
    """Version 2 holds (1,a),(2,b); 3 has 1 changed; 4 has 2 deleted; 5 is an overwrite. Times between them."""
    run("create table {t} (k bigint not null, v string, primary key (k)) tblproperties ('transactional'='true')")
    moments = []
    for statement in (
        "insert into {t} values (1, 'a'), (2, 'b')",
        "update {t} set v = 'c' where k = 1",
        "delete from {t} where k = 2",
        "insert overwrite table {t} values (9, 'z')",
    ):
        run(statement)
        time.sleep(0.02)
        moments.append(datetime.now(UTC))
    return moments


@pytest.mark.parametrize(
    ("version", "expected"),
    [(1, []), (2, [(1, "a"), (2, "b")]), (3, [(1, "c"), (2, "b")]), (4, [(1, "c")]), (5, [(9, "z")])],
)
def test_version_as_of(
    travelled: list[datetime], name: str, rows: Rows, version: int, expected: list[tuple[Any, ...]]
) -> None:
    assert rows(f"select * from {name} version as of {version}") == expected
    if version > 1:
        moment = travelled[version - 2].strftime("%Y-%m-%d %H:%M:%S.%f")
        assert rows(f"select * from {name} timestamp as of '{moment}'") == expected
    if version > 2:
        assert rows(f"select * from {name} version as of get_latest_version('{name}', {6 - version})") == expected


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        pytest.param("version between 1 and 2", [(1, "a"), (2, "b")], id="open-on-the-left"),
        pytest.param("version between 2 and 4", [(1, "c")], id="closed-on-the-right"),
        pytest.param("version between 2 and 3", [(1, "c")], id="only-what-changed"),
        pytest.param("version between 3 and 4", [], id="a-delete-leaves-nothing"),
        pytest.param("version between 4 and 5", [(9, "z")], id="overwrite"),
        pytest.param("timestamp between '2000-01-01 00:00:00' and current_timestamp()", [(9, "z")], id="all-of-time"),
    ],
)
def test_incremental_queries(
    travelled: list[datetime], name: str, rows: Rows, clause: str, expected: list[tuple[Any, ...]]
) -> None:
    assert rows(f"select * from {name} {clause}") == expected


@pytest.mark.parametrize(
    ("clause", "reason"),
    [
        pytest.param("version as of 6", "version 6 does not exist", id="to-come"),
        pytest.param("timestamp as of '2000-01-01 00:00:00'", "did not exist at", id="before-the-table"),
        pytest.param("timestamp as of getdate() - 3600", "did not exist at", id="an-hour-ago"),
        pytest.param("version as of 'x'", "not a version", id="no-version"),
    ],
)
def test_versions_that_cannot_be_read(
    travelled: list[datetime], odps: Any, name: str, clause: str, reason: str
) -> None:
    with pytest.raises(ODPSError, match=reason):
        odps.execute_sql(f"select * from {name} {clause}")


def test_a_column_named_version_is_no_time_travel(odps: Any, run: Any, name: str, rows: Rows) -> None:
    run("create table {t} (version bigint)")
    run("insert into {t} values (1), (5)")
    assert rows(f"select * from {name} where version between 0 and 2") == [(1,)]


def test_major_compaction_loses_history_and_no_row(odps: Any, run: Any, name: str, rows: Rows) -> None:
    run("create table {t} (k bigint not null, v string, primary key (k)) " + PROPERTIES)
    run("insert into {t} values (1, 'a'), (2, 'b')")
    run("delete from {t} where k = 2")
    odps.execute_sql(f"alter table {name} compact major", hints={"odps.merge.task.mode": "service"})
    assert rows(f"select * from {name}") == [(1, "a")]
    assert odps.get_table(name).cdc_latest_version == 4
    with pytest.raises(ODPSError, match="history"):
        odps.execute_sql(f"select * from {name} version as of 2")
    assert changes(odps, name, 4)[1] == []
    run("insert into {t} values (1, 'c')")
    assert changes(odps, name, 4)[1] == [[1, "a", 16], [1, "c", 32]]
    assert rows(f"select * from {name} version as of 4") == [(1, "a")]


def test_many_commits_are_merged_and_stay_readable(odps: Any, run: Any, name: str, rows: Rows) -> None:
    run("create table {t} (k bigint not null, v bigint, primary key (k)) tblproperties ('transactional'='true')")
    for number in range(70):
        run(f"insert into {{t}} values ({number % 7}, {number})")
    assert rows(f"select k, v from {name}") == [(k, 63 + k) for k in range(7)]
    run("alter table {t} compact minor")
    assert rows(f"select * from {name} version as of 3") == [(0, 0), (1, 1)]
    with odps.execute_sql(f"show history for table {name}").open_reader() as reader:
        assert reader.raw.strip().count("\n") == 71


def test_small_files_of_a_partition_are_merged(odps: Any, run: Any, name: str, rows: Rows) -> None:
    run("create table {t} (k bigint) partitioned by (p string)")
    for number in range(3):
        run(f"insert into {{t}} partition (p='a') values ({number})")
    odps.execute_merge_files(name, partition="p='a'")
    assert rows(f"select k from {name}") == [(0,), (1,), (2,)]
    with pytest.raises(ODPSError, match="archiving"):
        odps.execute_archive_table(name, partition="p='a'")


def test_bucket_ids_choose_rows(odps: Any, run: Any, name: str) -> None:
    run("create table {t} (k bigint not null, primary key (k)) " + PROPERTIES)
    run("insert into {t} select range from range(100)")
    client = MaxStorageClient(odps)
    counts = [client.create_table_read_session(name, bucket_ids=[bucket]).record_count for bucket in range(4)]
    assert sum(counts) == 100
    assert all(counts)
