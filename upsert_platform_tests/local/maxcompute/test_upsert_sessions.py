"""Upsert sessions, by an unmodified PyODPS client: catalogue 6.1, numbers 1 to 33."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
from odps import options
from odps.errors import MethodNotAllowed, NoSuchPartition, NoSuchTable, ODPSError
from odps.tunnel import TableTunnel

Rows = Callable[..., list[tuple[Any, ...]]]
Work = Callable[[Any], None]


@pytest.fixture
def tunnel(odps: Any) -> Any:
    return TableTunnel(odps)


def create(odps: Any, name: str, columns: str = "k string not null, v string", **options: Any) -> Any:
    partition = options.pop("partition", None)
    properties = {"write.bucket.num": "4", **options.pop("properties", {})}
    return odps.create_table(
        name,
        (columns, partition) if partition else columns,
        transactional=True,
        primary_key=options.pop("key", "k"),
        table_properties=properties,
        **options,
    )


def upsert(session: Any, rows: Iterable[Iterable[Any]], *, delete: Iterable[Iterable[Any]] = (), **options: Any) -> Any:
    stream = session.open_upsert_stream(**options)
    for row in rows:
        stream.upsert(session.new_record(list(row)))
    for row in delete:
        stream.delete(session.new_record(list(row)))
    stream.close()
    return stream


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


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(ODPSError) as caught:
        call()
    return str(caught.value.code)


def test_08_abort(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    create(odps, name)
    session = tunnel.create_upsert_session(name)
    upsert(session, [("0", "v1")])
    session.abort()
    assert code_of(lambda: upsert(session, [("1", "v1")])) == "SessionAborted"
    assert code_of(session.commit) == "SessionAborted"
    assert rows(f"select * from {name}") == []


def test_09_abort_through_another_handle(odps: Any, tunnel: Any, name: str) -> None:
    create(odps, name)
    session = tunnel.create_upsert_session(name)
    tunnel.create_upsert_session(name, upsert_id=session.id).abort()
    assert code_of(lambda: upsert(session, [("1", "v1")])) == "SessionAborted"


@pytest.mark.parametrize("other", [pytest.param(False, id="10-same-handle"), pytest.param(True, id="11-other-handle")])
def test_flush_after_commit(odps: Any, tunnel: Any, name: str, rows: Rows, other: bool) -> None:
    create(odps, name)
    session = tunnel.create_upsert_session(name)
    upsert(session, [("a", "v1")])
    (tunnel.create_upsert_session(name, upsert_id=session.id) if other else session).commit()
    assert code_of(lambda: upsert(session, [("b", "v1")])) == "SessionStatusConflict"
    assert rows(f"select * from {name}") == [("a", "v1")]


def test_12_empty_session(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    create(odps, name)
    upsert(session := tunnel.create_upsert_session(name), [("a", "v1")])
    session.commit()
    session = tunnel.create_upsert_session(name)
    session.commit()
    session.commit()
    assert rows(f"select * from {name}") == [("a", "v1")]
    assert odps.get_table(name).cdc_latest_version == 2


def test_13_missing_table(tunnel: Any) -> None:
    with pytest.raises(NoSuchTable):
        tunnel.create_upsert_session("there_is_no_such_table")


def test_14_missing_partition(odps: Any, tunnel: Any, name: str) -> None:
    table = create(odps, name, partition="pt string")
    with pytest.raises(NoSuchPartition):
        tunnel.create_upsert_session(name, partition_spec="pt='a'")
    assert list(table.partitions) == []


def test_15_null_in_not_null_column(odps: Any, tunnel: Any, name: str) -> None:
    create(odps, name, "k string not null, v string not null")
    session = tunnel.create_upsert_session(name)
    assert code_of(lambda: upsert(session, [("a", None)])) == "DataStoreError"


def test_16_null_key(odps: Any, tunnel: Any, name: str) -> None:
    create(odps, name)
    session = tunnel.create_upsert_session(name)
    assert code_of(lambda: upsert(session, [(None, "v")])) == "InternalError"


def test_17_flush_without_rows(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    create(odps, name)
    session = tunnel.create_upsert_session(name)
    session.open_upsert_stream().flush()
    session.commit()
    assert rows(f"select * from {name}") == []


@pytest.mark.parametrize(
    ("statements", "code"),
    [
        pytest.param(["drop table {t}"], "NoSuchTable", id="18-table-dropped"),
        pytest.param(["alter table {t} rename to {t}_renamed"], "NoSuchTable", id="19-table-renamed"),
        pytest.param(
            [
                "drop table {t}",
                "create table {t} (k string not null, v string, primary key (k)) partitioned by (pt string)"
                " tblproperties ('transactional'='true')",
            ],
            "TableModified",
            id="20-table-recreated",
        ),
        pytest.param(["alter table {t} drop partition (pt='a')"], "NoSuchPartition", id="21-partition-dropped"),
        pytest.param(
            ["alter table {t} partition (pt='a') rename to partition (pt='b')"],
            "NoSuchPartition",
            id="22-partition-renamed",
        ),
    ],
)
def test_definition_changes_before_commit(odps: Any, tunnel: Any, name: str, statements: list[str], code: str) -> None:
    create(odps, name, partition="pt string").create_partition("pt='a'")
    session = tunnel.create_upsert_session(name, partition_spec="pt='a'")
    upsert(session, [("a", "v1")])
    for statement in statements:
        odps.execute_sql(statement.format(t=name))
    assert code_of(session.commit) == code


TYPES = {
    "tinyint": -128,
    "smallint": 32767,
    "int": -(2**31),
    "bigint": 2**63 - 1,
    "float": 1.5,
    "double": -2.25,
    "boolean": False,
    "string": "中文 \x00 'quoted'",
    "char(5)": "ab   ",
    "varchar(10)": "ab",
    "binary": b"\x00\xff",
    "decimal(10,2)": Decimal("-12345678.90"),
    "decimal(38,18)": Decimal("1.000000000000000001"),
    "date": date(1931, 5, 6),
    "datetime": datetime(2020, 2, 29, 12, 30, 1, 250000),  # noqa: DTZ001 - the client gives naive times
    "timestamp": pd.Timestamp("2020-02-29 12:30:01.123456789"),
    "timestamp_ntz": pd.Timestamp("1969-12-31 23:59:59.999999999"),
    "json": {"a": [1, None]},
    "array<string>": ["a", None, ""],
    "map<string,bigint>": {"a": 1, "b": None},
    "struct<x:bigint,y:array<date>>": (1, [date(2020, 1, 1)]),
}


def test_23_every_value_type(odps: Any, tunnel: Any, name: str) -> None:
    columns = ", ".join(f"c{index} {text}" for index, text in enumerate(TYPES))
    create(odps, name, f"k bigint not null, {columns}")
    session = tunnel.create_upsert_session(name)
    upsert(session, [(1, *TYPES.values()), (2, *([None] * len(TYPES)))], compress=True)
    session.commit()
    with odps.execute_sql(f"select * from {name} order by k").open_reader(tunnel=True) as reader:
        full, empty = list(reader)
    for index, (text, value) in enumerate(TYPES.items()):
        found = full[f"c{index}"]
        if text == "json":
            found = json.loads(found)
        assert found == value, text
        assert empty[f"c{index}"] is None, text


def test_24_every_key_type(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    names = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "char(20)", "string")
    columns = ", ".join(f"k{index} {text} not null" for index, text in enumerate(names))
    create(odps, name, f"{columns}, v string", key=[f"k{index}" for index in range(len(names))])
    key = (1, 2, 3, 4, 1.5, 2.5, True, "abc", "text")
    for value in ("old", "new"):
        session = tunnel.create_upsert_session(name)
        upsert(session, [(*key, value)])
        session.commit()
    assert rows(f"select * from {name}") == [(*key[:7], "abc".ljust(20), "text", "new")]


def test_25_datetime_key(odps: Any, tunnel: Any, name: str) -> None:
    create(odps, name, "k datetime not null, v string")
    assert tunnel.create_upsert_session(name).hash_keys == ["k"]


def test_26_key_columns_need_not_come_first(odps: Any, tunnel: Any, name: str, rows: Rows) -> None:
    create(odps, name, "v string, key1 string not null, key2 string not null", key=["key1", "key2"])
    session = tunnel.create_upsert_session(name)
    records = [("v1", "k1", "k2"), ("v2", "k1", "k2"), ("v3", "k3", "k4"), ("v4", "k5", "k6")]
    upsert(session, records, delete=[("v4", "k5", "k6")], compress=True)
    session.commit()
    assert rows(f"select * from {name}") == [("v2", "k1", "k2"), ("v3", "k3", "k4")]


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


def test_a_session_survives_a_killed_server(odps: Any, tunnel: Any, server: Any, name: str, rows: Rows) -> None:
    create(odps, name)
    session = tunnel.create_upsert_session(name)
    upsert(session, [("a", "v1")])
    server.restart()
    upsert(session, [("b", "v1")])
    session.commit()
    server.restart()
    session.reload()
    assert session.status.value == "COMMITTED"
    assert rows(f"select k from {name}") == [("a",), ("b",)]


def test_times_are_kept_as_utc(odps: Any, tunnel: Any, name: str) -> None:
    create(odps, name, "k bigint not null, t timestamp")
    session = tunnel.create_upsert_session(name)
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    upsert(session, [(1, pd.Timestamp(moment))])
    session.commit()
    with odps.execute_sql(f"select cast(t as string) as t from {name}").open_reader(tunnel=True) as reader:
        assert next(iter(reader))["t"] == "2020-01-01 00:00:00"
