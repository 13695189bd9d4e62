"""A second table beside another writer's: filled, compared with the first in rounds, and switched to without a rewrite.

What the other writer does is played by this test, with plain clients.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from upsert_platform.cli.main import main
from upsert_platform.sync.binding import bind, load
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.proofs.test_faults import TOPIC, write_project
from upsert_platform_tests.proofs.test_lake_proof import KINDS, STORED
from upsert_platform_tests.referee.judging import records_of, tablestore_table

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.whole_runs]


def shadow(stack: Stack, table: str, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """The command's exit code, and an object per round."""
    arguments = ["adopt", table, "--project", str(stack.project), "--shadow-suffix", "_new", "--json", *words]
    ran = CliRunner().invoke(main, arguments)
    assert ran.exit_code in (0, 3), ran.output
    return ran.exit_code, [json.loads(line) for line in ran.stdout.splitlines()]


def counts(told: dict[str, Any]) -> tuple[int, int, int]:
    return told["missing"], told["extra"], told["stale"]


@pytest.mark.systems
def test_a_second_table_and_a_second_topic(
    stack: Stack, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tablestore import Condition, OTSClient, Row, RowExistenceExpectation

    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    copy = make_topic(name=f"{stack.topic}-copy", config={"cleanup.policy": "compact"})
    serving = f"{stack.table}_serving"
    statements = [
        TOPIC.format(name="source", topic=stack.topic, columns=KINDS),
        STORED.format(name="serving", columns=KINDS, table=serving, select="SELECT * FROM source"),
        TOPIC.format(name="copied", topic=copy, columns=KINDS),
        "INSERT INTO copied SELECT * FROM source;",
    ]
    write_project(stack.project, *statements)
    servers = stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    access = ("ENDPOINT", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "INSTANCE")
    client = OTSClient(*[stack.variables[f"UPSERT_TABLESTORE_{name}"] for name in access], logger_name=None)

    def send(topic: str, number: int, amount: int | None) -> None:
        row = {"id": number, "grp": f"g{number % 3}", "amount": amount}
        key = json.dumps({"id": number}, separators=(",", ":"))
        producer.produce(topic, key=key, value=None if amount is None else json.dumps(row))
        assert producer.flush(20) == 0

    def put(number: int, amount: int) -> None:
        row = Row([("id", number)], [("grp", f"g{number % 3}"), ("amount", amount)])
        client.put_row(serving, row, Condition(RowExistenceExpectation.IGNORE))

    def stored(table: str) -> dict[int, int]:
        kinds = {"id": "BIGINT", "grp": "STRING", "amount": "INT"}
        return {row[0]: row[2] for row in tablestore_table(stack.variables, table, kinds, ("id",))}

    bound = bind(*load(stack.project, root=str(stack.lake)))
    destination = bound.targets["serving"].open()
    destination.prepare()  # the other writer's table
    destination.close()
    amounts = {number: number for number in range(20)}
    for number, amount in amounts.items():
        send(stack.topic, number, amount)
        send(copy, number, amount)
        put(number, amount)
    put(7, 70)  # wrong, and stays so
    code, rounds = shadow(stack, "serving", "--for", "1s", "--settle", "0s")
    assert (code, len(rounds)) == (3, 1)
    first, second = rounds[0]["first"], rounds[0]["second"]
    assert (first["equal"], counts(first), first["batch"]) == (False, (0, 0, 1), 1)
    assert [row["key"] for row in first["examples"]] == ["id=7"]
    assert (second["table"], second["equal"], second["compared"]) == ("serving_new", True, 20)
    assert (stored(f"{serving}_new"), stored(serving)[7]) == (amounts, 70), "the first table is never written"

    # The other writer mends its row and goes on meanwhile: rounds wait for it.
    put(7, 7)
    send(stack.topic, 3, 300)
    send(stack.topic, 4, None)

    def write_late() -> None:
        put(3, 300)
        client.delete_row(serving, Row([("id", 4)]), Condition(RowExistenceExpectation.IGNORE))

    late = threading.Timer(6.0, write_late)
    late.start()
    code, rounds = shadow(stack, "serving", "--for", "2s", "--every", "1s", "--settle", "30s")
    late.join()
    assert (code, rounds[-1]["equal"], rounds[-1]["first"]["batch"]) == (0, True, 2)
    amounts = {**{number: amount for number, amount in amounts.items() if number != 4}, 3: 300}
    assert stored(serving) == stored(f"{serving}_new") == amounts

    code, rounds = shadow(stack, "copied", "--for", "1s", "--settle", "0s")
    assert (code, counts(rounds[0]["first"]), rounds[0]["second"]["equal"]) == (3, (0, 1, 1), True)
    live = {json.loads(item.key or b"")["id"]: item.value for item in records_of(servers, f"{copy}_new")}
    assert {number for number, value in live.items() if value is not None} == set(amounts)

    # Switched: the declaration names the second table, whose position is there. No row is written anew.
    before = times(client, f"{serving}_new", amounts)
    statements[1] = statements[1].replace(f"'{serving}'", f"'{serving}_new'")
    write_project(stack.project, *statements)
    for name in ("serving", "copied"):
        assert CliRunner().invoke(main, ["resume", name, "--project", str(stack.project)]).exit_code == 0
    assert CliRunner().invoke(main, ["pause", "copied", "--project", str(stack.project)]).exit_code == 0
    send(stack.topic, 5, 500)
    time.sleep(0.01)
    assert stack.run().success
    after = times(client, f"{serving}_new", amounts)
    assert [number for number in amounts if after[number] != before[number]] == [5]
    assert stored(f"{serving}_new") == {**amounts, 5: 500}
    assert stored(serving) == amounts, "the other one is left as it is"


def times(client: Any, table: str, numbers: Any) -> dict[int, set[int]]:
    """When the cells of rows were written, as the server has it."""
    found = {}
    for number in numbers:
        _, row, _ = client.get_row(table, [("id", number)], max_version=1)
        found[number] = {at for _, _, at in row.attribute_columns}
    return found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--shadow-suffix", "_new", "--from-latest"), "takes nothing over: leave --from-latest out"),
        (("--shadow-suffix", "_new", "--repair"), "takes nothing over: leave --repair out"),
        (("--shadow-suffix", ""), "is empty: the second table needs a name of its own"),
        (("--from-latest", "--every", "5s"), "add --shadow-suffix"),
        ((), "state where the writer stopped"),
    ],
)
def test_options_that_do_not_go_together(stack: Stack, words: tuple[str, ...], told: str) -> None:
    write_project(
        stack.project,
        TOPIC.format(name="source", topic=stack.topic, columns=KINDS),
        TOPIC.format(name="copied", topic=f"{stack.topic}-copy", columns=KINDS),
        "INSERT INTO copied SELECT * FROM source;",
    )
    ran = CliRunner().invoke(main, ["adopt", "copied", "--project", str(stack.project), *words])
    assert (ran.exit_code, told in " ".join(ran.output.split())) == (2, True), ran.output


