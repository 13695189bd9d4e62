"""The asynchronous official client, against the same server."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from tablestore import (
    INF_MAX,
    INF_MIN,
    AsyncOTSClient,
    BatchGetRowRequest,
    BatchWriteRowRequest,
    Condition,
    PutRowItem,
    Row,
    TableInBatchGetRowItem,
    TableInBatchWriteRowItem,
)
from tablestore.retry import NoRetryPolicy

from upsert_platform_tests.local.tablestore.server import ServerHandle


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
