"""Masked columns on real servers: nothing that a person gets to see holds one of their values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from upsert_platform.cli.main import main
from upsert_platform_tests.graph.stack import COLUMNS, KEY, Stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

SECRET, KEYS = "quokka", 7_707_707_707_000
"""What no value but those of masked columns holds."""
COPY = """
CREATE TABLE users_copy (user_id BIGINT, label STRING, region STRING, {key}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}-copy', 'auto.create' = 'true',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}', 'sink.delivery-guarantee' = 'at-least-once',
  'key.format' = 'json', 'value.format' = 'json', 'properties.max.request.size' = '1000'{more}
);
INSERT INTO users_copy SELECT user_id, CONCAT(name, region), region FROM users;
"""


def declare(stack: Stack, *, source: str = "", copy: str = "") -> None:
    stack.declare(source=f", 'mask.columns' = 'user_id, name'{source}", warehouse=None)
    text = COPY.format(columns=COLUMNS, key=KEY, topic=stack.topic, more=copy)
    (stack.project / "zz_copy.sql").write_text(text, "utf-8")


def send(stack: Stack, names: dict[int, str | None], *, broken: bool = False) -> None:
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for number, name in names.items():
        row = {"user_id": KEYS + number, "name": name, "region": "plain"}
        more = {"balance": f"{SECRET} too"} if broken else {}
        key = json.dumps({"user_id": KEYS + number}).encode()
        producer.produce(stack.topic, key=key, value=json.dumps({**row, **more}).encode(), partition=0)
    producer.flush()


def spoil(stack: Stack) -> None:
    from tablestore import OTSClient, Row

    names = ("ENDPOINT", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "INSTANCE")
    client = OTSClient(*[stack.variables[f"UPSERT_TABLESTORE_{name}"] for name in names])
    client.put_row(stack.table, Row([("user_id", KEYS + 1)], [("name", f"{SECRET} spoiled"), ("region", "spoiled")]))
    client.put_row(stack.table, Row([("user_id", KEYS + 90)], [("name", f"{SECRET} extra")]))


def events(instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult) -> str:
    """Everything that an instance keeps of a run."""
    return "\n".join(str(entry) for entry in instance.all_logs(result.run_id))


COMMANDS = (
    ("peek", "topics/users"), ("peek", "changelogs/users"), ("peek", "tables/users_serving", "--json"),
    ("peek", "tables/users_copy", "--json"), ("quarantine", "list"), ("quarantine", "replay", "users"),
    ("verify", "users_serving"), ("audit", "users_serving"), ("audit", "users_serving", "--json"),
)  # fmt: skip


def test_no_value_of_a_masked_column_is_shown_anywhere(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(stack.project))
    declare(stack)
    send(stack, {number: f"{SECRET} {number}" for number in range(5)} | {5: SECRET * 400})
    send(stack, {6: SECRET}, broken=True)
    told: dict[str, str] = {}
    with dg.DagsterInstance.ephemeral() as instance:
        for name in ("sync", "verify"):
            result = stack.run(name, instance=instance)
            assert result.success is (name == "sync")
            told[name] = events(instance, result)
            spoil(stack)
    assert "expected ***, found ***" in told["verify"]
    assert "region: expected 'plain', found 'spoiled'" in told["verify"], "what is not masked is shown"
    kept = stack.hop("users_copy").refused.read().to_pylist()
    assert [SECRET in row["row"] for row in kept] == [True], "what is stored is whole"
    (place,) = [f"{stack.topic}-0@6"]
    key = json.dumps({"user_id": KEYS + 5})
    for command in (*COMMANDS, ("quarantine", "show", "users", place), ("quarantine", "show", "users_copy", key)):
        with monkeypatch.context() as kept_open:
            kept_open.setattr("upsert_platform.spark.warm_session.open_session", lambda *_, **__: spark)
            kept_open.setattr(spark, "stop", lambda: None)
            done = CliRunner().invoke(main, list(command))
        assert done.exception is None or isinstance(done.exception, SystemExit), (command, done.exception)
        told[" ".join(command)] = done.output
    refused = CliRunner().invoke(main, ["send", "users"], input=f'{{"user_id": {KEYS}, "balance": "{SECRET}"}}\n')
    told["send"] = refused.output
    again = CliRunner().invoke(main, ["send", "users"], input='{"user_id": 1, "name": "***"}\n')
    assert "column 'name' is masked, and *** is what stands for its value" in again.output
    shown = {name: text for name, text in told.items() if SECRET in text or str(KEYS)[:-2] in text}
    assert not shown, shown
    for name in (
        "peek topics/users",
        "verify",
        "audit users_serving",
        "quarantine list",
        f"quarantine show users {place}",
    ):
        assert "***" in told[name], (name, told[name])
    assert "plain" in told["peek changelogs/users"]
    assert "balance" in told["quarantine list"], "reasons name columns"


FAILING = {
    "a record": ({"source": ", 'on-error' = 'fail'"}, {1: SECRET}, True, "cannot be decoded"),
    "a row": ({"copy": ", 'on-error' = 'fail'"}, {1: SECRET * 400}, False, "cannot be written"),
}


@pytest.mark.parametrize("case", FAILING)
def test_an_error_that_ends_a_run_shows_none_either(stack: Stack, case: str) -> None:
    options, names, broken, expected = FAILING[case]
    declare(stack, **options)
    send(stack, names, broken=broken)
    with dg.DagsterInstance.ephemeral() as instance:
        result = stack.run(instance=instance)
        told = events(instance, result)
    assert not result.success
    assert expected in told
    assert SECRET not in told
    assert str(KEYS)[:-2] not in told
