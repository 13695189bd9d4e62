"""What Connect configurations do about records that cannot be written, and in which order the others count."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import dagster as dg
import pytest

from upsert_platform_tests.graph.connector_cases import ALL, MIXED, STRING
from upsert_platform_tests.graph.connectors import Connector, Connectors, Sent
from upsert_platform_tests.graph.stack import Stack, metadata_of

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]
KEYED = {"primarykey.mode": "record_key", "key.converter": STRING, "tasks.max": "3"}
SENT_AT = 1_700_000_000_000


@pytest.fixture(scope="module")
def make_connectors(
    variables: Mapping[str, str], make_topic: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Connectors]]:
    """Projects of connectors."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)

        def make() -> Connectors:
            stack = Stack(tmp_path_factory.mktemp("connect"), variables, "unused")
            stack.project.mkdir()
            return Connectors(stack, make_topic)

        yield make


def errors_of(result: dg.ExecuteInProcessResult) -> str:
    return "\n".join(str(event.event_specific_data) for event in result.all_events if event.is_step_failure)


def test_1_4_without_tolerance_the_run_fails_at_the_first_dirty_record_behind_what_was_good(
    make_connectors: Callable[[], Connectors],
) -> None:
    connectors = make_connectors()
    strict = Connector("strict", KEYED, keys="pk0:string", partitions=2)
    connectors.declare([strict])
    strict.sent += [Sent(f"a{n}", {"A": n}, timestamp=SENT_AT + n) for n in range(5)]
    strict.sent += [Sent("bad", [1], timestamp=SENT_AT + 5), Sent("a1", {"A": "late"}), Sent("worse", [2])]
    strict.sent += [Sent("b", {"A": 1}, timestamp=SENT_AT + 9, partition=1)]
    connectors.produce()
    failed = connectors.sync()
    assert not failed.success
    told = errors_of(failed)
    assert f"record {strict.topic}-0@5 with key 'bad' cannot be written" in told
    assert "the value is a JSON array" in told
    assert "set 'runtime.error.tolerance' = 'all'" in told
    good: dict[tuple[Any, ...], dict[str, Any]] = {(f"a{n}",): {"A": str(n)} for n in range(5)} | {("b",): {"A": "1"}}
    assert connectors.rows("strict") == good
    assert connectors.refused("strict") == {}

    # The partition of the record stops, and no other one: also in the runs that follow.
    strict.sent = [Sent("a9", {"A": 9}), Sent("b", {"A": 2}, partition=1), Sent("c", {"A": 3}, partition=1)]
    connectors.produce()
    again = connectors.sync()
    assert not again.success
    assert f"record {strict.topic}-0@5 with key 'bad' cannot be written" in errors_of(again)
    good |= {("b",): {"A": "2"}, ("c",): {"A": "3"}}
    assert connectors.rows("strict") == good

    lenient = Connector("strict", {**KEYED, **ALL}, keys="pk0:string", suffix=strict.suffix)
    (connectors.stack.project / "strict.properties").write_text(lenient.properties(), "utf-8")
    result = connectors.sync()
    assert result.success, errors_of(result)
    assert connectors.rows("strict") == {**good, ("a1",): {"A": "late"}, ("a9",): {"A": "9"}}
    assert sorted(connectors.refused("strict")) == [5, 7]
    done = metadata_of(result, "tables", strict.asset)
    assert (done["upserts"], done["refused"]) == (8, 2)


