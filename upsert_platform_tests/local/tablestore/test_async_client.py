"""The asynchronous official client, against the same server."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from tablestore import (
    INF_MAX,
    INF_MIN,
    AsyncOTSClient,
    BatchWriteRowRequest,
    Condition,
    PutRowItem,
    Row,
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

    async def run() -> int:
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
            return len(found[2])

    assert asyncio.run(run()) == 1000
