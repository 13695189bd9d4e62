"""100,000 malformed and oversized records: after a sync each is in its table or kept aside, and none is lost."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from upsert_platform.tablestore.connect.change import row_change
from upsert_platform.tablestore.connect.record import ConnectRecord
from upsert_platform.tablestore.connect.values import DirtyRecordError
from upsert_platform.tablestore.encoder import RowOperation
from upsert_platform_tests.graph.connector_cases import ALL
from upsert_platform_tests.graph.connectors import Connector, Connectors, Sent
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.tablestore.connect.garbage import garbage
from upsert_platform_tests.tablestore.connect.records import table

COUNT = 100_000
PARTITIONS = 4
SENT_AT = 1_700_000_000_000
PLACE = {"primarykey.mode": "kafka"}
KEYED = {"primarykey.mode": "record_key", "delete.mode": "row"}


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("mode", [PLACE, KEYED], ids=["place", "key"])
def test_100_000_records_are_in_the_table_or_kept_aside(
    variables: Mapping[str, str],
    make_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    mode: dict[str, str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stack = Stack(tmp_path, variables, "unused")
    stack.project.mkdir()
    connectors = Connectors(stack, make_topic)
    keys = "pk0:string" if mode is KEYED else ""
    options = {**ALL, **mode, "max.refused.rows": str(COUNT)}
    connector = Connector("garbage", options, keys=keys, partitions=PARTITIONS)
    connectors.declare([connector])
    records = [(zlib.crc32(key or b"") % PARTITIONS, key, value) for key, value in garbage(seed, COUNT)]
    connector.sent += [Sent(key, value, SENT_AT + n, partition=p) for n, (p, key, value) in enumerate(records)]
    connectors.produce()
    result = connectors.sync()
    assert result.success, [event.event_specific_data for event in result.all_events if event.is_failure]

    rules = table(**{name.replace(".", "_"): value for name, value in mode.items()})
    next_offset = [0] * PARTITIONS
    there: dict[tuple[object, ...], bool] = {}
    dirty: set[tuple[int, int]] = set()
    for partition, key, value in records:
        record = ConnectRecord("t", partition, next_offset[partition], key, value, SENT_AT)
        next_offset[partition] += 1
        try:
            change = row_change(record, rules)
        except DirtyRecordError:
            dirty.add((partition, record.offset))
            continue
        place = (f"{connector.topic}_{partition}", record.offset)
        row = place if mode is PLACE else tuple(cell for _, cell in change.key)
        there[row] = change.operation is not RowOperation.DELETE
    assert set(connectors.rows("garbage")) == {row for row, is_there in there.items() if is_there}
    assert connectors.kept_aside("garbage") == sorted(dirty)
    assert COUNT / 5 < len(dirty) < COUNT
