"""What a client sees does not depend on what ran before it: a program's second run in an instance is like its first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from upsert_platform_tests.interop.java import Java, each
from upsert_platform_tests.interop.maxcompute_java import MaxComputeJava
from upsert_platform_tests.local.maxcompute.server import ServerHandle, maxcompute_server

TABLE, PLAIN, VIEW = "repeated_keyed", "repeated_plain", "repeated_view"


def by_java(client: MaxComputeJava) -> list[Any]:
    """A program of the Java SDK, which clears up what a run before left and leaves a session open itself."""
    seen: list[Any] = []
    tables = client.odps.tables()
    for statement in (f"DROP VIEW IF EXISTS {VIEW}", f"DROP TABLE IF EXISTS {PLAIN}"):
        client.sql(statement)
    tables.delete(TABLE, True)
    seen.append([tables.exists(name) for name in (TABLE, PLAIN, VIEW)])
    client.sql(
        f"CREATE TABLE {TABLE} (id BIGINT NOT NULL, v STRING, PRIMARY KEY (id)) TBLPROPERTIES"
        " ('transactional'='true', 'write.bucket.num'='4', 'acid.partial.fields.update.enable'='true')"
    )
    for number in range(3):
        client.write("UpsertSession", TABLE, [(number, "a"), (9, str(number))])
        seen.append(client.sql(f"SELECT * FROM {TABLE} ORDER BY id"))
    seen.append(client.sql(f"SELECT COUNT(*) FROM {TABLE} VERSION AS OF 2"))
    client.sql(f"CREATE TABLE {PLAIN} (id BIGINT, v STRING) PARTITIONED BY (ds STRING)")
    tables.get(PLAIN).createPartition(client.sdk.PartitionSpec("ds='1'"))
    client.sql(f"INSERT INTO {PLAIN} PARTITION (ds) SELECT id, v, 'p' FROM {TABLE}")
    seen.append([p.getPartitionSpec().toString() for p in each(tables.get(PLAIN).getPartitions())])
    client.sql(f"CREATE VIEW {VIEW} AS SELECT v, COUNT(*) AS n FROM {PLAIN} GROUP BY v")
    seen.append(client.sql(f"SELECT * FROM {VIEW} ORDER BY v"))
    seen.append(sorted(t.getName() for t in each(tables) if t.getName().startswith("repeated_")))
    seen.append(client.tunnel.buildUpsertSession(client.project, TABLE).build().getStatus())
    return seen


def by_pyodps(odps: Any) -> list[Any]:
    """A program of PyODPS: tables made by an API of its own, sessions of every kind, changes, and errors."""
    from odps.errors import ODPSError
    from odps.maxstorage import IncrementalReadOptions, MaxStorageClient
    from odps.tunnel import TableTunnel

    seen: list[Any] = []
    tunnel, storage = TableTunnel(odps), MaxStorageClient(odps)
    for name in (TABLE, PLAIN):
        odps.delete_table(name, if_exists=True)
    keyed = odps.create_table(
        TABLE,
        "id bigint not null, v string",
        transactional=True,
        primary_key="id",
        table_properties={"write.bucket.num": "2", "acid.cdc.mode.enable": "true"},
    )
    plain = odps.create_table(PLAIN, ("id bigint", "ds string"))
    for number in range(2):
        session = storage.create_table_write_session(TABLE)
        writer = session.open_arrow_writer(stream_id="0", stream_version=1)
        writer.write_batch(pa.table({"id": [1, number], "v": ["x", "y"], "__operation": pa.array([85, 85], pa.int8())}))
        writer.close()
        session.commit()
        keyed.reload_extend_info()
        seen.append((keyed.cdc_latest_version, keyed.acid_data_retain_hours))
    changes = storage.create_table_read_session(
        TABLE, incremental_read_enabled=True, incremental_read_options=IncrementalReadOptions(version="CDC", from_=0)
    )
    seen.append((changes.latest_version, len(changes.splits)))
    upload = tunnel.create_upload_session(PLAIN, partition_spec="ds=1", create_partition=True)
    for block in range(3):
        with upload.open_record_writer(block) as records:
            records.write(upload.new_record([block]))
    upload.commit(upload.get_block_list())
    seen.append((tunnel.create_download_session(PLAIN, partition_spec="ds=1").count, plain.exist_partition("ds=1")))
    with odps.execute_sql(f"select id, v from {TABLE} order by id").open_reader(tunnel=True) as reader:
        seen.append([tuple(record.values) for record in reader])
    for statement in (f"create table {PLAIN} (a bigint)", f"select * from {TABLE} version as of 9", "select nothing"):
        try:
            odps.execute_sql(statement)
        except ODPSError as error:
            seen.append((type(error).__name__, error.code))
    seen.append(sorted(table.name for table in odps.list_tables(prefix="repeated_")))
    tunnel.create_upsert_session(TABLE).open_upsert_stream()
    return seen


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    """A server that nobody else uses."""
    with maxcompute_server(tmp_path_factory.mktemp("fresh")) as server:
        yield server


@pytest.mark.soak
@pytest.mark.systems
def test_a_program_of_the_java_sdk_sees_the_same_in_every_run(
    maxcompute_java: Java, maxcompute: ServerHandle, fresh: ServerHandle
) -> None:
    first = by_java(MaxComputeJava(maxcompute_java, fresh))
    assert by_java(MaxComputeJava(maxcompute_java, fresh)) == first
    assert by_java(MaxComputeJava(maxcompute_java, maxcompute)) == first
    assert first[0] == [False, False, False]


@pytest.mark.systems
def test_a_program_of_pyodps_sees_the_same_in_every_run(maxcompute: ServerHandle, fresh: ServerHandle) -> None:
    for server in (fresh, maxcompute):
        odps = server.odps()
        for name in ("view " + VIEW, "table " + TABLE, "table " + PLAIN):
            odps.execute_sql(f"drop {name.split()[0]} if exists {name.split()[1]}")
    first = by_pyodps(fresh.odps())
    assert by_pyodps(fresh.odps()) == first
    assert by_pyodps(maxcompute.odps()) == first
    fresh.restart()
    assert by_pyodps(fresh.odps()) == first
