"""A table that another writer filled is taken over: equal rows stay untouched, and syncs go on from there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from pyspark.sql import SparkSession

from upsert_platform.cli.main import main
from upsert_platform.sync.binding import bind, load
from upsert_platform_tests.campaign import first_of
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.proofs.test_faults import SERVING, TOPIC, stored, write_project
from upsert_platform_tests.proofs.typed_rows import FLAT, columns, key_of, row_of, value_of
from upsert_platform_tests.referee.judging import records_of

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]
QUERY = """
CREATE TABLE summed (flag BOOLEAN, n BIGINT, total BIGINT, PRIMARY KEY (flag) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO summed SELECT flag, COUNT(*), SUM(whole) FROM source GROUP BY flag;
"""


def adopt(stack: Stack, table: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The command's exit code and JSON."""
    ran = CliRunner().invoke(main, ["adopt", table, "--project", str(stack.project), "--json", *arguments])
    assert ran.exit_code in (0, 3), ran.output
    return ran.exit_code, json.loads(ran.stdout)


def vendors_client(stack: Stack) -> Any:
    """The vendor's own client of Tablestore."""
    from tablestore import OTSClient

    names = ("ENDPOINT", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "INSTANCE")
    return OTSClient(*[stack.variables[f"UPSERT_TABLESTORE_{name}"] for name in names], logger_name=None)


def stored_ids(stack: Stack, client: Any) -> set[int]:
    """The keys that the table `serving` holds."""
    _, _, rows, _ = client.get_range(stored(stack, "serving"), "FORWARD", [("id", -1)], [("id", 100)])
    return {row.primary_key[0][1] for row in rows}


def ends_of(stack: Stack, topic: str) -> dict[int, int]:
    """The ends of a topic's partitions."""
    client = Consumer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], "group.id": "looks"})
    try:
        lanes = client.list_topics(topic).topics[topic].partitions
        return {lane: client.get_watermark_offsets(TopicPartition(topic, lane))[1] for lane in lanes}
    finally:
        client.close()


def commit(stack: Stack, topic: str, ends: dict[int, int]) -> str:
    """Commits offsets as a stopped job has left them; returns the group."""
    group = f"job-{topic}"
    client = Consumer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], "group.id": group})
    client.commit(offsets=[TopicPartition(topic, lane, end) for lane, end in ends.items()], asynchronous=False)
    client.close()
    return group


