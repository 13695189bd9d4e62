"""Time-series points put by the official Java SDK and by the platform; the official Python SDK compares them."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest

from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.connect.timeseries import TimeseriesPoint
from upsert_platform.tablestore.connect.timeseries_writer import TimeseriesWriter, create_timeseries_table
from upsert_platform.tablestore.transport import Endpoint, Transport
from upsert_platform_tests.interop.java import Java, each
from upsert_platform_tests.interop.tablestore_java import cell_value, plain
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.declared import table_on

pytestmark = pytest.mark.filterwarnings("ignore:numElems is deprecated:DeprecationWarning")  # in the SDK's encoder


def test_points_are_those_that_the_java_sdk_puts(
    tablestore_java: Java,
    tablestore: ServerHandle,
) -> None:
    points = [
        TimeseriesPoint(
            "cpu", f"h{n % 3}", {"host": "a", "zone": "中"}, 10**15 + n,
            {"d": n / 7, "i": -(2**63) + n, "b": n % 2 == 0, "s": f"é{n}", "r": bytes([n % 256])},
        )
        for n in range(150)
    ]  # fmt: skip
    ours, theirs = f"ours_{uuid.uuid4().hex[:12]}", f"java_{uuid.uuid4().hex[:12]}"
    settings = table_on(tablestore, {"id": "INT"}, ["id"]).settings
    client, transport = Client.of(settings), Transport(Endpoint.of(settings), connections=1)
    create_timeseries_table(client, ours, auto_create=True)
    wait = timedelta(seconds=20)
    writer = TimeseriesWriter(transport, ours, time_for_request=wait.total_seconds, retry_deadline=wait)
    assert writer.put(points) == {}
    client.close()
    transport.close()

    sdk = tablestore_java.classes.com.alicloud.openservices.tablestore
    java_client = sdk.TimeseriesClient(
        tablestore.endpoint, tablestore.access_key_id, tablestore.access_key_secret, tablestore.instance
    )
    meta = sdk.model.TimeseriesTableMeta(theirs)
    meta.setTimeseriesTableOptions(sdk.model.TimeseriesTableOptions(-1))
    series = sdk.model.timeseries
    java_client.createTimeseriesTable(series.CreateTimeseriesTableRequest(meta))
    request = series.PutTimeseriesDataRequest(theirs)
    for point in points:
        key = series.TimeseriesKey(point.measurement, point.source, tablestore_java.map_of(dict(point.tags)))
        row = series.TimeseriesRow(key, point.time)
        for name, value in point.fields.items():
            row.addField(name, cell_value(tablestore_java, value))
        request.addRow(row)
    assert java_client.putTimeseriesData(request).isAllSuccess()

    expected: dict[str, dict[int, Any]] = {point.source: {} for point in points}
    for point in points:
        expected[point.source][point.time] = dict(point.fields)
    for table in (ours, theirs):
        assert {source: series_of(tablestore, table, source) for source in expected} == expected
    tags = tablestore_java.map_of({"host": "a", "zone": "中"})
    for source in expected:
        printed = []
        for table in (ours, theirs):
            asked = series.GetTimeseriesDataRequest(table)
            asked.setTimeseriesKey(series.TimeseriesKey("cpu", source, tags))
            asked.setTimeRange(0, 2 * 10**15)
            printed.append([row.toString() for row in each(java_client.getTimeseriesData(asked).getRows())])
        assert len(printed[0]) == 50
        assert printed[0] == printed[1]
    java_client.shutdown()


def series_of(server: ServerHandle, table: str, source: str) -> dict[int, dict[str, Any]]:
    """Time to fields, as the official Python SDK reads a timeline."""
    from tablestore import OTSClient
    from tablestore.metadata import GetTimeseriesDataRequest, TimeseriesKey

    client = OTSClient(server.endpoint, server.access_key_id, server.access_key_secret, server.instance)
    key = TimeseriesKey("cpu", source, {"host": "a", "zone": "中"})
    rows = client.get_timeseries_data(GetTimeseriesDataRequest(table, key, 0, 2 * 10**15, 5000)).rows
    return {row.time_in_us: {name: plain(value) for name, value in row.fields.items()} for row in rows}
