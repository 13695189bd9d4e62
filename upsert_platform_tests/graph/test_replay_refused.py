"""Replaying rows that a destination refused: the present value arrives, once, and nothing newer is overwritten."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from upsert_platform.cli.main import main
from upsert_platform.core.errors import DestinationError
from upsert_platform.sync.destination_hop import DestinationHop
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.replay_refused import RefusedReplay, replay_refused
from upsert_platform.sync.verify import check_everything
from upsert_platform_tests.graph.connector_cases import ALL, MIXED
from upsert_platform_tests.graph.connectors import Connector, Connectors, Sent
from upsert_platform_tests.graph.stack import COLUMNS, KEY, Stack
from upsert_platform_tests.graph.test_topics import last_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.whole_runs

COPY = """
CREATE TABLE users_copy ({columns}, {key}) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}-copy', 'auto.create' = 'true',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{topic}', 'sink.parallelism' = '1',
  'key.format' = 'json', 'value.format' = 'json', 'properties.max.request.size' = '{limit}'
);
INSERT INTO users_copy SELECT * FROM users;
"""
LONG = "x" * 3000


def declare(stack: Stack, limit: int) -> None:
    stack.declare(serving=None, warehouse=None)
    text = COPY.format(columns=COLUMNS, key=KEY, topic=stack.topic, limit=limit)
    (stack.project / "zz_copy.sql").write_text(text, "utf-8")


def send(stack: Stack, *names: tuple[int, str | None]) -> None:
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    for key, name in names:
        value = None if name is None else json.dumps({"user_id": key, "name": name}).encode()
        producer.produce(stack.topic, key=json.dumps({"user_id": key}).encode(), value=value, partition=0)
    producer.flush()


def replay(stack: Stack, spark: SparkSession) -> RefusedReplay:
    hop: DestinationHop = stack.hop("users_copy")
    with closing(hop.destination):
        return replay_refused(spark, hop)


def quarantine(stack: Stack, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """The command on the stack's project."""
    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    monkeypatch.setenv("UPSERT_PLATFORM_PROJECT", str(stack.project))
    return CliRunner().invoke(main, ["quarantine", *arguments])