@pytest.fixture(scope="module")
def reported(make_connectors: Callable[[], Connectors]) -> tuple[Connectors, dg.ExecuteInProcessResult]:
    """Connectors that report what they keep aside, after a sync."""
    connectors = make_connectors()
    servers = connectors.stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    in_table = {"runtime.error.mode": "tablestore", "runtime.error.table.name": "{table}_errors"}
    in_topic = {
        "runtime.error.mode": "kafka",
        "runtime.error.bootstrap.servers": servers,
        "runtime.error.topic.name": "{topic}-errors",
        "errors.deadletterqueue.topic.name": "{topic}-dead",
        "errors.deadletterqueue.context.headers.enable": "true",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    moved = Connector("moved", {**ALL, **KEYED}, keys="pk0:string", partitions=2)
    table, topic = (
        Connector("in_table", {**ALL, **MIXED, **in_table}),
        Connector("in_topic", {**ALL, **MIXED, **in_topic}),
    )
    connectors.declare([moved, table, topic])
    for name in ("errors", "dead"):  # kept, whatever the times of their records are
        connectors.make_topic(name=f"{topic.topic}-{name}")
    for connector in (table, topic):
        bad = Sent("k1", [1], timestamp=SENT_AT, headers=(("trace", b"t"), ("trace", b"u")))
        connector.sent += [Sent("k0", {"A": 1}), bad, Sent(None, None), Sent("k3", '{"A":', headers=(("h", b"x"),))]
    moved.sent += [
        Sent("later time", {"A": "new"}, timestamp=SENT_AT + 5, partition=1),
        Sent("later time", {"A": "old"}, timestamp=SENT_AT, partition=0),
        Sent("clock back", {"A": "first"}, timestamp=SENT_AT + 9, partition=0),
        Sent("clock back", {"A": "second"}, timestamp=SENT_AT + 1, partition=0),
        Sent("clock back", {"A": "between"}, timestamp=SENT_AT + 5, partition=1),
    ]
    connectors.produce()
    return connectors, connectors.sync()


def test_the_others_are_written(reported: tuple[Connectors, dg.ExecuteInProcessResult]) -> None:
    connectors, result = reported
    assert result.success, errors_of(result)
    for name in ("in_table", "in_topic"):
        place = f"{connectors.of[name].topic}_0"
        assert connectors.rows(name) == {(place, 0): {"key": "k0", "A": "1"}}
        assert sorted(connectors.refused(name)) == [1, 2, 3]


def test_order_across_partitions_is_by_record_time_and_within_one_by_offset(
    reported: tuple[Connectors, dg.ExecuteInProcessResult],
) -> None:
    # Partitions are compared by the last record that each has: "second" is older than "between".
    assert reported[0].rows("moved") == {("later time",): {"A": "new"}, ("clock back",): {"A": "between"}}


def test_48_rows_of_the_error_table(reported: tuple[Connectors, dg.ExecuteInProcessResult]) -> None:
    connectors, _ = reported
    connector = connectors.of["in_table"]
    rows = connectors.table(f"{connector.table}_errors", ["topic_partition", "offset"])
    place = f"{connector.topic}_0"
    assert sorted(rows) == [(place, 1), (place, 2)]
    row = rows[place, 1]
    assert row["error_info"].startswith("Error: DirtyRecordError, Message: the value is a JSON array")
    assert json.loads(row["key"]) == {"schema": {"type": "string", "optional": False}, "payload": "k1"}
    assert json.loads(row["value"]) == {"schema": None, "payload": [1]}
    assert set(rows[place, 2]) == {"error_info"}


def test_49_messages_of_the_error_topic(reported: tuple[Connectors, dg.ExecuteInProcessResult]) -> None:
    connectors, _ = reported
    # Six tasks write, so records of different keys are reported in any order.
    found = consumed(connectors, f"{connectors.of['in_topic'].topic}-errors", 2)
    first, second = sorted(found, key=lambda message: message["key"] is None)
    assert json.loads(first["key"]) == {"schema": {"type": "string", "optional": False}, "payload": "k1"}
    assert json.loads(first["value"]) == {"schema": None, "payload": [1]}
    assert first["timestamp"] == SENT_AT
    assert first["headers"][:2] == [("trace", b"t"), ("trace", b"u")]
    name, text = first["headers"][2]
    assert name == "ErrorInfo"
    assert text.startswith(b"Error: DirtyRecordError, Message: the value is a JSON array")
    assert (second["key"], second["value"]) == (None, None)


def test_1_4_dead_letters_are_the_records_that_the_converters_cannot_read(
    reported: tuple[Connectors, dg.ExecuteInProcessResult],
) -> None:
    connectors, _ = reported
    topic = connectors.of["in_topic"].topic
    (message,) = consumed(connectors, f"{topic}-dead", 1)
    assert (message["key"], message["value"]) == (b"k3", b'{"A":')
    headers = dict(message["headers"])
    assert headers["h"] == b"x"
    assert headers["__connect.errors.topic"] == topic.encode()
    assert headers["__connect.errors.offset"] == b"3"
    assert b"not JSON" in headers["__connect.errors.exception.message"]


def test_verify_compares_every_row_and_finds_what_was_changed(
    reported: tuple[Connectors, dg.ExecuteInProcessResult],
) -> None:
    connectors, _ = reported
    connectors.put(connectors.of["moved"], ("later time",), {"A": "spoiled"})
    result = connectors.sync("verify")
    assert not result.success
    found = {item.asset_key.path[-1]: item for item in result.get_asset_check_evaluations()}
    assert {name.partition(".")[0]: (item.passed, item.severity.value) for name, item in found.items()} == {
        "moved": (False, "ERROR"),
        "in_table": (False, "WARN"),
        "in_topic": (False, "WARN"),
    }
    spoiled = found[connectors.of["moved"].asset]
    assert (spoiled.metadata["stale"].value, spoiled.metadata["compared"].value) == (1, 2)


def consumed(connectors: Connectors, topic: str, count: int) -> list[dict[str, Any]]:
    """The messages of a topic, of which there are so many."""
    from confluent_kafka import Consumer, TopicPartition

    servers = connectors.stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"})
    try:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, count)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = [item for item in consumer.consume(count, timeout=10) if item.error() is None]
    finally:
        consumer.close()
    assert len(found) == count
    return [
        {"key": item.key(), "value": item.value(), "timestamp": item.timestamp()[1], "headers": item.headers() or []}
        for item in found
    ]
