"""Records with missing and null fields through the vendors' documents: each is in a table, or is kept aside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from upsert_platform.mysql.connection import Connection, Server
from upsert_platform_tests.graph import vendor_statements as vendor
from upsert_platform_tests.graph.connectors import Connector, Connectors, Sent, message
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.graph.test_faults import failures
from upsert_platform_tests.graph.test_null_keys import checks, numbers
from upsert_platform_tests.referee.judging import maxcompute_table, tablestore_table
from upsert_platform_tests.systems.ingesting import TABLE, declare, held
from upsert_platform_tests.systems.servers import Kind

pytestmark = [pytest.mark.systems, pytest.mark.timeout(600)]

STRING = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
PLAIN = {
    "key.converter": JSON, "value.converter": JSON,
    "key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false",
    "failure.handling.policy": "continue",
}  # fmt: skip
"""What the console sets for messages in JSON, with failed records kept aside."""
SERIES = {
    "tablestore.mode": "timeseries",
    **{
        f"tablestore.timeseries.{{table}}.{name}": value
        for name, value in {
            "measurement": "measurement", "dataSource": "source", "tags": "tag1,tag2", "time": "time",
            "time.unit": "MILLISECONDS",
        }.items()
    },
}  # fmt: skip
"""The example values of the document's table."""
CHOSEN = {
    "tablestore.timeseries.mapAll": "false",
    "tablestore.timeseries.{table}.field.name": "a,b",
    "tablestore.timeseries.{table}.field.type": "double,string",
}
CONNECTORS = (
    Connector(
        "coordinates",
        {"key.converter": STRING, "value.converter": STRING, "failure.handling.policy": "continue"},
    ),
    Connector(
        "keyed", {**PLAIN, "primarykey.mode": "record_key", "insert.mode": "update", "delete.mode": "row_and_column"},
        "id:integer,region:string",
    ),
    Connector("valued", {**PLAIN, "primarykey.mode": "record_value"}, "id:integer"),
    Connector("series", {**PLAIN, **SERIES}),
    Connector("chosen", {**PLAIN, **SERIES, **CHOSEN}),
)  # fmt: skip


