"""The check of a large batch reads a table that has few other rows by ranges, and finds what was changed in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from upsert_platform.core.capabilities import RowsByKey, RowsByShare
from upsert_platform.sync import verify
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.verify import check_batch
from upsert_platform.tablestore import destination as destinations
from upsert_platform.tablestore.destination import TablestoreDestination
from upsert_platform.tablestore.writer import writing_task
from upsert_platform_tests.changelog.places import Placed
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.sync.test_one_task import append, hop_to, never
from upsert_platform_tests.tablestore.declared import change_batch, table_on
from upsert_platform_tests.writing.in_memory import Place
from upsert_platform_tests.writing.leases import terms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE = 8 << 20
"""Bytes of the smallest table, as far as the service tells."""


def test_a_large_batch_is_compared_by_the_tasks_that_read_the_table(
    spark: SparkSession, server: ServerHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destinations, "_MANY_KEYS", 0)  # so that thirty rows are many
    monkeypatch.setattr(destinations, "_SCANNED_BYTES", LARGE)
    destination = TablestoreDestination(table_on(server, {"id": "INT", "name": "STRING"}, ["id"]))
    in_memory = hop_to(Place(), tmp_path)
    hop = DestinationHop(in_memory.target, in_memory.store, destination, refused=in_memory.refused, run="run")
    append(hop.store, 1, [Placed(1, 0, key, None, key, f"old {key}") for key in range(50)])
    hop.execute(OnDemand(never), hop.plan())
    records = [Placed(2, 0, 100 + key, None, key, None if key < 5 else f"name {key}") for key in range(30)]
    append(hop.store, 2, records)
    hop.execute(OnDemand(never), hop.plan())
    monkeypatch.setattr("upsert_platform.tablestore.reader.PAGE_ROWS", 7)
    assert isinstance(destination.reads_in_tasks(since=1, rows=30), RowsByShare)
    look = Mock(wraps=verify._compare)
    monkeypatch.setattr(verify, "_compare", look)
    found = check_batch(OnDemand.dividing(spark), hop, after=1, upto=2)
    assert (found.passed, found.compared, look.call_count) == (True, 50, 0)  # with all of the first batch as its sample
    spoilt = [
        {"id": 7, "_op": "D"}, {"id": 8, "_op": "D"}, {"id": 9, "name": "x"}, {"id": 40}, {"id": 3, "name": "back"},
        {"id": 1000, "name": "of nobody"},
    ]  # fmt: skip
    list(writing_task(destination.table, terms=terms())(iter([change_batch(destination.table, spoilt)])))
    found = check_batch(OnDemand.dividing(spark), hop, after=1, upto=2)
    assert (found.missing, found.stale, found.extra, look.call_count) == (2, 2, 1, 1)


def test_what_another_program_wrote_of_another_type_stops_no_check_of_other_rows(
    spark: SparkSession,
    server: ServerHandle,
    sdk_client: Callable[[ServerHandle], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tablestore.metadata import Row

    client = sdk_client(server)
    monkeypatch.setattr(destinations, "_MANY_KEYS", 0)
    monkeypatch.setattr(destinations, "_SCANNED_BYTES", LARGE)
    destination = TablestoreDestination(table_on(server, {"id": "INT", "name": "STRING"}, ["id"]))
    in_memory = hop_to(Place(), tmp_path)
    hop = DestinationHop(in_memory.target, in_memory.store, destination, refused=in_memory.refused, run="run")
    append(hop.store, 1, [Placed(1, 0, key, None, key, f"name {key}") for key in range(30)])
    hop.execute(OnDemand(never), hop.plan())
    client.put_row(destination.table.table_name, Row([("id", 1000)], [("name", 5)]))
    assert isinstance(destination.reads_in_tasks(since=0, rows=30), RowsByShare)
    found = check_batch(OnDemand.dividing(spark), hop, after=0, upto=1)
    assert (found.passed, found.compared) == (True, 30)
    client.put_row(destination.table.table_name, Row([("id", 7)], [("name", 5)]))
    with pytest.raises(Exception, match="name"):
        check_batch(OnDemand.dividing(spark), hop, after=0, upto=1)


def test_a_table_that_is_large_beside_the_batch_is_asked_for_its_keys(
    server: ServerHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = TablestoreDestination(table_on(server, {"id": "INT", "name": "STRING"}, ["id"]))
    destination.prepare()
    enough = LARGE // destinations._SCANNED_BYTES
    assert isinstance(destination.reads_in_tasks(since=0, rows=enough), RowsByShare)
    assert isinstance(destination.reads_in_tasks(since=0, rows=enough - 1), RowsByKey)
    monkeypatch.setattr(destinations, "_SCANNED_BYTES", LARGE)
    assert isinstance(destination.reads_in_tasks(since=0, rows=destinations._MANY_KEYS - 1), RowsByKey)
