"""The check `freshness`: how old the oldest record is that is not in a table, wherever on its way it waits."""

from __future__ import annotations

import json
import time
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from upsert_platform.changelog.lake import Lake
from upsert_platform.cli.main import main
from upsert_platform.demo.users import encode_key, encode_value
from upsert_platform.graph import keys
from upsert_platform.sync.binding import bind, load
from upsert_platform.sync.freshness import Judgement, judge
from upsert_platform.sync.on_demand import OnDemand
from upsert_platform.sync.query_hop import QueryHop
from upsert_platform_tests.graph.stack import Stack, checks_of
from upsert_platform_tests.graph.test_stream import never

LIMITS = ", 'freshness.max-delay' = '5 min', 'freshness.warn-delay' = '30 s'"
COUNTS = """
CREATE TABLE regions (region STRING, users BIGINT, PRIMARY KEY (region) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{topic}-regions', 'auto.create' = 'true', 'freshness.max-delay' = '1 min',
  'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}',
  'key.format' = 'json', 'value.format' = 'json'
);
INSERT INTO regions SELECT region, COUNT(*) FROM users GROUP BY region;
"""


def send(stack: Stack, user_id: int, *, age: float, partition: int) -> None:
    """A record that was made some seconds ago."""
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    at = int((time.time() - age) * 1000)
    value = encode_value(stack.users.make(user_id))
    producer.produce(stack.topic, value, encode_key(user_id), partition=partition, timestamp=at)
    assert producer.flush(30) == 0


def judged(stack: Stack, table: str = "users_serving") -> Judgement:
    binding = bind(*load(stack.project, root=str(stack.lake)))
    return judge(binding, binding.targets[table], Lake(str(stack.lake)))


def read(stack: Stack) -> None:
    """Brings the changelog up to the topic, and nothing else."""
    hop = stack.platform().changelog_hop("users", run="test")
    hop.execute(OnDemand(never), hop.plan())


def test_a_record_counts_wherever_it_waits(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.declare(serving=LIMITS, warehouse=None)
    assert judged(stack).passed
    send(stack, 1, age=60, partition=2)
    warned = judged(stack)
    assert (warned.passed, warned.fails) == (False, False)
    assert warned.freshness.delay == pytest.approx(75, abs=15)
    assert "'freshness.warn-delay' is 30 s: 1 offsets of 'users' are not read" in warned.text
    send(stack, 2, age=600, partition=0)
    send(stack, 3, age=0, partition=0)
    failed = judged(stack)
    assert (failed.fails, failed.freshness.delay) == (True, pytest.approx(615, abs=15))
    assert "3 offsets of 'users' are not read" in failed.text
    read(stack)
    send(stack, 4, age=40, partition=1)
    behind = judged(stack)
    assert (behind.fails, behind.freshness.delay) == (True, pytest.approx(615, abs=15))
    assert "1 offsets of 'users' are not read" in behind.text
    assert "1 batch with 3 changes of 'users' are not applied" in behind.text

    monkeypatch.setenv("UPSERT_PLATFORM_HOME", str(stack.lake))
    shown = CliRunner().invoke(main, ["status", "--project", str(stack.project), "--json"])
    (table,) = json.loads(shown.output)["tables"]
    assert (table["stale"], table["delay"]) == (True, pytest.approx(615, abs=15))
    told = CliRunner().invoke(main, ["status", "--project", str(stack.project)])
    assert told.exit_code == 1
    assert "users_serving: the oldest record that is not in the table is" in " ".join(told.output.split())

    found = watched(stack)
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert found.metadata["delay"].value == pytest.approx(615, abs=15)
    done = stack.run()
    assert done.success
    assert checks_of(done)["freshness:users_serving"]
    assert judged(stack).freshness.delay == 0.0


def watched(stack: Stack) -> dg.AssetCheckEvaluation:
    """What the job `watch` says of the table."""
    done = stack.run("watch")
    assert done.success  # it stops nothing
    (found,) = [item for item in done.get_asset_check_evaluations() if item.check_name == keys.CHECK_FRESHNESS]
    return found


def test_what_a_query_has_not_computed_waits_and_then_what_it_has(stack: Stack) -> None:
    stack.declare(serving=None, warehouse=None)
    (stack.project / "regions.sql").write_text(COUNTS.format(topic=stack.topic), "utf-8")
    send(stack, 1, age=120, partition=0)
    read(stack)
    waits = judged(stack, "regions")
    assert (waits.fails, waits.freshness.delay) == (True, pytest.approx(135, abs=15))
    assert "1 batch with 1 changes of changelog 'users' are not in query 'regions" in waits.text
    platform = stack.platform()
    (name,) = platform.binding().queries
    hop: QueryHop = platform.query_hop(name, run="test")
    hop.execute(OnDemand(never))
    computed = judged(stack, "regions")
    assert "are not applied" in computed.freshness.behind
    assert computed.freshness.delay == pytest.approx(15, abs=15)  # a row of a query is as old as its commit


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ("'freshness.max-delay' = '1 s', 'freshness.warn-delay' = '1 s'", "or it would never warn"),
        ("'freshness.max-delay' = '0 s'", "are above zero"),
        ("'freshness.max-delay' = 'soon'", "takes a duration such as"),
    ],
)
def test_limits_that_mean_nothing_are_refused(stack: Stack, limits: str, told: str) -> None:
    stack.declare(serving=f", {limits}", warehouse=None)
    shown = CliRunner().invoke(main, ["validate", str(stack.project)])
    assert shown.exit_code == 1
    assert told in " ".join(shown.output.split())


def test_limits_of_a_table_that_is_only_read_are_warned_of(stack: Stack) -> None:
    stack.declare(source=LIMITS, warehouse=None)
    binding = bind(*load(Path(stack.project), root=str(stack.lake)))
    told = [problem.message for problem in binding.warnings if "freshness" in problem.message]
    assert len(told) == 2
    assert "no INSERT INTO writes the table" in told[0]
