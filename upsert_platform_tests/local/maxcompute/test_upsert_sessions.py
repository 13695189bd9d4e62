"""Upsert sessions, by an unmodified PyODPS client: what rows and deletes make of a table (catalogue 6.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from odps import options
from odps.errors import MethodNotAllowed
from odps.tunnel import TableTunnel

from upsert_platform_tests.local.maxcompute.upsert_sessions import Rows, create, upsert


def first_round(session: Any, reopen: Callable[[], Any] = lambda: None) -> None:
    """Key 0 three times, key 1 once, key 2 upserted and deleted; a new handle half way if one is given."""
    upsert(session, [("0", "v1"), ("0", "v2"), ("0", "v3")])
    session = reopen() or session
    upsert(session, [("1", "v1"), ("2", "v1")], delete=[("2", "v1")])
    session.commit()


def second_round(session: Any) -> None:
    upsert(session, [], delete=[("0", None)])
    session.commit()


def test_01_upsert_table(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    create(odps, name)
    first_round(tunnel.create_upsert_session(name))
    assert rows(f"select * from {name}") == [("0", "v3"), ("1", "v1")]
    second_round(tunnel.create_upsert_session(name))
    assert rows(f"select * from {name}") == [("1", "v1")]


def test_02_partial_columns(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    properties = {"acid.partial.fields.update.enable": "true"}
    create(odps, name, "k string not null, a string, b string", properties=properties)
    session = tunnel.create_upsert_session(name)
    assert session.support_partial_update
    upsert(session, [("key", "value1", "value1")])
    session.commit()
    session = tunnel.create_upsert_session(name)
    _send_partial(session, [("key", "value2", "value2")], columns=["a"])
    session.commit()
    assert rows(f"select * from {name}") == [("key", "value2", "value1")]


def _send_partial(session: Any, records: Iterable[Iterable[Any]], *, columns: list[str]) -> None:
    """Writes through the client's own record writer with a list of columns, which its stream has no argument for."""
    stream = session.open_upsert_stream()
    ids = [index for index, column in enumerate(session.schema.columns) if column.name in columns]
    for values in records:
        record = session.new_record(list(values))
        bucket = stream._hasher.hash_record(record) % len(stream._bucket_writers)
        record["__operation"] = 85
        record["__value_cols"] = ids
        stream._bucket_writers[bucket].write(record)
    stream.close()


def test_03_reopened_by_id(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    create(odps, name)
    session = tunnel.create_upsert_session(name)
    first_round(session, lambda: tunnel.create_upsert_session(name, upsert_id=session.id))
    session = tunnel.create_upsert_session(name)
    second_round(tunnel.create_upsert_session(name, upsert_id=session.id))
    assert rows(f"select * from {name}") == [("1", "v1")]


def test_04_row_level_authorization(odps: Any, tunnel: Any, name: str) -> None:
    create(odps, name)
    odps.execute_sql(f"create row access policy p on table {name} to user (a) filter using (k = '1')")
    with pytest.raises(MethodNotAllowed):
        tunnel.create_upsert_session(name)


def test_05_partition(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    create(odps, name, partition="pt string").create_partition("pt='a'")
    for work in (first_round, second_round):
        work(tunnel.create_upsert_session(name, partition_spec="pt='a'"))
    assert rows(f"select * from {name}") == [("1", "v1", "a")]


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        pytest.param(None, [("1", "v1")], id="06-three-tier-schema"),
        pytest.param("pt string", [("1", "v1", "a")], id="07-partition-of-a-three-tier-schema"),
    ],
)
def test_three_tier(server: Any, name: str, partition: str | None, expected: list[tuple[Any, ...]]) -> None:
    schema = f"s_{name}"
    odps = server.odps()
    odps.create_schema(schema)
    options.enable_schema = True
    try:
        table = create(odps, name, partition=partition, schema=schema)
        if partition:
            table.create_partition("pt='a'")
        for work in (first_round, second_round):
            spec = {"partition_spec": "pt='a'"} if partition else {}
            work(TableTunnel(odps).create_upsert_session(table, **spec))
        with odps.execute_sql(f"select * from {schema}.{name}").open_reader() as reader:
            assert [tuple(record.values) for record in reader] == expected
        assert [table.name for table in odps.list_tables(schema=schema)] == [name]
        assert not odps.exist_table(name, schema="default")
    finally:
        options.enable_schema = False


