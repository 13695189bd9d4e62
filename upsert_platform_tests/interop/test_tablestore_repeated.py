"""What a client sees does not depend on what ran before it: a program's second run in an instance is like its first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from upsert_platform_tests.interop.java import Java, own_errors
from upsert_platform_tests.interop.tablestore_java import KEY, Row, TablestoreJava, plain
from upsert_platform_tests.local.tablestore.conftest import connect
from upsert_platform_tests.local.tablestore.server import ServerHandle, tablestore_server

JAVA, PYTHON = "repeated_by_java", "repeated_by_python"
ROWS: list[Row] = [{"name": "k", "number": n, "raw": b"r", "count": n, "text": "é" * n} for n in range(20)]


def by_java(java: Java, server: ServerHandle) -> list[Any]:
    """A program of the Java SDK, which clears up what a run before left and leaves a transaction open itself."""
    from py4j.protocol import Py4JJavaError

    table = TablestoreJava(java, server, JAVA)
    client, model = table.client, table.model
    seen: list[Any] = []
    if JAVA in list(client.listTable().getTableNames()):
        request = model.search.ListSearchIndexRequest()
        request.setTableName(JAVA)
        seen.append(client.listSearchIndex(request).getIndexInfos().size())
        client.deleteTable(model.DeleteTableRequest(JAVA))
    else:
        seen.append(0)
    table.create()
    seen.append(table.read())
    table.apply("BatchWriteRow", "put", ROWS)
    table.apply("UpdateRow", "update", [{**ROWS[1], "count": None, "text": "new"}])
    table.apply("DeleteRow", "delete", ROWS[2:4])
    seen.append(table.read())
    added = table.update({name: ROWS[5][name] for name in KEY})
    added.increment(model.Column("count", model.ColumnValue.fromLong(10)))
    added.setReturnType(model.ReturnType.RT_AFTER_MODIFY)
    added.addReturnColumn("count")
    row = client.updateRow(model.UpdateRowRequest(added)).getRow()
    seen.append(row.getLatestColumn("count").getValue().asLong())
    change = table.put(ROWS[0])
    change.setCondition(model.Condition(model.RowExistenceExpectation.EXPECT_NOT_EXIST))
    try:
        with own_errors():
            client.putRow(model.PutRowRequest(change))
    except Py4JJavaError as error:
        seen.append((error.java_exception.getErrorCode(), error.java_exception.getHttpStatus()))
    seen.append(client.computeSplitsBySize(model.ComputeSplitsBySizeRequest(JAVA, 1)).getSplits().size())
    key = model.PrimaryKeyBuilder.createPrimaryKeyBuilder()
    key.addPrimaryKeyColumn("name", model.PrimaryKeyValue.fromString("k"))
    started = client.startLocalTransaction(model.StartLocalTransactionRequest(JAVA, key.build()))
    inside = model.PutRowRequest(table.put({**ROWS[0], "count": 1000}))
    inside.setTransactionId(started.getTransactionID())
    client.putRow(inside)
    seen.append([line for line in table.read() if "count=1000" in line])
    client.shutdown()
    return seen


def by_python(server: ServerHandle) -> list[Any]:
    """A program of the Python SDK: an own version of cells, a time to live, a search of indexes, SQL and an error."""
    from tablestore import (
        INF_MAX,
        INF_MIN,
        CapacityUnit,
        OTSServiceError,
        ReservedThroughput,
        Row,
        TableMeta,
        TableOptions,
    )

    client = connect(server)
    seen: list[Any] = []
    if PYTHON in client.list_table():
        for table, index in client.list_search_index(PYTHON):
            client.delete_search_index(table, index)
        client.delete_table(PYTHON)
    meta = TableMeta(PYTHON, [("p", "STRING"), ("id", "INTEGER")])
    client.create_table(meta, TableOptions(86_400, 2, 86_400), ReservedThroughput(CapacityUnit(0, 0)))
    described = client.describe_table(PYTHON)
    seen.append((described.table_options.time_to_live, described.table_options.max_version))
    for number in range(5):
        client.put_row(PYTHON, Row([("p", "a"), ("id", number)], [("v", f"first {number}")]))
    client.update_row(
        PYTHON, Row([("p", "a"), ("id", 1)], {"PUT": [("v", "second"), ("raw", bytearray(b"\x00"))]}), None
    )
    client.delete_row(PYTHON, Row([("p", "a"), ("id", 2)]), None)
    low, high = [("p", INF_MIN), ("id", INF_MIN)], [("p", INF_MAX), ("id", INF_MAX)]
    for versions in (1, 2):
        found = client.get_range(PYTHON, "FORWARD", low, high, max_version=versions)[2]
        seen.append([(row.primary_key, [(n, plain(v)) for n, v, _ in row.attribute_columns]) for row in found])
    again = (meta, TableOptions(), ReservedThroughput(CapacityUnit(0, 0)))
    for refused in (lambda: client.create_table(*again), lambda: client.delete_table("nothing_there")):
        try:
            refused()
        except OTSServiceError as error:
            seen.append((error.get_error_code(), error.get_http_status()))
    seen.append(client.list_search_index(PYTHON))
    client.start_local_transaction(PYTHON, [("p", "a")])
    return seen


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    """A server that nobody else uses."""
    with tablestore_server(tmp_path_factory.mktemp("fresh")) as server:
        yield server


@pytest.mark.soak
@pytest.mark.systems
def test_a_program_of_the_java_sdk_sees_the_same_in_every_run(
    tablestore_java: Java, tablestore: ServerHandle, fresh: ServerHandle
) -> None:
    first = by_java(tablestore_java, fresh)
    assert by_java(tablestore_java, fresh) == first
    assert by_java(tablestore_java, tablestore) == first
    fresh.restart()
    assert by_java(tablestore_java, fresh) == first
    assert first[1] == []
    assert len(first[2]) == len(ROWS) - 2
    assert first[3:] == [15, ("OTSConditionCheckFail", 403), 1, []]


@pytest.mark.systems
def test_a_program_of_the_python_sdk_sees_the_same_in_every_run(tablestore: ServerHandle, fresh: ServerHandle) -> None:
    first = by_python(fresh)
    assert by_python(fresh) == first
    assert by_python(tablestore) == first
    fresh.restart()
    assert by_python(fresh) == first
    assert first[0] == (86_400, 2)
    assert [len(cells) for _, cells in first[2]] == [1, 3, 1, 1]
