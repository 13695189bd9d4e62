"""The official MaxCompute SDK for Java works against the local server as it is: only its endpoint is set."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from upsert_platform_tests.interop.java import Java, each, own_errors
from upsert_platform_tests.interop.maxcompute_java import MaxComputeJava
from upsert_platform_tests.local.maxcompute.server import ServerHandle


@pytest.fixture(scope="module")
def client(maxcompute_java: Java, maxcompute: ServerHandle) -> MaxComputeJava:
    return MaxComputeJava(maxcompute_java, maxcompute)


@pytest.fixture
def name() -> str:
    return f"t_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def rows(client: MaxComputeJava, name: str) -> str:
    """A table of ten rows."""
    client.sql(f"CREATE TABLE {name} (id BIGINT, v STRING)")
    client.write("UploadSession", name, [(number, f"é{number}") for number in range(10)])
    return name


def test_tables_and_partitions(client: MaxComputeJava, name: str) -> None:
    client.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, n DECIMAL(38,18) NOT NULL, v STRING COMMENT 'text',"
        " PRIMARY KEY (id, n)) PARTITIONED BY (ds STRING) TBLPROPERTIES ('transactional'='true')"
        " LIFECYCLE 30"
    )
    tables = client.odps.tables()
    assert (tables.exists(name), tables.exists(f"{name}_other")) == (True, False)
    assert name in [table.getName() for table in each(tables)]
    table = tables.get(name)
    schema = table.getSchema()
    assert [(column.getName(), column.getTypeInfo().getTypeName()) for column in each(schema.getColumns())] == [
        ("id", "BIGINT"),
        ("n", "DECIMAL(38,18)"),
        ("v", "STRING"),
    ]
    assert schema.getColumn("v").getComment() == "text"
    assert [column.getName() for column in each(schema.getPartitionColumns())] == ["ds"]
    assert (table.isTransactional(), list(table.getPrimaryKey()), table.getLife()) == (True, ["id", "n"], 30)
    partition = client.sdk.PartitionSpec("ds='a'")
    table.createPartition(partition)
    table.createPartition(partition, True)
    assert table.hasPartition(partition)
    assert [found.getPartitionSpec().toString() for found in each(table.getPartitions())] == ["ds='a'"]
    table.deletePartition(partition)
    assert not table.hasPartition(partition)
    tables.delete(name)
    assert not tables.exists(name)


def test_upserts_deletes_and_partial_updates_of_a_partition(client: MaxComputeJava, name: str) -> None:
    client.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, v STRING, w STRING, PRIMARY KEY (id)) PARTITIONED BY (ds STRING)"
        " TBLPROPERTIES ('transactional'='true', 'acid.partial.fields.update.enable'='true')"
    )
    client.odps.tables().get(name).createPartition(client.sdk.PartitionSpec("ds='a'"))
    session = client.tunnel.buildUpsertSession(client.project, name).setPartitionSpec("ds='a'").build()
    stream = session.buildUpsertStream().setCompressOption(client.sdk.tunnel.io.CompressOption()).build()
    for number in range(50):
        stream.upsert(client.filled(session.newRecord(), (number, f"v{number}", "w")))
    stream.flush()
    for number in range(10):
        stream.delete(client.filled(session.newRecord(), (number, None, None)))
    stream.upsert(client.filled(session.newRecord(), (20, "again", "again")))
    stream.upsert(client.filled(session.newRecord(), (30, "part", "ignored")), client.java.list_of(["v"]))
    stream.close()
    assert client.sql(f"SELECT COUNT(*) FROM {name}") == [["0"]]
    session.commit(False)
    assert session.getStatus() == "committed"
    session.close()
    assert client.sql(f"SELECT COUNT(*), MIN(id), MAX(ds) FROM {name}") == [["40", "10", "a"]]
    assert client.sql(f"SELECT id, v, w FROM {name} WHERE id IN (20, 30) ORDER BY id") == [
        ["20", "again", "again"],
        ["30", "part", "w"],
    ]


def test_an_aborted_upsert_session_leaves_nothing(client: MaxComputeJava, name: str) -> None:
    client.sql(f"CREATE TABLE {name} (id BIGINT NOT NULL, PRIMARY KEY (id)) TBLPROPERTIES ('transactional'='true')")
    with client.upsert_session(name) as session:
        stream = session.buildUpsertStream().build()
        stream.upsert(client.filled(session.newRecord(), (1,)))
        stream.close()
        session.abort()
    assert client.read(name) == []


@pytest.mark.parametrize("algorithm", ["ODPS_RAW", "ODPS_ZLIB", "ODPS_LZ4_FRAME"])
def test_records_are_read_and_written_in_every_compression(client: MaxComputeJava, name: str, algorithm: str) -> None:
    io = client.sdk.tunnel.io
    option = io.CompressOption(getattr(io.CompressOption.CompressAlgorithm, algorithm), 1, 0)
    client.sql(f"CREATE TABLE {name} (id BIGINT, v STRING)")
    session = client.tunnel.createUploadSession(client.project, name)
    writer = session.openRecordWriter(0, option)
    for number in range(100):
        writer.write(client.filled(session.newRecord(), (number, "x" * number)))
    writer.close()
    session.commit(session.getBlockList())
    download = client.tunnel.createDownloadSession(client.project, name)
    reader = download.openRecordReader(10, 5, option)
    found = []
    while (record := reader.read()) is not None:
        found.append((record.getBigint(0), record.getString(1)))
    reader.close()
    assert download.getRecordCount() == 100
    assert found == [(number, "x" * number) for number in range(10, 15)]


def test_a_buffered_writer(client: MaxComputeJava, name: str) -> None:
    client.sql(f"CREATE TABLE {name} (id BIGINT, v STRING)")
    session = client.tunnel.createUploadSession(client.project, name)
    writer = session.openBufferedWriter()
    for number in range(1000):
        writer.write(client.filled(session.newRecord(), (number, "v")))
    writer.close()
    session.commit()
    assert client.sql(f"SELECT COUNT(*), SUM(id) FROM {name}") == [["1000", "499500"]]


@pytest.mark.parametrize("algorithm", ["ODPS_RAW", "ODPS_ARROW_LZ4_FRAME"])
def test_arrow_is_read(client: MaxComputeJava, rows: str, algorithm: str) -> None:
    io = client.sdk.tunnel.io
    option = io.CompressOption(getattr(io.CompressOption.CompressAlgorithm, algorithm), 1, 0)
    session = client.tunnel.createDownloadSession(client.project, rows)
    allocator = client.java.classes.org.apache.arrow.memory.RootAllocator(2**33)
    reader = session.openArrowRecordReader(0, session.getRecordCount(), None, allocator, option)
    found = []
    while (batch := reader.read()) is not None:
        found += batch.contentToTSVString().splitlines()[1:]
        batch.close()
    reader.close()
    assert sorted(found) == sorted(f"{number}\té{number}" for number in range(10))


def test_results_come_through_the_instance_tunnel(client: MaxComputeJava, rows: str) -> None:
    task = client.sdk.task.SQLTask
    instance = task.run(client.odps, f"SELECT id, v FROM {rows} WHERE id < 3 ORDER BY id;")
    instance.waitForSuccess(50)
    records = task.getResultByInstanceTunnel(instance)
    assert [(record.getBigint(0), record.getString(1)) for record in records] == [(0, "é0"), (1, "é1"), (2, "é2")]


def test_an_upload_may_overwrite(client: MaxComputeJava, rows: str) -> None:
    session = client.tunnel.createUploadSession(client.project, rows, True)
    writer = session.openRecordWriter(0)
    writer.write(client.filled(session.newRecord(), (7, "only")))
    writer.close()
    session.commit(session.getBlockList())
    assert client.sql(f"SELECT id, v FROM {rows}") == [["7", "only"]]


FAILURES: list[tuple[str, Callable[[MaxComputeJava], Any], str]] = [
    ("query of a missing column", lambda client: client.sql("SELECT nothing FROM (SELECT 1 AS a) t"), "ODPS-0130071"),
    ("query of a missing table", lambda client: client.sql("SELECT * FROM no_such_table"), "ODPS-0130131"),
    (
        "download of a missing table",
        lambda client: client.tunnel.createDownloadSession(client.project, "no_such_table"),
        "ErrorCode=NoSuchTable",
    ),
    (
        "upsert into a missing table",
        lambda client: client.tunnel.buildUpsertSession(client.project, "no_such_table").build(),
        "ErrorCode=NoSuchTable",
    ),
]


@pytest.mark.parametrize(("call", "message"), [case[1:] for case in FAILURES], ids=[case[0] for case in FAILURES])
def test_errors_arrive_as_the_sdk_knows_them(
    client: MaxComputeJava, call: Callable[[MaxComputeJava], Any], message: str
) -> None:
    from py4j.protocol import Py4JJavaError

    with own_errors(), pytest.raises(Py4JJavaError) as caught:
        call(client)
    assert message in caught.value.java_exception.getMessage()


def test_a_wrong_key_is_refused(maxcompute_java: Java, maxcompute: ServerHandle) -> None:
    from py4j.protocol import Py4JJavaError

    client = MaxComputeJava(maxcompute_java, maxcompute)
    client.odps.setAccount(client.sdk.account.AliyunAccount(maxcompute.access_id, "wrong"))
    with own_errors(), pytest.raises(Py4JJavaError) as caught:
        client.odps.tables().exists("t")
    assert "signature" in caught.value.java_exception.getMessage().lower()


def test_definitions_are_changed_by_the_clients_own_methods(client: MaxComputeJava, name: str) -> None:
    client.sql(f"CREATE TABLE {name} (id BIGINT, v INT, w STRING) PARTITIONED BY (ds STRING)")
    client.sql(f"INSERT INTO {name} PARTITION (ds='1') VALUES (1, 2, 'x')")
    table, types = client.odps.tables().get(name), client.sdk.type.TypeInfoFactory
    table.setLifeCycle(9)
    table.changeOwner("ALIYUN$somebody")
    table.changeComment("it's changed")
    table.touch()
    table.addColumns(client.java.list_of([client.sdk.Column("added", types.STRING)]), True)
    table.changeColumnName("v", "n")
    table.alterColumnType("n", types.BIGINT)
    table.dropColumns(client.java.list_of(["w"]))
    table.rename(f"{name}_new")
    found = client.odps.tables().get(f"{name}_new")
    columns = [(c.getName(), c.getTypeInfo().getTypeName()) for c in each(found.getSchema().getColumns())]
    assert columns == [("id", "BIGINT"), ("n", "BIGINT"), ("added", "STRING")]
    assert (found.getLife(), found.getOwner(), found.getComment()) == (9, "ALIYUN$somebody", "it's changed")
    assert client.sql(f"SELECT * FROM {name}_new") == [["1", "2", "\\N", "1"]]
    client.sql(f"TRUNCATE TABLE {name}_new PARTITION (ds='1')")
    assert client.sql(f"SELECT COUNT(*) FROM {name}_new") == [["0"]]


def test_views_are_told_renamed_and_removed(client: MaxComputeJava, rows: str) -> None:
    client.sql(f"CREATE VIEW {rows}_v AS SELECT id, v FROM {rows} WHERE id > 7")
    tables = client.odps.tables()
    view = tables.get(f"{rows}_v")
    assert (view.isVirtualView(), view.getType().toString()) == (True, "VIRTUAL_VIEW")
    view.changeOwner("ALIYUN$somebody")
    view.rename(f"{rows}_w")
    found = tables.get(f"{rows}_w")
    assert found.getOwner() == "ALIYUN$somebody"
    assert client.sql(f"SELECT * FROM {rows}_w ORDER BY id") == [["8", "é8"], ["9", "é9"]]
    client.sql(f"DROP VIEW {rows}_w")
    assert not tables.exists(f"{rows}_w")