@pytest.mark.soak
def test_topics_that_a_stopped_job_wrote(
    stack: Stack, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    copy = make_topic(name=f"{stack.topic}-copy", partitions=3, config={"cleanup.policy": "compact"})
    sums = make_topic(name=f"{stack.topic}-sums", config={"cleanup.policy": "compact"})
    write_project(
        stack.project,
        TOPIC.format(name="source", topic=stack.topic, columns=columns(FLAT)),
        TOPIC.format(name="copied", topic=copy, columns=columns(FLAT)),
        "INSERT INTO copied SELECT * FROM source;",
        QUERY.format(topic=sums),
    )
    servers = stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})  # that of Kafka's own client
    lanes: dict[bytes, int] = {}

    def send(topic: str, number: int, version: int | None, lane: int = -1) -> None:
        def sent(_: object, record: Message) -> None:
            if record.topic() == copy:
                lanes[record.key() or b""] = record.partition() or 0

        value = None if version is None else value_of(number, row_of(version))
        producer.produce(topic, key=key_of(number), value=value, partition=lane, on_delivery=sent)

    def send_sum(flag: bool, n: int, total: int) -> None:
        key = {"flag": flag}
        row = {**key, "n": n, "total": total}
        producer.produce(sums, key=json.dumps(key, separators=(",", ":")).encode(), value=json.dumps(row).encode())

    for number in range(100):
        send(stack.topic, number, number)
        send(copy, number, number)
    for odd in (0, 1):
        send_sum(odd == 0, 50, sum(range(odd, 100, 2)))
    assert producer.flush(20) == 0
    # One row lies where another partitioner has put it: a later value of its key is written to the key's own partition.
    own = lanes[key_of(2)]
    send(copy, 2, None, own)
    assert producer.flush(20) == 0
    time.sleep(0.01)
    send(copy, 2, 2, (own + 1) % 3)
    assert producer.flush(20) == 0
    ends = ends_of(stack, stack.topic)
    group = commit(stack, stack.topic, ends)
    for number in range(10):  # what the job has not read any more: 5 rows changed, 5 deleted
        send(stack.topic, number, number + 100 if number < 5 else None)
    send(copy, 50, 51)  # what somebody did to the table
    assert producer.flush(20) == 0
    before = ends_of(stack, copy)

    code, told = adopt(stack, "copied", "--from-group", group, "--repair", "--dry-run")
    assert (code, told["adopted"], told["stale"], told["missing"], told["extra"]) == (3, False, 1, 0, 0)
    assert [row["key"] for row in told["examples"]] == ["id=50"]
    assert (ends_of(stack, copy), (stack.lake / "changelogs").exists()) == (before, False)

    code, told = adopt(stack, "copied", "--from-group", group, "--repair")
    assert (code, told["adopted"], told["put"], told["deleted"], told["equal_after"]) == (3, True, 6, 5, True)
    assert told["duplicates_after"] == ["id=2"], "its key has a value in two partitions now"
    written = records_of(servers, copy)
    added = [json.loads(item.key or b"")["id"] for item in written if item.offset >= before[item.partition]]
    assert sorted(added) == [*range(10), 50], "no equal row is written"

    stated = ",".join(f"{lane}:{end}" for lane, end in ends.items())
    code, told = adopt(stack, "summed", "--from-offsets", stated)
    assert (code, told["missing"], told["extra"], told["stale"], told["put"]) == (0, 0, 0, 0, 2)

    send(stack.topic, 7, 500)
    assert producer.flush(20) == 0
    assert stack.run().success
    last: dict[int, Any] = {}
    for item in sorted(records_of(servers, copy), key=lambda record: record.time):
        last[json.loads(item.key or b"")["id"]] = item.value and json.loads(item.value)["whole"]
    expected = {number: number for number in range(100)} | {number: number + 100 for number in range(5)} | {7: 500}
    assert {number: value for number, value in last.items() if value is not None} == {
        number: value for number, value in expected.items() if number not in (5, 6, 8, 9)
    }
    again = CliRunner().invoke(main, ["adopt", "copied", "--project", str(stack.project), "--from-latest"])
    assert (again.exit_code, "it is the platform's already" in again.output) == (1, True), again.output


