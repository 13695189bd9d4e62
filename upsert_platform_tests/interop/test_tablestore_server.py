"""The official Tablestore SDK for Java works against the local server as it is: only its endpoint is set."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from upsert_platform_tests.interop.java import Java, each, own_errors
from upsert_platform_tests.interop.tablestore_java import KEY, Row, TablestoreJava
from upsert_platform_tests.local.tablestore.server import ServerHandle

ROWS: list[Row] = [
    {"name": "k", "number": number, "raw": b"", "count": number, "text": "é" * 1000, "flag": number % 2 == 0}
    for number in range(50)
]


@pytest.fixture(scope="module")
def table(tablestore_java: Java, tablestore: ServerHandle) -> Iterator[TablestoreJava]:
    """A table of fifty rows that tests read."""
    opened = TablestoreJava(tablestore_java, tablestore, f"read_{uuid.uuid4().hex[:12]}")
    opened.create()
    opened.apply("BatchWriteRow", "put", ROWS)
    yield opened
    opened.client.shutdown()


@pytest.fixture
def own(tablestore_java: Java, tablestore: ServerHandle) -> Iterator[TablestoreJava]:
    """A table of fifty rows for one test."""
    opened = TablestoreJava(tablestore_java, tablestore, f"own_{uuid.uuid4().hex[:12]}")
    opened.create()
    opened.apply("BatchWriteRow", "put", ROWS)
    yield opened
    opened.client.shutdown()


def _numbers(rows: Any) -> list[int]:
    return [row.getPrimaryKey().getPrimaryKeyColumn("number").getValue().asLong() for row in rows]


def test_tables_are_listed_and_described(table: TablestoreJava) -> None:
    assert table.name in list(table.client.listTable().getTableNames())
    meta = table.client.describeTable(table.model.DescribeTableRequest(table.name)).getTableMeta()
    schema = [(column.getName(), column.getType().toString()) for column in each(meta.getPrimaryKeyList())]
    assert schema == list(zip(KEY, ("STRING", "INTEGER", "BINARY"), strict=True))
    splits = table.client.computeSplitsBySize(table.model.ComputeSplitsBySizeRequest(table.name, 1)).getSplits()
    assert splits.size() == 1


def test_bodies_may_be_compressed(tablestore_java: Java, tablestore: ServerHandle, own: TablestoreJava) -> None:
    sdk = tablestore_java.classes.com.alicloud.openservices.tablestore
    settings = sdk.ClientConfiguration()
    settings.setEnableRequestCompression(True)
    settings.setEnableResponseCompression(True)
    server = tablestore
    plain = own.client
    own.client = sdk.SyncClient(
        server.endpoint, server.access_key_id, server.access_key_secret, server.instance, settings
    )
    own.in_batches([own.put({**row, "text": "changed" * 500}) for row in ROWS])
    compressed = own.read()
    own.client.shutdown()
    own.client = plain
    assert own.read() == compressed
    assert all("changedchanged" in row for row in compressed)


def test_signatures_of_version_4(tablestore_java: Java, tablestore: ServerHandle, table: TablestoreJava) -> None:
    sdk = tablestore_java.classes.com.alicloud.openservices.tablestore
    credentials = sdk.core.auth.DefaultCredentials(tablestore.access_key_id, tablestore.access_key_secret)
    signing = sdk.core.auth.V4Credentials.createByServiceCredentials(credentials, "cn-hangzhou")
    provider = sdk.core.auth.DefaultCredentialProvider(signing)
    client = sdk.SyncClient(tablestore.endpoint, provider, tablestore.instance, None, None)
    assert table.name in list(client.listTable().getTableNames())
    client.shutdown()


def test_the_asynchronous_client(tablestore_java: Java, tablestore: ServerHandle, table: TablestoreJava) -> None:
    sdk = tablestore_java.classes.com.alicloud.openservices.tablestore
    server = tablestore
    client = sdk.AsyncClient(server.endpoint, server.access_key_id, server.access_key_secret, server.instance)
    requests = [table.model.PutRowRequest(table.put(row)) for row in ROWS]
    futures = [client.putRow(request, None) for request in requests]
    assert all(future.get().getConsumedCapacity().getCapacityUnit().getWriteCapacityUnit() == 1 for future in futures)
    client.shutdown()


def test_filters_and_ranges(table: TablestoreJava) -> None:
    model = table.model
    criteria = table.range_of(model.RangeRowQueryCriteria)
    comparing = model.filter.SingleColumnValueFilter
    more = comparing("count", comparing.CompareOperator.GREATER_THAN, model.ColumnValue.fromLong(43))
    even = comparing("flag", comparing.CompareOperator.EQUAL, model.ColumnValue.fromBoolean(True))
    both = model.filter.CompositeColumnValueFilter(model.filter.CompositeColumnValueFilter.LogicOperator.AND)
    criteria.setFilter(both.addFilter(more).addFilter(even))
    assert _numbers(table.client.getRange(model.GetRangeRequest(criteria)).getRows()) == [44, 46, 48]
    pages = table.range_of(model.RangeIteratorParameter)
    pages.setBufferSize(7)
    rows = table.client.createRangeIterator(pages)
    found = []
    while rows.hasNext():
        found.append(rows.next())
    assert _numbers(found) == list(range(50))


def test_rows_are_got_in_batches(table: TablestoreJava) -> None:
    wanted = table.model.MultiRowQueryCriteria(table.name)
    wanted.setMaxVersions(1)
    for row in [*ROWS[:5], {**ROWS[0], "number": 99}]:
        wanted.addRow(table.key(row))
    request = table.model.BatchGetRowRequest()
    request.addMultiRowQueryCriteria(wanted)
    answer = table.client.batchGetRow(request)
    assert answer.isAllSucceed()
    found = [result.getRow() for result in each(answer.getSucceedRows())]
    assert _numbers([row for row in found if row is not None]) == [0, 1, 2, 3, 4]
    assert found[5] is None


def test_conditions_and_increments(own: TablestoreJava) -> None:
    from py4j.protocol import Py4JJavaError

    change = own.put(ROWS[0])
    change.setCondition(own.model.Condition(own.model.RowExistenceExpectation.EXPECT_NOT_EXIST))
    with own_errors(), pytest.raises(Py4JJavaError) as caught:
        own.client.putRow(own.model.PutRowRequest(change))
    failure = caught.value.java_exception
    assert (failure.getErrorCode(), failure.getHttpStatus()) == ("OTSConditionCheckFail", 403)
    added = own.update({name: ROWS[3][name] for name in KEY})
    added.increment(own.model.Column("count", own.model.ColumnValue.fromLong(10)))
    added.setReturnType(own.model.ReturnType.RT_AFTER_MODIFY)
    added.addReturnColumn("count")
    row = own.client.updateRow(own.model.UpdateRowRequest(added)).getRow()
    assert row.getLatestColumn("count").getValue().asLong() == 13


def test_an_atomic_batch_is_written_whole_or_not_at_all(own: TablestoreJava) -> None:
    from py4j.protocol import Py4JJavaError

    before = own.read()
    request = own.model.BatchWriteRowRequest()
    request.setAtomic(True)
    request.addRowChange(own.put({"name": "k", "number": 90, "raw": b"", "count": 1}))
    taken = own.put({"name": "k", "number": 1, "raw": b"", "count": 1})
    taken.setCondition(own.model.Condition(own.model.RowExistenceExpectation.EXPECT_NOT_EXIST))
    request.addRowChange(taken)
    with own_errors(), pytest.raises(Py4JJavaError, match="OTSConditionCheckFail"):
        own.client.batchWriteRow(request)
    assert own.read() == before


def test_a_local_transaction_is_seen_when_it_is_committed(own: TablestoreJava) -> None:
    model = own.model
    key = model.PrimaryKeyBuilder.createPrimaryKeyBuilder()
    key.addPrimaryKeyColumn("name", model.PrimaryKeyValue.fromString("k"))
    started = own.client.startLocalTransaction(model.StartLocalTransactionRequest(own.name, key.build()))
    request = model.PutRowRequest(own.put({**ROWS[0], "count": 1000}))
    request.setTransactionId(started.getTransactionID())
    own.client.putRow(request)
    assert not any("count=1000" in row for row in own.read())
    own.client.commitTransaction(model.CommitTransactionRequest(started.getTransactionID()))
    assert sum("count=1000" in row for row in own.read()) == 1


def test_sql(table: TablestoreJava) -> None:
    def ask(query: str) -> Any:
        return table.client.sqlQuery(table.model.sql.SQLQueryRequest(query))

    ask(
        f"CREATE TABLE {table.name} (name VARCHAR(1024), number BIGINT, raw MEDIUMBLOB, `count` BIGINT,"
        " text MEDIUMTEXT, flag BOOL, PRIMARY KEY (name, number, raw))"
    )
    rows = ask(
        f"SELECT number, `count` / 2 AS half, text, flag, NULL AS missing FROM {table.name} WHERE number < 3"
        " ORDER BY number"
    ).getSQLResultSet()
    found = []
    while rows.hasNext():
        row = rows.next()
        found.append((row.getLong(0), row.getDouble(1), row.getString(2), row.getBoolean(3), row.getString(4)))
    assert found == [(number, number / 2, "é" * 1000, number % 2 == 0, None) for number in range(3)]


def test_a_wrong_key_is_refused(tablestore_java: Java, tablestore: ServerHandle) -> None:
    from py4j.protocol import Py4JJavaError

    sdk = tablestore_java.classes.com.alicloud.openservices.tablestore
    client = sdk.SyncClient(tablestore.endpoint, tablestore.access_key_id, "wrong", tablestore.instance)
    with own_errors(), pytest.raises(Py4JJavaError) as caught:
        client.listTable()
    assert caught.value.java_exception.getErrorCode() == "OTSAuthFailed"
    client.shutdown()