def test_a_second_table_of_somebody_is_left_alone(
    stack: Stack, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    copy, taken = (
        make_topic(name=f"{stack.topic}{end}", config={"cleanup.policy": "compact"}) for end in ("-c", "-c_new")
    )
    write_project(
        stack.project,
        TOPIC.format(name="source", topic=stack.topic, columns=KINDS),
        TOPIC.format(name="copied", topic=copy, columns=KINDS),
        "INSERT INTO copied SELECT * FROM source;",
    )
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    producer.produce(taken, key=b'{"id":1}', value=b'{"id":1,"grp":"g","amount":1}')
    assert producer.flush(20) == 0
    ran = CliRunner().invoke(main, ["adopt", "copied", "--project", str(stack.project), "--shadow-suffix", "_new"])
    assert (ran.exit_code, "has rows that the platform has not written" in ran.output) == (1, True), ran.output


def test_a_key_in_two_partitions_of_the_first_topic_is_told(
    stack: Stack, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    copy = make_topic(name=f"{stack.topic}-copy", partitions=2, config={"cleanup.policy": "compact"})
    write_project(
        stack.project,
        TOPIC.format(name="source", topic=stack.topic, columns=KINDS),
        TOPIC.format(name="copied", topic=copy, columns=KINDS),
        "INSERT INTO copied SELECT * FROM source;",
    )
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    key, value = '{"id":1}', json.dumps({"id": 1, "grp": "g", "amount": 1})
    for topic, lane in ((stack.topic, 0), (copy, 0), (copy, 1)):
        producer.produce(topic, key=key, value=value, partition=lane)
    assert producer.flush(20) == 0
    code, (told,) = shadow(stack, "copied", "--for", "1s", "--settle", "0s")
    first = told["first"]
    assert (code, told["equal"], first["equal"], first["duplicates"]) == (3, False, False, 1)
    assert (counts(first), first["duplicate_keys"], told["second"]["equal"]) == ((0, 0, 0), ["id=1"], True)