def test_a_tablestore_table_of_a_lake_that_was_lost(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = columns(FLAT)
    write_project(
        stack.project,
        TOPIC.format(name="source", topic=stack.topic, columns=kinds),
        SERVING.format(columns=kinds, table=stored(stack, "serving")),
    )
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for number in range(50):
        producer.produce(stack.topic, key=key_of(number), value=value_of(number, row_of(number)))
    assert producer.flush(20) == 0
    assert stack.run().success
    client = vendors_client(stack)

    def times(number: int) -> set[int]:
        """When the cells of a row were written, as the server has it."""
        _, row, _ = client.get_row(stored(stack, "serving"), [("id", number)], max_version=1)
        return {time for _, _, time in row.attribute_columns}

    before = {number: times(number) for number in range(50)}
    producer.produce(stack.topic, key=key_of(3), value=value_of(3, row_of(300)))
    assert producer.flush(20) == 0
    (stack.lake).rename(stack.path / "lost")
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    assert not stack.run().success, "a lake that is away is no reason to write on"
    code, told = adopt(stack, "serving", "--from-latest")
    assert (code, told["adopted"], told["stale"]) == (3, False, 1)
    code, told = adopt(stack, "serving", "--from-latest", "--repair")
    assert (code, told["put"], told["deleted"], told["equal_after"]) == (0, 1, 0, True)
    after = {number: times(number) for number in range(50)}
    assert [number for number in range(50) if after[number] != before[number]] == [3]
    assert stack.run().success


@pytest.mark.parametrize("known", first_of([False, True], every=2), ids=["of a new lake", "of a lake that knows them"])
def test_rows_that_no_record_names(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
    from tablestore import Condition, Row, RowExistenceExpectation

    kinds = "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
    source = TOPIC.format(name="source", topic=stack.topic, columns=kinds)
    serving = SERVING.format(columns=kinds, table=stored(stack, "serving"))
    servers = stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    producer = Producer({"bootstrap.servers": servers})
    for number in range(10):
        value = json.dumps({"id": number, "name": f"name {number}"})
        producer.produce(stack.topic, key=key_of(number), value=value, partition=0)
    assert producer.flush(20) == 0
    if known:  # another table follows the same topic
        other = SERVING.format(columns=kinds, table=stored(stack, "other")).replace(" serving ", " other ")
        write_project(stack.project, source, other)
        assert stack.run().success
    # The records of half of the rows are gone, as after a retention; the rows are right.
    admin = AdminClient({"bootstrap.servers": servers})
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, stack.topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    for future in admin.delete_records([TopicPartition(stack.topic, 0, 5)]).values():
        future.result(30)
    client = vendors_client(stack)
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))

    def held() -> set[int]:
        return stored_ids(stack, client)

    write_project(stack.project, source, serving)
    with closing(bind(*load(stack.project, root=str(stack.lake))).targets["serving"].open()) as destination:
        destination.prepare()
    for number in range(10):
        put = Row([("id", number)], [("name", f"name {number}")])
        client.put_row(stored(stack, "serving"), put, Condition(RowExistenceExpectation.IGNORE))

    code, told = adopt(stack, "serving", "--from-latest", "--dry-run")
    assert (code, told["unknown"], told["extra"], told["adopted"]) == (0, 5, 0, False)
    assert sorted(told["unknown_keys"]) == [f"id={number}" for number in range(5)]
    if known:
        code, told = adopt(stack, "serving", "--from-latest")
        assert (code, told["adopted"], told.get("put", 0), held()) == (0, True, 0, set(range(10)))
        return
    command = ["adopt", "serving", "--project", str(stack.project), "--from-latest"]
    for more in ([], ["--repair"]):
        ran = CliRunner().invoke(main, [*command, *more])
        assert (ran.exit_code, "--delete-unknown deletes them" in ran.output) == (1, True), ran.output
        assert "5 rows whose key no record names" in ran.output
        assert (held(), (stack.lake / "changelogs").exists()) == (set(range(10)), False)

    code, told = adopt(stack, "serving", "--from-latest", "--delete-unknown")
    assert (code, told["deleted"], told["deleted_unknown"], told["equal_after"]) == (0, 5, 5, True)
    assert held() == set(range(5, 10))


