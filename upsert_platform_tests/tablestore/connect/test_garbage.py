"""Malformed and oversized records: each is in the table or kept aside whole, and none is lost (100,000: soak tests)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from upsert_platform.tablestore.connect.change import row_change
from upsert_platform.tablestore.connect.record import ConnectRecord
from upsert_platform.tablestore.connect.values import DirtyRecordError
from upsert_platform.tablestore.connect.writer import records_task
from upsert_platform.tablestore.encoder import RowOperation
from upsert_platform.tablestore.task import TaskStats
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.connect.garbage import garbage
from upsert_platform_tests.tablestore.connect.test_compare import KEYED, sink_on
from upsert_platform_tests.tablestore.connect.test_writer import frame
from upsert_platform_tests.writing.leases import terms

COUNT = 2_000
MODES = {
    "place": {"primarykey.mode": "kafka"},
    "key": {**KEYED, "delete.mode": "row"},
    "types": {**KEYED, "json.field.conversion": "auto", "insert.mode": "update"},
}


@pytest.mark.parametrize("mode", MODES)
def test_every_record_is_in_the_table_or_kept_aside(
    server: ServerHandle, sdk_client: Callable[[ServerHandle], Any], mode: str
) -> None:
    sink = sink_on(server, {**MODES[mode], "max.refused.rows": "10000"})
    # The task takes records of one row next to each other: here in the order of their keys.
    records = sorted(garbage(11, COUNT), key=lambda found: found[0] or b"")
    expected: dict[Any, bool] = {}
    dirty: set[int] = set()
    for offset, (key, value) in enumerate(records):
        try:
            change = row_change(ConnectRecord("t", 3, offset, key, value, 1_000), sink.wide)
        except DirtyRecordError:
            dirty.add(offset)
        else:
            expected[tuple(cell for _, cell in change.key)] = change.operation is not RowOperation.DELETE
    task = records_task(sink.tables, sink.settings, name="c", table_name=sink.table_name, terms=terms())
    outcomes = [row for batch in task(iter([frame(records)])) for row in batch.to_pylist()]
    stats = TaskStats.from_json(outcomes[-1]["stats"])
    refused = [json.loads(row["row"]) for row in outcomes if row["stats"] is None]
    assert stats.puts + stats.updates + stats.deletes + stats.merged + stats.refused == COUNT
    assert {row["offset"] for row in refused} == dirty
    assert len(refused) == len(dirty) < COUNT
    for row in refused:
        for side, sent in zip(("key", "value"), records[row["offset"]], strict=True):
            assert (row[side] is None) == (sent is None)
            assert sent is None or base64.b64decode(row[side]) == sent
    assert _keys(sdk_client(server), sink.table_name, sink.wide.key_names) == {
        key for key, there in expected.items() if there
    }


def _keys(client: Any, table: str, names: tuple[str, ...]) -> set[tuple[Any, ...]]:
    from tablestore.metadata import INF_MAX, INF_MIN

    position: Any = [(name, INF_MIN) for name in names]
    end = [(name, INF_MAX) for name in names]
    found = set()
    while position is not None:
        _, position, rows, _ = client.get_range(table, "FORWARD", position, end, [names[0]], max_version=1)
        found |= {tuple(value for _, value in row.primary_key) for row in rows}
    return found
