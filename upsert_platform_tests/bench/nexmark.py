"""Nexmark: each query as a whole job over one topic of all events, beside Flink if `FLINK_SQL` names a program for it.

`FLINK_SQL` carries out a file of Flink SQL, CREATEs and then one INSERT, and finds the Kafka connector by itself.
`NEXMARK_QUERIES` chooses queries, as q3,q4; `NEXMARK_EVENTS` says how many events, and `NEXMARK_SEED` which. Both jobs
read the same topic, in turn; their final values have to be equal before a time counts. For q14 `PEERS_HOME` names a
folder with Flink's jars at any depth, against which its function is compiled.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from upsert_platform.local.kafka import start_broker
from upsert_platform.referee.topic import Record
from upsert_platform_tests.bench.command import timed_flink
from upsert_platform_tests.bench.jobs import _declare, _job
from upsert_platform_tests.bench.kafka import create_topic, send
from upsert_platform_tests.bench.measure import row, watch_memory
from upsert_platform_tests.engine.nexmark import CLOCKED, QUERIES, START, Nexmark, events_table, prepare
from upsert_platform_tests.referee.judging import latest, records_of

EVENTS = 5_000_000
SEED = 1
PARTITIONS = 4
BY_CLOCK = frozenset({"q12"})
"""Windows of processing time: two jobs never agree on them."""
_CHUNK = 5_000
"""Events behind one another of a partition."""
_FILLER = "a description of something that is sold to whoever offers most, and some words more to make it long " * 2
_ADDED_KEYS: Final = {
    **dict.fromkeys(("q0", "q1", "q10"), "auction, bidder, `dateTime`"),
    **dict.fromkeys(("q21", "q22"), "auction, bidder, price"),
    "q2": "auction, price",
    "q14": "auction, bidder, bidTime",
}
"""Of the sinks of queries that only add rows: a topic without keys would take a row twice after a failure."""
_TIES: Final = {"q19": ("auction", "rank_number", "price")}
"""Columns that count where equal rows are ranked in the order in which they come."""


def run(*, events: int | None = None, queries: str | None = None) -> Iterator[dict[str, Any]]:
    """Measures one `nexmark` per query.

    Args:
        events: in the topic; those of the environment, or EVENTS, if left out.
        queries: as q3,q4; those of the environment, or all, if left out.
    """
    count = events if events is not None else int(os.environ.get("NEXMARK_EVENTS", EVENTS))
    chosen = queries or os.environ.get("NEXMARK_QUERIES") or ",".join(QUERIES)
    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker(Path(folder) / "kafka", die_with_parent=True) as broker,
    ):
        servers = broker.bootstrap_servers
        create_topic(servers, "nexmark", partitions=PARTITIONS, config={"retention.ms": "-1"})
        size = _produce(servers, count, int(os.environ.get("NEXMARK_SEED", SEED)))
        for name in chosen.split(","):
            yield _measured(Path(folder), servers, name.strip(), count, size)


def _measured(folder: Path, servers: str, name: str, count: int, size: int) -> dict[str, Any]:
    query = QUERIES[name]
    query = replace(query, key=query.key or _ADDED_KEYS[name])
    for side in ("ours", "flink"):
        settings = {"cleanup.policy": "compact", "retention.ms": "-1"}
        create_topic(servers, f"{name}-{side}", partitions=PARTITIONS, config=settings)
    project = folder / name / "project"
    beside = query.beside.format(folder=project)
    _declare(folder / name, f"{beside}\n{_script(query, servers, f'{name}-ours', bounded=False)}")
    prepare(project)
    with watch_memory() as peak:
        ours, cpu = _job(folder / name)
    more: dict[str, Any] = {}
    theirs = 0.0
    if "FLINK_SQL" in os.environ:
        if "JAR" in query.beside_in_flink:
            _compile(project / "nexmark.jar")
        beside = query.beside_in_flink.format(folder=project)
        script = f"{beside}\n{_script(query, servers, f'{name}-flink', bounded=True)}"
        with watch_memory() as their_peak:
            theirs = timed_flink(folder / name / "flink.sql", script)
    # Read behind both jobs: what this process holds is no memory of theirs.
    found, messages = _final(servers, f"{name}-ours")
    values = sum(found.values())
    if "FLINK_SQL" in os.environ:
        expected, their_messages = _final(servers, f"{name}-flink")
        if name not in BY_CLOCK:
            _judge(name, found, expected)
        more = {
            "ratio": theirs / ours,
            "ratio_to": "Flink (seconds of its job's process / ours)",
            "flink_seconds": round(theirs, 1),
            "flink_messages": their_messages,
            "flink_memory_mb": round(their_peak.total),
        }
    return row(
        "nexmark",
        rows=count,
        seconds=ours,
        memory=peak,
        goal=">= 1.5 each, >= 2 over all; < 4 GB",
        query=name,
        bytes_per_event=size,
        cpu_seconds=round(cpu, 1),
        values=values,
        messages=messages,
        **more,
    )


def _compile(jar: Path) -> None:
    """Compile the function that q14 calls in Flink, into a jar of its own."""
    (tables, *_) = Path(os.environ["PEERS_HOME"]).rglob("flink-table-api-java-uber-*.jar")
    source, classes = Path(__file__).with_name("CountChar.java"), jar.with_suffix("")
    command = ["javac", "--release", "11", "-cp", str(tables), "-d", str(classes), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    with zipfile.ZipFile(jar, "w") as packed:
        for file in classes.rglob("*.class"):
            packed.write(file, file.relative_to(classes))


def _script(query: Nexmark, servers: str, target: str, *, bounded: bool) -> str:
    reach = f"'properties.bootstrap.servers' = '{servers}'"
    source = f"WITH ('connector' = 'kafka', 'topic' = 'nexmark', 'format' = 'json', {reach}"
    if bounded:
        source += (
            ", 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',"
            " 'properties.group.id' = 'nexmark'"
        )
    sink = (
        f"WITH ('connector' = 'upsert-kafka', 'topic' = '{target}', {reach}, 'key.format' = 'json',"
        " 'value.format' = 'json')"
    )
    views = CLOCKED if "clocked" in query.flink else ""
    return f"{events_table(source + ')')}\n{views}\n{query.target(sink)}\nINSERT INTO target {query.flink};\n"


def _final(servers: str, topic: str) -> tuple[Counter[bytes], int]:
    """The values that a topic holds in the end, with how often it has each; and its messages."""
    messages = 0

    def counted() -> Iterator[Record]:
        nonlocal messages
        for record in records_of(servers, topic):
            messages += 1
            yield record

    return Counter(latest(counted()).values()), messages


def _shown(value: bytes, name: str) -> str:
    """A row, its columns sorted, numbers and times as both writers mean them."""
    data = json.loads(value, parse_float=str, parse_int=str)
    if name in _TIES:
        data = {column: data[column] for column in _TIES[name]}
    return json.dumps({key: _plain(item) for key, item in sorted(data.items())})


def _plain(item: Any) -> Any:
    if isinstance(item, str) and "." in item:  # 12.500 and 12.5, 10:00:00.000 and 10:00:00
        head, _, tail = item.rpartition(".")
        if tail.isdigit():
            return f"{head}.{tail}".rstrip("0").rstrip(".")
    return item


def _judge(name: str, ours: Counter[bytes], theirs: Counter[bytes]) -> None:
    """Equal bytes are equal rows, so only what differs in its text is parsed; takes those out of both counters."""
    assert theirs, f"{name}: Flink wrote nothing"
    for value in ours.keys() & theirs.keys():
        common = min(ours[value], theirs[value])
        for side in (ours, theirs):
            side[value] -= common
    mine, others = (Counter[str]() for _ in range(2))
    for side, shown in ((ours, mine), (theirs, others)):
        for value, times in side.items():
            if times:
                shown[_shown(value, name)] += times
    extra, missing = mine - others, others - mine
    counts = f"{name}: {sum(extra.values())} rows that Flink does not have, {sum(missing.values())} that it has alone"
    assert mine == others, f"{counts}; ours {list(extra)[:3]}, Flink's {list(missing)[:3]}"


def _produce(servers: str, count: int, seed: int) -> int:
    """Send events by the benchmark's proportions, one a millisecond; return their mean size in bytes."""
    producer = Producer(
        {
            "bootstrap.servers": servers, "linger.ms": 20, "compression.type": "lz4", "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )  # fmt: skip
    sizes = 0

    def records() -> Iterator[tuple[None, bytes, int]]:
        nonlocal sizes
        for at, value in enumerate(_events(count, seed)):
            sizes += len(value)
            yield None, value, at // _CHUNK % PARTITIONS

    send(producer, "nexmark", records())
    return sizes // count


def _events(count: int, seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    draw, below = rng.random, rng.randrange
    for at in range(count):
        epoch, nth = divmod(at, 50)
        moment = _time(at)
        persons, auctions = 1000 + epoch + (nth >= 1), 1000 + epoch * 3 + min(max(nth - 1, 0), 3)
        filler = _FILLER[below(80) :][:60]
        if nth == 0:
            state = ("AZ", "CA", "ID", "OR", "WA", "WY")[below(6)]
            yield (
                b'{"event_type":0,"person":{"id":%d,"name":"Peter %d","emailAddress":"%d@b.com",'
                b'"creditCard":"%016d","city":"Boise","state":"%s","dateTime":"%s","extra":"%s"}}'
            ) % (1000 + epoch, at, at, below(10**16), state.encode(), moment, filler.encode())
        elif nth < 4:
            own, first = 1000 + epoch * 3 + nth - 1, below(100)
            seller = (persons - 1) // 4 * 4 if draw() < 0.75 else below(max(1000, persons - 1000), persons)
            yield (
                b'{"event_type":1,"auction":{"id":%d,"itemName":"item %d","description":"%s","initialBid":%d,'
                b'"reserve":%d,"dateTime":"%s","expires":"%s","seller":%d,"category":%d,"extra":"%s"}}'
            ) % (
                own, own, filler.encode(), first, first + below(1000), moment, _time(at + 1 + below(3000)),
                max(seller, 1000), 10 + below(5), filler.encode(),
            )  # fmt: skip
        else:
            auction = (auctions - 1) // 100 * 100 if draw() < 0.5 else below(max(1000, auctions - 100), auctions)
            bidder = (persons - 1) // 100 * 100 + 1 if draw() < 0.75 else below(max(1000, persons - 1000), persons)
            known = ("Google", "Facebook", "Baidu", "Apple")
            channel = known[below(4)] if draw() < 0.5 else f"channel-{below(10_000)}"
            tail = "" if draw() < 0.5 else f"&channel_id={below(10_000)}"
            yield (
                b'{"event_type":2,"bid":{"auction":%d,"bidder":%d,"price":%d,"channel":"%s",'
                b'"url":"https://www.nexmark.com/%d/item.htm?query=1%s","dateTime":"%s","extra":"%s"}}'
            ) % (
                max(auction, 1000), max(bidder, 1000), int(10 ** (draw() * 6) * 100), channel.encode(), at % 97,
                tail.encode(), moment, filler.encode(),
            )  # fmt: skip


def _time(millisecond: int) -> bytes:
    return (START + timedelta(milliseconds=millisecond)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3].encode()
