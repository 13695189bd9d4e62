"""The asynchronous official client, against the same server."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

import pytest
from tablestore import (
    INF_MAX,
    INF_MIN,
    AsyncOTSClient,
    BatchGetRowRequest,
    BatchWriteRowRequest,
    CapacityUnit,
    ComparatorType,
    Condition,
    OTSServiceError,
    PutRowItem,
    ReservedThroughput,
    Row,
    SingleColumnCondition,
    TableInBatchGetRowItem,
    TableInBatchWriteRowItem,
    TableMeta,
    TableOptions,
    metadata,
)
from tablestore.retry import NoRetryPolicy

from upsert_platform_tests.local.tablestore.server import ServerHandle

pytestmark = pytest.mark.filterwarnings("ignore:numElems is deprecated")


def test_many_batches_at_once(server: ServerHandle, table: str) -> None:
    async def write(client: Any, number: int) -> None:
        request = BatchWriteRowRequest()
        items = [PutRowItem(Row([("k", f"{number:02}-{i:02}")], [("n", i)]), Condition("IGNORE")) for i in range(50)]
        request.add(TableInBatchWriteRowItem(table, items))
        assert (await client.batch_write_row(request)).is_all_succeed()

    async def run() -> None:
        async with AsyncOTSClient(
            server.endpoint,
            server.access_key_id,
            server.access_key_secret,
            server.instance,
            region="cn-hangzhou",
            retry_policy=NoRetryPolicy(),
        ) as client:
            client.logger.setLevel(logging.CRITICAL)
            await asyncio.gather(*(write(client, number) for number in range(20)))
            found = await client.get_range(table, "FORWARD", [("k", INF_MIN)], [("k", INF_MAX)], max_version=1)
            assert len(found[2]) == 1000
            following: Any = [("k", INF_MAX)]
            pages = []
            while following is not None:
                page = await client.get_range(table, "BACKWARD", following, [("k", INF_MIN)], limit=300, max_version=1)
                following = page[1]
                pages.append(len(page[2]))
            assert pages == [300, 300, 300, 100]
            row = (await client.get_row(table, [("k", "07-03")], max_version=1))[1]
            assert [cell[:2] for cell in row.attribute_columns] == [("n", 3)]
            asked = BatchGetRowRequest()
            keys = [[("k", "19-49")], [("k", "absent")]]
            asked.add(TableInBatchGetRowItem(table, keys, max_version=1))
            there, absent = (await client.batch_get_row(asked)).get_result_by_table(table)
            assert (there.row.primary_key, absent.row) == ([("k", "19-49")], None)

    asyncio.run(run())


def test_rows_and_points_by_the_asynchronous_client(server: ServerHandle) -> None:
    name = f"a_{uuid.uuid4().hex}"
    key, ignore = [("k", "x"), ("i", 1)], Condition("IGNORE")

    async def run() -> None:
        async with AsyncOTSClient(
            server.endpoint, server.access_key_id, server.access_key_secret, server.instance
        ) as client:
            client.logger.setLevel(logging.CRITICAL)
            meta = TableMeta(name, [("k", "STRING"), ("i", "INTEGER")])
            await client.create_table(meta, TableOptions(-1, 3), ReservedThroughput(CapacityUnit(0, 0)))
            assert (await client.describe_table(name)).table_options.max_version == 3
            for number in range(4):
                await client.put_row(name, Row([("k", "x"), ("i", number)], [("c", number), ("s", "")]), ignore)
            changes = {"PUT": [("z", 1.5)], "DELETE_ALL": ["s"], "INCREMENT": [("c", 4)]}
            await client.update_row(name, Row(key, changes), ignore)
            row = (await client.get_row(name, key, max_version=2))[1]
            assert [cell[:2] for cell in row.attribute_columns] == [("c", 5), ("c", 1), ("z", 1.5)]
            with pytest.raises(OTSServiceError, match="OTSConditionCheckFail"):
                await client.delete_row(name, Row(key), Condition("EXPECT_NOT_EXIST"))
            await client.delete_row(name, Row([("k", "x"), ("i", 0)]), ignore)
            above, below = [("k", INF_MAX), ("i", INF_MAX)], [("k", INF_MIN), ("i", INF_MIN)]
            large = SingleColumnCondition("c", 2, ComparatorType.GREATER_THAN)
            found = await client.get_range(name, "BACKWARD", above, below, column_filter=large, max_version=1)
            assert [row.primary_key[1][1] for row in found[2]] == [3, 1]
            counted = CapacityUnit(0, 0)
            pages = client.xget_range(name, "FORWARD", below, above, consumed_counter=counted, max_version=1)
            assert [row.primary_key[1][1] async for row in pages] == [1, 2, 3]
            transaction = await client.start_local_transaction(name, [("k", "x")])
            await client.delete_row(name, Row(key), ignore, None, transaction)
            await client.abort_transaction(transaction)
            assert (await client.get_row(name, key, max_version=1))[1] is not None
            await client.delete_table(name)
            points = metadata.TimeseriesTableMeta(name, metadata.TimeseriesTableOptions(-1))
            await client.create_timeseries_table(metadata.CreateTimeseriesTableRequest(points))
            line = metadata.TimeseriesKey("m", "s", {"t": "v"})
            rows = [metadata.TimeseriesRow(line, {"a": number}, number) for number in range(9)]
            await client.put_timeseries_data(name, rows)
            page = metadata.GetTimeseriesDataRequest(name, line, 2, 8, limit=3, backward=True)
            assert [row.time_in_us for row in (await client.get_timeseries_data(page)).rows] == [7, 6, 5]
            hits = await client.query_timeseries_meta(metadata.QueryTimeseriesMetaRequest(name, getTotalHits=True))
            assert hits.totalHits == 1
            await client.delete_timeseries_table(name)

    asyncio.run(run())