@pytest.mark.soak
def test_rows_that_records_behind_the_stated_end_name(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compacted topic has let go of their records before it, or an adoption that was killed has written them."""
    from tablestore import Condition, Row, RowExistenceExpectation

    kinds = "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
    write_project(
        stack.project,
        TOPIC.format(name="source", topic=stack.topic, columns=kinds),
        SERVING.format(columns=kinds, table=stored(stack, "serving")),
    )
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    client = vendors_client(stack)
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))

    def send(names: dict[int, str | None]) -> str:
        for number, name in names.items():
            value = None if name is None else json.dumps({"id": number, "name": name})
            producer.produce(stack.topic, key=key_of(number), value=value)
        assert producer.flush(20) == 0
        return ",".join(f"{lane}:{end}" for lane, end in ends_of(stack, stack.topic).items())

    def put(number: int, name: str) -> None:
        row = Row([("id", number)], [("name", name)])
        client.put_row(stored(stack, "serving"), row, Condition(RowExistenceExpectation.IGNORE))

    def held() -> dict[int, str]:
        _, _, rows, _ = client.get_range(stored(stack, "serving"), "FORWARD", [("id", -1)], [("id", 100)])
        return {row.primary_key[0][1]: row.attribute_columns[0][1] for row in rows}

    with closing(bind(*load(stack.project, root=str(stack.lake))).targets["serving"].open()) as destination:
        destination.prepare()
    stated = send({number: f"name {number}" for number in range(6)})
    send({3: "later", 4: None, 10: "later", 11: "new"})
    for number in (0, 2, 5):
        put(number, f"name {number}")
    put(1, "wrong")
    put(3, "later")  # as a run wrote it that was killed, and 4 it has deleted
    put(10, "earlier")  # the record that said so is gone
    code, told = adopt(stack, "serving", "--from-offsets", stated)
    assert (code, told["adopted"], told["missing"], told["extra"], told["stale"]) == (3, False, 0, 0, 1)
    assert [row["key"] for row in told["examples"]] == ["id=1"]
    put(1, "name 1")
    code, told = adopt(stack, "serving", "--from-offsets", stated)
    assert (code, told["adopted"], told["put"], told["deleted"], told["equal_after"]) == (0, True, 2, 0, True)
    assert held() == {**{number: f"name {number}" for number in (0, 1, 2, 5)}, 3: "later", 10: "later", 11: "new"}


@pytest.mark.parametrize("repair", first_of([("--repair",), ()], every=2), ids=["repaired", "proven"])
def test_rows_that_the_topics_name_and_the_lake_does_not(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, repair: tuple[str, ...]
) -> None:
    """The changelog of the topic began late, for another table: the rows before are right, and stay."""
    from tablestore import Condition, Row, RowExistenceExpectation

    kinds = "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
    source = TOPIC.format(name="source", topic=stack.topic, columns=kinds)
    late = source.replace("'key.format'", "'scan.startup.mode' = 'latest-offset', 'key.format'")
    serving = SERVING.format(columns=kinds, table=stored(stack, "serving"))
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})

    def send(*numbers: int) -> None:
        for number in numbers:
            value = json.dumps({"id": number, "name": f"name {number}"})
            producer.produce(stack.topic, key=key_of(number), value=value, partition=0)
        assert producer.flush(20) == 0

    send(*range(10))
    write_project(stack.project, late, serving.replace(" serving ", " other ").replace("_serving", "_other"))
    assert stack.run().success
    send(10)
    assert stack.run().success
    client = vendors_client(stack)
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))

    def held() -> set[int]:
        return stored_ids(stack, client)

    write_project(stack.project, source, serving)
    with closing(bind(*load(stack.project, root=str(stack.lake))).targets["serving"].open()) as destination:
        destination.prepare()
    stray = 77 if repair else 10
    for number in (*range(11), stray):
        put = Row([("id", number)], [("name", f"name {number}")])
        client.put_row(stored(stack, "serving"), put, Condition(RowExistenceExpectation.IGNORE))
    command = ["adopt", "serving", "--project", str(stack.project), "--from-latest", *repair]
    ran = CliRunner().invoke(main, command)
    assert (ran.exit_code, held()) == (1, {*range(11), stray}), ran.output
    assert "10 rows whose key no record names" in ran.output
    assert "begins behind records that the topics have" in ran.output
    assert "upsert-platform reset source" in ran.output
    # Rows that the lake names, and the topic before the stated end does not, are no others.
    send(*range(20, 31))
    for number in range(20, 31):
        put = Row([("id", number)], [("name", f"name {number}")])
        client.put_row(stored(stack, "serving"), put, Condition(RowExistenceExpectation.IGNORE))
    ends = {**ends_of(stack, stack.topic), 0: 10}
    stated = ",".join(f"{lane}:{end}" for lane, end in ends.items())
    ran = CliRunner().invoke(main, [*command[:4], "--from-offsets", stated, *repair])
    assert (ran.exit_code, held()) == (1, {*range(11), stray, *range(20, 31)}), ran.output
    assert "10 rows whose key no record names" in ran.output
    assert CliRunner().invoke(main, ["reset", "source", "--project", str(stack.project)]).exit_code == 0
    code, told = adopt(stack, "serving", "--from-latest", *repair)
    assert (code, told["equal_after"], held()) == (0, True, {*range(11), *range(20, 31)}), told
