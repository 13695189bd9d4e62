"""The main job under load and kill -9: both tables equal what was produced, and every record is accounted for."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from upsert_platform.changelog import rows
from upsert_platform.changelog.accounting import total
from upsert_platform.changelog.quarantine import quarantined_records
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.soak.killing import Kill, Timeline, pick, run_killed, run_timed
from upsert_platform_tests.soak.load import PARTITIONS, Load

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3000)]

PROJECT = """
CREATE TABLE users (
  user_id BIGINT, name STRING, region STRING, balance DECIMAL(12, 2), updated_at TIMESTAMP(3),
  PRIMARY KEY (user_id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'users',
  'properties.bootstrap.servers' = '${UPSERT_KAFKA_BOOTSTRAP_SERVERS}',
  'key.format' = 'json', 'value.format' = 'json'
);
CREATE TABLE users_serving (
  user_id BIGINT, name STRING, region STRING, balance DECIMAL(12, 2), updated_at TIMESTAMP(3),
  PRIMARY KEY (user_id) NOT ENFORCED
) WITH (
  'connector' = 'tablestore', 'table.name' = 'users',
  'tablestore.endpoint' = '${UPSERT_TABLESTORE_ENDPOINT}',
  'tablestore.instance.name' = '${UPSERT_TABLESTORE_INSTANCE}',
  'tablestore.access.key.id' = '${UPSERT_TABLESTORE_ACCESS_KEY_ID}',
  'tablestore.access.key.secret' = '${UPSERT_TABLESTORE_ACCESS_KEY_SECRET}',
  'auto.create' = 'true'
);
CREATE TABLE users_warehouse (
  user_id BIGINT, name STRING, region STRING, balance DECIMAL(12, 2), updated_at TIMESTAMP(3),
  PRIMARY KEY (user_id) NOT ENFORCED
) WITH (
  'connector' = 'maxcompute', 'table.name' = 'users',
  'odps.end.point' = '${UPSERT_MAXCOMPUTE_ENDPOINT}', 'odps.project.name' = '${UPSERT_MAXCOMPUTE_PROJECT}',
  'odps.access.id' = '${UPSERT_MAXCOMPUTE_ACCESS_ID}', 'odps.access.key' = '${UPSERT_MAXCOMPUTE_ACCESS_KEY}',
  'sink.operation' = 'upsert', 'upsert.write.bucket.num' = '4', 'auto.create' = 'true'
);
INSERT INTO users_serving SELECT * FROM users;
INSERT INTO users_warehouse SELECT user_id, name, region, balance, updated_at FROM users WHERE region <> 'test';
"""
WAVES = 5
WAVE = 200_000
MORE = 20_000
"""Records of another try, where the run had ended before it was killed."""
KEYS = 40_000
STEPS = ("changelogs__users", "changelogs__users", "tables__users_serving", "tables__users_warehouse", "")
"""In which step each wave is killed; "" is anywhere in the run, its start included."""
FIRST_KILL = Timeline({STEPS[0]: (0.0, 12.0)}, 12.0)
"""The moment of the first kill is drawn from this: nothing has been timed by then."""
BATCH = 25_000
"""Records of a batch from the second wave on; the first wave fits the default, and is one batch."""


@pytest.fixture
def local_variables(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """What the command `local up` writes about servers of its own; they are ended afterwards."""
    command, data, written = Path(sys.executable).parent / "upsert-platform", tmp_path / "servers", tmp_path / "env"
    up = [command, "local", "up", "--data", data, "--env-file", written]
    try:
        subprocess.run(up, check=True)
        lines = [line for line in written.read_text("utf-8").splitlines() if line and line[0] != "#"]
        yield dict(line.split("=", 1) for line in lines)
    finally:
        subprocess.run([command, "local", "down", "--data", data], check=True)


@pytest.fixture
def local_stack(local_variables: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """The project on the servers of `local up`, its topic with several partitions."""
    from confluent_kafka.admin import AdminClient, NewTopic

    for name, value in local_variables.items():
        monkeypatch.setenv(name, value)
    admin = AdminClient({"bootstrap.servers": local_variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]})
    topic = NewTopic("users", num_partitions=PARTITIONS, replication_factor=1)
    admin.create_topics([topic])["users"].result(30)
    return Stack(tmp_path, local_variables, "users")


def declare(stack: Stack, *, more: str = "") -> None:
    """Writes the project, with further options of the topic's table."""
    stack.project.mkdir(exist_ok=True)
    last = "'key.format' = 'json', 'value.format' = 'json'"
    (stack.project / "users.sql").write_text(PROJECT.replace(last, last + more), "utf-8")


def load_of(stack: Stack, seed: int, keys: int, *, malformed: float = 0.001) -> Load:
    """A load on the topic of the stack, with the stack's users as the truth."""
    bootstrap = stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"]
    return Load(bootstrap, stack.topic, stack.users, random.Random(seed), keys, malformed)


def compare(stack: Stack, load: Load) -> str:
    """Both tables against the truth, and the accounts against every record produced; a line about it."""
    assert stack.serving_differences() == []
    assert stack.warehouse_differences() == []
    store = stack.platform().changelog_hop("users", run="soak").store
    head = store.head()
    assert head is not None
    accounts = store.accounts(after=0, upto=head.batch)
    assert sorted(accounts) == list(range(1, head.batch + 1))
    ranges = [item for number in sorted(accounts) for item in accounts[number]]
    for partition, offsets in load.sent.items():
        parts = [item for item in ranges if item.partition == partition and item.offsets]
        assert [item.start for item in parts] == [0, *(item.end for item in parts[:-1])]
        assert parts[-1].end == len(offsets)
    expected = load.expected(ranges)
    found = quarantined_records(store)
    places = list(zip(found[rows.PARTITION].to_pylist(), found[rows.OFFSET].to_pylist(), strict=True))
    assert len(places) == len(set(places))
    assert set(places) == expected.quarantined
    summed = total(ranges)
    assert (summed.records, summed.gaps, summed.kept, summed.superseded, summed.quarantined) == (
        (load.records, 0, expected.kept, expected.superseded, len(expected.quarantined))
    )
    return (
        f"{load.records} records in {head.batch} batches: {summed.kept} kept, {summed.superseded} superseded,"
        f" {summed.quarantined} of {load.bad} malformed in quarantine; {len(stack.users.rows)} users equal"
    )


def kill_once(stack: Stack, load: Load, timeline: Timeline, step: str) -> Kill:
    """Kills a run in a step, at a random moment; while runs end before it, there is more to do and less time."""
    named, after = pick(timeline, load.chance, step)
    while not (kill := run_killed(stack, named, after)).alive:
        load.produce(MORE)
        after /= 2
    return kill


def test_waves_with_kills_end_equal(local_stack: Stack, seed: int) -> None:
    """In each wave a run is killed with SIGKILL at a random moment of a step, and one more makes both tables equal."""
    load = load_of(local_stack, seed, KEYS)
    timeline = FIRST_KILL
    for wave, step in zip(range(1, WAVES + 1), STEPS, strict=True):
        declare(local_stack, more=f", 'batch.max-records' = '{BATCH}'" if wave > 1 else "")
        load.produce(WAVE)
        kill = kill_once(local_stack, load, timeline, step)
        again = run_timed(local_stack)
        timeline = again if wave == 1 else timeline.longest(again)
        print(f"wave {wave}: {kill} - again {again}:", compare(local_stack, load))  # noqa: T201
    run_timed(local_stack, "verify")
