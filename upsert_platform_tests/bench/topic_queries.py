"""Queries from topic to topic: the whole job, in a warm session and as the command that a user starts."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import psutil

from upsert_platform.kafka.endpoint import KafkaEndpoint
from upsert_platform.local.kafka import start_broker
from upsert_platform_tests.bench.kafka import BY_KEY, bare_consumers_rate, create_topic, send
from upsert_platform_tests.bench.measure import row, watch_memory
from upsert_platform_tests.graph.stack import Stack
from upsert_platform_tests.referee.judging import records_of

MESSAGES = 4_000_000
USERS = 100_000
REGIONS = 12
GROUPS = 1_000
PARTITIONS = 4
REPEATS = 2
_WITH = "'properties.bootstrap.servers' = '${{UPSERT_KAFKA_BOOTSTRAP_SERVERS}}'"
_TARGET = f"""'connector' = 'upsert-kafka', 'topic' = '{{target}}', 'auto.create' = 'true',
  'key.format' = 'json', 'value.format' = 'json', {_WITH}"""
PAGEVIEWS = f"""
CREATE TABLE pageviews (user_id BIGINT, page_id BIGINT, viewtime TIMESTAMP, user_region STRING)
WITH ('connector' = 'kafka', 'topic' = '{{source}}', 'format' = 'json', {_WITH});
CREATE TABLE per_region (user_region STRING, pv BIGINT, uv BIGINT, PRIMARY KEY (user_region) NOT ENFORCED)
WITH ({_TARGET});
INSERT INTO per_region SELECT user_region, COUNT(*), COUNT(DISTINCT user_id) FROM pageviews GROUP BY user_region;
"""
ROLLUP = f"""
CREATE TABLE accounts (id BIGINT, grp INT, amount BIGINT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '{{source}}', 'key.format' = 'json', 'value.format' = 'json', {_WITH});
CREATE TABLE per_group (grp INT, n BIGINT, total BIGINT, PRIMARY KEY (grp) NOT ENFORCED) WITH ({_TARGET});
INSERT INTO per_group SELECT grp, COUNT(*), SUM(amount) FROM accounts GROUP BY grp;
"""
Result = dict[Any, tuple[int, int]]


@dataclass(frozen=True)
class _Load:
    """A topic, the statement over it, and what it must give.

    Attributes:
        columns: of the result: its key, and its two values.
    """

    topic: str
    sql: str
    columns: tuple[str, str, str]
    expected: Result


def run(*, messages: int = MESSAGES) -> Iterator[dict[str, Any]]:
    """Measures `pageviews_pv_uv` and `rollup_over_upserts`, each warm and as a command."""
    from upsert_platform.spark.session import open_session

    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker(Path(folder) / "kafka", die_with_parent=True) as broker,
    ):
        servers = broker.bootstrap_servers
        variables = {"UPSERT_KAFKA_BOOTSTRAP_SERVERS": servers}
        os.environ.update(variables)
        for name, load, small, goal in (
            ("pageviews_pv_uv", _pageviews(servers, messages), _pageviews(servers, 50_000), 240_000),
            ("rollup_over_upserts", _upserts(servers, messages), _upserts(servers, 50_000), 200_000),
        ):
            spark = open_session()
            try:
                _sync(Path(folder), variables, small)
                yield _warm(Path(folder), variables, load, name=name, goal=goal, messages=messages)
            finally:
                spark.stop()
            yield _command(Path(folder), variables, load, name=name, messages=messages)


def _pageviews(servers: str, count: int) -> _Load:
    """Views of random users in random regions."""
    numbers = np.random.default_rng(7)
    users, regions = numbers.integers(USERS, size=count), numbers.integers(REGIONS, size=count)
    pages = numbers.integers(1000, size=count)
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    create_topic(servers, topic, partitions=PARTITIONS)
    text = b'{"user_id":%d,"page_id":%d,"viewtime":"2024-05-01 10:%02d:%02d","user_region":"region-%d"}'
    values = (
        (None, text % (user, page, at // 60 % 60, at % 60, region))
        for at, (user, page, region) in enumerate(zip(users.tolist(), pages.tolist(), regions.tolist(), strict=True))
    )
    _send(servers, topic, values)
    views = np.bincount(regions, minlength=REGIONS)
    viewers = np.bincount(np.unique(regions * USERS + users) // USERS, minlength=REGIONS)
    expected = {f"region-{at}": (int(views[at]), int(viewers[at])) for at in range(REGIONS) if views[at]}
    return _Load(topic, PAGEVIEWS, ("user_region", "pv", "uv"), expected)


def _upserts(servers: str, count: int) -> _Load:
    """Accounts written again and again, one record of twenty a tombstone."""
    numbers = np.random.default_rng(8)
    ids, groups = numbers.integers(USERS, size=count), numbers.integers(GROUPS, size=count)
    amounts, gone = numbers.integers(1_000_000, size=count), numbers.random(count) < 0.05
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    create_topic(servers, topic, partitions=PARTITIONS, config={"cleanup.policy": "compact"})
    rows = zip(ids.tolist(), groups.tolist(), amounts.tolist(), gone.tolist(), strict=True)
    text = b'{"id":%d,"grp":%d,"amount":%d}'
    _send(
        servers, topic,
        ((b'{"id":%d}' % key, None if dead else text % (key, grp, amount)) for key, grp, amount, dead in rows),
    )  # fmt: skip
    last = np.full(USERS, -1)
    last[ids] = np.arange(count)
    last = last[last >= 0]
    last = last[~gone[last]]
    expected: Result = {}
    for group in range(GROUPS):
        mine = amounts[last[groups[last] == group]]
        if len(mine):
            expected[group] = (len(mine), int(mine.sum()))
    return _Load(topic, ROLLUP, ("grp", "n", "total"), expected)


def _send(servers: str, topic: str, records: Iterator[tuple[bytes | None, bytes | None]]) -> None:
    """Sends records; of one key all go to one partition, in their order."""
    settings: dict[str, str | int] = {"queue.buffering.max.messages": 1_000_000, "linger.ms": 50}
    producer = KafkaEndpoint(servers).open_producer(**settings, **{"enable.idempotence": "true"})
    send(producer, topic, ((key, value, BY_KEY) for key, value in records))


def _declared(folder: Path, variables: Mapping[str, str], load: _Load) -> tuple[Stack, str]:
    """A project with a lake of its own and an output topic that is not there yet."""
    target = f"bench-{uuid.uuid4().hex[:8]}"
    stack = Stack(folder / target, variables, target)
    stack.project.mkdir(parents=True)
    (stack.project / "bench.sql").write_text(load.sql.format(source=load.topic, target=target), "utf-8")
    return stack, target


def _judge(servers: str, load: _Load, target: str) -> None:
    """The last value per key of the output topic against the model."""
    key, *values = load.columns
    found: Result = {}
    for record in sorted(records_of(servers, target), key=lambda item: (item.partition, item.offset)):
        assert record.key is not None
        name = json.loads(record.key)[key]
        if record.value is None:
            found.pop(name, None)
        else:
            told = json.loads(record.value)
            found[name] = (told[values[0]], told[values[1]])
    assert found == load.expected, f"{len(found)} rows, {len(load.expected)} expected"


class _Processor:
    """What this process and those below it use of processors, the broker excepted; watched while a block runs."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Processor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        spent: dict[int, float] = {}
        while True:
            last = self._done.is_set()
            for process in (me := psutil.Process(), *me.children(recursive=True)):
                with suppress(psutil.Error):  # it ended meanwhile
                    if "kafka.Kafka" not in process.cmdline():
                        spent[process.pid] = sum(process.cpu_times()[:2])
            self._samples.append((time.time(), sum(spent.values())))
            if last:
                return
            self._done.wait(0.1)

    def spent(self, start: float = 0.0, end: float = float("inf")) -> float:
        """Processor seconds between two times."""
        mine = [seconds for at, seconds in self._samples if start <= at <= end]
        return mine[-1] - mine[0] if mine else 0.0


