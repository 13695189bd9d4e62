"""Keys with more digits than their columns declare are one key: in every table, in checks, and after a repair."""

from __future__ import annotations

import json
import random
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from upsert_platform_tests.graph.stack import Stack, checks_of
from upsert_platform_tests.referee.judging import maxcompute_table, records_of, tablestore_table

pytestmark = pytest.mark.usefixtures("spark")

COLUMNS: Final = {"at": "TIMESTAMP(3)", "zoned": "TIMESTAMP_LTZ(0)", "v": "STRING", "seen": "TIMESTAMP(3)"}
KEY: Final = ("at", "zoned")
NOON: Final = datetime(2026, 5, 1, 12, tzinfo=UTC)
DECLARED: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
SQL: Final = f"""
CREATE TABLE users ({DECLARED}, PRIMARY KEY ({{key}}) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{{topic}}', 'key.format' = 'json', 'value.format' = 'json',
  'properties.bootstrap.servers' = '${{{{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}}}');
CREATE TABLE serving (at STRING, zoned STRING, v STRING, seen TIMESTAMP(3), PRIMARY KEY ({{key}}) NOT ENFORCED) WITH (
  'connector' = 'tablestore', 'table.name' = '{{table}}', 'auto.create' = 'true',
  'tablestore.endpoint' = '${{{{UPSERT_TABLESTORE_ENDPOINT}}}}',
  'tablestore.instance.name' = '${{{{UPSERT_TABLESTORE_INSTANCE}}}}',
  'tablestore.access.key.id' = '${{{{UPSERT_TABLESTORE_ACCESS_KEY_ID}}}}',
  'tablestore.access.key.secret' = '${{{{UPSERT_TABLESTORE_ACCESS_KEY_SECRET}}}}');
CREATE TABLE warehouse ({DECLARED}, PRIMARY KEY ({{key}}) NOT ENFORCED) WITH (
  'connector' = 'maxcompute', 'table.name' = '{{table}}', 'auto.create' = 'true', 'sink.operation' = 'upsert',
  'odps.end.point' = '${{{{UPSERT_MAXCOMPUTE_ENDPOINT}}}}', 'odps.project.name' = '${{{{UPSERT_MAXCOMPUTE_PROJECT}}}}',
  'odps.access.id' = '${{{{UPSERT_MAXCOMPUTE_ACCESS_ID}}}}',
  'odps.access.key' = '${{{{UPSERT_MAXCOMPUTE_ACCESS_KEY}}}}',
  'upsert.write.bucket.num' = '4');
CREATE TABLE copy ({DECLARED}, PRIMARY KEY ({{key}}) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = '{{topic}}-copy', 'key.format' = 'json', 'value.format' = 'json',
  'auto.create' = 'true', 'properties.bootstrap.servers' = '${{{{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}}}');
INSERT INTO serving SELECT CAST(at AS STRING), CAST(zoned AS STRING), v, seen FROM users;
INSERT INTO warehouse SELECT * FROM users;
INSERT INTO copy SELECT * FROM users;
"""


def text(moment: datetime, digits: int) -> str:
    """A moment as JSON's SQL standard has it, with so many digits."""
    return f"{moment:%Y-%m-%d %H:%M:%S.%f}"[: 20 + digits].rstrip(".")


def send(stack: Stack, rng: random.Random, wanted: dict[tuple[str, str], str], *, number: int) -> None:
    """Records of few keys, each spelt with digits beyond those that are declared; a key's last one is what counts."""
    producer = Producer({"bootstrap.servers": stack.variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], "log_level": 0})
    for count in range(number):
        second, milli = rng.randrange(8), rng.choice((0, 120, 999))
        at = NOON + timedelta(seconds=second, microseconds=milli * 1000 + rng.randrange(1000))
        zoned = NOON + timedelta(seconds=second, microseconds=rng.randrange(1_000_000))
        key = {"at": text(at, 6), "zoned": f"{text(zoned, 6)}Z"}
        value = None if rng.random() < 0.1 else {**key, "v": f"{number} {count}", "seen": text(at, 6)}
        plain = text(at, 3), text(zoned, 0)
        if value is None:
            wanted.pop(plain, None)
        else:
            wanted[plain] = f"{number} {count}"
        # Of one key all records are in one partition, as a producer does that knows what a key is.
        payload = None if value is None else json.dumps(value)
        producer.produce(stack.topic, key=json.dumps(key), value=payload, partition=second % 4)
    producer.flush()


def nanos(shown: str) -> int:
    return int(datetime.fromisoformat(f"{shown}+00:00").timestamp() * 1000 + 0.5) * 1_000_000


def check(stack: Stack, wanted: dict[tuple[str, str], str]) -> None:
    """Each table holds just these keys and values, by readers of their own."""
    variables = stack.variables
    texts = {"at": "STRING", "zoned": "STRING", "v": "STRING", "seen": "TIMESTAMP(3)"}
    serving = sorted(map(list, tablestore_table(variables, stack.table, texts, KEY)))
    assert [row[:3] for row in serving] == sorted([at, f"{zoned}", value] for (at, zoned), value in wanted.items())
    rows = sorted([nanos(at), nanos(zoned), value, nanos(at)] for (at, zoned), value in wanted.items())
    assert sorted(map(list, maxcompute_table(variables, stack.table, COLUMNS))) == rows
    copied: dict[bytes | None, Any] = {}
    for record in records_of(variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], f"{stack.topic}-copy"):
        copied.pop(record.key, None)
        if record.value is not None:
            copied[record.key] = json.loads(record.value)
    found = sorted([nanos(row["at"]), nanos(row["zoned"].rstrip("Z")), row["v"], nanos(row["seen"])]
                   for row in copied.values())  # fmt: skip
    assert found == rows
    for key, row in copied.items():
        assert json.loads(key or b"") == {name: row[name] for name in KEY}
        fractions = [shown.rstrip("Z").partition(".")[2] for shown in (row["at"], row["zoned"], row["seen"])]
        assert all(len(part) <= most for part, most in zip(fractions, (3, 0, 3), strict=True)), row


@pytest.mark.soak
def test_keys_of_more_digits_than_declared_are_one_key_everywhere(stack: Stack) -> None:
    stack.project.mkdir(parents=True, exist_ok=True)
    declared = SQL.format(topic=stack.topic, table=stack.table, key=", ".join(KEY))
    (stack.project / "users.sql").write_text(declared, "utf-8")
    rng, wanted = random.Random(7), dict[tuple[str, str], str]()
    for number in (60, 90):
        send(stack, rng, wanted, number=number)
        done = stack.run()
        assert done.success, checks_of(done)
        check(stack, wanted)
    for job in ("verify", "reconcile", "compact", "verify"):
        done = stack.run(job)
        assert done.success, (job, checks_of(done))
        assert all(checks_of(done).values()), (job, checks_of(done))
    check(stack, wanted)
    with closing(stack.hop("serving").destination) as destination:
        verdict = destination.state().verdict
        assert verdict is not None
        assert verdict.passed