def test_27_quota_name(odps: Any, server: Any, name: str, rows: Rows) -> None:
    create(odps, name)
    session = TableTunnel(odps, quota_name="q").create_upsert_session(name)
    assert session.quota_name == "q"
    upsert(session, [("0", "v1"), ("1", "v1")])
    session.commit()
    assert rows(f"select * from {name}") == [("0", "v1"), ("1", "v1")]
    journal = server.control("/control/journal")
    quotas = [entry["query"].get("quotaName") for entry in journal if session.id in entry["query"].values()]
    assert quotas
    assert set(quotas) == {"q"}


def test_28_table_writer(odps: Any, name: str, rows: Rows) -> None:
    table = create(odps, name, "a string not null, b bigint", key="a", partition="pt string")
    with table.open_writer(partition="pt=test", create_partition=True) as writer:
        writer.write([["abcd", 12345], ["efgh", 94512], ["eragf", 434]])
        writer.delete([["abcd", 12345]])
    assert rows(f"select a, b from {name}") == [("efgh", 94512), ("eragf", 434)]


@pytest.mark.parametrize("partition", [pytest.param("", id="29-table"), pytest.param("ds=1234", id="30-partition")])
def test_upsert_delete_upsert(odps: Any, tunnel: Any, name: str, rows: Rows, partition: str) -> None:
    table = create(odps, name, "id bigint not null, name string", key="id", partition="ds string" if partition else "")
    if partition:
        table.create_partition(partition)
    session = tunnel.create_upsert_session(name, partition_spec=partition or None)
    upsert(session, [(1, "a"), (2, "b"), (3, "c")], delete=[(1, "a"), (2, "b"), (3, "c")])
    upsert(session, [(2, "Jack")])
    session.commit()
    assert rows(f"select * from {name}") == [(2, "Jack", "1234") if partition else (2, "Jack")]


@pytest.mark.parametrize(
    ("partition", "values", "expected"),
    [
        pytest.param("", [(1, "Danny", 27, False), (1, "Danny", 28, False)], (1, "Danny", 28, False), id="31-sample"),
        pytest.param(
            "dd=01,hh=01",
            [(1, "Danny", 27, False), (1, "Danny", 30, False)],
            (1, "Danny", 30, False, "01", "01"),
            id="32-partitioned-sample",
        ),
    ],
)
def test_samples(
    odps: Any, tunnel: Any, name: str, rows: Rows, partition: str, values: list[Any], expected: tuple[Any, ...]
) -> None:
    columns = "id int not null, name string, age int, gone boolean"
    table = create(odps, name, columns, key="id", partition="dd string, hh string" if partition else "")
    if partition:
        table.create_partition(partition)
    for row in values:
        session = tunnel.create_upsert_session(name, partition_spec=partition or None)
        upsert(session, [row])
        session.commit()
    assert rows(f"select * from {name}") == [expected]


def test_33_a_key_is_unique_within_its_partition(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    table = create(odps, name, partition="pt string")
    for spec in ("pt='a'", "pt='b'"):
        table.create_partition(spec)
        session = tunnel.create_upsert_session(name, partition_spec=spec)
        upsert(session, [("k", spec[4])])
        session.commit()
    assert rows(f"select * from {name}") == [("k", "a", "a"), ("k", "b", "b")]


def test_later_commits_win_whatever_the_order_of_opening(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    create(odps, name)
    first, second = tunnel.create_upsert_session(name), tunnel.create_upsert_session(name)
    upsert(second, [("k", "second")])
    upsert(first, [("k", "first")])
    second.commit()
    first.commit()
    assert rows(f"select v from {name}") == [("first",)]


def test_slots_share_the_buckets(odps: Any, tunnel: Any, name: str) -> None:
    create(odps, name, properties={"write.bucket.num": "7"})
    session = tunnel.create_upsert_session(name, slot_num=3)
    assert len(session.slots) == 3
    assert sorted(session.buckets) == list(range(7))
