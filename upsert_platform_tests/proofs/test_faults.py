"""A proof finds every row that a foreign or damaged table has wrong, and names it; a row that is right is never named.

What is wrong is known from how the tables are filled, not from any code of the platform.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from upsert_platform.changelog.lake import Lake
from upsert_platform.cli.main import main
from upsert_platform.proofs import proof as proof_module
from upsert_platform.proofs.ends import At
from upsert_platform.proofs.proof import Proof, prove
from upsert_platform.sync.binding import bind, load
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.proofs.typed_rows import FLAT, TYPES, columns, key_of, respelled, row_of, value_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

TOPIC = """
CREATE TABLE {name} ({columns}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}', 'auto.create' = 'true',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json'
);
"""
SERVING = """
CREATE TABLE serving ({columns}) WITH (
  'connector' = 'tablestore', 'table.name' = '{table}', 'auto.create' = 'true',
  'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',
  'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',
  'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',
  'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}'
);
INSERT INTO serving SELECT * FROM source;
"""
WAREHOUSE = """
CREATE TABLE warehouse ({columns}) WITH (
  'connector' = 'maxcompute', 'table.name' = '{table}', 'sink.operation' = 'upsert', 'auto.create' = 'true',
  'upsert.write.bucket.num' = '2', 'commit.min-interval' = '0 s',
  'odps.end.point' = '${{UPSERT_MAXCOMPUTE_ENDPOINT}}', 'odps.project.name' = '${{UPSERT_MAXCOMPUTE_PROJECT}}',
  'odps.access.id' = '${{UPSERT_MAXCOMPUTE_ACCESS_ID}}', 'odps.access.key' = '${{UPSERT_MAXCOMPUTE_ACCESS_KEY}}'
);
INSERT INTO warehouse SELECT * FROM source;
"""
ROWS = 300
EMPTY = range(200, 240)
"""Rows of the source whose columns are all null."""


def proven(stack: Stack, table: str, spark: SparkSession, **more: Any) -> Proof:
    """Proves a table of the project in the stack's folder, with the stack's lake."""
    binding = bind(*load(stack.project, root=str(stack.lake)))
    arguments: dict[str, Any] = {"settle": 0.0, "examples": 1000, **more}
    return prove(spark, binding.targets[table], binding, Lake(str(stack.lake)), **arguments)


def named(proof: Proof) -> dict[tuple[str, str], str]:
    """Status and key of what a proof names, with the first column that differs."""
    return {
        (row["status"], row["key"]): row["difference"].partition(":")[0] if row["status"] == "stale" else ""
        for row in proof.found.sample
    }


def fill_source(stack: Stack) -> dict[int, dict[str, Any] | None]:
    """Sends every row twice, the second time as it counts; returns what counts, None of a deleted key."""
    nothing = dict.fromkeys(TYPES)
    last: dict[int, dict[str, Any] | None] = {}
    for number in range(ROWS):
        last[number] = nothing if number in EMPTY else row_of(number)
    last |= dict.fromkeys(range(ROWS, ROWS + 20))
    # Of two records of a key the second counts: a batch that is sent again must not come behind it.
    brokers = stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})
    for number in last:
        producer.produce(stack.topic, key=key_of(number), value=value_of(number, row_of(number + 1)))
    for number, values in last.items():
        producer.produce(stack.topic, key=key_of(number), value=None if values is None else value_of(number, values))
    assert producer.flush(20) == 0
    return last


def write_project(folder: Path, *texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    (folder / "tables.sql").write_text("".join(texts), "utf-8")


def topic_faults() -> tuple[dict[int, dict[str, Any] | None], dict[tuple[str, str], str]]:
    """Rows of a table that are not as the source has them (None: none), and how a proof has to name them."""
    faults: dict[int, dict[str, Any] | None] = {}
    wanted: dict[tuple[str, str], str] = {}

    def fault(number: int, values: dict[str, Any] | None, status: str, column: str = "") -> None:
        faults[number] = values
        wanted[status, f"id={number}"] = column

    for place, name in enumerate(TYPES):
        wrong, null, value = place, 20 + place, 200 + place
        fault(wrong, {**row_of(wrong), name: row_of(wrong + 1)[name]}, "stale", name)
        fault(null, {**row_of(null), name: None}, "stale", name)
        fault(value, {**dict.fromkeys(TYPES), name: row_of(value)[name]}, "stale", name)
    first = next(iter(TYPES))
    for number in range(40, 60):
        fault(number, None, "missing")
    for number in range(ROWS + 5, ROWS + 15):  # keys that the source deleted
        fault(number, row_of(number), "extra")
    for number in range(1000, 1010):
        fault(number, row_of(number), "extra")
    for number in range(60, 70):  # an earlier record of the key
        fault(number, row_of(number + 1), "stale", first)
    for number in range(70, 90):  # two rows under each other's keys
        fault(number, row_of(number ^ 1), "stale", first)
    return faults, wanted


def test_a_topic_that_another_program_filled(stack: Stack, spark: SparkSession, make_topic: Callable[..., str]) -> None:
    copy = make_topic(name=f"{stack.topic}-copy", partitions=3, config={"cleanup.policy": "compact"})
    write_project(
        stack.project,
        TOPIC.format(name="source", topic=stack.topic, columns=columns()),
        TOPIC.format(name="copied", topic=copy, columns=columns()),
        "INSERT INTO copied SELECT * FROM source;",
    )
    rows = fill_source(stack)
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for number, values in rows.items():
        if values is not None:
            producer.produce(copy, key=key_of(number), value=respelled(number, values), partition=number % 3)
    assert producer.flush(20) == 0

    proof = proven(stack, "copied", spark)
    assert (proof.equal, proof.at, proof.found.compared) == (True, "latest", ROWS + 20)
    assert sum(read.end[lane] for read in proof.through.values() for lane in read.end) == 2 * (ROWS + 20)
    assert not (stack.lake / "changelogs").exists(), "a proof leaves a changelog"
    assert not list((stack.lake / "proofs").glob("*/*")), "a proof leaves its files"

    faults, wanted = topic_faults()
    for number, values in faults.items():
        value = None if values is None else respelled(number, values)
        producer.produce(copy, key=key_of(number), value=value, partition=number % 3)
    twice = range(100, 110)
    for number in twice:  # the same row once more, where a reader of that partition alone meets it
        producer.produce(copy, key=key_of(number), value=respelled(number, row_of(number)), partition=(number + 1) % 3)
    assert producer.flush(20) == 0
    proof = proven(stack, "copied", spark)
    assert named(proof) == wanted
    assert (proof.found.missing, proof.found.extra, proof.found.stale) == (20, 20, 90)
    assert set(proof.duplicate_keys) == {f"id={number}" for number in twice}
    assert (proof.duplicates, proof.moving, proof.unknown, proof.equal) == (10, 0, 0, False)


def stored(stack: Stack, name: str) -> str:
    return f"{stack.table}_{name}"


def test_a_tablestore_table_that_was_changed_by_hand(stack: Stack, spark: SparkSession) -> None:
    from tablestore import Condition, OTSClient, Row, RowExistenceExpectation

    kinds = columns(FLAT)
    write_project(
        stack.project,
        TOPIC.format(name="source", topic=stack.topic, columns=kinds),
        SERVING.format(columns=kinds, table=stored(stack, "serving")),
    )
    fill_source(stack)
    assert stack.run().success
    assert proven(stack, "serving", spark).equal
    client = OTSClient(
        stack.variables["UPSERT_TABLESTORE_ENDPOINT"],
        stack.variables["UPSERT_TABLESTORE_ACCESS_KEY_ID"],
        stack.variables["UPSERT_TABLESTORE_ACCESS_KEY_SECRET"],
        stack.variables["UPSERT_TABLESTORE_INSTANCE"],
        logger_name=None,
    )
    table, ignored = stored(stack, "serving"), Condition(RowExistenceExpectation.IGNORE)

    def cells(number: int) -> dict[str, Any]:
        _, row, _ = client.get_row(table, [("id", number)], max_version=1)
        return {name: value for name, value, _ in row.attribute_columns}

    def put(number: int, values: Mapping[str, Any]) -> None:
        client.put_row(table, Row([("id", number)], list(values.items())), ignored)

    wanted: dict[tuple[str, str], str] = {}
    for place, name in enumerate(FLAT):
        wrong, null, value = place, 20 + place, 200 + place
        put(wrong, {**cells(wrong), name: cells(wrong + 103)[name]})
        put(null, {held: cell for held, cell in cells(null).items() if held != name})
        put(value, {name: cells(value - 101)[name]})
        wanted |= {("stale", f"id={number}"): name for number in (wrong, null, value)}
    for number in range(40, 50):
        client.delete_row(table, Row([("id", number)]), ignored)
        wanted["missing", f"id={number}"] = ""
    for number in range(1000, 1010):
        put(number, cells(150))
        wanted["extra", f"id={number}"] = ""
    first, second = cells(60), cells(61)
    put(60, second)
    put(61, first)
    wanted |= {("stale", f"id={number}"): FLAT[0] for number in (60, 61)}
    assert named(proven(stack, "serving", spark)) == wanted
    assert len(wanted) == 3 * len(FLAT) + 22

    # The same by the job: what the control record says was applied needs no time to settle.
    started = time.monotonic()
    judged = stack.run("prove").get_asset_check_evaluations()
    assert [(item.check_name, item.passed) for item in judged] == [("equals_source", False)]
    told = {name: value.value for name, value in judged[0].metadata.items()}
    counts = {name: told[name] for name in ("at", "missing", "extra", "stale", "moving", "compared")}
    stale = 3 * len(FLAT) + 2
    assert counts == {
        "at": "applied", "missing": 10, "extra": 10, "stale": stale, "moving": 0, "compared": ROWS + 30,
    }  # fmt: skip
    ends = [int(item.rpartition(":")[2]) for item in told["proven_through"].split(",")]
    assert (len(ends), sum(ends)) == (4, 2 * (ROWS + 20))
    assert time.monotonic() - started < 60


@pytest.mark.soak
def test_a_maxcompute_table_that_was_changed_by_hand(stack: Stack, spark: SparkSession) -> None:
    from odps import ODPS

    kinds = columns(FLAT)
    write_project(
        stack.project,
        TOPIC.format(name="source", topic=stack.topic, columns=kinds),
        WAREHOUSE.format(columns=kinds, table=stored(stack, "warehouse")),
    )
    fill_source(stack)
    assert stack.run().success
    assert proven(stack, "warehouse", spark).equal
    access = ("ACCESS_ID", "ACCESS_KEY", "PROJECT", "ENDPOINT")
    client = ODPS(*[stack.variables[f"UPSERT_MAXCOMPUTE_{name}"] for name in access])
    table = stored(stack, "warehouse")
    others = {
        "flag": "NOT flag", "moment": "'01:01:01'", "fixed": "'none'", "bounded": "'none'",
        "text": "'none'", "raw": "X'00'",
        "day": "DATE '1999-01-01'", "at": "TIMESTAMP_NTZ '1999-01-01 00:00:00'",
        "since": "TIMESTAMP '1999-01-01 00:00:00'",
    }  # fmt: skip
    wanted: dict[tuple[str, str], str] = {}
    for place, name in enumerate(FLAT):
        wrong, null = place, 20 + place
        client.execute_sql(f"UPDATE {table} SET `{name}` = {others.get(name, f'`{name}` + 1')} WHERE id = {wrong}")
        client.execute_sql(f"UPDATE {table} SET `{name}` = NULL WHERE id = {null}")
        wanted |= {("stale", f"id={number}"): name for number in (wrong, null)}
    client.execute_sql(f"DELETE FROM {table} WHERE id >= 40 AND id < 50")
    wanted |= {("missing", f"id={number}"): "" for number in range(40, 50)}
    assert named(proven(stack, "warehouse", spark)) == wanted


@pytest.mark.soak
def test_what_moves_is_looked_at_again_and_what_stays_wrong_is_found(
    stack: Stack, spark: SparkSession, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = make_topic(name=f"{stack.topic}-copy", partitions=3, config={"cleanup.policy": "compact"})
    write_project(
        stack.project,
        TOPIC.format(name="source", topic=stack.topic, columns=columns(FLAT)),
        TOPIC.format(name="copied", topic=copy, columns=columns(FLAT)),
        "INSERT INTO copied SELECT * FROM source;",
    )
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})

    def send(topic: str, number: int, version: int) -> None:
        producer.produce(topic, key=key_of(number), value=value_of(number, row_of(version)))
        assert producer.flush(20) == 0

    for number in range(10):
        send(stack.topic, number, number)
        send(copy, number, number)
    send(stack.topic, 3, 100)  # the table is behind with it
    send(copy, 4, 101)  # wrong, and stays so
    looks: list[str] = []

    def writer(line: str) -> None:
        """Writes while the proof looks: the table catches up with one key, another is always ahead of it."""
        if line.startswith("looking again"):
            looks.append(line)
            if len(looks) == 1:
                send(copy, 3, 100)
                send(stack.topic, 5, 200)

    send(stack.topic, 5, 199)
    proof = proven(stack, "copied", spark, settle=8.0, tell=writer)
    assert named(proof) == {("stale", "id=4"): "flag"}
    assert (proof.moving, proof.moving_keys, proof.found.stale) == (1, ("id=5",), 1)
    assert proof.looks > 1

    # At offsets that are stated, what came later is no part of what is expected.
    stated = ",".join(f"{lane}:{end}" for lane, end in next(iter(proof.through.values())).end.items())
    send(copy, 4, 4)
    send(copy, 5, 199)
    send(stack.topic, 6, 300)
    proof = proven(stack, "copied", spark, at=At.parse(stated))
    assert (proof.equal, proof.moving) == (True, 0)

    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    arguments = ["prove", "copied", "--project", str(stack.project), "--settle", "0s"]
    ran = CliRunner().invoke(main, [*arguments, "--json"])
    told = json.loads(ran.stdout)
    assert (ran.exit_code, told["equal"], told["missing"], told["extra"], told["stale"]) == (3, False, 0, 0, 2)
    assert sorted(row["key"] for row in told["examples"]) == ["id=5", "id=6"]
    ran = CliRunner().invoke(main, [*arguments, "--at", stated])
    assert (ran.exit_code, "copied: equal through" in ran.output) == (0, True), ran.output
    ran = CliRunner().invoke(main, [*arguments, "--at", "0:1"])
    assert (ran.exit_code, "no offset is stated for" in ran.output) == (1, True), ran.output


@pytest.mark.soak
def test_what_settles_does_not_move_and_a_partition_that_comes_up_lies_behind_the_end(
    stack: Stack, spark: SparkSession, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    copy = make_topic(name=f"{stack.topic}-copy", partitions=3, config={"cleanup.policy": "compact"})
    write_project(
        stack.project,
        TOPIC.format(name="source", topic=stack.topic, columns=columns(FLAT)),
        TOPIC.format(name="copied", topic=copy, columns=columns(FLAT)),
        "INSERT INTO copied SELECT * FROM source;",
    )
    servers = {"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]}
    producer, admin = Producer(servers), AdminClient(servers)

    def send(topic: str, number: int, version: int, lane: int = -1) -> None:
        producer.produce(topic, key=key_of(number), value=value_of(number, row_of(version)), partition=lane)
        assert producer.flush(20) == 0

    for number in range(10):
        send(stack.topic, number, number)
        send(copy, number, number + (number == 7))
    told: list[str] = []

    def writer(line: str) -> None:
        """Changes a key behind the stated end, and writes its last value between two looks."""
        if not told:
            send(stack.topic, 7, 200)
        if line.startswith("looking again") and not any(item.startswith("looking again") for item in told):
            send(copy, 7, 200)
        told.append(line)

    proof = proven(stack, "copied", spark, at=At.parse("latest"), settle=30.0, tell=writer)
    assert (proof.equal, proof.moving, proof.moving_keys) == (True, 0, ()), proof
    assert proof.looks > 1

    ends_of_sources = proof_module.ends_of_sources

    def widened(*arguments: Any) -> Any:
        """The ends, between which and the reading of the topic a partition comes up."""
        ends = ends_of_sources(*arguments)
        lanes = len(admin.list_topics(stack.topic, timeout=20).topics[stack.topic].partitions)
        admin.create_partitions([NewPartitions(stack.topic, lanes + 1)])[stack.topic].result(20)
        while len(admin.list_topics(stack.topic, timeout=20).topics[stack.topic].partitions) == lanes:
            time.sleep(0.1)
        Producer(servers).list_topics(stack.topic, timeout=20)
        fresh = Producer(servers)
        fresh.produce(stack.topic, key=key_of(50), value=value_of(50, row_of(50)), partition=lanes)
        assert fresh.flush(20) == 0
        return ends

    monkeypatch.setattr(proof_module, "ends_of_sources", widened)
    proof = proven(stack, "copied", spark, at=At.parse("latest"))
    assert (proof.equal, proof.found.compared) == (True, 10), proof