def sent(name: str, at: int) -> list[tuple[Sent, Any]]:
    """Records, each with what becomes of it: the row that it leaves (key and cells), or "aside", or "gone"."""
    if name == "coordinates":
        contents = [("demo", '{"key": "test"}'), (None, "v"), ("k", None), (None, None), ("", "")]
        cells = [
            {"key": "demo", "value": '{"key": "test"}'},
            {"value": "v"},
            {"key": "k"},
            "aside",
            {"key": "", "value": ""},
        ]
        return [(Sent(*content), result) for content, result in zip(contents, cells, strict=True)]
    if name == "keyed":
        key = {"id": at, "region": "eu"}
        return [
            (Sent(key, {"a": None, "b": "x"}), ((at, "eu"), {"b": "x"})),
            (Sent(key | {"region": "us"}, {}), "aside"),
            (Sent(key | {"region": "de"}, None), "gone"),
            (Sent(key | {"region": None}, {"b": "x"}), "aside"),
            (Sent({"id": at}, {"b": "x"}), "aside"),
            (Sent({}, {"b": "x"}), "aside"),
            (Sent(None, {"b": "x"}), "aside"),
        ]
    if name == "valued":
        return [
            (Sent(None, {"id": at, "a": None}), ((at,), {})),
            (Sent(None, {"id": at + 1}), "aside"),
            (Sent(None, {"id": None, "a": "x"}), "aside"),
            (Sent(None, {"a": "x"}), "aside"),
            (Sent(None, {}), "aside"),
            (Sent("k", None), "aside"),
        ]
    point = {
        "measurement": "cpu",
        "source": f"h{at}",
        "tag1": "t",
        "tag2": "u",
        "time": 1_700_000_000_000,
        "a": 1,
        "b": "x",
    }
    tags = (("tag1", "t"), ("tag2", "u"))
    time = 1_700_000_000_000_000
    return [
        (Sent(None, point), (("cpu", f"h{at}", tags, time), {"a": 1.0, "b": "x"})),
        (Sent(None, point | {"source": f"n{at}", "a": None}), (("cpu", f"n{at}", tags, time), {"b": "x"})),
        (Sent(None, point | {"source": f"o{at}", "tag1": None}),
         (("cpu", f"o{at}", tags[1:], time), {"a": 1.0, "b": "x"})),
        (Sent(None, point | {"source": None, "time": time // 1000 + at}),
         (("cpu", "", tags, time + at * 1000), {"a": 1.0, "b": "x"})),
        (Sent(None, point | {"measurement": None}), "aside"),
        (Sent(None, point | {"time": None}), "aside"),
        (Sent(None, point | {"a": None, "b": None}), "aside"),
        (Sent(None, {}), "aside"),
        (Sent(None, None), "aside"),
    ]  # fmt: skip


def run(stack: Stack, *jobs: str) -> dict[str, int]:
    """Runs jobs, which succeed and whose checks find no difference; the rows kept aside of each table afterwards."""
    aside: dict[str, int] = {}
    for job in jobs:
        result = stack.run(job)
        assert result.success, (job, failures(result))
        for table, check in checks(result).items():
            found = numbers(check)
            assert check.metadata["new"].value, (job, table)
            assert (found["missing"], found["extra"], found["stale"]) == (0, 0, 0), (job, table, found)
            aside[table] = found["refused_rows"]
    return aside


def test_connectors_of_tablestore(stack: Stack, make_topic: Callable[..., str]) -> None:
    connectors = Connectors(stack, make_topic)
    connectors.declare(CONNECTORS)
    wanted: dict[str, dict[Any, Any]] = {connector.name: {} for connector in CONNECTORS}
    refused: dict[str, list[int]] = {connector.name: [] for connector in CONNECTORS}
    ends = dict.fromkeys(wanted, 0)
    for turn, jobs in enumerate((["sync"], ["sync", "verify"])):
        for connector in CONNECTORS:
            made = sent(connector.name, 10 * turn)
            connector.sent[:] = [record for record, _ in made]
            for offset, (_, result) in enumerate(made, ends[connector.name]):
                if result == "aside":
                    refused[connector.name].append(offset)
                elif result != "gone":
                    place = (f"{connector.topic}_0", offset)
                    key, cells = result if isinstance(result, tuple) else (place, result)
                    wanted[connector.name][key] = cells
            ends[connector.name] += len(made)
        connectors.produce()
        assert run(stack, *jobs) == {connectors.of[name].asset: len(found) for name, found in refused.items()}
    for connector in CONNECTORS:
        found = connectors.points if "tablestore.mode" in connector.options else connectors.rows
        assert found(connector.name) == wanted[connector.name], connector.name
        assert [offset for _, offset in connectors.kept_aside(connector.name)] == refused[connector.name], (
            connector.name
        )


_MADE = vendor.VALUES.partition("Insert into")[0]
_COUNTED = vendor.GENERATED[vendor.GENERATED.index("CREATE TEMPORARY TABLE test_c_d_g") :]
MAXCOMPUTE = (
    _MADE
    + _COUNTED
    + """
CREATE TABLE people (id BIGINT, name STRING, age INT, status BOOLEAN, dd STRING, hh STRING) WITH (
  'connector' = 'kafka', 'topic' = '{topic}-people', 'properties.bootstrap.servers' = '{brokers}',
  'format' = 'json');
CREATE TABLE fake_src_table (c1 INT, c2 VARCHAR, gt TIMESTAMP) WITH (
  'connector' = 'kafka', 'topic' = '{topic}-fake', 'properties.bootstrap.servers' = '{brokers}',
  'format' = 'json');
INSERT INTO mf_flink SELECT id, name, age, status FROM people;
INSERT INTO mf_flink_part SELECT id, name, age, status, dd, hh FROM people;
"""
)
BEHAVIOR = (
    vendor.METADATA
    + """;
CREATE TABLE behaviors (
  user_id BIGINT, item_id BIGINT, behavior STRING, ts TIMESTAMP(3), PRIMARY KEY (user_id) NOT ENFORCED
) WITH (
  'connector' = 'tablestore', 'table.name' = '{table}_b', 'auto.create' = 'true',
  'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',
  'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',
  'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',
  'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}');
INSERT INTO behaviors SELECT user_id, item_id, behavior, ts FROM KafkaTable;
"""
)


def test_statements_of_maxcompute_and_of_the_metadata_columns(stack: Stack, make_topic: Callable[..., str]) -> None:
    from odps import ODPS

    named = stack.variables
    client = ODPS(
        named["UPSERT_MAXCOMPUTE_ACCESS_ID"], named["UPSERT_MAXCOMPUTE_ACCESS_KEY"], named["UPSERT_MAXCOMPUTE_PROJECT"],
        endpoint=named["UPSERT_MAXCOMPUTE_ENDPOINT"],
    )  # fmt: skip
    values = {
        "topic": stack.topic, "table": stack.table, "brokers": named["UPSERT_KAFKA_BOOTSTRAP_SERVERS"],
        "odps": named["UPSERT_MAXCOMPUTE_ENDPOINT"], "project": named["UPSERT_MAXCOMPUTE_PROJECT"],
        "odps_id": named["UPSERT_MAXCOMPUTE_ACCESS_ID"], "odps_key": named["UPSERT_MAXCOMPUTE_ACCESS_KEY"],
    }  # fmt: skip
    for statement in vendor.ON_MAXCOMPUTE:
        client.execute_sql(statement.format(**values))
    for name in ("people", "fake", "behavior"):
        make_topic(name=f"{stack.topic}-{name}", partitions=1)
    (stack.project / "users.sql").unlink()
    (stack.project / "maxcompute.sql").write_text(MAXCOMPUTE.format(**values))
    (stack.project / "behavior.sql").write_text(BEHAVIOR.format(**values))
    producer = Producer({"bootstrap.servers": values["brokers"]})
    aside = {"mf_flink": 0, "mf_flink_part": 0, "test_c_d_g": 0, "behaviors": 0}
    for turn, jobs in enumerate((["sync"], ["sync", "verify"])):
        produce(producer, stack.topic, 10 * turn)
        # Rows of one key, null, are one row at last, in each partition of a table.
        for name, count in (("mf_flink", 1), ("mf_flink_part", 2), ("test_c_d_g", 2)):
            aside[name] += count
        assert run(stack, *jobs) == aside
    columns = {"id": "BIGINT", "name": "STRING", "age": "INT", "status": "BOOLEAN"}
    whole, no_name = ("a", 1, True), (None, None, None)
    people = [
        [at + n, *rest] for at in (0, 10) for n, rest in enumerate((whole, no_name, no_name, whole, ("b", None, None)))
    ]
    assert sorted(maxcompute_table(named, f"{stack.table}_tt", columns)) == people
    default = "__DEFAULT_PARTITION__"
    places = [("01", "02")] * 3 + [(default, "02"), (default, default)]
    placed = [[*row, *place] for row, place in zip(people, places * 2, strict=True)]
    assert (
        sorted(maxcompute_table(named, f"{stack.table}_tt_part", columns | {"dd": "STRING", "hh": "STRING"})) == placed
    )
    columns = {"c1": "INT", "c2": "STRING", "ds": "STRING"}
    hour = "2024050110"
    made = [[at + n, *rest] for at in (0, 10) for n, rest in enumerate((("a", hour), (None, hour), ("a", default)))]
    assert sorted(maxcompute_table(named, f"{stack.table}_upsert", columns)) == made
    columns = {"user_id": "BIGINT", "item_id": "BIGINT", "behavior": "STRING"}
    seen = [[at + n, *rest] for at in (0, 10) for n, rest in enumerate(((1, "buy"), (None, None), (None, None)))]
    assert sorted(tablestore_table(named, f"{stack.table}_b", columns, ["user_id"])) == seen
    assert quarantined(stack, "KafkaTable") == [3, 4, 5, 6, 8, 12, 13, 14, 15, 17]
    assert quarantined(stack, "people") == quarantined(stack, "fake_src_table") == []


def produce(producer: Producer, topic: str, at: int) -> None:
    """Sends records to the three topics."""
    whole = {"id": at, "name": "a", "age": 1, "status": True, "dd": "01", "hh": "02"}
    people: list[dict[str, Any]] = [
        whole, {**whole, "id": at + 1, "name": None, "age": None, "status": None}, {**whole, "id": None},
        {"id": at + 2, "dd": "01", "hh": "02"}, {"name": "x"}, {}, {**whole, "id": at + 3, "dd": None},
        {"id": at + 4, "name": "b"},
    ]  # fmt: skip
    time = "2024-05-01 10:00:00"
    drawn: list[dict[str, Any]] = [
        {"c1": at, "c2": "a", "gt": time}, {"c1": at + 1, "gt": time}, {"c1": at + 2, "c2": "a"},
        {"c1": None, "c2": "a", "gt": time}, {},
    ]  # fmt: skip
    behaviors: list[tuple[Any, Any]] = [
        ({"user_id": at}, {"item_id": 1, "behavior": "buy"}), ({"user_id": at + 1}, {}),
        ({"user_id": at + 2}, {"behavior": None}), ({"user_id": None}, {"item_id": 2}), ({}, {"item_id": 3}),
        (None, {"item_id": 4}), (b"{broken", {"item_id": 5}), ({"user_id": at + 3}, None), (None, None),
    ]  # fmt: skip
    for name, rows in (("people", people), ("fake", drawn)):
        for row in rows:
            producer.produce(f"{topic}-{name}", value=message(row))
    for key, value in behaviors:
        producer.produce(f"{topic}-behavior", key=message(key), value=message(value))
    assert producer.flush(30) == 0


def quarantined(stack: Stack, table: str) -> list[int]:
    """Offsets of the records of a topic that are kept aside in its changelog."""
    from deltalake import DeltaTable

    uri = stack.platform().changelog_hop(table, run="test").store.uri
    rows = DeltaTable(uri).to_pyarrow_table().to_pylist()
    return sorted(row["_offset"] for row in rows if row["_kind"] == "?")


def test_ingestion_from_a_database(
    stack: Stack, kind: Kind, server: Server, connection: Connection, schema: str
) -> None:
    """Every column but the key is null, from the beginning, by an update, or in a row that comes later."""
    table = f"{schema}.users"
    connection.query(f"CREATE TABLE {table} ({TABLE})")
    connection.query(f"INSERT INTO {table} (user_id) VALUES (1), (2)")
    connection.query(f"INSERT INTO {table} VALUES (3, 'a', 'eu', 1, '2024-01-01'), (4, 'b', NULL, 2, NULL)")
    declare(stack, connection, table)
    run(stack, "sync")
    connection.query(
        f"UPDATE {table} SET name = NULL, region = NULL, balance = NULL, updated_at = NULL WHERE user_id = 3"
    )
    connection.query(f"UPDATE {table} SET name = 'c' WHERE user_id = 1")
    connection.query(f"DELETE FROM {table} WHERE user_id = 2")
    connection.query(f"INSERT INTO {table} (user_id, balance) VALUES (5, 3)")
    run(stack, "sync", "verify")
    rows: list[list[Any]] = [[1, "c", None], [3, None, None], [4, "b", None], [5, None, None]]
    assert [row[:3] for row in sorted(stack.serving_rows())] == rows
    assert {number: (row["name"], row["region"]) for number, row in held(stack).items()} == {
        number: (name, region) for number, name, region in rows
    }
    assert list(maxcompute_table(stack.variables, stack.table, {"user_id": "BIGINT"})) == []  # region <> 'test' of null
