"""Section 1.3: tables are created as configured, and existing ones are compared with the configuration."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from upsert_platform.core.errors import DestinationError
from upsert_platform.tablestore.client import Client
from upsert_platform.tablestore.connect.schema import prepare_sink, sink_created_at, unprepared_sink
from upsert_platform.tablestore.connect.table import ConnectSink
from upsert_platform_tests.local.tablestore.server import ServerHandle
from upsert_platform_tests.tablestore.connect.test_compare import SERIES, sink_on

KEYS = {
    "primarykey.mode": "record_key",
    "tablestore.{table}.primarykey.name": "a,b,n",
    "tablestore.{table}.primarykey.type": "string,binary,auto_increment",
    "auto.increment.repeated-rows": "true",
    "tablestore.{table}.columns.whitelist.name": "A",
    "tablestore.{table}.columns.whitelist.type": "string",
}


def _prepare(sink: ConnectSink) -> None:
    client = Client.of(sink.settings)
    try:
        prepare_sink(client, sink)
    finally:
        client.close()


def test_47_a_table_is_created_as_configured(server: ServerHandle, sdk_client: Callable[[ServerHandle], Any]) -> None:
    from tablestore import PK_AUTO_INCR

    sink = sink_on(server, KEYS)
    described = sdk_client(server).describe_table(sink.table_name)
    expected = [("a", "STRING"), ("b", "BINARY"), ("n", "INTEGER", PK_AUTO_INCR)]
    assert described.table_meta.schema_of_primary_key == expected
    assert (described.table_options.time_to_live, described.table_options.max_version) == (-1, 1)


@pytest.mark.parametrize(
    ("keys", "defined", "message"),
    [
        ([("a", "STRING")], [], r"it has 1 primary key columns \(a STRING\), configured are 3 \(a STRING, b BINARY, n"),
        ([("a", "STRING"), ("x", "BINARY"), ("n", "INTEGER")], [], "primary key column 2 is x BINARY, configured is b"),
        ([("a", "INTEGER"), ("b", "BINARY"), ("n", "INTEGER")], [], "column 1 is a INTEGER, configured is a STRING"),
        ([("a", "STRING"), ("b", "BINARY"), ("n", "INTEGER")], [], "configured is n INTEGER auto_increment"),
        ([("a", "STRING")], [("A", "INTEGER")], "predefined column 'A' is integer, configured is string"),
    ],
)
def test_differences_are_named(
    server: ServerHandle,
    sdk_client: Callable[[ServerHandle], Any],
    keys: list[Any],
    defined: list[Any],
    message: str,
) -> None:
    from tablestore import CapacityUnit, ReservedThroughput, TableMeta, TableOptions

    name = f"c_{uuid.uuid4().hex[:12]}"
    meta = TableMeta(name, keys, defined)
    sdk_client(server).create_table(meta, TableOptions(), ReservedThroughput(CapacityUnit(0, 0)))
    sink = sink_on(server, KEYS)
    other = replace(sink, table_name=name)
    with pytest.raises(DestinationError, match=message):
        _prepare(other)
    client = Client.of(sink.settings)
    assert re.search(message, unprepared_sink(client, other))
    client.close()


@pytest.mark.parametrize("options", [KEYS, SERIES])
def test_a_missing_table_is_not_created_unasked(server: ServerHandle, options: dict[str, str]) -> None:
    sink = sink_on(server, options)
    settings = sink.settings.model_copy(update={"auto_create": False})
    missing = f"c_{uuid.uuid4().hex[:12]}"
    points = replace(sink.points, name=missing) if sink.points else None
    other = replace(sink, table_name=missing, settings=settings, points=points)
    with pytest.raises(DestinationError, match=r"does not exist in .*'auto.create' = 'true'"):
        _prepare(other)
    client = Client.of(settings)
    assert sink_created_at(client, sink) is not None
    assert unprepared_sink(client, sink) == ""
    for _ in range(2):  # looking creates none
        assert unprepared_sink(client, other) == f"Tablestore table '{missing}' does not exist"
    assert sink_created_at(client, other) is None
    client.close()


def test_an_error_table_is_created_with_the_table(
    server: ServerHandle, sdk_client: Callable[[ServerHandle], Any]
) -> None:
    sink = sink_on(server, {"runtime.error.mode": "tablestore", "runtime.error.table.name": "{table}_errors"})
    described = sdk_client(server).describe_table(f"{sink.table_name}_errors")
    assert described.table_meta.schema_of_primary_key == [("topic_partition", "STRING"), ("offset", "INTEGER")]
