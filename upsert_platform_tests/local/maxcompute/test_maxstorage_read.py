"""Reads of the storage API, by an unmodified PyODPS client (spec 3.11)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from odps.errors import NoSuchTable, ODPSError
from odps.maxstorage import MaxStorageClient, SplitMode, SplitOptions


def read_all(session: Any, **options: Any) -> pa.Table:
    batches = []
    for split in session.splits:
        with session.open_arrow_reader(split, **options) as reader:
            batches += list(reader)
    return pa.Table.from_batches(batches) if batches else session.arrow_schema.empty_table()


@pytest.fixture
def client(odps: Any) -> Any:
    return MaxStorageClient(odps)


@pytest.fixture
def table(odps: Any, name: str) -> str:
    """300 rows in two partitions; of the first hundred keys every second one was replaced, every tenth deleted."""
    odps.create_table(
        name, ("k bigint not null, v string, t timestamp, d datetime", "ds string"), transactional=True, primary_key="k"
    )
    times = "cast('2020-01-01 00:00:00.000000001' as timestamp), cast('2020-01-02 00:00:00' as datetime)"
    odps.execute_sql(f"insert into {name} partition (ds='a') select range, 'old', {times} from range(200)")
    odps.execute_sql(f"insert into {name} partition (ds='b') select range, 'old', {times} from range(100)")
    odps.execute_sql(f"insert into {name} partition (ds='a') select range * 2, 'new', {times} from range(50)")
    odps.execute_sql(f"delete from {name} where ds = 'a' and k < 100 and k % 10 = 0")
    return name


def test_size_splits_cover_every_row_once(client: Any, table: str) -> None:
    one = client.create_table_read_session(table)
    assert (one.split_mode, len(one.splits), one.record_count) == (SplitMode.SIZE, 1, 290)
    many = client.create_table_read_session(table, split_options=SplitOptions(split_number=2000))
    assert len(many.splits) > 3
    found = read_all(many, max_batch_rows=7)
    assert found.sort_by([("ds", "ascending"), ("k", "ascending")]) == read_all(one).sort_by(
        [("ds", "ascending"), ("k", "ascending")]
    )
    assert found.num_rows == 290
    assert set(found.column("ds").to_pylist()) == {"a", "b"}


def test_row_offset_splits(client: Any, table: str) -> None:
    options = SplitOptions(split_mode=SplitMode.ROW_OFFSET, split_unit="", split_number=100)
    session = client.create_table_read_session(table, split_options=options)
    assert [(split.offset, split.length) for split in session.splits] == [(0, 100), (100, 100), (200, 90)]
    assert read_all(session).num_rows == 290


def test_rows_of_some_buckets_that_a_predicate_lets_pass(client: Any, odps: Any, name: str) -> None:
    from odps.tunnel.hasher import RecordHasher

    properties = {"write.bucket.num": "5"}
    schema = "k bigint not null"
    made = odps.create_table(name, schema, transactional=True, primary_key="k", table_properties=properties)
    hasher = RecordHasher(made.table_schema, "default", ["k"])
    odps.execute_sql(f"insert into {name} select range from range(40)")
    session = client.create_table_read_session(name, bucket_ids=[1, 3], filter_predicate="k < 20")
    wanted = [key for key in range(20) if hasher.hash_list([key]) % 5 in (1, 3)]
    assert sorted(read_all(session).column("k").to_pylist()) == wanted
    with pytest.raises(ODPSError, match="no bucket 5"):
        client.create_table_read_session(name, bucket_ids=[5])


def test_columns_partitions_and_predicate(client: Any, table: str) -> None:
    session = client.create_table_read_session(
        table,
        columns=["v", "k"],
        partition_columns=["ds"],
        partitions=["ds=a"],
        filter_predicate="k < 6 and v = 'new'",
    )
    assert [column.name for column in session.table_schema.simple_columns] == ["v", "k"]
    assert read_all(session).to_pylist() == [{"v": "new", "k": 2, "ds": "a"}, {"v": "new", "k": 4, "ds": "a"}]


def test_times_come_in_the_units_asked_for(client: Any, table: str) -> None:
    whole = read_all(client.create_table_read_session(table))
    assert (whole.schema.field("t").type, whole.schema.field("d").type) == (pa.timestamp("ns"), pa.timestamp("ms"))
    assert whole.column("t")[0].value % 1_000_000_000 == 1
    units = {"TimestampUnit": "nano", "DatetimeUnit": "second"}
    session = client.create_table_read_session(table, arrow_options=units)
    with session.open_arrow_reader(session.splits[0]) as reader:
        assert reader.arrow_schema.field("d").type == pa.timestamp("s")


def test_a_session_does_not_see_later_commits(client: Any, odps: Any, table: str) -> None:
    session = client.create_table_read_session(table)
    odps.execute_sql(f"delete from {table} where true")
    assert read_all(session).num_rows == 290
    assert client.create_table_read_session(table).splits == []


def test_skipping_and_projecting_a_split(client: Any, table: str) -> None:
    session = client.create_table_read_session(table, partitions=["ds=b"])
    with session.open_arrow_reader(session.splits[0], skip_row_num=98, data_columns=["k"]) as reader:
        assert [batch.to_pydict() for batch in reader] == [{"k": [98, 99]}]


def test_records(client: Any, table: str) -> None:
    session = client.create_table_read_session(table, columns=["k", "v"], partitions=["ds=b"])
    with session.open_arrow_reader(session.splits[0]) as reader:
        records = list(reader.get_as_record_reader())
    assert (len(records), records[0]["k"], records[0]["v"]) == (100, 0, "old")


def test_preview(client: Any, table: str) -> None:
    with client.preview_table(table, partition_spec="ds='b'", columns=["k"], limit=3) as reader:
        assert [batch.to_pydict() for batch in reader] == [{"k": [0, 1, 2]}]


@pytest.mark.filterwarnings("ignore:Instance read session")
def test_instance_results(client: Any, odps: Any, table: str) -> None:
    instance = odps.execute_sql(f"select k, v from {table} where ds = 'b' order by k")
    session = client.create_instance_read_session(instance)
    assert session.record_count == 100
    with session.open_arrow_reader(offset=98, count=5, task_name="AnonymousSQLTask") as reader:
        assert pa.Table.from_batches(list(reader)).to_pydict() == {"k": [98, 99], "v": ["old", "old"]}


def test_a_reloaded_session_is_the_same(client: Any, table: str) -> None:
    session = client.create_table_read_session(table)
    again = client.create_table_read_session(table, session_id=session.id)
    assert again.splits == session.splits
    assert read_all(again) == read_all(session)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        pytest.param(lambda c, t: c.create_table_read_session("no_such_table"), NoSuchTable, id="missing-table"),
        pytest.param(lambda c, t: c.create_table_read_session(t, columns=["nope"]), ODPSError, id="missing-column"),
        pytest.param(lambda c, t: c.create_table_read_session(t, session_id="nope"), ODPSError, id="missing-session"),
        pytest.param(
            lambda c, t: c.create_table_read_session(t, filter_predicate="k <"), ODPSError, id="broken-predicate"
        ),
    ],
)
def test_refusals(client: Any, table: str, make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make(client, table)


def test_moments_finer_than_the_unit_are_cut_towards_the_past(odps: Any, name: str) -> None:
    odps.execute_sql(f"create table {name} (t timestamp)")
    odps.execute_sql(f"insert into {name} values (timestamp '1969-12-31 23:59:59.999999999'), (null)")
    session = MaxStorageClient(odps).create_table_read_session(name, arrow_options={"TimestampUnit": "micro"})
    with session.open_arrow_reader(session.splits[0]) as reader:
        (column,) = pa.Table.from_batches(list(reader)).columns
    assert column.type == pa.timestamp("us")
    assert sorted(column.cast(pa.int64()).to_pylist(), key=repr) == [-1, None]