@pytest.mark.soak
def test_mended_limit_brings_present_values_once(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(stack, 1000)
    send(stack, (1, "one"), (2, LONG), (3, LONG), (4, LONG))
    assert stack.run().success
    send(stack, (3, "short"))
    changelog = stack.platform().changelog_hop("users", run="test")
    changelog.execute(OnDemand.dividing(spark), changelog.plan())
    with pytest.raises(DestinationError, match=r"has applied batch 1 of 2: run job 'sync'"):
        replay(stack, spark)
    with closing((hop := stack.hop("users_copy")).destination):
        assert hop.execute(OnDemand.dividing(spark), hop.plan()) is not None
        kept = hop.refused.keys()["key"].to_pylist()
    assert sorted(json.loads(key)["user_id"] for key in kept) == [2, 4]  # a later value of 3 was taken
    with monkeypatch.context() as kept_open:
        kept_open.setattr("upsert_platform.spark.warm_session.open_session", lambda *_, **__: spark)
        kept_open.setattr(spark, "stop", lambda: None)
        still = quarantine(stack, monkeypatch, "replay", "users_copy", '{"user_id":2}')
    assert "0 replayed, 0 superseded by later values, 1 still refused" in still.output
    assert '{"user_id": 2}: the record has' in still.output
    listed = quarantine(stack, monkeypatch, "list", "users_copy")
    assert "2 rows refused by the destination" in listed.output
    assert "properties.max.request.size" in listed.output
    shown = quarantine(stack, monkeypatch, "show", "users_copy", '{"user_id":2}')
    assert json.loads(shown.output)["row"]["name"] == LONG
    declare(stack, 1_000_000)
    with ThreadPoolExecutor(2) as two:
        both = [run.result() for run in [two.submit(replay, stack, spark) for _ in range(2)]]
    assert sorted(done.replayed for done in both) == [0, 2], "a replay does not see what another one settles"
    names = {key: row["name"] for key, row in last_values(stack, f"{stack.topic}-copy").items()}
    assert names == {1: "one", 2: LONG, 3: "short", 4: LONG}
    assert replay(stack, spark) == RefusedReplay()
    assert "nothing of 'users_copy' is in quarantine" in quarantine(stack, monkeypatch, "replay", "users_copy").output
    with closing((hop := stack.hop("users_copy")).destination):
        compared = check_everything(spark, hop, upto=2)
    assert (compared.compared, compared.passed, compared.refused) == (4, True, 0)


POINTS = """
CREATE TABLE users_points (user_id BIGINT, points INT, PRIMARY KEY (user_id) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}-points', 'auto.create' = 'true',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO users_points SELECT user_id, {points} FROM users WHERE name <> 'nobody';
"""


def test_a_row_that_cannot_be_computed_waits_aside_and_its_batch_goes_on(stack: Stack, spark: SparkSession) -> None:
    def points() -> dict[int, object]:
        return {key: row["points"] for key, row in last_values(stack, f"{stack.topic}-points").items()}

    stack.declare(serving=None, warehouse=None)
    declared = stack.project / "zz_points.sql"
    declared.write_text(POINTS.format(topic=stack.topic, points="CAST(name AS INT)"), "utf-8")
    send(stack, (1, "10"), (2, "20"), (3, "nobody"))
    assert stack.run().success
    send(stack, (1, "11"), (2, "none"), (4, "none"), (5, "50"))
    assert stack.run().success, "a text that is not a number ended the batch, and its check"
    assert points() == {1: 11, 2: 20, 5: 50}
    with closing((hop := stack.hop("users_points")).destination):
        kept = hop.refused.read().to_pylist()
        compared = check_everything(spark, hop, upto=2)
        assert [row["reason"] for row in kept] == ["a text cannot be cast to INT: none"] * 2
        assert (compared.passed, compared.refused) == (True, 2)
        assert len(replay_refused(spark, hop).refused) == 2, "it fails still"
        assert hop.refused.read().num_rows == 2
    declared.write_text(POINTS.format(topic=stack.topic, points="COALESCE(TRY_CAST(name AS INT), -1)"), "utf-8")
    with closing((hop := stack.hop("users_points")).destination):
        assert replay_refused(spark, hop).replayed == 2
        assert hop.refused.read().num_rows == 0
    assert points() == {1: 11, 2: -1, 4: -1, 5: 50}


@pytest.fixture
def connectors(
    variables: Mapping[str, str],
    make_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
) -> Connectors:
    """A project for Kafka Connect configurations."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stack = Stack(tmp_path, variables, "unused")
    stack.project.mkdir()
    return Connectors(stack, make_topic)


def test_records_of_a_row_are_written_again_in_their_order(
    connectors: Connectors, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused record is not the last one of its row: what it alone wrote comes back, what came later stays."""
    options = {**ALL, **MIXED, "primarykey.mode": "record_key", "insert.mode": "update"}
    strict = Connector("mended", options, keys="pk0:string", whitelist="A:integer,B:integer")
    connectors.declare([strict])
    strict.sent += [Sent("k", {"A": 1, "B": 1}), Sent("k", {"A": "x", "B": 2}), Sent("k", {"A": 3})]
    strict.sent += [Sent("other", {"A": 5, "B": 5}), Sent("bad", [1])]
    connectors.produce()
    assert connectors.sync().success
    assert connectors.rows("mended") == {("k",): {"A": 3, "B": 1}, ("other",): {"A": 5, "B": 5}}
    connectors.put(strict, ("other",), {"A": 6})  # not of a refused record, so it is not written again
    mended = Connector("mended", options, keys="pk0:string", whitelist="A:string,B:integer", suffix=strict.suffix)
    (connectors.stack.project / "mended.properties").write_text(mended.properties(), "utf-8")
    hop = connectors.stack.hop(strict.asset)
    with closing(hop.destination):
        done = replay_refused(spark, hop)
    assert (done.replayed, done.superseded, len(done.refused)) == (1, 0, 1)
    assert connectors.rows("mended") == {("k",): {"A": "3", "B": 2}, ("other",): {"A": 6}}
    assert sorted(connectors.refused("mended")) == [4]
    shown = quarantine(connectors.stack, monkeypatch, "show", strict.asset, f"{strict.topic}-0@4")
    assert json.loads(shown.output)["row"]["error"] == "DirtyRecordError"
