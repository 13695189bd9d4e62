"""A table is compared with what the lake has as of a batch, its offsets or a time; history that is gone is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from upsert_platform.changelog.lake import Lake
from upsert_platform.changelog.upkeep import raise_floor
from upsert_platform.cli.main import main
from upsert_platform.sync.binding import bind, load
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.proofs.test_adopt import ends_of
from upsert_platform_tests.proofs.test_faults import TOPIC, write_project

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.systems]
KINDS = "id BIGINT, grp STRING, amount INT, PRIMARY KEY (id) NOT ENFORCED"
STORED = """
CREATE TABLE {name} ({columns}) WITH (
  'connector' = 'tablestore', 'table.name' = '{table}', 'auto.create' = 'true',
  'tablestore.endpoint' = '${{UPSERT_TABLESTORE_ENDPOINT}}',
  'tablestore.instance.name' = '${{UPSERT_TABLESTORE_INSTANCE}}',
  'tablestore.access.key.id' = '${{UPSERT_TABLESTORE_ACCESS_KEY_ID}}',
  'tablestore.access.key.secret' = '${{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}'
);
INSERT INTO {name} {select};
"""


def prove(stack: Stack, *words: str) -> tuple[int, dict[str, Any]]:
    """The command's exit code and JSON."""
    name, *more = words
    ran = CliRunner().invoke(main, ["prove", name, "--project", str(stack.project), "--json", "--settle", "0s", *more])
    assert ran.exit_code in (0, 3), ran.output
    return ran.exit_code, json.loads(ran.stdout)


def refused(stack: Stack, *words: str) -> str:
    ran = CliRunner().invoke(main, ["prove", words[0], "--project", str(stack.project), *words[1:]])
    assert ran.exit_code == 1, ran.output
    return " ".join(ran.output.split())


def counts(told: dict[str, Any]) -> tuple[int, int, int, int]:
    return told["missing"], told["extra"], told["stale"], told["moving"]


def test_a_table_as_of_batches_that_the_lake_has(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    from tablestore import Condition, OTSClient, Row, RowExistenceExpectation

    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    serving, sums = f"{stack.table}_serving", f"{stack.table}_sums"
    write_project(
        stack.project,
        TOPIC.format(name="source", topic=stack.topic, columns=KINDS),
        STORED.format(name="serving", columns=KINDS, table=serving, select="SELECT * FROM source"),
        STORED.format(
            name="sums",
            columns="grp STRING, total INT, PRIMARY KEY (grp) NOT ENFORCED",
            table=sums,
            select="SELECT grp, SUM(amount) FROM source GROUP BY grp",
        ),
    )
    servers = stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    producer = Producer({"bootstrap.servers": servers})

    def send(number: int, amount: int | None) -> None:
        row = {"id": number, "grp": f"g{number % 3}", "amount": amount}
        value = None if amount is None else json.dumps(row)
        producer.produce(stack.topic, key=json.dumps({"id": number}), value=value)
        assert producer.flush(20) == 0

    assert "the lake has no batch of it yet" in refused(stack, "serving", "--source", "lake")
    for number in range(20):
        send(number, number)
    assert stack.run().success
    first = ends_of(stack, stack.topic)
    for number in range(5):
        send(number, 100)
    send(10, None)
    assert stack.run().success

    access = ("ENDPOINT", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "INSTANCE")
    client = OTSClient(*[stack.variables[f"UPSERT_TABLESTORE_{name}"] for name in access], logger_name=None)

    def put(number: int, amount: int) -> None:
        """Writes a row as a foreign program does."""
        row = Row([("id", number)], [("grp", f"g{number % 3}"), ("amount", amount)])
        client.put_row(serving, row, Condition(RowExistenceExpectation.IGNORE))

    put(15, 7)
    code, told = prove(stack, "serving", "--source", "lake", "--at", "latest")
    assert (code, counts(told), told["batch"], told["history"]) == (3, (0, 0, 1, 0), 2, 1)
    assert [row["key"] for row in told["examples"]] == ["id=15"]
    code, told = prove(stack, "serving", "--at", "1")
    assert (code, counts(told), told["at"]) == (3, (0, 0, 1, 6), "batch"), "six keys were changed since"
    put(15, 15)

    # Rows of a copy that was made as of the first batch.
    for number in range(5):
        put(number, number)
    put(10, 10)
    stated = ",".join(f"{lane}:{end}" for lane, end in first.items())
    code, told = prove(stack, "serving", "--source", "lake", "--at", stated)
    assert (code, counts(told), told["batch"], told["compared"]) == (0, (0, 0, 0, 0), 1, 20)
    assert told["proven_through"] == {stack.topic: {str(lane): end for lane, end in first.items()}}

    changelog = bind(*load(stack.project)).changelog("source", Lake(str(stack.lake)))
    # A result of a query has a history as well, and the lake has what topics have not any more.
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([stack.topic])[stack.topic].result(20)
    code, told = prove(stack, "sums", "--at", "1")
    assert (code, counts(told), told["proven_through"]) == (0, (0, 0, 0, 3), {}), "what was changed since is not judged"
    job = stack.definitions().resolve_job_def("prove")
    ops = {"equals_source_serving": {"config": {"at": "1"}}, "equals_source_sums": {"config": {"source": "lake"}}}
    judged = job.execute_in_process(run_config={"ops": ops}).get_asset_check_evaluations()
    shown = {item.asset_key.path[-1]: {name: value.value for name, value in item.metadata.items()} for item in judged}
    assert {name: (item["batch"], item["at"], item["stale"]) for name, item in shown.items()} == {
        "serving": (1, "batch", 0), "sums": (2, "applied", 0),
    }  # fmt: skip

    no_rows = "has no rows as of batch {}: its history begins with batch {} and ends with batch 2"
    assert no_rows.format(3, 1) in refused(stack, "serving", "--at", "3")
    assert no_rows.format(0, 1) in refused(stack, "serving", "--source", "lake", "--at", "2020-01-01T00:00:00Z")
    assert "no batch ends at these offsets" in refused(
        stack, "serving", "--source", "lake", "--at", ",".join(f"{lane}:0" for lane in first)
    )
    assert "add --source lake" in refused(stack, "serving", "--source", "topic", "--at", "1")
    assert "has read no offsets" in refused(stack, "sums", "--source", "lake", "--at", stated)
    assert "give a batch, offsets" in refused(stack, "serving", "--source", "lake", "--at", "group:job")
    raise_floor(changelog, 0, reduced=2)  # as a compaction does before it reduces history
    assert no_rows.format(1, 2) in refused(stack, "serving", "--at", "1")