def _sync(folder: Path, variables: Mapping[str, str], load: _Load) -> tuple[float, float, dict[str, Any]]:
    """One job into a new lake and a new topic: seconds, processor seconds, and both per step."""
    stack, target = _declared(folder, variables, load)
    with dg.DagsterInstance.ephemeral() as instance, _Processor() as processor:
        started = time.monotonic()
        done = stack.run(instance=instance)
        seconds = time.monotonic() - started
        assert done.success
        told = instance.all_logs(done.run_id)
    _judge(variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], load, target)
    times = {
        (item.step_key, str(item.dagster_event.event_type_value)): item.timestamp
        for item in told
        if item.dagster_event is not None
    }
    steps = {
        str(step): [round(end - (start := times[step, "STEP_START"]), 2), round(processor.spent(start, end), 2)]
        for (step, kind), end in times.items()
        if kind == "STEP_SUCCESS"
    }
    return seconds, processor.spent(), steps


def _warm(
    folder: Path, variables: Mapping[str, str], load: _Load, *, name: str, goal: int, messages: int
) -> dict[str, Any]:
    """The best of some runs: what else the machine does makes none faster. Bare consumers run in turn with them."""
    bare, found = [], []
    with watch_memory() as peak:
        for _ in range(REPEATS):
            count, seconds = bare_consumers_rate(variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], load.topic)
            assert count == messages
            bare.append(count / seconds)
            found.append(_sync(folder, variables, load))
    seconds, spent, steps = min(found)
    return row(
        name,
        rows=messages,
        seconds=seconds,
        memory=peak,
        ratio=messages / seconds / max(bare),
        ratio_to="bare consumer processes",
        goal=f">= {goal} rows_per_s",
        processor_seconds=round(spent, 1),
        steps=steps,
    )


def _command(folder: Path, variables: Mapping[str, str], load: _Load, *, name: str, messages: int) -> dict[str, Any]:
    """The same by `dagster job execute`: start of the process and of Spark included."""
    stack, target = _declared(folder, variables, load)
    started = time.monotonic()
    done = stack.execute()
    seconds = time.monotonic() - started
    assert done.returncode == 0, done.stderr[-3000:]
    _judge(variables["UPSERT_KAFKA_BOOTSTRAP_SERVERS"], load, target)
    return row(f"{name}_command", rows=messages, seconds=seconds)
